//! Reads the nodes, and the routes of this host.

use futures_util::{StreamExt as _, stream};

use super::Looking;
use crate::controlplane::CONTROLLER_MANAGER;
use crate::gather::reading::{AT_ONCE, Read, own_routes};
use crate::kube_api::{Node, ProxyFault};
use crate::preflight::nodes;
use crate::preflight::{Judged, environment};
use crate::renumber::kube_proxy::{DataPlane, health_port, judge};

const CLUSTER_CIDR: &str = "cluster-cidr";

impl Looking {
    /// Checks which component routes Services, and the health of every kube-proxy.
    pub(super) async fn proxies(&self) -> Read<Judged> {
        let (survey, given) = (self.survey().await?, self.options.proxy_config.as_deref());
        let remedy = "give kube-proxy's own configuration, `--kube-proxy-config FILE`, or accept that connections to old addresses may \
                    fail: `--accept-gap`";
        let (about, no_external_ip) = match judge(survey, self.options.to.family(), given) {
            DataPlane::KubeProxy { about, no_external_ip } => {
                (about.trim_start_matches("kube-proxy: ").to_string(), no_external_ip)
            }
            DataPlane::Unknown(reason) | DataPlane::Unsupported(reason) if self.options.accept_gap => {
                return Ok(Judged::warn(format!("{reason}; the gap is accepted"), remedy));
            }
            DataPlane::Unknown(reason) => return Ok(Judged::unknown(reason, remedy)),
            DataPlane::Unsupported(reason) => return Ok(Judged::fail(reason, remedy)),
        };
        let missing = no_external_ip.map(|obstacle| (obstacle.reason(), obstacle.remedy()));
        let Some(port) = health_port(survey, given) else {
            return Ok(nodes::proxies(None, &about, missing));
        };
        let cluster = self.read.cluster()?;
        let asked = self.read.nodes().await?.iter().map(Node::of).map(async |node| {
            let answer = cluster.proxy_health(&node, port).await;
            (node.name, answer)
        });
        let answers: Vec<(String, Result<(), ProxyFault>)> =
            stream::iter(asked).buffered(AT_ONCE).collect().await;
        let faults = answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().err()?)));
        let hidden: Vec<String> =
            faults.clone().filter(|(_, fault)| fault.is_hidden).map(|(node, _)| node.clone()).collect();
        // An unhealthy kube-proxy takes precedence over unreachable ones.
        if !hidden.is_empty() && hidden.len() == faults.count() {
            return Ok(nodes::hidden(&hidden, port));
        }
        let words =
            |(node, answer): (String, Result<(), ProxyFault>)| (node, answer.map_err(|fault| fault.reason));
        let answers: Vec<_> = answers.into_iter().map(words).collect();
        Ok(nodes::proxies(Some(&answers), &about, missing))
    }

    pub(super) async fn windows(&self) -> Read<Judged> {
        Ok(environment::windows(self.read.nodes().await?, self.options.accept_gap))
    }

    /// Checks uses of the new range that planning does not check: Pod ranges of controller managers, and routes of this host.
    pub(super) async fn overlaps(&self) -> Read<Judged> {
        let to = &self.options.to;
        let pods = self.read.ranges_told(CONTROLLER_MANAGER, CLUSTER_CIDR).await?;
        let mut services = self.survey().await?.service_ranges();
        services.retain(|range| range != to);
        Ok(nodes::overlaps(to, &services, &pods, &own_routes()?))
    }
}
