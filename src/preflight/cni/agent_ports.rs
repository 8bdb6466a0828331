//! `agent-ports`: whether a port that the new CNI needs is in use.

use super::Cni;
use crate::inventory::host_ports::{ports_of, taken};
use crate::inventory::network_plugins::NetworkPlugin;
use crate::inventory::network_settings::NetworkSettings;
use crate::inventory::pod::TrimmedPod;
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

/// Checks whether a port that the new CNI (one of [`NetworkPlugin::options`]) needs on the nodes is in use.
fn judge(to: Option<&str>, settings: &NetworkSettings, pods: &[TrimmedPod]) -> Judged {
    let Some((plugin, newcomer)) = to.and_then(NetworkPlugin::of_option) else {
        let known: Vec<&str> = NetworkPlugin::options().collect();
        return Judged::skipped(format!("no new CNI given (`--to`, one of {})", known.join(", ")));
    };
    let tunnels =
        settings.tunnels.iter().filter(|(whose, port)| *whose != plugin.name && *port == newcomer.tunnel);
    let tunnels: Vec<String> =
        tunnels.map(|(whose, port)| format!("the tunnel of {whose} uses {port}/UDP")).collect();
    let [own, optional] = ports_of(newcomer).map(|ports| taken(newcomer.containers, &ports, pods));
    let who = plugin.name;
    if !tunnels.is_empty() || !own.is_empty() {
        let met: Vec<String> = tunnels.iter().cloned().chain(own).collect();
        let remedy = if tunnels.is_empty() {
            "free the port, or configure another one in the new CNI".to_string()
        } else {
            let setting = newcomer.tunnel_setting;
            format!(
                "give {who}'s tunnel another port ({setting}): on a shared port each network receives the other's packets"
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
                newcomer.tunnel, newcomer.tunnel_setting
            ),
        );
    }
    Judged::pass(format!(
        "no Pod or tunnel uses a port of {who}; traffic to allow between nodes (firewalls and security groups are not checked): \
         {}",
        newcomer.between
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::host_ports::testing::pod;
    use crate::preflight::Verdict;

    #[test]
    fn port_in_use_by_another_pod_fails() {
        let settings = NetworkSettings { running: ["kindnet"].into(), ..NetworkSettings::default() };
        assert_eq!(judge(None, &settings, &[]).verdict, Verdict::Skipped);
        assert_eq!(
            judge(Some("cilium"), &NetworkSettings::default(), &[]).verdict,
            Verdict::Warn,
            "the present CNI is unknown"
        );
        for name in NetworkPlugin::options() {
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
        let settings = NetworkSettings { running: ["Flannel"].into(), ..NetworkSettings::default() };
        let judged = judge(Some("cilium"), &settings, &[pod("envoy", true, 9901, "TCP")]);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert!(judged.observed.ends_with("are in use: `shop/envoy` uses 9901/TCP"), "{judged:?}");
    }

    #[test]
    fn shared_tunnel_port_fails() {
        let of = |whose, port| NetworkSettings {
            tunnels: vec![(whose, port)],
            running: [whose].into(),
            ..NetworkSettings::default()
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
