//! Reads each API server directly, and the flags of API servers from their Pods.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::Looking;
use crate::certs::Certificate;
use crate::controlplane::{API_SERVER, flags_in_pods, in_pods};
use crate::gather::reading::{Read, unread, unread_by};
use crate::kube_api::{ClusterError, served};
use crate::preflight::api;
use crate::preflight::flags::{self, LOOKED_AT, ServerFlags};
use crate::preflight::{Judged, Verdict};
use crate::session::counted;

impl Looking {
    /// Checks the Service ranges in the flags of API servers, read from their Pods.
    pub(super) async fn flags(&self) -> Read<Judged> {
        let (cluster, servers) = (self.read.cluster()?, self.read.servers().await?);
        let mut seen = in_pods(cluster).await.map_err(|failure| unread_by(&failure))?;
        seen.retain(|one| one.component == API_SERVER);
        let words = |range: &Option<String>| range.clone().unwrap_or_else(|| "no range".to_string());
        let ranges: BTreeSet<String> = seen.iter().map(|one| words(&one.range)).collect();
        if ranges.len() > 1 {
            let each: Vec<String> =
                seen.iter().map(|one| format!("{}: `{}`", one.at, words(&one.range))).collect();
            return Ok(Judged::fail(
                each.join(", "),
                "give them one range: `netsurgeon controlplane set-range` on each host",
            ));
        }
        if seen.len() < servers.len() {
            let seen = format!(
                "flags read from {} of {}",
                seen.len(),
                counted(servers.len(), "API server", "API servers")
            );
            return Ok(Judged::unknown(seen, "on each control-plane host: `netsurgeon controlplane show`"));
        }
        let ranges: Vec<String> = ranges.into_iter().collect();
        Ok(Judged::pass(format!(
            "{} with `{}`",
            counted(seen.len(), "API server", "API servers"),
            ranges.join(", ")
        )))
    }

    pub(super) async fn tested(&self) -> Read<Judged> {
        Ok(api::tested(self.read.met().await?, self.survey().await?.era.era, &self.options.to))
    }

    /// Returns the flags [`LOOKED_AT`] of the API servers, read from their Pods.
    async fn server_flags(&self) -> Read<&Vec<ServerFlags>> {
        let read = async || {
            let found = flags_in_pods(self.read.cluster()?, API_SERVER, &LOOKED_AT).await;
            let found = found.map_err(|failure| unread_by(&failure))?;
            Ok(found.into_iter().map(|(at, flags)| ServerFlags { at, flags }).collect())
        };
        self.server_flags.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    pub(super) async fn overrides(&self) -> Read<Judged> {
        let servers = self.read.servers().await?.len();
        Ok(flags::storage(self.server_flags().await?, servers, self.read.layout.prefix()))
    }

    /// Checks the feature gates that each API server reports.
    pub(super) async fn gates(&self) -> Read<Judged> {
        let cluster = self.read.cluster()?;
        let asked = self.read.servers().await?.iter().map(async |server| {
            let gates = async || cluster.dial(*server).await?.feature_gates().await;
            gates().await.map(|gates| (server.to_string(), gates))
        });
        let gates: Result<Vec<_>, ClusterError> = join_all(asked).await.into_iter().collect();
        let gates = gates.map_err(unread)?;
        let alike = flags::alike(&gates, self.server_flags().await?);
        if alike.verdict != Verdict::Pass {
            return Ok(alike);
        }
        Ok(flags::as_stored(&gates, self.survey().await?.era.era).unwrap_or(alike))
    }

    /// Checks whether the certificate of each API server covers the first address of the new range.
    pub(super) async fn certificates(&self) -> Read<Judged> {
        let first = self.options.to.first();
        let remedy =
            format!("on each control-plane host: `netsurgeon certs reissue --for-cidr {}`", self.options.to);
        let servers = self.read.servers().await?;
        for server in servers {
            let chain = served(&server.to_string(), None)
                .await
                .map_err(|error| unread(format!("{server}: {error}")))?;
            let certificate = chain.into_iter().next().and_then(|der| Certificate::from_der(der).ok());
            let certificate =
                certificate.ok_or_else(|| unread(format!("{server} presents no certificate")))?;
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
}
