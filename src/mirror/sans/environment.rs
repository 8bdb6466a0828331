//! The environment: adds names to Certificates, and removes them again.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::certificate::{SourceCertificate, missing};
use super::issuance::{Issuance, dns_names};
use super::work::AddNames;
use crate::inventory::text;
use crate::kube_api::Cluster;
use crate::operation::{
    Answer, Applied, Doing, Environment, Manual, NoWait, Observed, Records, StepFault, Wait,
};

/// The source.
pub(super) struct Source<'a>(pub &'a Cluster);

/// What a step adds: the state before it, and its result.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Added {
    /// The names that the Certificate lacked before the step.
    names: Vec<String>,
}

/// Returns the names that the step adds or has added.
fn added(doing: &Doing<'_, AddNames>) -> Vec<String> {
    let of = |record: &Value| serde_json::from_value::<Added>(record.clone()).ok();
    of(&doing.made).or_else(|| of(&doing.before)).unwrap_or_default().names
}

fn made(names: &[String]) -> Value {
    json!(Added { names: names.to_vec() })
}

/// Adds the names, and waits until the certificate is issued. Otherwise removes them again, so that the next renewal does not fail.
async fn issue(
    certificate: &SourceCertificate<'_>,
    doing: &Doing<'_, AddNames>,
) -> Result<Applied, StepFault> {
    let names = added(doing);
    let issued = async {
        certificate.add(doing, &names).await?;
        certificate.wait(doing, &certificate.effect.names).await
    };
    let why = match issued.await {
        Ok(None) => return Ok(Applied::Made(made(&names))),
        Ok(Some(why)) | Err(StepFault::Skip(why)) => why,
        Err(fault) => return Err(fault),
    };
    certificate.remove(doing, &names).await.map_err(|fault| match fault {
        StepFault::Skip(text) | StepFault::Halt(text) => {
            StepFault::Halt(format!("{why}; the added names cannot be removed: {text}"))
        }
        other => other,
    })?;
    Err(StepFault::Skip(format!("the added names were removed again; {why}")))
}

#[async_trait]
impl Environment<AddNames> for Source<'_> {
    async fn before(&self, doing: &Doing<'_, AddNames>) -> Result<Value, StepFault> {
        let live = SourceCertificate { api: self.0, effect: doing.effect }.read().await?;
        if !text(&live, "/metadata/deletionTimestamp").is_empty() {
            return Err(StepFault::Skip("it is being deleted".to_string()));
        }
        Ok(made(&missing(&dns_names(&live), &doing.effect.names)))
    }

    async fn apply(&self, doing: &Doing<'_, AddNames>) -> Result<Applied, StepFault> {
        let certificate = SourceCertificate { api: self.0, effect: doing.effect };
        if !doing.back {
            return issue(&certificate, doing).await;
        }
        certificate.remove(doing, &added(doing)).await?;
        Ok(Applied::NOTHING)
    }

    async fn observe(&self, doing: &Doing<'_, AddNames>) -> Result<Observed, StepFault> {
        let certificate = SourceCertificate { api: self.0, effect: doing.effect };
        if certificate.find().await?.is_none() {
            return Ok(if doing.back {
                Observed::Done(Value::Null)
            } else {
                Observed::Changed(format!("another client has deleted or replaced {}", doing.effect.object))
            });
        }
        // A request of an earlier process can still be under way.
        certificate.touch(doing).await?;
        let names = added(doing);
        if doing.back {
            let live = certificate.read().await?;
            let now = dns_names(&live);
            let is_left = names.iter().any(|name| now.contains(&name.as_str()));
            return Ok(if is_left { Observed::NotDone } else { Observed::Done(Value::Null) });
        }
        Ok(match certificate.issuance(&doing.effect.names).await? {
            Issuance::Issued => Observed::Done(made(&names)),
            _ => Observed::NotDone,
        })
    }

    async fn wait(&self, wait: &Wait<NoWait>, _: Records<'_>) -> Result<(), StepFault> {
        match wait.kind {}
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(format!("this operation has no manual step: {}", manual.what)))
    }
}
