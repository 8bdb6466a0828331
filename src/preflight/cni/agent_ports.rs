//! `agent-ports`: whether a port that the new CNI needs is in use.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::Cni;
use crate::inventory::cni_settings::{GENEVE, Settings, VXLAN, VXLAN_OF_LINUX};
use crate::inventory::host_ports::{Port, ports};
use crate::kube_api::accessors::{is_alive, subject};
use crate::preflight::{Check, Judged, Source, first_few};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "agent-ports",
    why: "an agent does not start if its port is in use, and two tunnels cannot share a port",
    needs: &[Source::Api],
    judge: |input| {
        Box::pin(async { Ok(judge(input.to.as_deref(), input.settings().await?, input.read.pods().await?)) })
    },
};

/// A CNI to install, and the ports that its agents need on each node.
struct Newcomer {
    name: &'static str,
    whose: &'static str,
    /// Container names in the CNI's Pods.
    containers: &'static [&'static str],
    /// Default UDP port of the tunnel.
    tunnel: u16,
    /// TCP and UDP ports on which the CNI's Pods in the host network listen.
    own: (&'static [u16], &'static [u16]),
    /// TCP ports on which the CNI's Pods in the host network listen only if the CNI is configured to open these ports.
    optional: &'static [u16],
    /// Traffic that must be allowed between nodes.
    between: &'static str,
    /// Setting that selects another tunnel port.
    said_in: &'static str,
}

/// Ports of each CNI. The ports of Cilium come from `Documentation/operations/system_requirements.rst`. The ports of Calico come
/// from the network requirements in its documentation; its health ports come from `manifests/calico-typha.yaml` and
/// `felix/config/config_params.go`. The port of Flannel comes from `Documentation/backends.md`, and the ports of Antrea come from
/// `docs/network-requirements.md`.
const NEWCOMERS: [Newcomer; 4] = [
    Newcomer {
        name: "cilium",
        whose: "Cilium",
        containers: &["cilium-agent", "cilium-operator", "cilium-envoy"],
        tunnel: VXLAN_OF_LINUX,
        own: (&[4240, 4244, 9878, 9879, 9890, 9891], &[]),
        optional: &[4250, 9901, 9962, 9963, 9964],
        between: "4240/TCP and ICMP (health checks), and its tunnel port, by default 8472/UDP",
        said_in: "`tunnelPort` of its Helm chart, for example 8473",
    },
    Newcomer {
        name: "calico",
        whose: "Calico",
        containers: &["calico-node", "calico-typha"],
        tunnel: VXLAN,
        own: (&[179, 5473, 9098, 9099], &[]),
        optional: &[9091, 9093],
        between: "5473/TCP (Typha), and depending on its IPPools: 179/TCP (BGP), IP protocol 4 (IP-in-IP), 4789/UDP (VXLAN)",
        said_in: "`vxlanPort` of its FelixConfiguration",
    },
    Newcomer {
        name: "flannel",
        whose: "Flannel",
        containers: &["kube-flannel"],
        tunnel: VXLAN_OF_LINUX,
        own: (&[], &[]),
        optional: &[],
        between: "8472/UDP (VXLAN)",
        said_in: "`Backend.Port` of its `net-conf.json`",
    },
    Newcomer {
        name: "antrea",
        whose: "Antrea",
        containers: &["antrea-agent", "antrea-controller"],
        tunnel: GENEVE,
        own: (&[10349, 10350, 10351], &[10351]),
        optional: &[],
        between: "10349-10351/TCP, 10351/UDP, and 6081/UDP (Geneve)",
        said_in: "`tunnelPort` of `antrea-agent.conf`",
    },
];

/// Returns the names of the CNIs in `NEWCOMERS`.
pub fn newcomers() -> impl Iterator<Item = &'static str> {
    NEWCOMERS.iter().map(|one| one.name)
}

/// Returns the display name of one of the [`newcomers`].
pub fn whose(name: &str) -> Option<&'static str> {
    NEWCOMERS.iter().find(|one| one.name == name).map(|one| one.whose)
}

/// Checks whether a port that the new CNI (one of [`newcomers`]) needs on the nodes is in use.
fn judge(to: Option<&str>, settings: &Settings, pods: &[Pod]) -> Judged {
    let Some(newcomer) = to.and_then(|to| NEWCOMERS.iter().find(|one| one.name == to)) else {
        let known: Vec<&str> = newcomers().collect();
        return Judged::skipped(format!("no new CNI given (`--to`, one of {})", known.join(", ")));
    };
    let tunnels =
        settings.tunnels.iter().filter(|(whose, port)| *whose != newcomer.whose && *port == newcomer.tunnel);
    let tunnels: Vec<String> =
        tunnels.map(|(whose, port)| format!("the tunnel of {whose} uses {port}/UDP")).collect();
    let [own, optional] = newcomer.ports().map(|ports| newcomer.taken(&ports, pods));
    let who = newcomer.whose;
    if !tunnels.is_empty() || !own.is_empty() {
        let met: Vec<String> = tunnels.iter().cloned().chain(own).collect();
        let remedy = if tunnels.is_empty() {
            "free the port, or configure another one in the new CNI".to_string()
        } else {
            let said_in = newcomer.said_in;
            format!(
                "give {who}'s tunnel another port ({said_in}): on a shared port each network receives the other's packets"
            )
        };
        return Judged::fail(format!("{who} needs ports that are in use: {}", first_few(&met)), remedy);
    }
    if !optional.is_empty() {
        return Judged::warn(
            format!("ports of optional features of {who} are in use: {}", first_few(&optional)),
            "do not enable these features of the new CNI (such as metrics), or configure other ports for them",
        );
    }
    if settings.running.is_empty() && !settings.has_newcomer {
        return Judged::warn(
            "the current CNI and its tunnel port are unknown",
            format!(
                "find out whether the current CNI uses {}/UDP for its tunnel; if so, give {who}'s tunnel another port ({})",
                newcomer.tunnel, newcomer.said_in
            ),
        );
    }
    Judged::pass(format!(
        "no Pod or tunnel uses a port of {who}; traffic to allow between nodes (firewalls and security groups are not checked): \
         {}",
        newcomer.between
    ))
}

impl Newcomer {
    /// Returns whether a Pod belongs to this CNI.
    fn has(&self, pod: &Pod) -> bool {
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.any(|one| self.containers.contains(&one.name.as_str()))
    }

    /// Returns the required ports and the optional ports of the CNI.
    fn ports(&self) -> [BTreeSet<Port<'static>>; 2] {
        let of = |ports: &'static [u16], protocol| ports.iter().map(move |port| (*port, protocol));
        let own = of(self.own.0, "TCP").chain(of(self.own.1, "UDP")).chain([(self.tunnel, "UDP")]);
        [own.collect(), of(self.optional, "TCP").collect()]
    }

    /// Returns the wanted ports that Pods of other components use. Each text names the Pod and the port.
    fn taken(&self, wanted: &BTreeSet<Port<'_>>, pods: &[Pod]) -> Vec<String> {
        let others = pods.iter().filter(|pod| is_alive(pod) && !self.has(pod));
        let found = others.flat_map(|pod| {
            let both: Vec<_> = ports(pod).intersection(wanted).copied().collect();
            both.into_iter().map(|(port, protocol)| format!("{} uses {port}/{protocol}", subject(pod)))
        });
        found.collect::<BTreeSet<String>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::host_ports::testing::pod;
    use crate::preflight::Verdict;

    #[test]
    fn port_in_use_by_another_pod_fails() {
        let settings = Settings { running: ["kindnet"].into(), ..Settings::default() };
        assert_eq!(judge(None, &settings, &[]).verdict, Verdict::Skipped);
        assert_eq!(
            judge(Some("cilium"), &Settings::default(), &[]).verdict,
            Verdict::Warn,
            "the present CNI is unknown"
        );
        for name in newcomers() {
            let judged = judge(Some(name), &settings, &[pod("web", true, 443, "TCP")]);
            assert_eq!(judged.verdict, Verdict::Pass, "{}", judged.observed);
        }
        let taken = judge(Some("cilium"), &settings, &[pod("web", true, 4244, "TCP")]);
        assert_eq!(taken.verdict, Verdict::Fail);
        assert_eq!(taken.observed, "Cilium needs ports that are in use: `shop/web` uses 4244/TCP");
        assert_eq!(judge(Some("cilium"), &settings, &[pod("web", true, 4244, "UDP")]).verdict, Verdict::Pass);
        assert_eq!(
            judge(Some("cilium"), &settings, &[pod("cilium-agent", true, 4244, "TCP")]).verdict,
            Verdict::Pass
        );
    }

    #[test]
    fn optional_port_in_use_is_a_warning() {
        let settings = Settings { running: ["Flannel"].into(), ..Settings::default() };
        let judged = judge(Some("cilium"), &settings, &[pod("envoy", true, 9901, "TCP")]);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert!(judged.observed.ends_with("are in use: `shop/envoy` uses 9901/TCP"), "{judged:?}");
    }

    #[test]
    fn shared_tunnel_port_fails() {
        let of = |whose, port| Settings {
            tunnels: vec![(whose, port)],
            running: [whose].into(),
            ..Settings::default()
        };
        let shared = judge(Some("cilium"), &of("Flannel", 8472), &[]);
        assert_eq!(
            shared.observed,
            "Cilium needs ports that are in use: the tunnel of Flannel uses 8472/UDP"
        );
        assert!(
            shared.remedy.contains("`tunnelPort` of its Helm chart, for example 8473"),
            "{}",
            shared.remedy
        );
        assert_eq!(judge(Some("calico"), &of("Flannel", 8472), &[]).verdict, Verdict::Pass);
        assert_eq!(judge(Some("calico"), &of("Antrea", 4789), &[]).verdict, Verdict::Fail);
        assert_eq!(judge(Some("cilium"), &of("Cilium", 8472), &[]).verdict, Verdict::Pass, "its own tunnel");
    }
}
