//! `images`: whether Pods that restart can pull their images.

use std::collections::BTreeSet;

use crate::inventory::ClusterReader;
use crate::inventory::pod::{TrimmedPod, is_alive};
use crate::kube_api::accessors::{name, namespace};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::counted;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "images",
        why,
        needs: &[Source::Etcd, Source::Api],
        judge: |input| Box::pin(read(input.as_ref())),
    }
}

async fn read(reading: &ClusterReader) -> Read<Judged> {
    let pods = reading.pods().await?;
    let mut secrets = BTreeSet::new();
    reading
        .each_secret(|record| {
            let key = String::from_utf8_lossy(record.key);
            let mut parts = key.rsplit('/');
            if let (Some(name), Some(namespace)) = (parts.next(), parts.next()) {
                secrets.insert((namespace.to_string(), name.to_string()));
            }
        })
        .await?;
    Ok(judge(pods, &secrets))
}

/// Checks whether Pods can pull their images. `secrets`: namespace and name of every Secret.
fn judge(pods: &[TrimmedPod], secrets: &BTreeSet<(String, String)>) -> Judged {
    let (mut waiting, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for pod in pods.iter().filter(|pod| is_alive(pod)) {
        let (namespace, name) = (namespace(pod), name(pod));
        for (image, reason) in not_pulled(pod) {
            waiting.insert(format!("`{namespace}/{name}` waits for `{image}` ({reason})"));
        }
        let named = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        for secret in named.map(|secret| &secret.name).filter(|secret| !secret.is_empty()) {
            if !secrets.contains(&(namespace.to_string(), secret.clone())) {
                missing.insert(format!("Secret `{namespace}/{secret}` of Pod `{name}` does not exist"));
            }
        }
    }
    let seen: Vec<String> = waiting.into_iter().chain(missing).collect();
    if seen.is_empty() {
        return Judged::pass(format!("no Pod waits for an image ({})", counted(pods.len(), "Pod", "Pods")));
    }
    Judged::warn(
        first_few(&seen),
        "make sure that the registry answers, and that the Pod's `imagePullSecrets` exist and have its credentials: `kubectl create \
         secret docker-registry`",
    )
}

/// Returns the images that a kubelet cannot pull, each with the reason (`pkg/kubelet/images/types.go`, v1.36.3, and
/// `k8s.io/cri-api/pkg/errors/errors.go`, v0.36.3).
fn not_pulled(pod: &TrimmedPod) -> Vec<(&str, &str)> {
    const REASONS: [&str; 7] = [
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    ];
    let Some(status) = &pod.status else { return Vec::new() };
    let init = status.init_container_statuses.iter();
    let statuses =
        init.chain(&status.container_statuses).chain(&status.ephemeral_container_statuses).flatten();
    let not_pulled = statuses.filter_map(|one| {
        let reason = one.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
        REASONS.contains(&reason).then_some((one.image.as_str(), reason))
    });
    not_pulled.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn missing_images_and_pull_secrets_are_reported() {
        let pod = |phase: &str, secret: &str, reason: Value| {
            let pod = json!({
                "metadata": {"namespace": "shop", "name": "web"},
                "spec": {"imagePullSecrets": [{"name": secret}]},
                "status": {
                    "phase": phase,
                    "initContainerStatuses": [{"image": "registry.test/web:1", "state": {"waiting": reason}}],
                },
            });
            serde_json::from_value(pod).unwrap()
        };
        let secrets: BTreeSet<(String, String)> = [("shop".into(), "registry".into())].into();
        let judged = |pod: TrimmedPod| judge(&[pod], &secrets);
        let fine = judged(pod("Pending", "registry", json!({"reason": "PodInitializing"})));
        assert_eq!(fine.verdict, Verdict::Pass);
        let waits = judged(pod("Pending", "registry", json!({"reason": "ImagePullBackOff"})));
        assert_eq!(waits.verdict, Verdict::Warn);
        assert_eq!(waits.observed, "`shop/web` waits for `registry.test/web:1` (ImagePullBackOff)");
        let missing = judged(pod("Running", "other", Value::Null));
        assert_eq!(missing.observed, "Secret `shop/other` of Pod `web` does not exist");
        assert_eq!(judged(pod("Failed", "other", Value::Null)).verdict, Verdict::Pass, "the Pod has ended");
    }
}
