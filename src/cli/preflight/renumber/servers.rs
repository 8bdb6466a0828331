//! What is asked of the API servers, of each by itself, and what their Pods say of them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Looking, Read, unread};
use crate::certs::Certificate;
use crate::cli::controlplane::{API_SERVER, flags_in_pods, in_pods};
use crate::cli::output::counted;
use crate::cluster::{ApiServer, Cluster, ClusterError, served};
use crate::preflight::Judged;
use crate::preflight::api::{self, Met, skew};
use crate::preflight::flags::{self, LOOKED_AT, ServerFlags};

impl Looking {
    pub(super) async fn servers(&self) -> Read<&Vec<ApiServer>> {
        let judged = |error: ClusterError| Judged::fail(error.to_string(), error.hint().unwrap_or_default());
        let listed = async || self.cluster()?.api_servers().await.map_err(judged);
        self.servers.get_or_init(listed).await.as_ref().map_err(Clone::clone)
    }

    pub(super) async fn met(&self) -> Read<&Vec<Met>> {
        let asked = async || {
            let cluster = self.cluster()?;
            Ok(join_all(self.servers().await?.iter().map(|server| meet(cluster, *server))).await)
        };
        self.met.get_or_init(asked).await.as_ref().map_err(Clone::clone)
    }

    /// The ranges in the flags of API servers, as their Pods have them.
    pub(super) async fn flags(&self) -> Read<Judged> {
        let (cluster, servers) = (self.cluster()?, self.servers().await?);
        let mut seen = in_pods(cluster).await.map_err(|failure| unread(format!("{:#}", failure.error)))?;
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
                "the flags of {} of {} are seen",
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
        Ok(api::tested(self.met().await?, self.survey().await?.era.era, &self.options.to))
    }

    /// What the Pods of API servers have of the flags that are looked at.
    async fn server_flags(&self) -> Read<&Vec<ServerFlags>> {
        let read = async || {
            let found = flags_in_pods(self.cluster()?, API_SERVER, &LOOKED_AT).await;
            let found = found.map_err(|failure| unread(format!("{:#}", failure.error)))?;
            Ok(found.into_iter().map(|(at, flags)| ServerFlags { at, flags }).collect())
        };
        self.server_flags.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    pub(super) async fn overrides(&self) -> Read<Judged> {
        let servers = self.servers().await?.len();
        Ok(flags::storage(self.server_flags().await?, servers, self.layout.prefix()))
    }

    /// Each API server tells its gates itself.
    pub(super) async fn gates(&self) -> Read<Judged> {
        let cluster = self.cluster()?;
        let asked = self.servers().await?.iter().map(async |server| {
            let gates = async || cluster.dial(*server).await?.feature_gates().await;
            gates().await.map(|gates| (server.to_string(), gates))
        });
        let gates: Result<Vec<_>, ClusterError> = join_all(asked).await.into_iter().collect();
        Ok(flags::alike(&gates.map_err(unread)?, self.server_flags().await?))
    }

    /// Each API server must serve a certificate with the first address of the new range, and of those in use.
    pub(super) async fn certificates(&self) -> Read<Judged> {
        let first = self.options.to.first();
        let todo =
            format!("on each control-plane host: `netsurgeon certs reissue --for-cidr {}`", self.options.to);
        let servers = self.servers().await?;
        for server in servers {
            let chain = served(&server.to_string(), None)
                .await
                .map_err(|error| unread(format!("{server}: {error}")))?;
            let certificate = chain.into_iter().next().and_then(|der| Certificate::from_der(der).ok());
            let certificate =
                certificate.ok_or_else(|| unread(format!("{server} presents no certificate")))?;
            if let Some(missing) = first.filter(|address| !certificate.covers(*address)) {
                return Ok(Judged::fail(
                    format!("the certificate of {server} does not carry `{missing}`"),
                    todo,
                ));
            }
        }
        let address = first.map(|address| address.to_string()).unwrap_or_default();
        Ok(Judged::pass(format!(
            "{} with `{address}`",
            counted(servers.len(), "API server serves one", "API servers serve one")
        )))
    }
}

async fn meet(cluster: &Cluster, server: ApiServer) -> Met {
    let at = server.to_string();
    let client = match cluster.dial(server).await {
        Ok(client) => client,
        Err(error) => return Met { at, version: Err(error.to_string()), skew: None },
    };
    let version = match client.ready().await {
        Ok(()) => client.version().await.map(|version| version.git).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let metadata = json!({"name": "netsurgeon-preflight", "namespace": "kube-system"});
    let trial = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let before = milliseconds(OffsetDateTime::now_utc());
    let made = client.try_create(&trial).await.ok();
    let after = milliseconds(OffsetDateTime::now_utc());
    let said =
        made.as_ref().and_then(|made| made.pointer("/metadata/creationTimestamp")).and_then(Value::as_str);
    let said = said.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    Met { at, version, skew: said.map(|said| skew(before, milliseconds(said), after)) }
}

fn milliseconds(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos().checked_div(1_000_000).unwrap_or_default()).unwrap_or_default()
}
