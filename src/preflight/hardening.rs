//! General requirements of a production cluster: Secrets encrypted at rest, limited permissions, nodes without an open SSH port,
//! and images that can be pulled when a Pod restarts.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::objects::{is_alive, name, namespace};
use super::{Judged, first_few};
use crate::wire::Envelope;
use crate::words::counted;

/// Number of stored Secrets, by encryption.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Number of encrypted Secrets.
    pub encrypted: usize,
    /// Number of unencrypted Secrets.
    pub plain: usize,
}

impl Secrets {
    /// Counts a stored Secret.
    pub fn take(&mut self, value: &[u8]) {
        let is_encrypted = matches!(Envelope::of(value), Ok(Envelope::Encrypted { .. }));
        let count = if is_encrypted { &mut self.encrypted } else { &mut self.plain };
        *count = count.saturating_add(1);
    }
}

/// Checks for unencrypted Secrets: every snapshot contains them, too.
pub fn secrets(found: Secrets) -> Judged {
    let Secrets { encrypted, plain } = found;
    let all = encrypted.saturating_add(plain);
    match plain {
        0 if all == 0 => Judged::pass("no Secrets"),
        0 => Judged::pass(format!("all {all} are encrypted")),
        plain => Judged::warn(
            format!("{plain} of {all} are stored unencrypted, also in every snapshot"),
            "give every API server an `--encryption-provider-config`, then rewrite them: `kubectl get secrets -A -o json | \
             kubectl replace -f -` (docs/encryption.md); until then restrict access to snapshots",
        ),
    }
}

/// A user whose permissions are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requester {
    /// An unknown user without groups. The requests of this user succeed only if every request does.
    Stranger,
    /// A client without credentials (`user.Anonymous`, `k8s.io/apiserver/pkg/authentication/user/user.go`, v1.36.3).
    Anonymous,
    /// Every ServiceAccount, and so every Pod (`serviceaccount.AllServiceAccountsGroup`).
    EveryPod,
    /// Every authenticated user.
    Authenticated,
}

impl Requester {
    /// All users, the most serious first.
    pub const ALL: [Self; 4] = [Self::Stranger, Self::Anonymous, Self::EveryPod, Self::Authenticated];

    /// Returns the user's name and groups for a SubjectAccessReview.
    pub fn user(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Stranger => ("netsurgeon-preflight-stranger", &[]),
            Self::Anonymous => ("system:anonymous", &["system:unauthenticated"]),
            Self::EveryPod => (
                "system:serviceaccount:netsurgeon-preflight:any",
                &["system:serviceaccounts", "system:authenticated"],
            ),
            Self::Authenticated => ("netsurgeon-preflight-stranger", &["system:authenticated"]),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Stranger => "an unknown user",
            Self::Anonymous => "a client without credentials (`system:anonymous`)",
            Self::EveryPod => "every Pod (`system:serviceaccounts`)",
            Self::Authenticated => "every user (`system:authenticated`)",
        }
    }
}

/// Permissions that are checked: verb, API group and resource. Each is enough to undo a move, or to read the content of a
/// snapshot.
pub const POWERS: [(&str, (&str, &str)); 5] = [
    ("update", ("", "services")),
    ("patch", ("", "services")),
    ("create", ("", "pods")),
    ("get", ("", "secrets")),
    ("list", ("", "secrets")),
];

/// Checks the permissions that these users have, as in `update services`.
pub fn authorization(may: &[(Requester, String)]) -> Judged {
    let Some(worst) = may.iter().map(|(who, _)| *who).min() else {
        return Judged::pass(
            "no unknown user, anonymous client or ordinary Pod is allowed to change Services, create Pods or read Secrets",
        );
    };
    let what: BTreeSet<&str> =
        may.iter().filter(|(who, _)| *who == worst).map(|(_, what)| what.as_str()).collect();
    let what = what.into_iter().collect::<Vec<_>>().join(", ");
    let seen = format!("{} may {what}", worst.words());
    let bindings = "`kubectl get clusterrolebindings -o wide` shows the bindings";
    match worst {
        Requester::Stranger => {
            Judged::fail(seen, "set `--authorization-mode=Node,RBAC` on every API server, not `AlwaysAllow`")
        }
        Requester::Anonymous => Judged::fail(seen, format!("remove that binding; {bindings}")),
        Requester::EveryPod | Requester::Authenticated => {
            Judged::warn(seen, format!("bind only the users that need it; {bindings}"))
        }
    }
}

/// Checks the nodes for an SSH server. `open`: nodes that answer. `asked`: number of tested nodes.
pub fn ssh(open: &[String], asked: usize) -> Judged {
    if open.is_empty() {
        return Judged::pass(format!("0 of {} answer on port 22 from here", counted(asked, "host", "hosts")));
    }
    Judged::warn(
        format!(
            "{} of {} answer on port 22: {}",
            open.len(),
            counted(asked, "host", "hosts"),
            first_few(open)
        ),
        "close the port to all but a bastion, and keep access to the control-plane hosts, where certificates and flags change; on other \
         nodes use `kubectl debug node/NAME` while the API answers",
    )
}

/// Checks whether Pods can pull their images. `secrets`: namespace and name of every Secret.
pub fn images(pods: &[Pod], secrets: &BTreeSet<(String, String)>) -> Judged {
    let (mut waiting, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for pod in pods.iter().filter(|pod| is_alive(pod)) {
        let (namespace, name) = (namespace(pod), name(pod));
        for (image, reason) in not_pulled(pod) {
            waiting.insert(format!("`{namespace}/{name}` waits for `{image}` ({reason})"));
        }
        let named = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        for secret in named.map(|secret| &secret.name).filter(|secret| !secret.is_empty()) {
            if !secrets.contains(&(namespace.to_string(), secret.clone())) {
                missing.insert(format!("`{namespace}/{secret}`, which `{name}` names, does not exist"));
            }
        }
    }
    let seen: Vec<String> = waiting.into_iter().chain(missing).collect();
    if seen.is_empty() {
        return Judged::pass(format!("{}, none waits for an image", counted(pods.len(), "Pod", "Pods")));
    }
    Judged::warn(
        first_few(&seen),
        "make sure that the registry answers and that the Pod's `imagePullSecrets` have credentials for it: `kubectl create secret \
         docker-registry`",
    )
}

/// Returns the images that a kubelet cannot pull, each with the reason (`pkg/kubelet/images/types.go`, v1.36.3, and
/// `k8s.io/cri-api/pkg/errors/errors.go`, v0.36.3).
fn not_pulled(pod: &Pod) -> Vec<(&str, &str)> {
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
    fn unencrypted_secret_is_a_warning() {
        let mut found = Secrets::default();
        assert_eq!(secrets(found).verdict, Verdict::Pass);
        found.take(b"k8s:enc:secretbox:v1:key1:xx");
        assert_eq!(secrets(found), Judged::pass("all 1 are encrypted"));
        found.take(b"k8s\0");
        let judged = secrets(found);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert!(judged.observed.starts_with("1 of 2 are stored unencrypted"), "{judged:?}");
    }

    #[test]
    fn most_serious_permission_is_reported() {
        let judged = |may: &[Requester]| {
            authorization(&may.iter().map(|who| (*who, "get secrets".into())).collect::<Vec<_>>())
        };
        assert_eq!(judged(&[]).verdict, Verdict::Pass);
        assert_eq!(judged(&[Requester::Authenticated]).verdict, Verdict::Warn);
        let all = judged(&Requester::ALL);
        assert!(all.verdict == Verdict::Fail && all.remedy.contains("AlwaysAllow"), "{all:?}");
        let anonymous = judged(&[Requester::Authenticated, Requester::Anonymous]);
        assert_eq!(anonymous.verdict, Verdict::Fail);
        assert_eq!(anonymous.observed, "a client without credentials (`system:anonymous`) may get secrets");
    }

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
        let judged = |pod: Pod| images(&[pod], &secrets);
        let fine = judged(pod("Pending", "registry", json!({"reason": "PodInitializing"})));
        assert_eq!(fine.verdict, Verdict::Pass);
        let waits = judged(pod("Pending", "registry", json!({"reason": "ImagePullBackOff"})));
        assert_eq!(waits.verdict, Verdict::Warn);
        assert_eq!(waits.observed, "`shop/web` waits for `registry.test/web:1` (ImagePullBackOff)");
        let missing = judged(pod("Running", "other", Value::Null));
        assert_eq!(missing.observed, "`shop/other`, which `web` names, does not exist");
        assert_eq!(judged(pod("Failed", "other", Value::Null)).verdict, Verdict::Pass, "the Pod has ended");
    }

    #[test]
    fn nodes_with_open_ssh_are_named() {
        assert_eq!(ssh(&[], 3).observed, "0 of 3 hosts answer on port 22 from here");
        let open = ssh(&["`node-1` (192.0.2.1)".to_string()], 3);
        assert_eq!(open.verdict, Verdict::Warn);
        assert_eq!(open.observed, "1 of 3 hosts answer on port 22: `node-1` (192.0.2.1)");
    }
}
