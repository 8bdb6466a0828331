//! `kube-proxy`: whether each kube-proxy is healthy and can hold old addresses.

use futures_util::{StreamExt as _, stream};

use super::Renumber;
use crate::inventory::AT_ONCE;
use crate::kube_api::{Node, ProxyFault};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::renumber::kube_proxy::{self, DataPlane, health_port};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "kube-proxy",
    why: "kube-proxies keep the old addresses working, and every batch waits until all of them have applied its changes",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Name of a node, and the health check response of its kube-proxy.
type Answer = (String, Result<(), ProxyFault>);

/// Checks which component routes Services, and the health of every kube-proxy.
async fn read(input: &Renumber) -> Read<Judged> {
    if let Some(judged) = input.only_grows().await {
        return Ok(judged);
    }
    let (survey, given) = (input.survey().await?, input.options.proxy_config.as_deref());
    let remedy = "if kube-proxy routes Services on every node, give its configuration, `--kube-proxy-config FILE`; or accept that \
                connections to old addresses may fail: `--accept-gap`";
    let (about, no_external_ip) = match kube_proxy::judge(survey, input.options.to.family(), given) {
        DataPlane::KubeProxy { about, no_external_ip } => {
            (about.trim_start_matches("kube-proxy: ").to_string(), no_external_ip)
        }
        DataPlane::Unknown(reason) | DataPlane::Unsupported(reason) if input.options.accept_gap => {
            return Ok(Judged::warn(format!("{reason}; accepted with `--accept-gap`"), remedy));
        }
        DataPlane::Unknown(reason) => return Ok(Judged::unknown(reason, remedy)),
        DataPlane::Unsupported(reason) => return Ok(Judged::fail(reason, remedy)),
    };
    let missing = no_external_ip.map(|obstacle| (obstacle.reason(), obstacle.remedy()));
    let Some(port) = health_port(survey, given) else {
        return Ok(judge(None, &about, missing));
    };
    let cluster = input.read.cluster()?;
    let asked = input.read.nodes().await?.iter().map(Node::of).map(async |node| {
        let answer = cluster.proxy_health(&node, port).await;
        (node.name, answer)
    });
    let answers: Vec<Answer> = stream::iter(asked).buffered(AT_ONCE).collect().await;
    let faults = answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().err()?)));
    let unreachable: Vec<String> =
        faults.clone().filter(|(_, fault)| fault.is_hidden).map(|(node, _)| node.clone()).collect();
    // An unhealthy kube-proxy is more important than unreachable kube-proxies.
    if !unreachable.is_empty() && unreachable.len() == faults.count() {
        return Ok(hidden(&unreachable, port));
    }
    Ok(judge(Some(&answers), &about, missing))
}

/// Checks the health of each node's kube-proxy. `answers`: `None` if the health check listens only on loopback, or not at all.
/// `about`: mode and local-traffic detector of the kube-proxies, as text. `missing`: why an external IP cannot hold an address,
/// and the remedy, if there is one.
fn judge(answers: Option<&[Answer]>, about: &str, missing: Option<(&str, Option<&str>)>) -> Judged {
    let about = &match missing {
        None => about.to_string(),
        Some((reason, _)) => format!("{about}; {reason}, so a shadow holds every old address"),
    };
    let Some(answers) = answers else {
        return Judged::warn(
            format!("{about}; the health checks of kube-proxy listen on loopback only, or not at all"),
            "check on each node: `curl -s localhost:10256/healthz`, or the port of kube-proxy's `healthzBindAddress`",
        );
    };
    let ill: Vec<String> = answers
        .iter()
        .filter_map(|(node, answer)| Some(format!("`{node}` ({})", answer.as_ref().err()?.reason)))
        .collect();
    if !ill.is_empty() {
        return Judged::fail(
            format!(
                "{} of {} kube-proxies not reported as healthy: {}",
                ill.len(),
                answers.len(),
                first_few(&ill)
            ),
            "repair them, or delete Nodes that no longer exist: every batch waits for all kube-proxies",
        );
    }
    if answers.is_empty() {
        return Judged::fail("there are no Nodes", "is this the right cluster?");
    }
    let seen = format!("{} healthy: {about}", counted(answers.len(), "kube-proxy", "kube-proxies"));
    match missing.and_then(|(_, remedy)| remedy) {
        None => Judged::pass(seen),
        Some(remedy) => Judged::warn(
            seen,
            format!(
                "{remedy}, so that external IPs can hold old addresses; otherwise each Service needs a second Service (shadow) during the soak"
            ),
        ),
    }
}

/// Returns the result if the health checks of the kube-proxies on these nodes are unreachable. `port`: port of the health check.
fn hidden(nodes: &[String], port: u16) -> Judged {
    let names: Vec<String> = nodes.iter().map(|node| format!("`{node}`")).collect();
    Judged::unknown(
        format!(
            "the health of kube-proxy is unknown on {}, because port {port} does not answer this host, and the user is not allowed to `get nodes/proxy`: {}",
            counted(nodes.len(), "node", "nodes"),
            first_few(&names)
        ),
        format!(
            "let this host reach port {port} of every node, or bind the optional ClusterRole `netsurgeon-nodes` of deploy/rbac.yaml to \
             this user during the move; its comment describes the permission"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn every_kube_proxy_must_be_healthy() {
        let answer = |ill: bool| {
            let fault = ProxyFault { reason: "no answer".to_string(), is_hidden: false };
            ("node-1".to_string(), if ill { Err(fault) } else { Ok(()) })
        };
        let judged = |answers: &[Answer], missing| judge(Some(answers), "iptables", missing);
        assert_eq!(judged(&[answer(false)], None).observed, "1 kube-proxy healthy: iptables");
        assert_eq!(judged(&[answer(false)], None).verdict, Verdict::Pass);
        let ill = judged(&[answer(false), answer(true)], None);
        assert_eq!(ill.verdict, Verdict::Fail);
        assert!(
            ill.observed.starts_with("1 of 2 kube-proxies not reported as healthy: `node-1` (no answer)"),
            "{ill:?}"
        );
        let warned = judged(&[answer(false)], Some(("no detector", Some("set one"))));
        assert_eq!(warned.verdict, Verdict::Warn);
        assert_eq!(
            warned.observed,
            "1 kube-proxy healthy: iptables; no detector, so a shadow holds every old address"
        );
        assert!(warned.remedy.starts_with("set one"), "{warned:?}");
        let noted = judged(&[answer(false)], Some(("an old version", None)));
        assert_eq!(noted.verdict, Verdict::Pass, "only an upgrade changes it: {noted:?}");
        assert_eq!(judged(&[], None).verdict, Verdict::Fail);
        assert_eq!(judge(None, "iptables", None).verdict, Verdict::Warn);
    }

    #[test]
    fn unreachable_kube_proxies_are_unknown() {
        let judged = hidden(&["node-1".into()], 10256);
        assert_eq!(judged.verdict, Verdict::Unknown);
        assert!(
            judged.observed.contains("unknown on 1 node,") && judged.observed.ends_with("`node-1`"),
            "{judged:?}"
        );
        assert!(
            judged.remedy.contains("port 10256") && judged.remedy.contains("`netsurgeon-nodes`"),
            "{judged:?}"
        );
    }
}
