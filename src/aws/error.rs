//! Errors from AWS, and hints on how to fix them.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;

/// What helps if there are no usable credentials.
pub const NO_CREDENTIALS: &str =
    "configure credentials as for the AWS CLI: `aws sts get-caller-identity` must succeed in the same shell";

/// Why a request to AWS failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AwsError {
    /// The host has no usable credentials.
    #[error("no credentials for AWS: {0}")]
    NoCredentials(String),
    /// AWS did not answer, or reported a server error.
    #[error("AWS does not answer {action}: {reason}")]
    Lost {
        /// The action, as in a policy: `ec2:DescribeInstances`.
        action: String,
        /// The reason.
        reason: String,
    },
    /// The credentials do not have this right.
    #[error("the credentials have no right to {action}: {message}")]
    Denied {
        /// The action, as in a policy.
        action: String,
        /// The message of AWS.
        message: String,
    },
    /// The object does not exist.
    #[error("{action}: {message}")]
    Missing {
        /// The action, as in a policy.
        action: String,
        /// The message of AWS.
        message: String,
    },
    /// AWS refused the request.
    #[error("AWS answered {code} to {action}: {message}")]
    Refused {
        /// The action, as in a policy.
        action: String,
        /// The error code of the API.
        code: String,
        /// The message of AWS.
        message: String,
    },
    /// The answer is not valid.
    #[error("the answer of AWS to {action} is not valid: {reason}")]
    Garbled {
        /// The action, as in a policy.
        action: String,
        /// The reason.
        reason: String,
    },
}

impl AwsError {
    /// Returns the error for an answer with an error code.
    pub(super) fn refused(action: String, code: String, message: String) -> Self {
        match code.as_str() {
            "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => {
                Self::Denied { action, message }
            }
            "NoSuchEntity" => Self::Missing { action, message },
            code if code.ends_with(".NotFound") => Self::Missing { action, message },
            _ => Self::Refused { action, code, message },
        }
    }

    /// Returns whether no request can succeed with these credentials.
    pub fn is_of_credentials(&self) -> bool {
        let codes = [
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "InvalidClientTokenId",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ];
        match self {
            Self::NoCredentials(_) => true,
            Self::Refused { code, .. } => codes.contains(&code.as_str()),
            _ => false,
        }
    }

    /// Returns a hint about what the operator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "allow the credentials the actions that docs/parity.md lists",
            Self::Lost { .. } => "check the connection to AWS, and `HTTPS_PROXY`",
            Self::Garbled { .. } => "check that the endpoint is AWS (`AWS_ENDPOINT_URL`)",
            error if error.is_of_credentials() => NO_CREDENTIALS,
            _ => "check the message of AWS",
        }
    }
}

/// Returns why there are no credentials. Omits the output of a `credential_process`, because the output may contain credentials.
pub fn credentials_reason(error: &CredentialsError) -> String {
    let reason = innermost(error);
    reason.split("Stderr").next().unwrap_or_default().trim_end().to_string()
}

/// Returns an error and its causes.
pub fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source())
}

/// Returns the innermost cause of an error. The outer causes only name layers of the SDK.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}
