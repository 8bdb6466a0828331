//! What can go wrong with the Kubernetes API, by what the reader of the message can do about it.

use serde::Deserialize;

use super::answer::Answer;

/// Why a request to the Kubernetes API failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is nothing that would say where the API is.
    #[error(
        "there is no kubeconfig: none was named, KUBECONFIG is not set, and neither `~/.kube/config`, nor a \
         service account of a Pod, nor `/etc/kubernetes/admin.conf` is there"
    )]
    NoConfiguration,
    /// A kubeconfig, or something that it names, cannot be used.
    #[error("cannot use {what}: {reason}")]
    Configuration {
        /// What, as in `kubeconfig `FILE``.
        what: String,
        /// Why.
        reason: String,
    },
    /// The server could not be reached.
    #[error("the API server at `{server}` cannot be reached, tried for {seconds} s: {reason}")]
    Unreachable {
        /// Its URL.
        server: String,
        /// How long it was tried.
        seconds: u64,
        /// The last failure.
        reason: String,
    },
    /// The server's certificate is not to be trusted.
    #[error("the certificate of the API server at `{server}` is not trusted: {reason}")]
    Untrusted {
        /// Its URL.
        server: String,
        /// Why not.
        reason: String,
    },
    /// The server did not take the credentials.
    #[error("the API server at `{server}` does not know the credentials: {reason}")]
    Unauthorized {
        /// Its URL.
        server: String,
        /// Its words.
        reason: String,
    },
    /// The user has no right to this.
    #[error("the user may not {verb} {subject}: {reason}")]
    Forbidden {
        /// What was tried.
        verb: &'static str,
        /// With what.
        subject: String,
        /// The server's words, which name user, verb and resource.
        reason: String,
    },
    /// An admission plugin, policy or webhook refused the change.
    #[error("admission control of the cluster refused to {verb} {subject}: {reason}")]
    Refused {
        /// What was tried.
        verb: &'static str,
        /// With what.
        subject: String,
        /// Its words.
        reason: String,
    },
    /// The object, as it was sent, is not valid, or not possible now.
    #[error("the API server would not {verb} {subject}: {reason}")]
    Invalid {
        /// What was tried.
        verb: &'static str,
        /// With what.
        subject: String,
        /// The server's words.
        reason: String,
    },
    /// There is no such object (or no such API).
    #[error("{subject} does not exist: {reason}")]
    NotFound {
        /// What.
        subject: String,
        /// The server's words.
        reason: String,
    },
    /// There is one of that name.
    #[error("{subject} exists already")]
    AlreadyExists {
        /// What.
        subject: String,
    },
    /// It was changed, or replaced, meanwhile.
    #[error("{subject} was changed by someone else meanwhile: {reason}")]
    Conflict {
        /// What.
        subject: String,
        /// The server's words.
        reason: String,
    },
    /// No answer came in time. A change may or may not have happened.
    #[error("the API server at `{server}` gave no answer within {seconds} s when asked to {verb} {subject}")]
    TimedOut {
        /// Its URL.
        server: String,
        /// What was tried.
        verb: &'static str,
        /// With what.
        subject: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The server is not ready.
    #[error("the API server at `{server}` is not ready: {reason}")]
    NotReady {
        /// Its URL.
        server: String,
        /// What it says.
        reason: String,
    },
    /// The server answered with another failure.
    #[error("the API server at `{server}` failed to {verb} {subject}, status {code}: {reason}")]
    Server {
        /// Its URL.
        server: String,
        /// What was tried.
        verb: &'static str,
        /// With what.
        subject: String,
        /// The HTTP status.
        code: u16,
        /// Its words.
        reason: String,
    },
    /// An answer is not what the API promises.
    #[error("the answer of `{server}` about {subject} cannot be used: {reason}")]
    Answer {
        /// The server's URL.
        server: String,
        /// What was asked.
        subject: String,
        /// What was found and expected.
        reason: String,
    },
    /// An answer is longer than any that the API has.
    #[error("the answer of `{server}` about {subject} is too long: {reason}")]
    TooLarge {
        /// The server's URL.
        server: String,
        /// What was asked.
        subject: String,
        /// How much came.
        reason: String,
    },
    /// A manifest, or a name, that cannot be meant.
    #[error("the object cannot be named to the API: {reason}")]
    Manifest {
        /// Why.
        reason: String,
    },
}

impl ClusterError {
    /// Returns what to do about it, in one sentence.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoConfiguration => {
                "name a kubeconfig with `--kubeconfig`, or set KUBECONFIG; on a control-plane host of kubeadm's, \
                 run this as root"
            }
            Self::Configuration { what, .. } if what == super::options::SERVICE_ACCOUNT => {
                "the Pod needs a service account, and its token mounted (`automountServiceAccountToken`)"
            }
            Self::Configuration { .. } => {
                "check the kubeconfig with `kubectl config view` and `kubectl version`"
            }
            Self::Unreachable { .. } => {
                "is the server up, and can this machine reach it? `kubectl get --raw /readyz` with the same \
                 kubeconfig must answer"
            }
            Self::Untrusted { .. } => {
                "the kubeconfig's certificate authority must be the one that signed the API server's certificate, \
                 and the certificate must carry the name that is dialled"
            }
            Self::Unauthorized { .. } => {
                "the client certificate or token has expired or belongs to another cluster: get a new kubeconfig"
            }
            Self::Forbidden { .. } => {
                "deploy/rbac.yaml has the role for each group of commands, deploy/guard.yaml and evidence.yaml those of what runs in the \
                 cluster: bind it, or use a kubeconfig that has the rights"
            }
            Self::Refused { .. } => "exempt netsurgeon's user from that policy or webhook, then resume",
            Self::Conflict { .. } => "run the command again to work on what is there now",
            Self::TimedOut { .. } => "run the command again: it looks first at what has happened",
            Self::NotReady { .. } => "wait until `/readyz` of that API server answers `ok`, then resume",
            Self::Server { .. } | Self::Answer { .. } | Self::TooLarge { .. } => {
                "the log of that API server says more"
            }
            Self::Invalid { .. }
            | Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Manifest { .. } => return None,
        })
    }

    /// Whether the error is about the object alone: others can be changed. A webhook that cannot be called is an internal
    /// error of the API server (`ErrCallingWebhook`, `apiserver/pkg/util/webhook/error.go`, v1.36.3).
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

    /// Whether the same request may well succeed a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::NotReady { .. } => true,
            Self::Server { code, .. } => *code >= 500 || *code == 429,
            _ => false,
        }
    }
}

/// What a request was about, for its errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) server: &'a str,
    pub(super) verb: &'static str,
    pub(super) subject: &'a str,
}

/// Words an answer that is no success. The API says what it means in a Status
/// (`staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go`, v1.36.3); what is between us and it may say
/// anything.
pub(super) fn refusal(about: About<'_>, answer: &Answer) -> ClusterError {
    let status: Status = serde_json::from_slice(&answer.body).unwrap_or_default();
    let kind = status.reason.as_str();
    let (verb, subject, server) = (about.verb, about.subject.to_string(), about.server.to_string());
    let reason = message(&answer.body);
    match (answer.code, kind) {
        (401, _) => ClusterError::Unauthorized { server, reason },
        // Before all else: what a policy says is anybody's words.
        (400..=499, _) if is_of_admission(&reason) => ClusterError::Refused { verb, subject, reason },
        // Of RBAC and other authorizers (`ForbiddenStatusError`,
        // `apiserver/pkg/endpoints/handlers/responsewriters/errors.go`); other refusals are admission's.
        (403, _) if reason.contains(" cannot ") => ClusterError::Forbidden { verb, subject, reason },
        (403, _) => ClusterError::Refused { verb, subject, reason },
        (404, _) => ClusterError::NotFound { subject, reason },
        (409, "AlreadyExists") => ClusterError::AlreadyExists { subject },
        (409, _) => ClusterError::Conflict { subject, reason },
        (400 | 405 | 415 | 422, _) => ClusterError::Invalid { verb, subject, reason },
        (code, _) => ClusterError::Server { server, verb, subject, code, reason },
    }
}

/// A webhook or policy chooses its status code itself (`apiserver/pkg/admission/plugin/webhook/errors` and
/// `plugin/policy/validating/plugin.go`, v1.36.3).
fn is_of_admission(reason: &str) -> bool {
    reason.contains("admission webhook \"") || reason.contains("ValidatingAdmissionPolicy '")
}

/// What is read of a Status, and no more of whatever else somebody answers with.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
}

/// What an answer says, a Status in its own words.
pub(super) fn message(body: &[u8]) -> String {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    if status.message.is_empty() { excerpt(body) } else { status.message }
}

/// Whether RBAC, or another authorizer, has refused a request. A kubelet that refuses one that was passed on to it writes plain
/// text (`InstallAuthFilter`, `pkg/kubelet/server/server.go`, v1.36.3), not a Status.
pub(super) fn is_forbidden(answer: &Answer) -> bool {
    answer.code == 403 && message(&answer.body).contains(" cannot ")
}

/// The beginning of a text that may be a whole page.
pub(super) fn excerpt(body: &[u8]) -> String {
    const LONGEST: usize = 300;
    let text = String::from_utf8_lossy(body);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        None if line.is_empty() => "no words".to_string(),
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
        refusal(about, &Answer { code, body: body.into_bytes(), retry_after: None, date: None })
    }

    #[test]
    fn refusals_are_told_apart() {
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
    fn an_answer_that_is_no_status_is_shown_in_short() {
        let page = format!("<html>\n {}", "x".repeat(1000));
        let about = About { server: "https://a:6443", verb: "get", subject: "Node `n`" };
        let error =
            refusal(about, &Answer { code: 502, body: page.into_bytes(), retry_after: None, date: None });
        let text = error.to_string();
        assert!(text.contains("502") && text.contains("<html> xxx") && text.len() < 500, "{text}");
    }
}
