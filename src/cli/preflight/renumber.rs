//! What is looked at before a renumbering: side by side, and what several checks look at is read once.

mod etcd;
mod hardening;
mod nodes;
mod objects;
mod servers;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use self::objects::{allocations, planned};
use super::RenumberArgs;
use crate::cli::failure::Failure;
use crate::cli::source::LiveEtcd;
use crate::cluster::{ApiServer, Cluster, Collection};
use crate::ip::ServiceCidr;
use crate::operation::Plan;
use crate::preflight::api::{self, Met};
use crate::preflight::around::without_etcd;
use crate::preflight::flags::ServerFlags;
use crate::preflight::{Check, Judged, RENUMBER, etcd as members, once};
use crate::renumber::{PlanOptions, Renumbering, plan};
use crate::store::etcd::Member;
use crate::survey::{Layout, Survey};

/// Nodes that are asked at once.
const AT_ONCE: usize = 64;

/// What was read, or why not.
type Read<T> = Result<T, Judged>;

/// What the checks look at.
struct Looking {
    store: Read<Arc<LiveEtcd>>,
    cluster: Read<Cluster>,
    layout: Layout,
    options: PlanOptions,
    backup: Option<PathBuf>,
    members: OnceCell<Read<Vec<Member>>>,
    servers: OnceCell<Read<Vec<ApiServer>>>,
    server_flags: OnceCell<Read<Vec<ServerFlags>>>,
    met: OnceCell<Read<Vec<Met>>>,
    survey: OnceCell<Read<Survey>>,
    plan: OnceCell<Read<Plan<Renumbering>>>,
}

/// Carries the checks out.
pub(super) async fn look(args: &RenumberArgs) -> Result<Vec<Check>, Failure> {
    let options = args.target.resolve(&args.tiers)?;
    let (store, cluster) = tokio::join!(args.etcd.connect(), args.kube.connect());
    let mut looking = Looking {
        store: store.map_err(|failure| unusable("etcd", &failure)),
        cluster: cluster.map_err(|failure| unusable("the API", &failure)),
        layout: args.etcd.layout(),
        options,
        backup: args.backup.clone(),
        members: OnceCell::new(),
        servers: OnceCell::new(),
        server_flags: OnceCell::new(),
        met: OnceCell::new(),
        survey: OnceCell::new(),
        plan: OnceCell::new(),
    };
    looking.of_one_cluster().await;
    looking.explain().await;
    let asked = &args.asked;
    let checks = RENUMBER.iter().map(async |named| {
        if !asked.wants(named.name) {
            return Check::skipped(named);
        }
        let seconds = asked.patience().as_secs();
        let judged = timeout(asked.patience(), looking.judge(named.name)).await;
        let late =
            || Judged::unknown(format!("no answer within {seconds} s"), "give it longer: `--within SECONDS`");
        Check::of(named, judged.unwrap_or_else(|_| late()))
    });
    Ok(once(join_all(checks).await))
}

fn unusable(what: &str, failure: &Failure) -> Judged {
    Judged::fail(format!("{what} cannot be used: {:#}", failure.error), failure.hints.join("; "))
}

fn failed(failure: &Failure) -> Judged {
    Judged::fail(format!("{:#}", failure.error), failure.hints.join("; "))
}

fn unread(error: impl std::fmt::Display) -> Judged {
    Judged::unknown(error.to_string(), "")
}

impl Looking {
    async fn judge(&self, name: &str) -> Judged {
        let outcome = match name {
            "etcd-members" => self.members().await.map(|found| members::members(found)),
            "etcd-alarms" => self.alarms().await,
            "etcd-space" => self.members().await.map(|found| members::space(found)),
            "etcd-versions" => self.members().await.map(|found| members::versions(found)),
            "etcd-leader" => self.leader().await,
            "zones" => self.zones().await,
            "room" => self.room().await,
            "encryption" => self.stored().await,
            "backup" => self.backup().await,
            "api-servers" => self.met().await.map(|met| api::servers(met)),
            "api-versions" => self.met().await.map(|met| api::versions(met)),
            "versions-tested" => self.tested().await,
            "api-flags" => self.flags().await,
            "api-gates" => self.gates().await,
            "etcd-overrides" => self.overrides().await,
            "clocks" => self.met().await.map(|met| api::clocks(met)),
            "allocations" => self.survey().await.map(allocations),
            "plan" => self.plan().await.map(planned),
            "kube-proxy" => self.proxies().await,
            "windows" => self.windows().await,
            "overlaps" => self.overlaps().await,
            "advertised" => self.announced().await,
            "kubeadm-config" => self.kubeadm().await,
            "pinned" => self.pinned().await,
            "gitops" => self.gitops().await,
            "webhooks" => self.webhooks().await,
            "certificates" => self.certificates().await,
            "policies" => self.policies().await,
            "rights" => self.rights().await,
            "secrets-at-rest" => self.secrets().await,
            "authorization" => self.authorization().await,
            "ssh" => self.ssh().await,
            "images" => self.images().await,
            other => Err(unread(format!("nobody knows how to look at `{other}`"))),
        };
        outcome.unwrap_or_else(|judged| judged)
    }

    /// What is said of one cluster's etcd and another's API says nothing about either.
    async fn of_one_cluster(&mut self) {
        let (Ok(store), Ok(cluster)) = (&self.store, &self.cluster) else { return };
        let stored = Survey::identity(store.as_ref(), &self.layout).await;
        let (Ok(Some(stored)), Ok(served)) = (stored, cluster.identity().await) else { return };
        if stored != served {
            let seen = "the kubeconfig is another cluster's than etcd: their namespaces `kube-system` have other uids";
            self.cluster =
                Err(Judged::fail(seen, "give the kubeconfig of this cluster: `--kubeconfig`, `--context`"));
        }
    }

    /// Says why there is no etcd to be reached, where the API tells.
    async fn explain(&mut self) {
        let (Err(judged), Ok(cluster)) = (&self.store, &self.cluster) else { return };
        let nodes = cluster.list(&Collection::new("v1", "Node", None), None).await.unwrap_or_default();
        if let Some((reason, todo)) = without_etcd(&nodes) {
            self.store = Err(Judged::fail(format!("{reason}; {}", judged.seen), todo));
        }
    }

    fn store(&self) -> Read<&LiveEtcd> {
        self.store.as_deref().map_err(Clone::clone)
    }

    fn cluster(&self) -> Read<&Cluster> {
        self.cluster.as_ref().map_err(Clone::clone)
    }

    async fn survey(&self) -> Read<&Survey> {
        let read = async || {
            let survey = Survey::read(self.store()?, &self.layout, None).await;
            survey.map_err(|error| failed(&Failure::from(error)))
        };
        self.survey.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the ranges that Services leave: none once they have left.
    fn left(&self, survey: &Survey) -> Vec<ServiceCidr> {
        let to = self.options.to;
        let mut ranges = survey.service_ranges();
        ranges.retain(|range| *range != to && range.family() == to.family());
        ranges
    }

    async fn plan(&self) -> Read<&Plan<Renumbering>> {
        let planned = async || {
            let survey = self.survey().await?;
            if self.left(survey).is_empty() {
                return Err(Judged::pass(format!(
                    "no Service would move: the cluster's range is {}",
                    self.options.to
                )));
            }
            plan(survey, &self.options).map_err(|error| failed(&Failure::from(error)))
        };
        self.plan.get_or_init(planned).await.as_ref().map_err(Clone::clone)
    }
}
