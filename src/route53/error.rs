//! Errors from Route 53, and hints on how to fix them.

use std::error::Error;
use std::fmt;

use aws_sdk_route53::config::http::HttpResponse;
use aws_sdk_route53::error::{ProvideErrorMetadata, SdkError};

use super::freshness::Stale;
use crate::aws::{NO_CREDENTIALS, causes, credentials_reason, innermost};
use crate::words::brief;

/// Why a request to Route 53 failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Route53Error {
    /// The host has no usable credentials.
    #[error("no credentials for AWS: {0}")]
    NoCredentials(String),
    /// Route 53 did not answer, or reported a server error. In both cases, Route 53 may have made the change.
    #[error("Route 53 does not answer the request to {what}: {reason}")]
    Lost {
        /// The request.
        what: String,
        /// The reason.
        reason: String,
    },
    /// The request was certainly not sent, and can be retried.
    #[error("the request to Route 53 was not sent: {reason}")]
    Unsent {
        /// The reason.
        reason: String,
    },
    /// Route 53 refused the request.
    #[error("Route 53 answered {code} to the request to {what}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// The error code of the API.
        code: String,
        /// The message.
        message: String,
    },
    /// The record sets of a zone need too much memory.
    #[error("Route 53: the zone takes more than 64 MiB")]
    TooLarge,
    /// An answer from Route 53, or a record set for a request, is not valid.
    #[error("Route 53: {0}")]
    Garbled(String),
}

impl Route53Error {
    /// Converts an error from the SDK. `what` describes the request, for example "change record sets".
    pub(super) fn of<E>(what: &str, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let what = what.to_string();
        if let Some(stale) = causes(error).find_map(|cause| cause.downcast_ref::<Stale>()) {
            return Self::Unsent { reason: stale.to_string() };
        }
        match error {
            SdkError::ServiceError(refused) => {
                let status = refused.raw().status();
                if status.is_server_error() {
                    return Self::Lost { what, reason: format!("status {status}") };
                }
                let (code, message) = (refused.err().code(), refused.err().message());
                let code = code.map_or_else(|| status.to_string(), str::to_string);
                Self::Refused { what, code, message: brief(message.unwrap_or("no message")).into_owned() }
            }
            SdkError::ConstructionFailure(_) => Self::Garbled(innermost(error)),
            SdkError::DispatchFailure(_) => match causes(error).find_map(|cause| cause.downcast_ref()) {
                Some(unusable) => Self::NoCredentials(credentials_reason(unusable)),
                None => Self::Lost { what, reason: innermost(error) },
            },
            _ => Self::Lost { what, reason: innermost(error) },
        }
    }

    pub(super) fn without(reason: &str) -> Self {
        Self::NoCredentials(reason.to_string())
    }

    pub(super) fn garbled(reason: &(impl fmt::Display + ?Sized)) -> Self {
        Self::Garbled(reason.to_string())
    }

    /// Returns whether Route 53 refused the request because a record set to delete differs from the present record set, or
    /// because a record set to create already exists. The request changed nothing.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "InvalidChangeBatch")
    }

    /// Returns whether Route 53 refused the request because of the record sets in it. A request for other record sets can succeed,
    /// for example because a policy allows the credentials to change only some names.
    pub fn is_of_changes(&self) -> bool {
        let codes = ["AccessDenied", "AccessDeniedException", "InvalidChangeBatch", "InvalidInput"];
        matches!(self, Self::Refused { code, .. } if codes.contains(&code.as_str()))
    }

    /// Returns whether the same request can succeed later. Route 53 refused it because of too many requests, or because an
    /// earlier change is not complete.
    pub fn is_throttled(&self) -> bool {
        let codes = ["Throttling", "ThrottlingException", "PriorRequestNotComplete", "429"];
        matches!(self, Self::Refused { code, .. } if codes.contains(&code.as_str()))
    }

    /// Returns a hint about what the operator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoCredentials(_) => NO_CREDENTIALS,
            Self::Unsent { .. } => "run the same command again",
            Self::Lost { .. } => "check the connection to the endpoint of Route 53, and `HTTPS_PROXY`",
            Self::Refused { code, .. } => match code.as_str() {
                "AccessDenied" | "AccessDeniedException" => {
                    "allow the credentials to use, on this zone, the Route 53 actions that docs/dns.md lists"
                }
                "ExpiredToken"
                | "ExpiredTokenException"
                | "InvalidClientTokenId"
                | "SignatureDoesNotMatch" => {
                    "renew the credentials: `aws sts get-caller-identity` must succeed in the same shell"
                }
                "NoSuchHostedZone" => "check the id of the zone: `aws route53 list-hosted-zones`",
                _ if self.is_throttled() => {
                    "Route 53 allows five requests per second for an account: find the other clients that send requests, and try again"
                }
                _ => "check the message of Route 53",
            },
            Self::TooLarge => "check that the endpoint is Route 53 (`AWS_ENDPOINT_URL_ROUTE_53`)",
            Self::Garbled(_) => "report this as a bug",
        }
    }
}
