//! The shadow Services of a plan: their names, the spec that they copy, and the addresses for their creation.

use std::collections::HashSet;
use std::net::IpAddr;

use super::{PlanError, capacity};
use crate::ip::Family;
use crate::renumber::intention::{Move, Renumbering, Shadow};
use crate::survey::{ServiceRecord, Survey};

/// Gives every shadow Service a temporary address of the new range for its creation. The address is free again before the batch
/// ends, so all batches use the same temporary addresses.
pub(in crate::renumber) fn give_temporaries(
    work: &mut Renumbering,
    survey: &Survey,
    taken: HashSet<IpAddr>,
) -> Result<(), PlanError> {
    let batches = work.batches();
    let shadows = |moves: &[Move]| moves.iter().filter(|candidate| candidate.shadow.is_some()).count();
    let counts = batches.iter().filter_map(|batch| work.moves.get(batch.clone())).map(shadows);
    let needed = counts.max().unwrap_or(0).saturating_mul(2);
    if needed == 0 {
        return Ok(());
    }
    let spare: Vec<IpAddr> = spare_addresses(taken, work, capacity(survey, &work.to)).take(needed).collect();
    if spare.len() < needed {
        return Err(PlanError::NoRoomForShadows { needed, free: spare.len() });
    }
    for batch in batches {
        let moves = work.moves.get_mut(batch).unwrap_or_default();
        let shadows = moves.iter_mut().filter_map(|candidate| candidate.shadow.as_mut());
        for (shadow, pair) in shadows.zip(spare.chunks_exact(2)) {
            if let [hold, warm] = pair {
                shadow.temporary = [*hold, *warm];
            }
        }
    }
    Ok(())
}

pub(in crate::renumber) fn make_shadow(
    service: &ServiceRecord,
    family: Family,
    placeholder: IpAddr,
) -> Shadow {
    // A Service name has at most 63 characters (RFC 1035 label). Half of a uid is unique enough within the namespace, and it is
    // the same for every attempt.
    let short: String = service.uid.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
    Shadow {
        hold_name: format!("netsurgeon-hold-{short}"),
        warm_name: format!("netsurgeon-warm-{short}"),
        temporary: [placeholder; 2],
        spec: shadow_spec(service, family),
    }
}

/// Returns the spec that a shadow copies: all fields that decide which endpoints get traffic. The copy has no node ports, no load
/// balancer, and only one family.
pub(in crate::renumber) fn shadow_spec(service: &ServiceRecord, family: Family) -> serde_json::Value {
    let spec = &service.spec;
    let ports: Vec<serde_json::Value> = spec
        .ports
        .iter()
        .map(|port| {
            let mut copy = serde_json::json!({
                "name": port.name, "protocol": port.protocol, "port": port.port,
                "targetPort": port.target_port,
            });
            if let (Some(app), Some(members)) = (&port.app_protocol, copy.as_object_mut()) {
                members.insert("appProtocol".into(), app.as_str().into());
            }
            copy
        })
        .collect();
    let mut copy = serde_json::json!({
        "type": "ClusterIP", "ipFamilies": [family], "ipFamilyPolicy": "SingleStack",
        "selector": spec.selector, "ports": ports,
    });
    if let Some(members) = copy.as_object_mut() {
        let texts = [
            ("sessionAffinity", &spec.session_affinity),
            ("internalTrafficPolicy", &spec.internal_traffic_policy),
            ("trafficDistribution", &spec.traffic_distribution),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                members.insert(name.into(), value.as_str().into());
            }
        }
        if let Some(seconds) = spec.client_ip_timeout_seconds {
            let config = serde_json::json!({"clientIP": {"timeoutSeconds": seconds}});
            members.insert("sessionAffinityConfig".into(), config);
        }
        if spec.publish_not_ready_addresses == Some(true) {
            members.insert("publishNotReadyAddresses".into(), true.into());
        }
    }
    copy
}

/// Returns free addresses of the range as temporary addresses of shadows, starting with the highest.
pub(in crate::renumber) fn spare_addresses(
    mut used: HashSet<IpAddr>,
    work: &Renumbering,
    capacity: u128,
) -> impl Iterator<Item = IpAddr> + use<> {
    used.extend(work.moves.iter().map(|candidate| candidate.new_address));
    let range = work.to;
    let mut offset = capacity;
    std::iter::from_fn(move || {
        while offset > 1 {
            let address = range.nth(offset)?;
            offset = offset.saturating_sub(1);
            if !used.contains(&address) {
                return Some(address);
            }
        }
        None
    })
}
