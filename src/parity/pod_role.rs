//! Compares who can assume the roles of Pods: ServiceAccounts by the issuer of their tokens, and nodes on which an agent assumes roles for
//! Pods (kube2iam, kiam).
//!
//! All changes of a role become one new trust policy: of two commands that replace it, the second one would undo the first.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::change::{Area, Change, Command};
use super::cluster::{AccountRole, ClusterView};
use super::trust::{
    Asker, LONGEST, Trusted, WebIdentity, length, trusted_roles, trusts, with_identity, with_role,
};
use crate::aws::AwsError;
use crate::aws::iam::{OidcProvider, name_of};
use crate::words::first_few;

/// A role of Pods.
#[derive(Debug, Clone)]
pub struct PodRole {
    /// Its ARN.
    pub arn: String,
    /// Its trust policy.
    pub trust: Value,
}

/// Roles by name; the error says why a role was not read.
pub type PodRoles = BTreeMap<String, Result<PodRole, AwsError>>;

/// The provider of an issuer; `None` if the account has no such provider.
pub type Provider = Result<Option<OidcProvider>, AwsError>;

/// Returns the names of the roles that Pods of a cluster use.
pub fn role_names(source: &ClusterView, mirror: &ClusterView) -> BTreeSet<String> {
    let accounts = source.accounts.iter().chain(&mirror.accounts).map(|account| account.role.as_str());
    let annotated = source.annotated.keys().map(String::as_str);
    accounts.chain(annotated).map(|role| name_of(role).to_string()).collect()
}

/// Returns the roles that can assume the roles of Pods instead of the nodes' roles, such as that of kiam's server.
pub fn roles_between(source: &ClusterView, roles: &PodRoles, nodes: &[(String, String)]) -> BTreeSet<String> {
    let of_pods = source.annotated.keys().filter_map(|role| roles.get(name_of(role))?.as_ref().ok());
    let of_pods = of_pods.filter(|role| {
        !nodes.iter().any(|(source, _)| trusts(&role.trust, Asker::Role(source)) == Trusted::Yes)
    });
    of_pods.flat_map(|role| trusted_roles(&role.trust)).map(|arn| name_of(&arn).to_string()).collect()
}

/// A new trust policy of a role.
struct Edit {
    trust: Value,
    changes: Vec<String>,
    reasons: Vec<String>,
}

/// The comparison of the roles of Pods.
pub struct PodRoleComparison<'p> {
    source: &'p ClusterView,
    mirror: &'p ClusterView,
    roles: &'p PodRoles,
    edits: BTreeMap<String, Edit>,
    changes: Vec<Change>,
}

impl<'p> PodRoleComparison<'p> {
    /// Returns an empty comparison.
    pub fn new(source: &'p ClusterView, mirror: &'p ClusterView, roles: &'p PodRoles) -> Self {
        Self { source, mirror, roles, edits: BTreeMap::new(), changes: Vec::new() }
    }

    /// Returns the changes.
    pub fn changes(mut self) -> Vec<Change> {
        self.objects_not_checked();
        for (role, edit) in self.edits {
            let size = length(&edit.trust);
            let quota = if size > LONGEST { "; raise the quota of IAM for their length first" } else { "" };
            let change = format!(
                "{}; its trust policy then has {size} of {LONGEST} characters{quota}",
                edit.changes.join("; ")
            );
            let command = Command::new("iam", "update-assume-role-policy")
                .with("--role-name", &role)
                .with("--policy-document", &edit.trust.to_string());
            let change =
                Change::missing(Area::PodRole, format!("role `{role}`"), change, edit.reasons.join("; "));
            self.changes.push(change.with_command(command.text()));
        }
        self.changes
    }

    /// Lists the objects whose roles are not compared.
    fn objects_not_checked(&mut self) {
        let odd: Vec<String> = self.source.odd.iter().chain(&self.mirror.odd).cloned().collect();
        let identities: Vec<String> = self.source.pod_identities.iter().cloned().collect();
        for (objects, what, reason) in [
            (odd, "objects", "an annotation or a variable contains characters that no name of a role has"),
            (
                identities,
                "ServiceAccounts",
                "their Pods get a role by EKS Pod Identity: `aws eks list-pod-identity-associations`",
            ),
        ] {
            if !objects.is_empty() {
                self.not_checked(
                    format!("{what}: {}", first_few(&objects)),
                    "their role was not compared",
                    reason,
                );
            }
        }
    }

    fn not_checked(&mut self, subject: String, what: &str, reason: &str) {
        self.changes.push(Change::not_checked(Area::PodRole, subject, what.to_string(), reason.to_string()));
    }

    /// Compares the roles of ServiceAccounts. `provider` is that of the mirror's issuer.
    pub fn accounts(&mut self, provider: &Provider) {
        if self.source.accounts.is_empty() {
            return;
        }
        let (old, new) = match (&self.source.issuer, &self.mirror.issuer) {
            (Ok(old), Ok(new)) => (old.as_str(), new.as_str()),
            (Err(error), _) | (_, Err(error)) => return self.changes.push(issuer_is_unknown(error)),
        };
        if old == new {
            return self.equal_issuers(old);
        }
        let mut audiences = BTreeSet::new();
        for account in &self.source.accounts {
            if let Some(audience) = self.account(account, (old, new)) {
                audiences.insert(audience);
            }
        }
        if !audiences.is_empty() {
            self.changes.extend(provider_change(provider, new, &audiences));
        }
    }

    /// Clusters with one issuer trust each other's tokens only if they have one key.
    fn equal_issuers(&mut self, issuer: &str) {
        let subject = format!("issuer {issuer} of both clusters");
        match (&self.source.keys, &self.mirror.keys) {
            (Ok(old), Ok(new)) if old == new => {}
            (Ok(_), Ok(_)) => self.changes.push(Change::missing(
                Area::PodRole,
                subject,
                "give the mirror an issuer of its own (`--service-account-issuer`), or the keys of the source".to_string(),
                "the clusters sign tokens with different keys, so AWS refuses those of the mirror".to_string(),
            )),
            (Err(error), _) | (_, Err(error)) => {
                let error = error.clone();
                self.not_checked(subject, "whether they have the same keys was not checked", &error);
            }
        }
    }

    /// Compares a ServiceAccount. Returns the audience with which it can assume its role in the source.
    fn account(&mut self, account: &'p AccountRole, (old, new): (&str, &str)) -> Option<String> {
        let role = self.role(&account.role, &words(account))?;
        let (subject, mut audience) = (subject(account), None);
        for one in account.audiences() {
            match trusts(
                &role.trust,
                Asker::Identity(WebIdentity { issuer: old, subject: &subject, audience: one }),
            ) {
                Trusted::Yes => audience = audience.or(Some(one)),
                Trusted::No => {}
                Trusted::Unknown(what) => {
                    self.unknown(&account.role, &words(account), &what);
                    return None;
                }
            }
        }
        // What the source itself cannot do is not demanded.
        let audience = audience?;
        let Some(of_mirror) = self.of_mirror(account) else {
            let reason = format!("in the source, it has the role `{}`", name_of(&account.role));
            self.changes.push(Change::missing(
                Area::PodRole,
                format!("{} of the mirror", words(account)),
                "give it the annotation `eks.amazonaws.com/role-arn`".to_string(),
                reason,
            ));
            return None;
        };
        let role = self.role(&of_mirror.role, &words(of_mirror))?;
        let name = name_of(&of_mirror.role);
        let trust = self.edits.get(name).map_or(&role.trust, |edit| &edit.trust);
        let asker = WebIdentity { issuer: new, subject: &subject, audience };
        match trusts(trust, Asker::Identity(asker)) {
            Trusted::Yes => {}
            Trusted::Unknown(what) => self.unknown(&of_mirror.role, &words(account), &what),
            Trusted::No => {
                let changed = with_identity(trust, &role.arn, old, asker);
                let change = format!("trust tokens of {new}, in a statement of its own");
                let of_source = name_of(&account.role);
                let reason = format!("{} of the source has the role `{of_source}`", words(account));
                self.edit(name, changed, change, reason);
            }
        }
        Some(audience.to_string())
    }

    /// Returns the copy of a ServiceAccount in the mirror, or the ServiceAccount itself if there is no copy yet; `None` if the copy has no
    /// role. A rule of the mirror can have given it another role.
    fn of_mirror(&self, account: &'p AccountRole) -> Option<&'p AccountRole> {
        let key = (account.namespace.clone(), account.name.clone());
        let is_copy = |other: &&AccountRole| other.namespace == key.0 && other.name == key.1;
        let exists = self.mirror.account_names.contains(&key);
        let copy = self.mirror.accounts.iter().find(is_copy);
        if exists { copy } else { Some(account) }
    }

    /// Returns a role that was read, and that is the one of the text. Otherwise it is listed.
    fn role(&mut self, text: &str, user: &str) -> Option<&'p PodRole> {
        let name = name_of(text);
        match self.roles.get(name)? {
            Ok(role) if text.starts_with("arn:") && role.arn != text => {
                let reason = format!(
                    "{user} has a role of another account or path: `{text}`; the account has `{}`",
                    role.arn
                );
                self.not_checked(format!("role `{name}`"), "its trust policy was not compared", &reason);
                None
            }
            Ok(role) => Some(role),
            Err(error) => {
                let what = format!("whether it trusts {user} of the mirror was not checked");
                self.changes.push(Change::unread(Area::PodRole, format!("role `{name}`"), &what, error));
                None
            }
        }
    }

    fn unknown(&mut self, role: &str, user: &str, what: &str) {
        let name = name_of(role);
        let command = Command::new("iam", "get-role").with("--role-name", name);
        let change = Change::not_checked(
            Area::PodRole,
            format!("role `{name}`"),
            format!("whether it trusts {user} of the mirror was not checked"),
            format!("its trust policy has `{what}`, which only AWS can evaluate"),
        );
        self.changes.push(change.with_command(command.text()));
    }

    fn edit(&mut self, role: &str, trust: Value, change: String, reason: String) {
        let edit = self.edits.entry(role.to_string()).or_insert_with(|| Edit {
            trust: Value::Null,
            changes: Vec::new(),
            reasons: Vec::new(),
        });
        edit.trust = trust;
        if !edit.changes.contains(&change) {
            edit.changes.push(change);
        }
        if !edit.reasons.contains(&reason) {
            edit.reasons.push(reason);
        }
    }

    /// Compares the roles in annotations of Pods. `nodes` are the ARNs of the roles of nodes of the source, each with its counterpart;
    /// `is_complete`: whether the roles of all groups of nodes are known.
    pub fn annotated(&mut self, nodes: &[(String, String)], is_complete: bool) {
        if !self.source.annotated.is_empty() && !is_complete {
            let what = "whether nodes of the mirror can assume all of them was not checked";
            self.not_checked(
                "roles in annotations of Pods".to_string(),
                what,
                "not all roles of nodes are known",
            );
        }
        for (annotated, namespaces) in &self.source.annotated {
            let name = name_of(annotated);
            let namespaces: Vec<String> = namespaces.iter().map(|name| format!("`{name}`")).collect();
            let user = format!("Pods in namespace {}", first_few(&namespaces));
            let Some(role) = self.role(annotated, &user) else { continue };
            let is_direct =
                nodes.iter().any(|(node, _)| trusts(&role.trust, Asker::Role(node)) != Trusted::No);
            if is_direct {
                self.nodes(name, role, nodes, &format!("{user} of the source use it"));
                continue;
            }
            for between in trusted_roles(&role.trust) {
                let between = name_of(&between);
                let Some(Ok(found)) = self.roles.get(between) else { continue };
                self.nodes(between, found, nodes, "Pods of the source get their roles through it");
            }
        }
    }

    /// Lets a role trust the mirror's nodes where it trusts those of the source.
    fn nodes(&mut self, name: &str, role: &PodRole, nodes: &[(String, String)], reason: &str) {
        for (source, mirror) in nodes {
            let trust = self.edits.get(name).map_or(&role.trust, |edit| &edit.trust).clone();
            match (trusts(&trust, Asker::Role(source)), trusts(&trust, Asker::Role(mirror))) {
                (Trusted::Yes, Trusted::No) => {
                    let changed = with_role(&trust, source, mirror);
                    let change = format!("trust the role of the mirror's nodes, `{}`", name_of(mirror));
                    if trusts(&changed, Asker::Role(mirror)) == Trusted::Yes {
                        self.edit(name, changed, change, reason.to_string());
                    } else {
                        let command = Command::new("iam", "get-role").with("--role-name", name);
                        let subject = format!("role `{name}`");
                        let change = format!("{change}: a condition or a denial excludes it");
                        let change = Change::missing(Area::PodRole, subject, change, reason.to_string());
                        self.changes.push(change.with_command(command.text()));
                    }
                }
                (Trusted::Unknown(what), _) | (Trusted::Yes, Trusted::Unknown(what)) => {
                    self.unknown(name, "the nodes", &what);
                }
                _ => {}
            }
        }
    }
}

fn subject(account: &AccountRole) -> String {
    format!("system:serviceaccount:{}:{}", account.namespace, account.name)
}

fn words(account: &AccountRole) -> String {
    format!("ServiceAccount `{}/{}`", account.namespace, account.name)
}

fn issuer_is_unknown(error: &str) -> Change {
    Change::not_checked(
        Area::PodRole,
        "roles of ServiceAccounts".to_string(),
        "whether the tokens of the mirror are trusted was not checked".to_string(),
        error.to_string(),
    )
    .with_command("kubectl get --raw /.well-known/openid-configuration".to_string())
}

/// Returns the change that lets AWS verify the tokens of an issuer with these audiences.
fn provider_change(provider: &Provider, issuer: &str, audiences: &BTreeSet<String>) -> Option<Change> {
    let subject = format!("OpenID Connect provider {issuer}");
    let reason = "AWS verifies the tokens of the mirror's ServiceAccounts with it".to_string();
    match provider {
        Err(error) => Some(Change::unread(Area::PodRole, subject, "it was not checked", error)),
        Ok(None) => {
            let command = Command::new("iam", "create-open-id-connect-provider")
                .with("--url", &format!("https://{issuer}"))
                .with_list("--client-id-list", audiences.iter().map(String::as_str));
            let change = Change::missing(Area::PodRole, subject, "create it".to_string(), reason);
            Some(change.with_command(command.text()))
        }
        Ok(Some(known)) => {
            let missing: Vec<&String> =
                audiences.iter().filter(|audience| !known.client_ids.contains(audience)).collect();
            let names: Vec<String> = missing.iter().map(|audience| format!("`{audience}`")).collect();
            let change = format!("add the client id {}", names.join(", "));
            let change = Change::missing(Area::PodRole, subject, change, reason);
            let add = |change: Change, audience: &&String| {
                let command = Command::new("iam", "add-client-id-to-open-id-connect-provider")
                    .with("--open-id-connect-provider-arn", &known.arn)
                    .with("--client-id", audience);
                change.with_command(command.text())
            };
            (!missing.is_empty()).then(|| missing.iter().fold(change, add))
        }
    }
}
