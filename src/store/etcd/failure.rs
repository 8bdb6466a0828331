//! Classifies failed requests: retry, authenticate again, or fail. Also determines whether etcd has possibly executed a failed
//! write.
//!
//! etcd's own errors are recognized by their messages, which are part of its API (api/v3rpc/rpctypes/error.go, v3.6.16; v3.4 has
//! the same messages). The gRPC codes alone do not distinguish a wrong password from a request that is too large. All other
//! failures are transport errors.

use std::error::Error as _;

use etcd_client::Error;

use crate::words::with_causes;

/// The kind of a failure, which determines how to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The request can succeed on another member or later.
    Transient,
    /// The token is no longer valid, so the client must authenticate again.
    Token,
    /// The user, password or client certificate is rejected.
    Unauthenticated,
    /// The user lacks a permission.
    PermissionDenied,
    /// A setting cannot be used, for example TLS or a URL.
    Configuration,
    /// The endpoint and the first endpoint belong to different etcd clusters.
    OtherCluster,
    /// The revision is compacted.
    Compacted,
    /// The revision does not exist yet.
    FutureRevision,
    /// etcd refused the request; a retry does not help.
    Refused,
    /// The response exceeds the client's limit.
    TooLarge,
    /// The lease does not exist, usually because it has expired.
    NoSuchLease,
    /// Any other failure.
    Other,
}

/// A failed request.
#[derive(Debug, Clone)]
pub(super) struct RequestFailure {
    pub kind: FailureKind,
    /// Whether etcd certainly did not execute the request.
    pub not_carried_out: bool,
    /// The message of the server or of the transport.
    pub reason: String,
}

/// etcd's messages, their kinds, and whether etcd certainly did not execute the request. etcd can still apply a proposal that
/// timed out or was dropped when the leader changed (`processInternalRaftRequestOnce`, server/etcdserver/v3_server.go, v3.6.16).
/// An interceptor that runs before the proposal returns `no leader`.
const WORDS: &[(&str, FailureKind, bool)] = &[
    ("etcdserver: invalid auth token", FailureKind::Token, true),
    ("etcdserver: revision of auth store is old", FailureKind::Token, true),
    ("etcdserver: authentication failed", FailureKind::Unauthenticated, true),
    ("etcdserver: authentication is not enabled", FailureKind::Unauthenticated, true),
    ("etcdserver: user name is empty", FailureKind::Unauthenticated, true),
    ("etcdserver: user name not found", FailureKind::Unauthenticated, true),
    ("etcdserver: permission denied", FailureKind::PermissionDenied, true),
    ("etcdserver: mvcc: required revision has been compacted", FailureKind::Compacted, true),
    ("etcdserver: mvcc: required revision is a future revision", FailureKind::FutureRevision, true),
    ("etcdserver: mvcc: database space exceeded", FailureKind::Refused, true),
    ("etcdserver: request is too large", FailureKind::Refused, true),
    // Message of gRPC: the request exceeds the server's limit (`MaxRequestBytes` and 512 KiB).
    ("received message larger than max", FailureKind::Refused, true),
    // Message of tonic: the answer exceeds this client's limit (`decode_chunk`, src/codec/decode.rs, 0.14). If the request was a
    // write, etcd has executed it.
    ("decoded message length too large", FailureKind::TooLarge, false),
    ("etcdserver: too many operations in txn request", FailureKind::Refused, true),
    ("etcdserver: duplicate key given in txn request", FailureKind::Refused, true),
    ("etcdserver: requested lease not found", FailureKind::NoSuchLease, true),
    ("etcdserver: too many requests", FailureKind::Transient, true),
    ("etcdserver: no leader", FailureKind::Transient, true),
    ("etcdserver: not leader", FailureKind::Transient, false),
    ("etcdserver: leader changed", FailureKind::Transient, false),
    ("etcdserver: server stopped", FailureKind::Transient, false),
    ("etcdserver: request timed out", FailureKind::Transient, false),
    ("etcdserver: unhealthy cluster", FailureKind::Transient, false),
];

/// gRPC status codes by number. netsurgeon does not depend on the crate that defines their names.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const DATA_LOSS: i32 = 15;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

impl RequestFailure {
    /// Returns the failure of a request that exceeded its time limit.
    pub(super) fn timed_out(seconds: u64) -> Self {
        let reason = format!("no answer within {seconds} s");
        Self { kind: FailureKind::Transient, not_carried_out: false, reason }
    }

    /// Marks the request as not executed. Used for failures before the request is sent, for example a failed connection attempt.
    pub(super) fn beforehand(self) -> Self {
        Self { not_carried_out: true, ..self }
    }

    /// Returns whether the server ended the connection without a reason.
    pub(super) fn is_cut_off(&self) -> bool {
        let words = ["connection closed", "broken pipe", "reset by peer", "unexpected eof", "canceled"];
        let reason = self.reason.to_ascii_lowercase();
        self.kind == FailureKind::Transient && words.iter().any(|words| reason.contains(words))
    }

    fn by_words(reason: &str) -> Option<(FailureKind, bool)> {
        WORDS.iter().find(|(words, ..)| reason.contains(words)).map(|(_, kind, not)| (*kind, *not))
    }

    /// Classifies a transport error by the messages of its causes, because hyper and rustls provide no other way.
    fn of_transport(reason: String) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        let by_server = ["received fatal alert: ", "CertificateRequired", "BadCertificate"];
        let (kind, not_carried_out) = if has(&by_server) {
            (FailureKind::Unauthenticated, true)
        } else if has(&["invalid peer certificate", "InvalidContentType", "corrupt message", "invalid URI"]) {
            (FailureKind::Configuration, true)
        } else {
            (FailureKind::Transient, has(&["tcp connect error", "dns error", "Connection refused"]))
        };
        Self { kind, not_carried_out, reason }
    }
}

impl From<Error> for RequestFailure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::GRpcStatus(status) => status,
            Error::TransportError(error) => return Self::of_transport(with_causes(&error)),
            Error::InvalidArgs(_) | Error::InvalidUri(_) => {
                return Self {
                    kind: FailureKind::Configuration,
                    not_carried_out: true,
                    reason: error.to_string(),
                };
            }
            other => {
                return Self { kind: FailureKind::Other, not_carried_out: false, reason: other.to_string() };
            }
        };
        let message = status.message().to_string();
        let (kind, not_carried_out) = match status.code() as i32 {
            _ if Self::by_words(&message).is_some() => {
                Self::by_words(&message).unwrap_or((FailureKind::Other, false))
            }
            code::UNAUTHENTICATED => (FailureKind::Unauthenticated, true),
            code::PERMISSION_DENIED => (FailureKind::PermissionDenied, true),
            code::INVALID_ARGUMENT | code::UNIMPLEMENTED => (FailureKind::Refused, true),
            code::RESOURCE_EXHAUSTED | code::DATA_LOSS => (FailureKind::Other, false),
            _ if message.starts_with("etcdserver: ") => (FailureKind::Other, false),
            _ => {
                let causes = status.source().map(with_causes).unwrap_or_default();
                let reason = if causes.is_empty() { message } else { causes };
                return Self::of_transport(reason);
            }
        };
        Self { kind, not_carried_out, reason: message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mark matters because a write is retried only if it was certainly not executed.
    #[test]
    fn only_requests_not_executed_are_marked_so() {
        let cases = [
            ("etcdserver: leader changed", FailureKind::Transient, false),
            ("etcdserver: request timed out, possibly due to connection lost", FailureKind::Transient, false),
            ("etcdserver: server stopped", FailureKind::Transient, false),
            ("etcdserver: no leader", FailureKind::Transient, true),
            ("etcdserver: too many requests", FailureKind::Transient, true),
            ("etcdserver: invalid auth token", FailureKind::Token, true),
            ("etcdserver: mvcc: database space exceeded", FailureKind::Refused, true),
            (
                "etcdserver: authentication failed, invalid user ID or password",
                FailureKind::Unauthenticated,
                true,
            ),
        ];
        for (words, kind, not_carried_out) in cases {
            assert_eq!(RequestFailure::by_words(words), Some((kind, not_carried_out)), "{words}");
        }
        assert_eq!(RequestFailure::by_words("something else"), None);
    }

    #[test]
    fn transport_failures_are_classified() {
        let cases = [
            ("transport error: tcp connect error: Connection refused", FailureKind::Transient, true),
            ("transport error: connection reset by peer", FailureKind::Transient, false),
            ("h2 protocol error: broken pipe", FailureKind::Transient, false),
            ("transport error: invalid peer certificate: UnknownIssuer", FailureKind::Configuration, true),
            ("received fatal alert: CertificateRequired", FailureKind::Unauthenticated, true),
        ];
        for (reason, kind, not_carried_out) in cases {
            let failure = RequestFailure::of_transport(reason.to_string());
            assert_eq!((failure.kind, failure.not_carried_out), (kind, not_carried_out), "{reason}");
        }
    }
}
