//! `mtu`: whether an MTU is set by hand.

use super::Cni;
use crate::inventory::network_settings::NetworkSettings;
use crate::preflight::{Check, Judged, Source, first_few};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "mtu",
    why: "packets larger than the path MTU are dropped, so that large responses hang",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(input.settings().await?)) }),
};

/// Checks whether an MTU is set by hand. The remedy contains the overhead of tunnels over IPv4 (RFC 7348, section 4). Geneve
/// options and encryption increase this overhead.
fn judge(settings: &NetworkSettings) -> Judged {
    if settings.mtus.is_empty() {
        return Judged::pass("no MTU is set by hand: the CNI detects it from the nodes' interfaces");
    }
    let told: Vec<String> = settings.mtus.iter().map(|(at, mtu)| format!("{mtu} ({at})")).collect();
    Judged::warn(
        format!("MTU set by hand: {}", first_few(&told)),
        "find out why (an underlying tunnel or VPN, jumbo frames), and configure the new CNI: the nodes' \
         MTU minus 50 for VXLAN and Geneve, 20 for IP-in-IP or 60 for WireGuard, and minus 20 more over \
         IPv6; larger packets are dropped, so that large responses hang",
    )
}
