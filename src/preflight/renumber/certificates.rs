//! `certificates`: whether the certificate of each API server covers the first address of the new range.

use super::Renumber;
use crate::certs::Certificate;
use crate::inventory::unread;
use crate::kube_api::presented_certificate;
use crate::preflight::{Check, Judged, Read, Source};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "certificates",
    why: "clients in Pods connect to the first address of the new range, and the certificate must cover it",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Checks whether the certificate of each API server covers the first address of the new range.
async fn read(input: &Renumber) -> Read<Judged> {
    if let Ok(plan) = input.plan().await
        && plan.work.kubernetes().is_none()
        && plan.work.is_overlapping()
    {
        return Ok(Judged::pass("`default/kubernetes` keeps its address"));
    }
    let first = input.options.to.first();
    let remedy =
        format!("on each control-plane host: `netsurgeon certs reissue --for-cidr {}`", input.options.to);
    let servers = input.read.servers().await?;
    for server in servers {
        let chain = presented_certificate(&server.to_string(), None)
            .await
            .map_err(|error| unread(format!("{server}: {error}")))?;
        let certificate = chain.into_iter().next().and_then(|der| Certificate::from_der(der).ok());
        let certificate = certificate.ok_or_else(|| unread(format!("{server} presents no certificate")))?;
        if let Some(missing) = first.filter(|address| !certificate.covers(*address)) {
            return Ok(Judged::fail(
                format!("the certificate of {server} does not cover `{missing}`"),
                remedy,
            ));
        }
    }
    let address = first.map(|address| address.to_string()).unwrap_or_default();
    Ok(Judged::pass(format!(
        "{} with `{address}`",
        counted(servers.len(), "API server serves a certificate", "API servers serve certificates")
    )))
}
