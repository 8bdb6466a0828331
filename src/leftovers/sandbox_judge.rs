//! Finds leases and cached results of sandboxes that no longer exist.

use super::context::{Scene, is_meta};
use super::reference::SIGNATURE;
use super::signature::{Found, quoted};
use super::{Kind, Leftover};

pub(super) fn found(scene: &Scene<'_>) -> Vec<Leftover> {
    let network = scene.winner().and_then(|winner| winner.network.as_deref());
    let has_meta = scene.winner().is_some_and(is_meta);
    let results = &scene.state.results;
    let is_other = |of: &str| scene.has_configurations() && network != Some(of);
    // A sandbox can have further networks (Multus), whose addresses the API does not show. The result of its first network has an
    // address of the Pod.
    let of_container = |id: &str| {
        let own = results.items.iter().filter(|result| result.container == id);
        own.collect::<Vec<_>>()
    };
    let is_alive = |id: &str| {
        let mut addresses = of_container(id).into_iter().flat_map(|result| &result.addresses);
        addresses.any(|address| !scene.is_dead(*address))
    };
    let mut found = Vec::new();
    for lease in &scene.state.leases.items {
        // The runtime writes the result of a new sandbox before the API shows the address of the Pod.
        let is_cached = !of_container(&lease.container).is_empty();
        if has_meta && !is_cached {
            continue;
        }
        let is_old = is_other(&lease.network) && !is_alive(&lease.container);
        let is_leaked = !is_cached && results.gap().is_none();
        if scene.is_dead(lease.address) && (is_old || is_leaked) {
            let reason = if is_old {
                "no Pod has this address, and the network is not the one that the runtime uses"
            } else {
                "no Pod has this address, and the runtime has no result for its sandbox"
            };
            found.push(
                Found::new(&SIGNATURE, Kind::Lease, &lease.file, format!("cat {}", quoted(&lease.file)))
                    .at(format!("network {}", lease.network))
                    .because(reason),
            );
        }
    }
    for result in &results.items {
        let is_old = is_other(&result.network) && !is_alive(&result.container);
        let is_dead =
            !result.addresses.is_empty() && result.addresses.iter().all(|address| scene.is_dead(*address));
        if is_old && is_dead && !is_loopback(&result.network) {
            found.push(
                Found::new(
                    &SIGNATURE,
                    Kind::CachedResult,
                    &result.file,
                    format!("cat {}", quoted(&result.file)),
                )
                .at(format!("network {}", result.network))
                .because("no Pod has its addresses, and the network is not the one that the runtime uses"),
            );
        }
    }
    found.into_iter().map(|found| found.leftover).collect()
}

/// Every sandbox has a result for its loopback (`pkg/cri` of containerd).
fn is_loopback(network: &str) -> bool {
    network == "cni-loopback"
}
