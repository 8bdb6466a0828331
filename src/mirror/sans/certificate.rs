//! A Certificate of the source, and its changes. Each request names the `resourceVersion` that was read, so a late request of an
//! earlier process fails after another process has written the object.

use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::issuance::{Issuance, dns_names, has_all, issuance, leaf_names, reasons};
use super::work::AddNames;
use super::{ACME, CERT_MANAGER};
use crate::inventory::text;
use crate::kube_api::{Cluster, ClusterError, Collection, GuardedChange, ObjectRef};
use crate::mirror::refusal;
use crate::operation::{Ambient as _, Doing, StepFault, SystemAmbient};

/// The field manager of the changes.
const MANAGER: &str = "netsurgeon-sans";
/// The annotation that [`SourceCertificate::touch`] adds and removes again.
const TOUCHED: &str = "mirror.netsurgeon.io/touched";
/// Maximum number of attempts to change an object that other clients keep changing.
const MOST_ATTEMPTS: usize = 20;
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(50);
/// Pauses between two reads of the Certificate.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A Certificate of the source.
#[derive(Clone, Copy)]
pub(super) struct SourceCertificate<'a> {
    pub api: &'a Cluster,
    pub effect: &'a AddNames,
}

/// Returns the names without these, in their order.
fn without(names: &[&str], removed: &[String]) -> Vec<String> {
    let is_kept = |name: &&&str| !removed.iter().any(|one| one == **name);
    names.iter().filter(is_kept).map(ToString::to_string).collect()
}

/// Returns the names with these at the end; `None` if the list has all of them.
fn with(names: &[&str], added: &[String]) -> Option<Vec<String>> {
    let missing = missing(names, added);
    (!missing.is_empty()).then(|| names.iter().map(ToString::to_string).chain(missing).collect())
}

/// Returns which of these names a list lacks.
pub(super) fn missing(names: &[&str], wanted: &[String]) -> Vec<String> {
    let is_missing = |name: &&String| !has_all(names, std::slice::from_ref(*name));
    wanted.iter().filter(is_missing).cloned().collect()
}

fn fault(error: &ClusterError, is_secret: bool) -> StepFault {
    if !matches!(error, ClusterError::Forbidden { .. }) {
        return refusal::fault(error, is_secret);
    }
    let text = refusal::words(error, is_secret);
    let role = if is_secret { "netsurgeon-mirror-secrets" } else { "netsurgeon-mirror-sans" };
    StepFault::Skip(format!(
        "{text}; what helps: bind the ClusterRole `{role}` of deploy/rbac.yaml in this namespace"
    ))
}

impl SourceCertificate<'_> {
    fn object(&self) -> ObjectRef<'_> {
        self.effect.object.object()
    }

    /// Reads the Certificate; `None` if it does not exist or was replaced.
    pub async fn find(&self) -> Result<Option<Value>, StepFault> {
        let found = self.api.get(&self.object()).await.map_err(|error| fault(&error, false))?;
        Ok(found.filter(|found| text(found, "/metadata/uid") == self.effect.uid))
    }

    /// Reads the Certificate. Skips the subject if it does not exist or was replaced.
    pub async fn read(&self) -> Result<Value, StepFault> {
        let gone =
            || StepFault::Skip(format!("another client has deleted or replaced {}", self.effect.object));
        self.find().await?.ok_or_else(gone)
    }

    /// Changes the Certificate. `change` receives the object as it is now, and returns the change, or `None` if there is nothing to
    /// change. The object is read before the fence is checked, and the fence before the request is sent.
    async fn change(
        &self,
        doing: &Doing<'_, AddNames>,
        change: impl Fn(&Value) -> Result<Option<Value>, StepFault> + Send,
    ) -> Result<(), StepFault> {
        for _ in 0..MOST_ATTEMPTS {
            let live = self.read().await?;
            let Some(wanted) = change(&live)? else { return Ok(()) };
            doing.fence.still_ours().await?;
            let version = text(&live, "/metadata/resourceVersion");
            let guarded = GuardedChange { manager: MANAGER, subresource: None, version, change: &wanted };
            match self.api.change(&self.object(), guarded).await {
                Ok(_) => return Ok(()),
                Err(ClusterError::Conflict { .. }) => sleep(PAUSE).await,
                Err(error) => return Err(fault(&error, false)),
            }
        }
        let why = format!("other clients keep changing {}", self.effect.object);
        Err(StepFault::Retry { why, after: None })
    }

    /// Appends these names.
    pub async fn add(&self, doing: &Doing<'_, AddNames>, names: &[String]) -> Result<(), StepFault> {
        let change = |live: &Value| {
            Ok(with(&dns_names(live), names).map(|names| json!({"spec": {"dnsNames": names}})))
        };
        self.change(doing, change).await
    }

    /// Removes these names. A Certificate that does not exist has none.
    pub async fn remove(&self, doing: &Doing<'_, AddNames>, names: &[String]) -> Result<(), StepFault> {
        if self.find().await?.is_none() {
            return Ok(());
        }
        let change = |live: &Value| {
            let now = dns_names(live);
            let kept = without(&now, names);
            if kept.is_empty() && !now.is_empty() {
                return Err(StepFault::Skip(
                    "another client has removed all other names, so a Certificate without names would remain"
                        .to_string(),
                ));
            }
            Ok((kept.len() < now.len()).then(|| json!({"spec": {"dnsNames": kept}})))
        };
        match self.change(doing, change).await {
            Err(StepFault::Skip(_)) if self.find().await?.is_none() => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes an annotation and removes it again. Requests that an earlier process has prepared fail then, because the object has
    /// another `resourceVersion`.
    pub async fn touch(&self, doing: &Doing<'_, AddNames>) -> Result<(), StepFault> {
        let token = SystemAmbient.uid();
        for value in [Value::from(token), Value::Null] {
            let wanted = json!({"metadata": {"annotations": {TOUCHED: value}}});
            self.change(doing, |_| Ok(Some(wanted.clone()))).await?;
        }
        Ok(())
    }

    /// Returns the state of the issuance with these names.
    pub async fn issuance(&self, names: &[String]) -> Result<Issuance, StepFault> {
        let live = self.read().await?;
        let leaf = self.leaf(text(&live, "/spec/secretName")).await?;
        Ok(issuance(&live, &leaf, names))
    }

    /// Returns the names of the certificate in the Secret. The other values of the Secret are dropped at once.
    async fn leaf(&self, secret: &str) -> Result<Vec<String>, StepFault> {
        let namespace = self.effect.object.namespace.as_deref();
        let object = ObjectRef::new("v1", "Secret", namespace, secret);
        let found = self.api.get(&object).await.map_err(|error| fault(&error, true))?;
        let encoded = found.as_ref().and_then(|found| found.pointer("/data/tls.crt")).and_then(Value::as_str);
        let pem = encoded.and_then(|encoded| BASE64.decode(encoded.as_bytes()).ok()).unwrap_or_default();
        Ok(leaf_names(&pem))
    }

    /// Waits until the certificate is issued with these names. Returns why it is not; `None` if it is.
    pub async fn wait(
        &self,
        doing: &Doing<'_, AddNames>,
        names: &[String],
    ) -> Result<Option<String>, StepFault> {
        let seconds = self.effect.wait_issued;
        let (start, limit, mut pause) = (Instant::now(), Duration::from_secs(seconds), FIRST_PAUSE);
        loop {
            match self.issuance(names).await? {
                Issuance::Issued => return Ok(None),
                Issuance::Failed(_) => return Ok(Some(format!("not issued: {}", self.reasons().await))),
                Issuance::Reverted => {
                    return Ok(Some("another client has removed the added names".to_string()));
                }
                Issuance::Pending if start.elapsed() >= limit => {
                    return Ok(Some(format!("not issued within {seconds} s: {}", self.reasons().await)));
                }
                Issuance::Pending => {}
            }
            tokio::select! {
                biased;
                () = doing.stop.asked() => return Err(StepFault::InDoubt("stopped on request".to_string())),
                () = sleep(pause) => pause = pause.saturating_mul(2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Returns why the certificate is not issued. What cannot be read is missing in the answer.
    async fn reasons(&self) -> String {
        let namespace = self.effect.object.namespace.as_deref();
        let list = async |api_version: &str, kind: &str| {
            self.api.list(&Collection::new(api_version, kind, namespace), None).await.unwrap_or_default()
        };
        let live = self.find().await.ok().flatten().unwrap_or_default();
        let (requests, orders) = (list(CERT_MANAGER, "CertificateRequest").await, list(ACME, "Order").await);
        reasons(&live, &requests, &orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_appended_and_removed_in_order() {
        let added = ["b.org".to_string(), "c.org".to_string()];
        let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(with(&["z.org", "a.org"], &added), Some(texts(&["z.org", "a.org", "b.org", "c.org"])));
        assert_eq!(with(&["B.org", "a.org"], &added), Some(texts(&["B.org", "a.org", "c.org"])));
        assert_eq!(with(&["b.org", "c.org", "a.org"], &added), None);
        assert_eq!(without(&["z.org", "b.org", "a.org", "c.org"], &added), texts(&["z.org", "a.org"]));
        assert_eq!(without(&["z.org", "d.org"], &added), texts(&["z.org", "d.org"]));
        assert_eq!(missing(&["b.org"], &added), texts(&["c.org"]));
    }
}
