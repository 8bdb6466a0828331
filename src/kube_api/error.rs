//! Errors from requests to the Kubernetes API, and hints on how to fix them.

use serde::Deserialize;

use super::answer::Answer;
use crate::words::brief;

/// Why a request to the Kubernetes API failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No kubeconfig and no other configuration was found.
    #[error(
        "no kubeconfig: `--kubeconfig` is not given, KUBECONFIG is not set, and `~/.kube/config`, the service \
         account of a Pod and `/etc/kubernetes/admin.conf` do not exist"
    )]
    NoConfiguration,
    /// A kubeconfig, or a file that it refers to, cannot be used.
    #[error("cannot use {what}: {reason}")]
    Configuration {
        /// Name of the configuration, for example ``kubeconfig `FILE` ``.
        what: String,
        /// The reason.
        reason: String,
    },
    /// The API server could not be reached.
    #[error("the API server at `{server}` cannot be reached (timeout {seconds} s): {reason}")]
    Unreachable {
        /// URL of the API server.
        server: String,
        /// How long netsurgeon tried, in seconds.
        seconds: u64,
        /// Reason of the last failed attempt.
        reason: String,
    },
    /// The API server's certificate is not trusted.
    #[error("the certificate of the API server at `{server}` is not trusted: {reason}")]
    Untrusted {
        /// URL of the API server.
        server: String,
        /// The reason.
        reason: String,
    },
    /// The API server rejected the credentials.
    #[error("the API server at `{server}` rejected the credentials: {reason}")]
    Unauthorized {
        /// URL of the API server.
        server: String,
        /// Message of the API server.
        reason: String,
    },
    /// The user lacks a permission.
    #[error("the user is not allowed to {verb} {subject}: {reason}")]
    Forbidden {
        /// The verb.
        verb: &'static str,
        /// The object.
        subject: String,
        /// Message of the API server, with user, verb and resource.
        reason: String,
    },
    /// An admission plugin, policy or webhook rejected the change.
    #[error("admission control rejected the request to {verb} {subject}: {reason}")]
    Refused {
        /// The verb.
        verb: &'static str,
        /// The object.
        subject: String,
        /// Message of the API server.
        reason: String,
    },
    /// The object is not valid, or the change is not possible now.
    #[error("the API server rejected the request to {verb} {subject}: {reason}")]
    Invalid {
        /// The verb.
        verb: &'static str,
        /// The object.
        subject: String,
        /// Message of the API server.
        reason: String,
    },
    /// The object, or its API, does not exist.
    #[error("{subject} does not exist: {reason}")]
    NotFound {
        /// The object.
        subject: String,
        /// Message of the API server.
        reason: String,
    },
    /// An object with the same name already exists.
    #[error("{subject} already exists")]
    AlreadyExists {
        /// The object.
        subject: String,
    },
    /// Another client changed or replaced the object meanwhile.
    #[error("another client changed {subject} meanwhile: {reason}")]
    Conflict {
        /// The object.
        subject: String,
        /// Message of the API server.
        reason: String,
    },
    /// No answer came in time. It is unknown whether a change was executed.
    #[error("the API server at `{server}` did not answer within {seconds} s: {verb} {subject}")]
    TimedOut {
        /// URL of the API server.
        server: String,
        /// The verb.
        verb: &'static str,
        /// The object.
        subject: String,
        /// The timeout, in seconds.
        seconds: u64,
    },
    /// The API server is not ready.
    #[error("the API server at `{server}` is not ready: {reason}")]
    NotReady {
        /// URL of the API server.
        server: String,
        /// Message of the API server.
        reason: String,
    },
    /// The API server failed in another way.
    #[error("the API server at `{server}` failed to {verb} {subject}, status {code}: {reason}")]
    Server {
        /// URL of the API server.
        server: String,
        /// The verb.
        verb: &'static str,
        /// The object.
        subject: String,
        /// The HTTP status.
        code: u16,
        /// Message of the API server.
        reason: String,
    },
    /// An answer cannot be parsed.
    #[error("`{server}` returned an unusable answer for {subject}: {reason}")]
    Answer {
        /// URL of the server.
        server: String,
        /// The object.
        subject: String,
        /// The parse error and the start of the answer.
        reason: String,
    },
    /// An answer is longer than any valid answer of the API.
    #[error("the answer from `{server}` for {subject} is too long: {reason}")]
    TooLarge {
        /// URL of the server.
        server: String,
        /// The object.
        subject: String,
        /// The maximum size that the answer exceeds.
        reason: String,
    },
    /// A manifest or a name is not valid.
    #[error("the manifest or name of an object is not valid: {reason}")]
    Manifest {
        /// The reason.
        reason: String,
    },
}

impl ClusterError {
    /// Returns one sentence that explains how to fix the error.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoConfiguration => {
                "give a kubeconfig with `--kubeconfig`, or set KUBECONFIG; on a control-plane host of kubeadm, \
                 run this as root"
            }
            Self::Configuration { what, .. } if what == super::options::SERVICE_ACCOUNT => {
                "give the Pod a service account and mount its token (`automountServiceAccountToken`)"
            }
            Self::Configuration { .. } => {
                "check the kubeconfig with `kubectl config view` and `kubectl version`"
            }
            Self::Unreachable { .. } => {
                "check that the server runs and that this machine can reach it: `kubectl get --raw /readyz` with \
                 the same kubeconfig must answer"
            }
            Self::Untrusted { .. } => {
                "the kubeconfig must trust the CA that signed the API server's certificate, and the certificate must cover the host name of the connection"
            }
            Self::Unauthorized { .. } => {
                "the client certificate or token has expired or belongs to another cluster: get a new kubeconfig"
            }
            Self::Forbidden { .. } => {
                "bind the missing role, or use a kubeconfig that has the permissions: deploy/rbac.yaml has \
                 a role for each group of commands; deploy/guard.yaml and deploy/evidence.yaml have the roles for \
                 programs in the cluster"
            }
            Self::Refused { .. } => {
                "exempt netsurgeon's user from that policy or webhook, then resume the operation or run the command again"
            }
            Self::Conflict { .. } => "run the command again: it reads the current state",
            Self::TimedOut { .. } => {
                "run the command again: before it repeats a change, it checks whether the change was executed"
            }
            Self::NotReady { .. } => {
                "wait until `/readyz` of that API server answers `ok`, then resume the operation or run the command again"
            }
            Self::Server { .. } | Self::Answer { .. } | Self::TooLarge { .. } => {
                "see the log of that API server"
            }
            Self::Invalid { .. }
            | Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Manifest { .. } => return None,
        })
    }

    /// Returns whether the error affects only one object, so that other objects can still be changed. If a webhook is
    /// unavailable, the API server returns an internal error (`ErrCallingWebhook`, `apiserver/pkg/util/webhook/error.go`,
    /// v1.36.3).
    pub fn is_of_one_object(&self) -> bool {
        match self {
            Self::Refused { .. }
            | Self::Invalid { .. }
            | Self::NotFound { .. }
            | Self::AlreadyExists { .. } => true,
            Self::Server { reason, .. } => reason.contains("failed calling webhook \""),
            _ => false,
        }
    }

    /// Returns whether the same request can succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::NotReady { .. } => true,
            Self::Server { code, .. } => *code >= 500 || *code == 429,
            _ => false,
        }
    }
}

/// The request that failed, for its error message.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) server: &'a str,
    pub(super) verb: &'static str,
    pub(super) subject: &'a str,
}

/// Returns the error for an unsuccessful answer. The API server answers with a Status
/// (`staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go`, v1.36.3); an HTTP proxy may answer with any text.
pub(super) fn refusal(about: About<'_>, answer: &Answer) -> ClusterError {
    let status: Status = serde_json::from_slice(&answer.body).unwrap_or_default();
    let kind = status.reason.as_str();
    let (verb, subject, server) = (about.verb, about.subject.to_string(), about.server.to_string());
    // Webhooks and policies can write messages of any size.
    let reason = brief(&message(&answer.body)).into_owned();
    match (answer.code, kind) {
        (401, _) => ClusterError::Unauthorized { server, reason },
        // This arm comes first, because the message of a policy can contain any text.
        (400..=499, _) if is_of_admission(&reason) => ClusterError::Refused { verb, subject, reason },
        // The error of RBAC and other authorizers (`ForbiddenStatusError`,
        // `apiserver/pkg/endpoints/handlers/responsewriters/errors.go`). Every other 403 comes from admission.
        (403, _) if reason.contains(" cannot ") => ClusterError::Forbidden { verb, subject, reason },
        (403, _) => ClusterError::Refused { verb, subject, reason },
        (404, _) => ClusterError::NotFound { subject, reason },
        (409, "AlreadyExists") => ClusterError::AlreadyExists { subject },
        (409, _) => ClusterError::Conflict { subject, reason },
        (400 | 405 | 415 | 422, _) => ClusterError::Invalid { verb, subject, reason },
        (code, _) => ClusterError::Server { server, verb, subject, code, reason },
    }
}

/// Returns whether a webhook or policy rejected the request. Checks the message, because webhooks and policies choose their own
/// status code (`apiserver/pkg/admission/plugin/webhook/errors` and `plugin/policy/validating/plugin.go`, v1.36.3).
fn is_of_admission(reason: &str) -> bool {
    reason.contains("admission webhook \"") || reason.contains("ValidatingAdmissionPolicy '")
}

/// The fields of a Status that netsurgeon uses. They are empty if the answer is not a Status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
}

/// Returns the `message` of a Status, or the start of any other answer.
pub(super) fn message(body: &[u8]) -> String {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    if status.message.is_empty() { excerpt(body) } else { status.message }
}

/// Returns whether RBAC or another authorizer rejected a request. A kubelet that rejects a forwarded request writes plain text
/// (`InstallAuthFilter`, `pkg/kubelet/server/server.go`, v1.36.3), not a Status.
pub(super) fn is_forbidden(answer: &Answer) -> bool {
    answer.code == 403 && message(&answer.body).contains(" cannot ")
}

/// Returns the first 300 characters of a text, on one line. The text may be a whole HTML page.
pub(super) fn excerpt(body: &[u8]) -> String {
    const LONGEST: usize = 300;
    let text = String::from_utf8_lossy(body);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        None if line.is_empty() => "no message".to_string(),
        None => line,
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(code: u16, reason: &str, message: &str) -> ClusterError {
        let body = json!({"kind": "Status", "reason": reason, "message": message}).to_string();
        let about = About { server: "https://a:6443", verb: "create", subject: "Service `shop/web`" };
        refusal(
            about,
            &Answer { code, body: body.into_bytes(), retry_after: None, date: None, warnings: Vec::new() },
        )
    }

    #[test]
    fn refusals_map_to_their_errors() {
        let rbac = r#"services is forbidden: User "eve" cannot create resource "services" in API group """#;
        let webhook = r#"admission webhook "deny.example.com" denied the request: no"#;
        let policy = "services \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let quota = "services \"web\" is forbidden: exceeded quota: q";
        assert!(matches!(refused(401, "Unauthorized", "Unauthorized"), ClusterError::Unauthorized { .. }));
        assert!(matches!(refused(403, "Forbidden", rbac), ClusterError::Forbidden { verb: "create", .. }));
        let words = format!("{policy}, you cannot");
        let silent = r#"Internal error occurred: failed calling webhook "deny.example.com": timeout"#;
        for (code, message) in
            [(403, webhook), (400, webhook), (422, policy), (403, quota), (403, words.as_str())]
        {
            let error = refused(code, "", message);
            assert!(matches!(error, ClusterError::Refused { .. }), "{message}: {error}");
            assert!(error.to_string().contains(message), "{error}");
        }
        assert!(matches!(refused(404, "NotFound", "x"), ClusterError::NotFound { .. }));
        assert!(matches!(refused(409, "AlreadyExists", "x"), ClusterError::AlreadyExists { .. }));
        assert!(matches!(refused(409, "Conflict", "x"), ClusterError::Conflict { .. }));
        assert!(matches!(refused(422, "Invalid", "x"), ClusterError::Invalid { .. }));
        assert!(refused(504, "Timeout", "Too large resource version").is_transient());
        assert!(!refused(422, "Invalid", "x").is_transient());
        let unanswered = refused(500, "InternalError", silent);
        assert!(
            unanswered.is_transient()
                && unanswered.is_of_one_object()
                && !refused(500, "", "x").is_of_one_object()
        );
    }

    #[test]
    fn answer_without_a_status_is_truncated() {
        let page = format!("<html>\n {}", "x".repeat(1000));
        let about = About { server: "https://a:6443", verb: "get", subject: "Node `n`" };
        let error = refusal(
            about,
            &Answer {
                code: 502,
                body: page.into_bytes(),
                retry_after: None,
                date: None,
                warnings: Vec::new(),
            },
        );
        let text = error.to_string();
        assert!(text.contains("502") && text.contains("<html> xxx") && text.len() < 500, "{text}");
    }
}
