//! The meaning of a failed request: retry, authenticate again, or give up; and whether a write can have
//! happened.
//!
//! etcd's own failures are identified by their messages, which are part of its API (api/v3rpc/rpctypes/error.go,
//! v3.6.16; v3.4 has the same ones): gRPC codes alone do not distinguish a wrong password from a request that is
//! too large. All other failures are those of the transport.

use std::error::Error as _;

use etcd_client::Error;

/// The kind of a failed request, by what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It can succeed on another member or a little later.
    Transient,
    /// The token is too old: authenticate again.
    Token,
    /// The user, password or client certificate is rejected.
    Unauthenticated,
    /// The user is not allowed to do this.
    PermissionDenied,
    /// The settings are not usable: TLS, a URL.
    Configuration,
    /// An endpoint is a member of another etcd cluster than the first.
    OtherCluster,
    /// The revision is compacted.
    Compacted,
    /// The revision does not exist yet.
    FutureRevision,
    /// The request itself is refused; a retry does not help.
    Refused,
    /// The response exceeds the client's limit.
    TooLarge,
    /// The lease does not exist: it has expired.
    NoSuchLease,
    /// Anything else.
    Other,
}

/// A failed request.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub kind: Kind,
    /// Whether the request was certainly not executed.
    pub not_carried_out: bool,
    /// The message of the server or of the transport.
    pub reason: String,
}

/// etcd's messages, their kinds, and whether the request was certainly not executed. A proposal that
/// times out or is dropped at a change of leaders can still be applied (`processInternalRaftRequestOnce`,
/// server/etcdserver/v3_server.go, v3.6.16). `no leader` comes from the interceptor before it.
const WORDS: &[(&str, Kind, bool)] = &[
    ("etcdserver: invalid auth token", Kind::Token, true),
    ("etcdserver: revision of auth store is old", Kind::Token, true),
    ("etcdserver: authentication failed", Kind::Unauthenticated, true),
    ("etcdserver: authentication is not enabled", Kind::Unauthenticated, true),
    ("etcdserver: user name is empty", Kind::Unauthenticated, true),
    ("etcdserver: user name not found", Kind::Unauthenticated, true),
    ("etcdserver: permission denied", Kind::PermissionDenied, true),
    ("etcdserver: mvcc: required revision has been compacted", Kind::Compacted, true),
    ("etcdserver: mvcc: required revision is a future revision", Kind::FutureRevision, true),
    ("etcdserver: mvcc: database space exceeded", Kind::Refused, true),
    ("etcdserver: request is too large", Kind::Refused, true),
    // gRPC's own message, about the server's limit for requests (`MaxRequestBytes` and 512 KiB).
    ("received message larger than max", Kind::Refused, true),
    // tonic's message, about this client's limit (`decode_chunk`, src/codec/decode.rs, 0.14). A write has been executed.
    ("decoded message length too large", Kind::TooLarge, false),
    ("etcdserver: too many operations in txn request", Kind::Refused, true),
    ("etcdserver: duplicate key given in txn request", Kind::Refused, true),
    ("etcdserver: requested lease not found", Kind::NoSuchLease, true),
    ("etcdserver: too many requests", Kind::Transient, true),
    ("etcdserver: no leader", Kind::Transient, true),
    ("etcdserver: not leader", Kind::Transient, false),
    ("etcdserver: leader changed", Kind::Transient, false),
    ("etcdserver: server stopped", Kind::Transient, false),
    ("etcdserver: request timed out", Kind::Transient, false),
    ("etcdserver: unhealthy cluster", Kind::Transient, false),
];

/// gRPC codes by number (this crate does not depend on the crate that names them).
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const DATA_LOSS: i32 = 15;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

impl Failure {
    /// A request that exceeded its time limit.
    pub(super) fn timed_out(seconds: u64) -> Self {
        let reason = format!("no answer within {seconds} s");
        Self { kind: Kind::Transient, not_carried_out: false, reason }
    }

    /// The same failure, but of a request before the one in question.
    pub(super) fn beforehand(self) -> Self {
        Self { not_carried_out: true, ..self }
    }

    fn by_words(reason: &str) -> Option<(Kind, bool)> {
        WORDS.iter().find(|(words, ..)| reason.contains(words)).map(|(_, kind, not)| (*kind, *not))
    }

    /// Classifies a failure of the transport by the messages of its causes: hyper and rustls do not
    /// expose them in another way.
    fn of_transport(reason: String) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        let by_server = ["received fatal alert: ", "CertificateRequired", "BadCertificate"];
        let (kind, not_carried_out) = if has(&by_server) {
            (Kind::Unauthenticated, true)
        } else if has(&["invalid peer certificate", "InvalidContentType", "corrupt message", "invalid URI"]) {
            (Kind::Configuration, true)
        } else {
            (Kind::Transient, has(&["tcp connect error", "dns error", "Connection refused"]))
        };
        Self { kind, not_carried_out, reason }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::GRpcStatus(status) => status,
            Error::TransportError(error) => return Self::of_transport(chain(&error)),
            Error::InvalidArgs(_) | Error::InvalidUri(_) => {
                return Self { kind: Kind::Configuration, not_carried_out: true, reason: error.to_string() };
            }
            other => return Self { kind: Kind::Other, not_carried_out: false, reason: other.to_string() },
        };
        let message = status.message().to_string();
        let (kind, not_carried_out) = match status.code() as i32 {
            _ if Self::by_words(&message).is_some() => {
                Self::by_words(&message).unwrap_or((Kind::Other, false))
            }
            code::UNAUTHENTICATED => (Kind::Unauthenticated, true),
            code::PERMISSION_DENIED => (Kind::PermissionDenied, true),
            code::INVALID_ARGUMENT | code::UNIMPLEMENTED => (Kind::Refused, true),
            code::RESOURCE_EXHAUSTED | code::DATA_LOSS => (Kind::Other, false),
            _ if message.starts_with("etcdserver: ") => (Kind::Other, false),
            _ => {
                let causes = status.source().map(chain).unwrap_or_default();
                let reason = if causes.is_empty() { message } else { causes };
                return Self::of_transport(reason);
            }
        };
        Self { kind, not_carried_out, reason: message }
    }
}

/// An error with its causes, each once.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write is retried only if it was certainly not executed.
    #[test]
    fn only_requests_not_executed_are_marked_so() {
        let cases = [
            ("etcdserver: leader changed", Kind::Transient, false),
            ("etcdserver: request timed out, possibly due to connection lost", Kind::Transient, false),
            ("etcdserver: server stopped", Kind::Transient, false),
            ("etcdserver: no leader", Kind::Transient, true),
            ("etcdserver: too many requests", Kind::Transient, true),
            ("etcdserver: invalid auth token", Kind::Token, true),
            ("etcdserver: mvcc: database space exceeded", Kind::Refused, true),
            ("etcdserver: authentication failed, invalid user ID or password", Kind::Unauthenticated, true),
        ];
        for (words, kind, not_carried_out) in cases {
            assert_eq!(Failure::by_words(words), Some((kind, not_carried_out)), "{words}");
        }
        assert_eq!(Failure::by_words("something else"), None);
    }

    #[test]
    fn transport_failures_are_classified() {
        let cases = [
            ("transport error: tcp connect error: Connection refused", Kind::Transient, true),
            ("transport error: connection reset by peer", Kind::Transient, false),
            ("h2 protocol error: broken pipe", Kind::Transient, false),
            ("transport error: invalid peer certificate: UnknownIssuer", Kind::Configuration, true),
            ("received fatal alert: CertificateRequired", Kind::Unauthenticated, true),
        ];
        for (reason, kind, not_carried_out) in cases {
            let failure = Failure::of_transport(reason.to_string());
            assert_eq!((failure.kind, failure.not_carried_out), (kind, not_carried_out), "{reason}");
        }
    }
}
