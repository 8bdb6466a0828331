//! Reads the stored objects, the plan, and the permissions to apply it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::Looking;
use crate::gather::permissions;
use crate::gather::reading::{Read, unread};
use crate::kube_api::{ClusterError, MANAGED_BY, passing, sentinel};
use crate::operation::Plan;
use crate::preflight::objects::{labels, name, namespace};
use crate::preflight::webhooks::{self, Admitted, Written};
use crate::preflight::{Judged, environment, pinned};
use crate::renumber::hold::Hold;
use crate::renumber::plan::flag as recorded_flag;
use crate::renumber::{Move, Renumbering};
use crate::session::counted;
use crate::survey::audit::audit;
use crate::survey::{Era, Severity, Survey};
use crate::wire::objects::{ALLOCATOR, IP_FAMILY, MANAGED_BY as ALLOCATED_BY};

impl Looking {
    /// Checks the API permissions of a renumbering. `nodes/proxy` is optional: it is not needed if nodes are reachable directly.
    pub(super) async fn rights(&self) -> Read<Judged> {
        let mut judged = self.read.rights(&permissions::RENUMBER).await?;
        if !self.read.cluster()?.may("get", ("", "nodes/proxy"), None).await.map_err(unread)? {
            judged
                .observed
                .push_str("; without `get nodes/proxy` nodes are asked directly, and kubelets are not");
        }
        Ok(judged)
    }

    /// Tests with dry runs whether admission accepts the objects that the plan creates.
    pub(super) async fn policies(&self) -> Read<Judged> {
        let (plan, cluster) = (self.plan().await?, self.read.cluster()?);
        let mut kinds = vec![("", "services")];
        if plan.work.era != Era::Bitmap {
            kinds.push(("networking.k8s.io", "servicecidrs"));
        }
        let mut unasked = Vec::new();
        for kind in kinds {
            if !cluster.may("create", kind, None).await.map_err(unread)? {
                unasked.push(format!("create {}", kind.1));
            }
        }
        if !unasked.is_empty() {
            return Ok(Judged::unknown(
                format!(
                    "admission is not asked: a dry run needs the permission to create its object, and this user lacks {}",
                    unasked.join(", ")
                ),
                "run this check as the user of `renumber apply`, with the ClusterRole `netsurgeon-renumber`; or skip this check: \
                 `--skip policies`",
            ));
        }
        let mut refused = Vec::new();
        for manifest in trials(&plan.work) {
            match cluster.try_create(&manifest).await {
                Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
                Err(error) => refused.push(error.to_string()),
            }
        }
        if refused.is_empty() {
            return Ok(Judged::pass("admission accepts every object that the renumbering creates"));
        }
        Ok(Judged::fail(
            refused.join("; "),
            "exempt the user of netsurgeon from that policy, or use `--hold shadow` if the policy forbids external IPs",
        ))
    }

    /// Compares `networking.serviceSubnet` with the Service range flag of the API servers, as etcd shows it.
    pub(super) async fn kubeadm(&self) -> Read<Judged> {
        let survey = self.survey().await?;
        let key = survey.layout.kubeadm_config();
        if let Some(unreadable) = survey.unreadable.iter().find(|one| one.key == key) {
            return Err(unread(format!("`{key}`: {}", unreadable.reason)));
        }
        let subnets = survey.kubeadm.as_ref().map(|kubeadm| kubeadm.service_subnets.as_slice());
        Ok(environment::kubeadm(subnets, &recorded_flag(survey)))
    }

    /// Checks the Services that move, as read from the API, including the owners of their fields.
    pub(super) async fn pinned(&self) -> Read<Judged> {
        let of = |candidate: &Move| {
            (format!("{}/{}", candidate.namespace, candidate.name), candidate.hold == Hold::ExternalIp)
        };
        let moves: BTreeMap<String, bool> = self.plan().await?.work.moves.iter().map(of).collect();
        Ok(pinned::judge(self.read.services().await?, &moves))
    }

    /// Checks the webhooks and the ready endpoints of their Services.
    pub(super) async fn webhooks(&self) -> Read<Judged> {
        let found = self.read.called(&self.written().await?).await?;
        let backends = self.read.backends(&found).await?;
        let old = self.left(self.survey().await?);
        Ok(webhooks::judge(&found, &backends, &old))
    }

    /// Returns the objects that pass admission during a renumbering: Services that move, which clients can update meanwhile, and
    /// objects that the renumbering creates. Without a plan, all Services count as moving.
    async fn written(&self) -> Read<Vec<Written>> {
        let (services, namespaces) = (self.read.services().await?, self.read.objects::<Namespace>().await?);
        let of_namespaces =
            namespaces.iter().map(|one| (name(one).to_string(), labels(one).clone())).collect();
        let moves = self.plan().await.ok().map(|plan| &plan.work.moves);
        let candidates: Option<BTreeSet<(&str, &str)>> =
            moves.map(|moves| moves.iter().map(|one| (&*one.namespace, &*one.name)).collect());
        let is_moved = |service: &&Service| {
            candidates.as_ref().is_none_or(|all| all.contains(&(namespace(*service), name(*service))))
        };
        let changed = services.iter().filter(is_moved).map(|one| (Admitted::Service, &one.metadata));
        let shadows = moves.into_iter().flatten().filter(|one| one.hold == Hold::Shadow);
        let ours = labelled(&[MANAGED_BY]);
        let mut made = Vec::new();
        for one in shadows {
            let metadata = ObjectMeta { namespace: Some(one.namespace.to_string()), ..ours.clone() };
            made.extend(one.has_copies().then(|| (Admitted::EndpointSlice, metadata.clone())));
            made.push((Admitted::Service, metadata));
        }
        let family = self.options.to.family();
        made.push((Admitted::Service, passing("barrier", "kube-system", "preflight")));
        if self.survey().await?.era.era != Era::Bitmap {
            let allocated = labelled(&[(IP_FAMILY, &family.to_string()), (ALLOCATED_BY, ALLOCATOR)]);
            made.push((Admitted::IpAddress, allocated));
            // The ServiceCIDR that the API servers create has no labels.
            made.extend([ours, ObjectMeta::default()].map(|one| (Admitted::ServiceCidr, one)));
        }
        let all = changed.chain(made.iter().map(|(kind, metadata)| (*kind, metadata)));
        Ok(all.filter_map(|(kind, metadata)| Written::of(kind, metadata, &of_namespaces)).collect())
    }

    /// Finds components that announce ClusterIPs: Calico by the plan, Cilium by BGP advertisements, kube-router by its flag.
    pub(super) async fn announced(&self) -> Read<Judged> {
        let cluster = self.read.cluster()?;
        let mut others = Vec::new();
        for version in ["cilium.io/v2", "cilium.io/v2alpha1"] {
            let kind = "CiliumBGPAdvertisement";
            if let Some(found) = self.read.list_if_served(version, kind).await? {
                others.extend(
                    environment::announcing(&found).map(|name| format!("CiliumBGPAdvertisement `{name}`")),
                );
                break;
            }
        }
        let router = cluster.object::<DaemonSet>(Some("kube-system"), "kube-router").await;
        if router.map_err(unread)?.is_some_and(|router| environment::is_announcing(&router)) {
            others.push("DaemonSet `kube-system/kube-router` (`--advertise-cluster-ip`)".to_string());
        }
        let calico = self.plan().await.map(|plan| plan.work.overlaps.len()).unwrap_or_default();
        Ok(environment::announced(calico, &others))
    }
}

fn labelled(labels: &[(&str, &str)]) -> ObjectMeta {
    let labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }
}

pub(super) fn allocations(survey: &Survey) -> Judged {
    let found = audit(survey);
    let worst = found
        .iter()
        .filter(|finding| finding.severity != Severity::Info)
        .max_by_key(|finding| finding.severity);
    let remedy =
        "`netsurgeon ranges check` lists all findings, and docs/findings.md describes how to repair them";
    match worst {
        None => Judged::pass(format!(
            "{} and the records of their addresses agree, era {}",
            counted(survey.services.len(), "Service", "Services"),
            survey.era.era
        )),
        Some(worst) => {
            let count = found.iter().filter(|finding| finding.severity == worst.severity).count();
            let seen =
                format!("{count} of {}: {} {}: {}", worst.severity, worst.code, worst.subject, worst.message);
            if worst.severity == Severity::Error {
                Judged::fail(seen, remedy)
            } else {
                Judged::warn(seen, remedy)
            }
        }
    }
}

pub(super) fn planned(plan: &Plan<Renumbering>) -> Judged {
    let work = &plan.work;
    let shadows = work.moves.iter().filter(|candidate| candidate.hold == Hold::Shadow).count();
    let copied = work.moves.iter().filter(|candidate| candidate.has_copies());
    let seen = format!(
        "{} to {}, {} held by shadows",
        counted(work.moves.len(), "Service moves", "Services move"),
        work.to,
        shadows,
    );
    if let Some(gap) = &work.gap {
        let remedy = "give kube-proxy's own configuration: `--kube-proxy-config FILE`";
        let seen = format!("{seen}; cannot tell whether every node can hold old addresses: {gap}");
        return if work.gap_accepted { Judged::warn(seen, remedy) } else { Judged::unknown(seen, remedy) };
    }
    if let Some(unread) = work.unread.first() {
        return Judged::warn(
            format!("{seen}; not read: {unread}"),
            "update it by hand if it records the range",
        );
    }
    match copied.count() {
        0 => Judged::pass(seen),
        copied => Judged::warn(
            format!("{seen}, {copied} of them with copies of endpoints"),
            "run `netsurgeon renumber guard` from before the first batch until the end: it keeps the copies up to date",
        ),
    }
}

/// Returns the objects of the dry runs: the new range, a Service held by an external IP, a shadow, and the sentinel of a barrier.
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
