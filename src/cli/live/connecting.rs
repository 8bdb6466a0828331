//! Connecting to a live cluster: to its etcd and its API, which must be the same cluster's, or, on the way back and if
//! the operator says so, to its etcd alone.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use super::approving::{Confirmations, carried_by_all};
use super::kubelets;
use super::sealing::same_seal;
use super::{Api, LiveArgs, Session};
use crate::cli::Context;
use crate::cli::failure::Failure;
use crate::cli::gates::Gates;
use crate::cli::metrics::Metrics;
use crate::cli::output::{Output, counted};
use crate::cli::source::LiveEtcd;
use crate::operation::{Environment, Lock};
use crate::renumber::live::{Approver, LiveEnvironment, LiveOptions};
use crate::renumber::without_api::WithoutApi;
use crate::renumber::{Effect, Renumbering};
use crate::store::{KeyRange, ReadStore as _, Record};
use crate::survey::{Layout, Survey};

/// How long an API server may take to answer that is said not to.
const PATIENCE: Duration = Duration::from_secs(5);

impl Session {
    /// Connects to both, and makes sure that they belong together.
    pub async fn open(args: &LiveArgs) -> Result<Self, Failure> {
        let store = args.etcd.connect().await?;
        let cluster = args.kube.connect().await?;
        let (stored, served) =
            (Survey::identity(store.as_ref(), &args.etcd.layout()).await?, cluster.identity().await?);
        if stored.as_ref() != Some(&served) {
            let stored = stored.map_or_else(|| "none".to_string(), |uid| format!("`{uid}`"));
            let text = format!(
                "etcd and API are not the same cluster's: namespace `kube-system` has uid {stored} in etcd, \
                 `{served}` at {}",
                cluster.server()
            );
            return Err(Failure::refused(text)
                .hint("check `--etcd-endpoints`, `--etcd-prefix`, `--kubeconfig` and `--context`"));
        }
        same_seal(&store, &cluster, &args.etcd.layout()).await?;
        let metrics = metrics(args).await?;
        let api = Api::Answers(Box::new(cluster));
        Ok(Self { store, api, id: served, metrics, gates: Gates::default() })
    }

    /// Connects to etcd alone; `pause` is how long each wait takes in place of what an API server would be asked.
    /// Refuses when one answers.
    pub async fn open_without_api(
        args: &LiveArgs,
        output: &Output,
        pause: Duration,
    ) -> Result<Self, Failure> {
        let store = args.etcd.connect().await?;
        let id = Survey::identity(store.as_ref(), &args.etcd.layout()).await?.ok_or_else(|| {
            Failure::refused("this etcd has no namespace `kube-system`").hint("check `--etcd-prefix`")
        })?;
        let alive = alive(&store, args).await?;
        if let Ok(Some(server)) = tokio::time::timeout(PATIENCE, answering(args)).await {
            let text = format!("the API server at {server} answers");
            return Err(Failure::refused(text).hint("roll back without `--without-api`"));
        }
        if !alive.is_empty() {
            let list = alive.iter().map(|address| format!("`{address}`")).collect::<Vec<_>>().join(", ");
            output.warn(&format!(
                "{} a lease of 15 s in etcd that has not ended, and may be serving nodes: {list}. Nothing but {} s \
                 per wait gives them time to follow",
                counted(alive.len(), "API server has", "API servers have"),
                pause.as_secs()
            ));
        }
        let metrics = metrics(args).await?;
        Ok(Self { store, api: Api::Silent(pause), id, metrics, gates: Gates::default() })
    }

    /// Says, before a rollback, which kubelets tell Pods an address of the DNS that goes with it.
    pub async fn warn_of_kubelets(&self, output: &Output, args: &LiveArgs, work: &Renumbering) {
        let new: Vec<IpAddr> = work.dns().map(|candidate| candidate.new_address).collect();
        let Some(cluster) = self.cluster() else { return };
        if new.is_empty() {
            return;
        }
        let told = match kubelets::told(cluster, &new).await {
            Ok(told) => told,
            Err(error) => {
                output.warn(&format!("the kubelets' `clusterDNS` is not checked: {error}"));
                return;
            }
        };
        if let Some(unseen) = told.unseen() {
            output.warn(&format!(
                "the kubelets' `clusterDNS` is not checked on {} of {} nodes; {unseen}. Check it there: \
                 `grep -A2 clusterDNS /var/lib/kubelet/config.yaml`",
                told.unseen_count(),
                told.count,
            ));
        }
        if let Some(words) = told.words(&new) {
            let set = work.dns().map(|dns| {
                let (old, new) = (dns.old_address, dns.new_address);
                format!("`netsurgeon controlplane set-dns --from {new} --to {old}`")
            });
            output.warn(&format!(
                "{words}; there {}, and restart the kubelet, within {} s of the last move back (`--linger`)",
                set.collect::<Vec<_>>().join(" and "),
                args.linger_of(work).as_secs()
            ));
        }
    }

    /// Reports, after a rollback, Services that were created in the new range, and certificates that carry an address that
    /// is gone.
    pub async fn say_what_is_left(&self, output: &Output, work: &Renumbering) {
        self.report_new_range(output, work).await;
        let Some(cluster) = self.cluster() else { return };
        if let Some(address) = work.kubernetes().map(|candidate| candidate.new_address)
            && carried_by_all(cluster, address).await
        {
            output.note(&format!(
                "the API servers' certificates carry `{address}` beside the old address, which harms nobody; to take it away: \
                 `netsurgeon certs reissue --drop-ip {address}`"
            ));
        }
    }

    async fn report_new_range(&self, output: &Output, work: &Renumbering) {
        let Ok(survey) = Survey::read(self.store.as_ref(), &Layout::new(&work.prefix), None).await else {
            return;
        };
        let mut there = survey
            .services
            .iter()
            .filter(|service| service.addresses.iter().any(|address| work.to.contains(*address)));
        let Some(first) = there.next() else { return };
        let count = there.count().saturating_add(1);
        output.warn(&format!(
            "{} an address of `{}`, allocated before the rollback; the first is `{}`. They keep it, and its ServiceCIDR stays as \
             long: delete and create each of them again for an address of the old range",
            counted(count, "Service has", "Services have"),
            work.to,
            first.subject()
        ));
    }

    /// Returns who says that others have done what they have to; `moved`: when the last Service moved.
    pub(super) fn approver<'a>(
        &'a self,
        context: &'a Context,
        args: &LiveArgs,
        work: &'a Renumbering,
        moved: Option<i64>,
    ) -> Confirmations<'a> {
        let given = args.confirm.iter().cloned().collect();
        Confirmations { output: &context.output, given, cluster: self.cluster(), work, moved }
    }

    /// Returns what steps and waits act on.
    pub(super) fn environment<'a>(
        &'a self,
        args: &LiveArgs,
        operation: &str,
        work: &'a Renumbering,
        approver: &'a dyn Approver,
        lock: &Lock,
    ) -> Box<dyn Environment<Effect> + 'a> {
        let store = self.store.as_ref();
        match &self.api {
            Api::Silent(pause) => Box::new(WithoutApi { pause: *pause }),
            Api::Answers(cluster) => {
                let mut options = LiveOptions::new(operation);
                options.reach = args.barrier;
                options.linger = args.linger_of(work);
                options.guards = vec![lock.guard()];
                options.without_api_servers = args.without_api_server.iter().cloned().collect();
                Box::new(LiveEnvironment { cluster, store, work, approver, options })
            }
        }
    }
}

/// Returns where an API server answers.
async fn answering(args: &LiveArgs) -> Option<String> {
    let cluster = args.kube.connect().await.ok()?;
    cluster.identity().await.ok().map(|_| cluster.server().to_string())
}

async fn metrics(args: &LiveArgs) -> Result<Option<Metrics>, Failure> {
    match &args.metrics_listen {
        Some(address) => Ok(Some(Metrics::listen(address).await?)),
        None => Ok(None),
    }
}

/// Returns the addresses of the API servers that have a lease: each renews its own, which ends 15 s after its death
/// (`DefaultEndpointReconcilerTTL`, `pkg/controlplane/instance.go`, v1.36.3).
async fn alive(store: &LiveEtcd, args: &LiveArgs) -> Result<Vec<String>, Failure> {
    let prefix = args.etcd.layout().api_server_leases();
    let mut found = Vec::new();
    let mut visit = |record: Record<'_>| {
        found.push(String::from_utf8_lossy(record.key.get(prefix.len()..).unwrap_or_default()).into_owned());
        ControlFlow::Continue(())
    };
    store.scan(&[KeyRange::prefix(prefix.clone())], None, &mut visit).await?;
    Ok(found)
}
