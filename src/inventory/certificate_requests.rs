//! CertificateSigningRequests that wait for a decision.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

/// Returns whether a request was neither approved nor denied.
pub fn is_pending(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_none_or(Vec::is_empty)
}
