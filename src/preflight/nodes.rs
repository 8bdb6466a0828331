//! The nodes: whether each kube-proxy is healthy and can hold old addresses, and other uses of the new range.

use super::{Judged, first_few};
use crate::ip::ServiceCidr;
use crate::words::counted;

/// A route of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination of the route.
    pub range: ServiceCidr,
    /// Network device of the route.
    pub device: String,
}

/// Checks the health of each node's kube-proxy. `answers`: `None` if the health check listens on loopback or not at all. `about`:
/// mode and detector, as text. `missing`: why an external IP cannot hold an address, and the remedy, if there is one.
pub fn proxies(
    answers: Option<&[(String, Result<(), String>)]>,
    about: &str,
    missing: Option<(&str, Option<&str>)>,
) -> Judged {
    let about = &match missing {
        None => about.to_string(),
        Some((reason, _)) => format!("{about}; {reason}: a shadow holds every old address"),
    };
    let Some(answers) = answers else {
        return Judged::warn(
            format!("{about}; their health check is reachable on their own nodes only"),
            "check on each node: `curl -s localhost:10256/healthz`",
        );
    };
    let ill: Vec<String> = answers
        .iter()
        .filter_map(|(node, answer)| Some(format!("`{node}` ({})", answer.as_ref().err()?)))
        .collect();
    if !ill.is_empty() {
        return Judged::fail(
            format!(
                "{} of {} do not report that they are healthy: {}",
                ill.len(),
                answers.len(),
                first_few(&ill)
            ),
            "repair them, or delete Nodes that no longer exist: every batch waits for each of them",
        );
    }
    if answers.is_empty() {
        return Judged::fail("there are no Nodes", "is this the right cluster?");
    }
    let seen = format!("{} healthy: {about}", answers.len());
    match missing.and_then(|(_, remedy)| remedy) {
        None => Judged::pass(seen),
        Some(remedy) => Judged::warn(
            seen,
            format!(
                "{remedy}, and external IPs can hold old addresses; with shadows only, each Service needs \
                 a second Service during the soak"
            ),
        ),
    }
}

/// Returns the result if no health check of these nodes' kube-proxies is reachable. `port`: port of the health check.
pub fn hidden(nodes: &[String], port: u16) -> Judged {
    let names: Vec<String> = nodes.iter().map(|node| format!("`{node}`")).collect();
    Judged::unknown(
        format!(
            "the health of {} is unknown: port {port} of their nodes does not answer here, and the user is not allowed to \
             `get nodes/proxy`: {}",
            counted(nodes.len(), "kube-proxy", "kube-proxies"),
            first_few(&names)
        ),
        format!(
            "let this host reach port {port} of every node, or bind the optional ClusterRole `netsurgeon-nodes` of deploy/rbac.yaml to \
             this user during the move; its comment describes the permission"
        ),
    )
}

/// Checks for other uses of the new range. `old`: ranges from which Services move away. `pods`: ranges for Pods, each with its
/// source. `routes`: routes of this host. A route that covers both the old and the new range, such as the default route, is
/// ignored.
pub fn overlaps(
    to: &ServiceCidr,
    old: &[ServiceCidr],
    pods: &[(String, ServiceCidr)],
    routes: &[Route],
) -> Judged {
    if let Some((who, range)) = pods.iter().find(|(_, range)| range.overlaps(to)) {
        return Judged::fail(format!("Pods get addresses of `{range}` ({who})"), "choose another range");
    }
    let is_new = |route: &&Route| {
        let is_wider = route.range.prefix_len() < to.prefix_len();
        route.range.overlaps(to) && !(is_wider && old.iter().any(|old| route.range.overlaps(old)))
    };
    let found: Vec<&Route> = routes.iter().filter(is_new).collect();
    let words = |route: &&Route| format!("`{}` by `{}`", route.range, route.device);
    let seen = first_few(&found.iter().map(words).collect::<Vec<_>>());
    if found.iter().any(|route| route.range.prefix_len() >= to.prefix_len()) {
        return Judged::fail(
            format!("this host has a route into the new range: {seen}"),
            "choose another range, or stop the use of those addresses",
        );
    }
    if !found.is_empty() {
        return Judged::warn(
            format!("this host has a route that covers the new range and not the old one: {seen}"),
            "make sure that no host behind it uses addresses of the new range: nodes will no longer reach it",
        );
    }
    Judged::pass("no other use of the new range was found")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn every_kube_proxy_must_be_healthy() {
        let answer =
            |ill: bool| ("node-1".to_string(), if ill { Err("no answer".to_string()) } else { Ok(()) });
        let judged =
            |answers: &[(String, Result<(), String>)], missing| proxies(Some(answers), "iptables", missing);
        assert_eq!(judged(&[answer(false)], None).observed, "1 healthy: iptables");
        assert_eq!(judged(&[answer(false)], None).verdict, Verdict::Pass);
        let ill = judged(&[answer(false), answer(true)], None);
        assert_eq!(ill.verdict, Verdict::Fail);
        assert!(
            ill.observed.starts_with("1 of 2 do not report that they are healthy: `node-1` (no answer)"),
            "{ill:?}"
        );
        let warned = judged(&[answer(false)], Some(("no detector", Some("set one"))));
        assert_eq!(warned.verdict, Verdict::Warn);
        assert_eq!(warned.observed, "1 healthy: iptables; no detector: a shadow holds every old address");
        assert!(warned.remedy.starts_with("set one"), "{warned:?}");
        let noted = judged(&[answer(false)], Some(("an old version", None)));
        assert_eq!(noted.verdict, Verdict::Pass, "only an upgrade changes it: {noted:?}");
        assert_eq!(judged(&[], None).verdict, Verdict::Fail);
        assert_eq!(proxies(None, "iptables", None).verdict, Verdict::Warn);
    }

    #[test]
    fn unreachable_kube_proxies_are_unknown() {
        let judged = hidden(&["node-1".into()], 10256);
        assert_eq!(judged.verdict, Verdict::Unknown);
        assert!(
            judged.observed.contains("of 1 kube-proxy is") && judged.observed.ends_with("`node-1`"),
            "{judged:?}"
        );
        assert!(
            judged.remedy.contains("port 10256") && judged.remedy.contains("`netsurgeon-nodes`"),
            "{judged:?}"
        );
    }

    #[test]
    fn routes_and_pods_must_not_use_the_new_range() {
        let range = |text: &str| -> ServiceCidr { text.parse().unwrap() };
        let (to, old) = (range("10.200.0.0/16"), [range("10.96.0.0/16")]);
        let by = |text: &str| {
            overlaps(&to, &old, &[], &[Route { range: range(text), device: "eth0".into() }]).verdict
        };
        assert_eq!(by("10.200.3.0/24"), Verdict::Fail);
        assert_eq!(by("10.200.0.0/16"), Verdict::Fail);
        assert_eq!(by("10.192.0.0/10"), Verdict::Warn, "it covers the new range, and not the old one");
        assert_eq!(by("10.0.0.0/8"), Verdict::Pass, "it covers both ranges");
        assert_eq!(by("192.0.2.0/24"), Verdict::Pass);
        let pods = [("`--cluster-cidr`".to_string(), range("10.200.128.0/17"))];
        assert_eq!(overlaps(&to, &old, &pods, &[]).verdict, Verdict::Fail);
    }
}
