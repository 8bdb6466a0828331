//! Why data of a cluster or of a zone could not be read.

use std::any::Any;

use crate::kube_api::ClusterError;
use crate::session::Failure;
use crate::session::failure::permission_hint;
use crate::store::StoreError;

/// Data that was read, or why it could not be read.
pub type Read<T> = Result<T, ReadError>;

/// Why data could not be read, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{observed}")]
pub struct ReadError {
    /// Whether the cluster, the zone or an option is at fault. Otherwise the state cannot be seen from here.
    pub is_fault: bool,
    /// What was observed.
    pub observed: String,
    /// What to do; empty if there is nothing to do.
    pub remedy: String,
    /// The missing permission, for example `list Node`.
    pub denied: Option<String>,
}

impl ReadError {
    /// Returns an error about a state that must be repaired.
    pub fn fault(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { is_fault: true, ..Self::unknown(observed, remedy) }
    }

    /// Returns an error about a state that cannot be seen from here.
    pub fn unknown(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { is_fault: false, observed: observed.into(), remedy: remedy.into(), denied: None }
    }

    /// Returns an error about a permission that the user lacks.
    pub fn denied(observed: impl Into<String>, permission: impl Into<String>) -> Self {
        Self { denied: Some(permission.into()), ..Self::unknown(observed, "") }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::refused(error.observed).hint(error.remedy)
    }
}

/// Converts an error of etcd or of the API.
pub fn unread(error: impl std::fmt::Display + 'static) -> ReadError {
    let (seen, error) = (error.to_string(), &error as &dyn Any);
    match error.downcast_ref() {
        Some(StoreError::PermissionDenied { access, .. }) => {
            ReadError::unknown(seen, permission_hint(access))
        }
        _ => of_api(seen, error.downcast_ref()),
    }
}

/// Converts the failure of another room.
pub fn unread_by(failure: &Failure) -> ReadError {
    of_api(format!("{:#}", failure.error), failure.error.downcast_ref())
}

/// Returns the error, with the permission that is missing if the API refused the request.
fn of_api(seen: String, error: Option<&ClusterError>) -> ReadError {
    match error {
        Some(ClusterError::Forbidden { verb, subject, .. }) => {
            ReadError::denied(seen, format!("{verb} {subject}"))
        }
        _ => ReadError::unknown(seen, ""),
    }
}
