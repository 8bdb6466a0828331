//! What is looked at before a renumbering: side by side, and what several checks look at is read once.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::RenumberArgs;
use crate::certs::Certificate;
use crate::cli::controlplane::{API_SERVER, in_pods};
use crate::cli::failure::Failure;
use crate::cli::output::counted;
use crate::cli::source::LiveEtcd;
use crate::cluster::{ApiServer, Cluster, ClusterError, MANAGED_BY, sentinel, served};
use crate::operation::Plan;
use crate::preflight::api::{self, Met, skew};
use crate::preflight::{Check, Judged, RENUMBER, etcd};
use crate::renumber::hold::Hold;
use crate::renumber::{PlanOptions, Renumbering, plan};
use crate::store::etcd::Member;
use crate::survey::audit::audit;
use crate::survey::{Era, Layout, Severity, Survey};

/// What was read, or why not.
type Read<T> = Result<T, Judged>;

/// What the checks look at.
struct Looking {
    store: Read<Arc<LiveEtcd>>,
    cluster: Read<Cluster>,
    layout: Layout,
    options: PlanOptions,
    members: OnceCell<Read<Vec<Member>>>,
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
        members: OnceCell::new(),
        met: OnceCell::new(),
        survey: OnceCell::new(),
        plan: OnceCell::new(),
    };
    looking.of_one_cluster().await;
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
    Ok(join_all(checks).await)
}

fn unusable(what: &str, failure: &Failure) -> Judged {
    Judged::fail(format!("{what} cannot be used: {:#}", failure.error), failure.hints.join("; "))
}

fn unread(error: impl std::fmt::Display) -> Judged {
    Judged::unknown(error.to_string(), "")
}

impl Looking {
    async fn judge(&self, name: &str) -> Judged {
        let outcome = match name {
            "etcd-members" => self.members().await.map(|found| etcd::members(found)),
            "etcd-alarms" => self.alarms().await,
            "etcd-space" => self.members().await.map(|found| etcd::space(found)),
            "etcd-versions" => self.members().await.map(|found| etcd::versions(found)),
            "api-servers" => self.met().await.map(|met| api::servers(met)),
            "api-versions" => self.met().await.map(|met| api::versions(met)),
            "api-flags" => self.flags().await,
            "clocks" => self.met().await.map(|met| api::clocks(met)),
            "allocations" => self.survey().await.map(allocations),
            "plan" => self.plan().await.map(planned),
            "certificates" => self.certificates().await,
            "policies" => self.policies().await,
            "rights" => self.rights().await,
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

    fn store(&self) -> Read<&LiveEtcd> {
        self.store.as_deref().map_err(Clone::clone)
    }

    fn cluster(&self) -> Read<&Cluster> {
        self.cluster.as_ref().map_err(Clone::clone)
    }

    async fn members(&self) -> Read<&Vec<Member>> {
        let members =
            self.members.get_or_init(async || self.store()?.bare().members().await.map_err(unread)).await;
        members.as_ref().map_err(Clone::clone)
    }

    async fn alarms(&self) -> Read<Judged> {
        let raised = self.store()?.bare().alarms().await.map_err(unread)?;
        Ok(etcd::alarms(self.members().await?, &raised))
    }

    async fn survey(&self) -> Read<&Survey> {
        let read = async || {
            let survey = Survey::read(self.store()?, &self.layout, None).await;
            survey.map_err(|error| {
                Judged::fail(error.to_string(), "give the prefix of the API server: `--etcd-prefix`")
            })
        };
        self.survey.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    async fn plan(&self) -> Read<&Plan<Renumbering>> {
        let planned = async || {
            plan(self.survey().await?, &self.options).map_err(|error| {
                let failure = Failure::from(error);
                Judged::fail(format!("{:#}", failure.error), failure.hints.join("; "))
            })
        };
        self.plan.get_or_init(planned).await.as_ref().map_err(Clone::clone)
    }

    async fn servers(&self) -> Read<Vec<ApiServer>> {
        let judged = |error: ClusterError| Judged::fail(error.to_string(), error.hint().unwrap_or_default());
        self.cluster()?.api_servers().await.map_err(judged)
    }

    async fn met(&self) -> Read<&Vec<Met>> {
        let asked = async || {
            let cluster = self.cluster()?;
            Ok(join_all(self.servers().await?.into_iter().map(|server| meet(cluster, server))).await)
        };
        self.met.get_or_init(asked).await.as_ref().map_err(Clone::clone)
    }

    /// The ranges in the flags of API servers, as their Pods have them.
    async fn flags(&self) -> Read<Judged> {
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

    /// Each API server must serve a certificate with the first address of the new range, and of those in use.
    async fn certificates(&self) -> Read<Judged> {
        let first = self.options.to.first();
        let todo =
            format!("on each control-plane host: `netsurgeon certs reissue --for-cidr {}`", self.options.to);
        let servers = self.servers().await?;
        for server in &servers {
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

    /// What the plan would have the API server make, and Services as they will be, looked at by admission.
    async fn policies(&self) -> Read<Judged> {
        let (plan, cluster) = (self.plan().await?, self.cluster()?);
        let mut refused = Vec::new();
        for manifest in trials(&plan.work) {
            match cluster.try_create(&manifest).await {
                Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
                Err(error) => refused.push(error.to_string()),
            }
        }
        if refused.is_empty() {
            return Ok(Judged::pass("admission takes what a move makes"));
        }
        Ok(Judged::fail(
            refused.join("; "),
            "exempt whoever runs netsurgeon from that policy, or `--hold shadow` where it is about external IPs",
        ))
    }

    async fn rights(&self) -> Read<Judged> {
        let cluster = self.cluster()?;
        let asked = RIGHTS.iter().flat_map(|(verbs, kind)| verbs.iter().map(move |verb| (*verb, *kind)));
        let asked: Vec<_> = asked.collect();
        let answers =
            asked.iter().map(async |(verb, kind)| (cluster.may(verb, *kind, None).await, verb, kind.1));
        let mut missing = Vec::new();
        for (answer, verb, resource) in join_all(answers).await {
            if !answer.map_err(unread)? {
                missing.push(format!("{verb} {resource}"));
            }
        }
        if missing.is_empty() {
            return Ok(Judged::pass(format!("all {} that a move needs", asked.len())));
        }
        Ok(Judged::fail(
            format!("missing: {}", missing.join(", ")),
            "take another kubeconfig, as on a control-plane host, or ask for these rights",
        ))
    }
}

/// What a renumbering does through the API, everywhere.
const RIGHTS: &[(&[&str], (&str, &str))] = &[
    (&["get", "list", "create", "delete"], ("", "services")),
    (&["list"], ("", "nodes")),
    (&["get"], ("", "nodes/proxy")),
    (&["get", "list"], ("", "pods")),
    (&["get"], ("", "namespaces")),
    (&["list", "create", "update", "delete"], ("discovery.k8s.io", "endpointslices")),
    (&["get", "list", "create", "delete"], ("networking.k8s.io", "servicecidrs")),
    (&["get"], ("networking.k8s.io", "ipaddresses")),
    (&["create"], ("events.k8s.io", "events")),
];

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

fn allocations(survey: &Survey) -> Judged {
    let found = audit(survey);
    let worst = found
        .iter()
        .filter(|finding| finding.severity != Severity::Info)
        .max_by_key(|finding| finding.severity);
    let todo = "`netsurgeon ranges check` lists everything, and docs/findings.md says what to do";
    match worst {
        None => Judged::pass(format!(
            "{} and every record of their addresses agree, era {}",
            counted(survey.services.len(), "Service", "Services"),
            survey.era.era
        )),
        Some(worst) => {
            let count = found.iter().filter(|finding| finding.severity == worst.severity).count();
            let seen =
                format!("{count} of {}: {} {}: {}", worst.severity, worst.code, worst.subject, worst.message);
            if worst.severity == Severity::Error {
                Judged::fail(seen, todo)
            } else {
                Judged::warn(seen, todo)
            }
        }
    }
}

fn planned(plan: &Plan<Renumbering>) -> Judged {
    let work = &plan.work;
    let shadows = work.moves.iter().filter(|candidate| candidate.hold == Hold::Shadow).count();
    let copied = work.moves.iter().filter(|candidate| candidate.has_copies());
    let seen = format!(
        "{} to {}, {} held by shadows{}",
        counted(work.moves.len(), "Service moves", "Services move"),
        work.to,
        shadows,
        work.data_plane.as_ref().map(|about| format!("; {about}")).unwrap_or_default(),
    );
    if let Some(gap) = &work.gap {
        let todo = "give kube-proxy's own configuration: `--kube-proxy-config FILE`";
        let seen = format!("{seen}; whether every node can hold old addresses is not known: {gap}");
        return if work.gap_accepted { Judged::warn(seen, todo) } else { Judged::unknown(seen, todo) };
    }
    if let Some(unread) = work.unread.first() {
        return Judged::warn(
            format!("{seen}; not read: {unread}"),
            "bring it into step by hand if it records the range",
        );
    }
    match copied.count() {
        0 => Judged::pass(seen),
        copied => Judged::warn(
            format!("{seen}, {copied} of which with copies of their endpoints"),
            "let `netsurgeon renumber guard` run from before the first batch until the end: it keeps the copies in step",
        ),
    }
}

/// What admission is asked about: the new range, a Service held by an external IP, a shadow, and a barrier's sentinel.
fn trials(work: &Renumbering) -> Vec<Value> {
    let service = |name: &str, namespace: &str, spec: Value| {
        let labels = json!({MANAGED_BY.0: MANAGED_BY.1});
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    };
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let mut trials = vec![sentinel("preflight", "kube-system", work.family)];
    if work.era != Era::Bitmap {
        trials.push(json!({
            "apiVersion": work.api_version, "kind": "ServiceCIDR", "metadata": {"name": "netsurgeon-preflight"},
            "spec": {"cidrs": [work.to.to_string()]},
        }));
    }
    let first = |hold: Hold| work.moves.iter().find(|candidate| candidate.hold == hold);
    if let Some(held) = first(Hold::ExternalIp) {
        let spec =
            json!({"ports": ports, "externalIPs": [held.old_address], "externalTrafficPolicy": "Local"});
        trials.push(service("netsurgeon-preflight-hold", &held.namespace, spec));
    }
    if let Some(held) = first(Hold::Shadow) {
        trials.push(service("netsurgeon-preflight-shadow", &held.namespace, json!({"ports": ports})));
    }
    trials
}
