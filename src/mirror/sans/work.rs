//! The plan: which names each Certificate of the source gets.

use serde::{Deserialize, Serialize};

use crate::mirror::Reference;
use crate::mirror::config::HostRule;
use crate::operation::{Action, Effect, NoWait, OperationKind, Stage, Step, StepId, Work};

/// The kind of operation.
pub const KIND: &str = "mirror-sans";

/// Adds names to Certificates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sans {
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// The rules that name the new names.
    pub hosts: Vec<HostRule>,
    /// How long a step waits until its certificate is issued, in seconds.
    pub wait_issued: u64,
    /// The Certificates.
    pub certificates: Vec<SansEntry>,
    /// What the operator must know before the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What happens to a Certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SansAction {
    /// It gets names.
    Add,
    /// It has the names.
    Same,
    /// It gets no names, for the reason in [`SansEntry::reason`].
    LeftOut,
}

impl SansAction {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Same => "same",
            Self::LeftOut => "left out",
        }
    }
}

/// A Certificate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SansEntry {
    /// The Certificate.
    #[serde(flatten)]
    pub object: Reference,
    /// Its uid.
    pub uid: String,
    /// What happens.
    pub action: SansAction,
    /// The names to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Code of the reason why the Certificate gets no names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Its issuer, for people.
    pub issuer: String,
    /// Whether the issuer is an ACME issuer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_acme: bool,
}

/// Adds names to one Certificate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AddNames {
    /// The Certificate.
    pub object: Reference,
    /// Its uid.
    pub uid: String,
    /// The names.
    pub names: Vec<String>,
    /// How long to wait until the certificate is issued, in seconds.
    pub wait_issued: u64,
}

impl Effect for AddNames {
    type Wait = NoWait;
}

impl OperationKind for Sans {
    const NAME: &'static str = KIND;
    const VERSION: u32 = 1;
}

impl SansEntry {
    /// Returns the id of the step that adds the names.
    pub fn step(&self) -> StepId {
        StepId(format!("sans/{}", self.object.subject()))
    }
}

impl Sans {
    /// Returns the Certificates that get names.
    pub fn additions(&self) -> impl Iterator<Item = &SansEntry> {
        self.certificates.iter().filter(|entry| entry.action == SansAction::Add)
    }

    /// Returns the Certificates of each stage. ACME servers limit their clients, so each Certificate of an ACME issuer has a stage of
    /// its own. The other Certificates have one stage, and are issued at the same time.
    fn groups(&self) -> Vec<(String, Vec<&SansEntry>)> {
        let (acme, others): (Vec<&SansEntry>, Vec<&SansEntry>) =
            self.additions().partition(|entry| entry.is_acme);
        let mut groups = Vec::new();
        if !others.is_empty() {
            groups.push(("certificates".to_string(), others));
        }
        groups.extend(
            (1..).zip(acme).map(|(number, entry): (usize, _)| (format!("acme-{number}"), vec![entry])),
        );
        groups
    }
}

impl Work for Sans {
    type Effect = AddNames;

    fn stages(&self) -> Vec<Stage> {
        let stage = |(index, (name, entries)): (usize, (String, Vec<&SansEntry>))| {
            let title = match entries.as_slice() {
                [one] if one.is_acme => format!("add names to {} of an ACME issuer", one.object),
                _ => "add names to the Certificates of issuers without ACME".to_string(),
            };
            Stage { index, name, batch: None, title }
        };
        self.groups().into_iter().enumerate().map(stage).collect()
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<AddNames>> {
        let step = |entry: &SansEntry| Step {
            id: entry.step(),
            subject: entry.object.subject(),
            action: Action::Do(AddNames {
                object: entry.object.clone(),
                uid: entry.uid.clone(),
                names: entry.names.clone(),
                wait_issued: self.wait_issued,
            }),
            independent: false,
            back_of: Vec::new(),
        };
        let group = self.groups().into_iter().nth(stage.index);
        group.into_iter().flat_map(|(_, entries)| entries).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, action: SansAction, is_acme: bool) -> SansEntry {
        let object = Reference {
            resource: "cert-manager.io/certificates".to_string(),
            api_version: "cert-manager.io/v1".to_string(),
            kind: "Certificate".to_string(),
            namespace: Some("shop".to_string()),
            name: name.to_string(),
        };
        let names = vec![format!("{name}.green.example.com")];
        let issuer = "Issuer shop/ca".to_string();
        SansEntry {
            object,
            uid: name.to_string(),
            action,
            names,
            reason: None,
            detail: None,
            issuer,
            is_acme,
        }
    }

    fn work(certificates: Vec<SansEntry>) -> Sans {
        let (namespaces, hosts, warnings) = (vec!["shop".to_string()], Vec::new(), Vec::new());
        Sans { namespaces, hosts, wait_issued: 300, certificates, warnings }
    }

    #[test]
    fn acme_certificates_are_issued_one_after_the_other() {
        let add = SansAction::Add;
        let work = work(vec![
            entry("a", add, true),
            entry("b", add, false),
            entry("c", SansAction::Same, true),
            entry("d", add, true),
            entry("e", add, false),
            entry("f", SansAction::LeftOut, false),
        ]);
        let stages = work.stages();
        let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["certificates", "acme-1", "acme-2"]);
        let of = |index: usize| -> Vec<String> {
            work.steps(&stages[index]).into_iter().map(|step| step.subject).collect()
        };
        let subject = |name: &str| format!("certificates.cert-manager.io/shop/{name}");
        assert_eq!(of(0), [subject("b"), subject("e")]);
        assert_eq!(of(1), [subject("a")]);
        assert_eq!(of(2), [subject("d")]);
    }

    #[test]
    fn plan_without_additions_has_no_stage() {
        assert!(work(vec![entry("a", SansAction::Same, false)]).stages().is_empty());
        let only_acme = work(vec![entry("a", SansAction::Add, true)]);
        let names: Vec<String> = only_acme.stages().into_iter().map(|stage| stage.name).collect();
        assert_eq!(names, ["acme-1"]);
    }
}
