//! What is stored, what would come of the plan, and who may carry it out.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Looking, Read, unread};
use crate::cli::output::counted;
use crate::cluster::{ClusterError, MANAGED_BY, sentinel};
use crate::operation::Plan;
use crate::preflight::Judged;
use crate::renumber::Renumbering;
use crate::renumber::hold::Hold;
use crate::survey::audit::audit;
use crate::survey::{Era, Severity, Survey};

impl Looking {
    /// What the plan would have the API server make, and Services as they will be, looked at by admission.
    pub(super) async fn policies(&self) -> Read<Judged> {
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

    pub(super) async fn rights(&self) -> Read<Judged> {
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

pub(super) fn allocations(survey: &Survey) -> Judged {
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

pub(super) fn planned(plan: &Plan<Renumbering>) -> Judged {
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
