//! `csrs`: whether a kubelet waits for the approval of its certificate.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::Cni;
use crate::inventory::certificate_requests::is_pending;
use crate::kube_api::accessors::name;
use crate::preflight::{Check, Judged, Source, first_few};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "csrs",
    why: "a node cannot join before its certificate is approved",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(&input.read.objects().await?)) }),
};

/// Checks for pending CertificateSigningRequests. A node that joins creates such a request
/// (`KubeAPIServerClientKubeletSignerName`, `k8s.io/api/certificates/v1/types.go`, v1.36.3).
fn judge(requests: &[CertificateSigningRequest]) -> Judged {
    const JOINS: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    let open: Vec<_> = requests.iter().filter(|request| is_pending(request)).collect();
    if open.is_empty() {
        return Judged::pass("no certificate request is pending");
    }
    let words = open.iter().map(|request| format!("`{}` ({})", name(*request), request.spec.signer_name));
    let seen =
        format!("pending certificate requests ({}): {}", open.len(), first_few(&words.collect::<Vec<_>>()));
    let remedy = "check the requester, then `kubectl certificate approve NAME` or `deny`";
    if open.iter().any(|request| request.spec.signer_name == JOINS) {
        return Judged::fail(seen, format!("{remedy}: the node cannot join until then"));
    }
    Judged::warn(seen, remedy)
}
