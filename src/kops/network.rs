//! Ranges of addresses: whether they are valid, and whether they fit together.

use ipnetwork::IpNetwork;

use super::change::Changer;
use super::field::FieldNode;
use super::field_values::REMOVE;
use super::outcome::Finding;
use super::source::{Document, FilePosition};

/// A range, with the field that it is in.
struct Range {
    field: String,
    at: FilePosition,
    network: IpNetwork,
}

/// Checks the ranges of the mirror, and the ids of its subnets.
pub(super) fn check(changer: &mut Changer<'_, '_>) {
    let cluster = &changer.sources.cluster;
    let new = |suffix: &str| ranges(changer, cluster, suffix, true);
    let (mut vpc, subnets) = (new("networkCIDR"), new(".cidr"));
    vpc.0.extend(new("additionalNetworkCIDRs").0);
    let (old_vpc, old_subnets) =
        (ranges(changer, cluster, "networkCIDR", false).0, ranges(changer, cluster, ".cidr", false).0);
    let mut refused: Vec<Finding> = vpc.1.into_iter().chain(subnets.1).collect();
    let (vpc, subnets) = (vpc.0, subnets.0);
    for (number, subnet) in subnets.iter().enumerate() {
        if !vpc.is_empty() && !vpc.iter().any(|one| contains(one.network, subnet.network)) {
            let list: Vec<String> = vpc.iter().map(|one| format!("`{}`", one.network)).collect();
            refused.push(finding(
                subnet,
                format!("`{}` is not in {} of the mirror's VPC", subnet.network, list.join(", ")),
            ));
        }
        if let Some(other) = subnets.iter().take(number).find(|other| overlap(other.network, subnet.network))
        {
            refused.push(finding(subnet, format!("`{}` overlaps with `{}`", subnet.network, other.field)));
        }
        let old = old_subnets.iter().find(|old| overlap(old.network, subnet.network));
        if let Some(old) = old.filter(|_| changer.request.same_vpc && !is_shared(changer, &subnet.field)) {
            let text = format!(
                "`{}` overlaps with `{}`, which the source has in the same VPC",
                subnet.network, old.field
            );
            refused.push(finding(subnet, text));
        }
    }
    let mut warnings = Vec::new();
    for (one, old) in vpc.iter().flat_map(|one| old_vpc.iter().map(move |old| (one, old))) {
        if !changer.request.same_vpc && overlap(one.network, old.network) {
            let text = format!(
                "`{}` overlaps with `{}` of the source, so the VPCs cannot be peered",
                one.network, old.network
            );
            warnings.push(finding(one, text));
        }
    }
    refused.extend(mixed_ids(changer, cluster));
    changer.refusal.refused.extend(refused);
    changer.warnings.extend(warnings);
}

fn finding(range: &Range, reason: String) -> Finding {
    Finding { at: range.at.clone(), field: range.field.clone(), reason }
}

/// Returns whether the user gives the id of a subnet of the source.
fn is_shared(changer: &Changer<'_, '_>, field: &str) -> bool {
    let id = field.strip_suffix(".cidr").map(|subnet| format!("{subnet}.id")).unwrap_or_default();
    given(changer, &id).is_some()
}

/// Returns the value that the user gives for a field of the cluster.
pub(super) fn given<'c>(changer: &'c Changer<'_, '_>, field: &str) -> Option<&'c str> {
    changer.settings.value(&[field, field.strip_prefix("networking.").unwrap_or(field)])
}

/// Returns the ranges of the mirror or of the source in fields of the network, and the invalid ones.
fn ranges(
    changer: &Changer<'_, '_>,
    cluster: &Document<'_>,
    suffix: &str,
    is_new: bool,
) -> (Vec<Range>, Vec<Finding>) {
    let is_it = |field: &&FieldNode| {
        let path = field.path.strip_prefix("networking.").unwrap_or(&field.path);
        path == suffix
            || (suffix == ".cidr"
                && path.starts_with("subnets.")
                && path.rsplit('.').next() == Some("cidr")
                && !path.contains(".additionalRoutes."))
            || (suffix == "additionalNetworkCIDRs" && path.starts_with("additionalNetworkCIDRs."))
    };
    let (mut found, mut invalid) = (Vec::new(), Vec::new());
    for field in cluster.fields.iter().filter(is_it) {
        let given = given(changer, &field.path).filter(|_| is_new);
        let stays = !is_new || changer.request.same_vpc;
        let Some(value) = given.or_else(|| cluster.scalar(field).filter(|_| stays)) else { continue };
        if value == REMOVE
            || (is_new && given.is_none() && suffix == ".cidr" && !is_shared(changer, &field.path))
        {
            continue;
        }
        let (at, path) = (cluster.at(field), field.path.clone());
        match value.parse::<IpNetwork>() {
            Ok(network) if network.ip() == network.network() && value.contains('/') => {
                found.push(Range { field: path, at, network });
            }
            _ => {
                let reason = format!("`{value}` is no range of addresses, such as `10.1.0.0/16`");
                invalid.push(Finding { at, field: path, reason });
            }
        }
    }
    (found, invalid)
}

fn contains(outer: IpNetwork, inner: IpNetwork) -> bool {
    outer.contains(inner.network()) && outer.prefix() <= inner.prefix()
}

fn overlap(one: IpNetwork, other: IpNetwork) -> bool {
    one.contains(other.network()) || other.contains(one.network())
}

/// kOps refuses a cluster with ids for only some of its subnets.
fn mixed_ids(changer: &Changer<'_, '_>, cluster: &Document<'_>) -> Option<Finding> {
    let names = |field: &FieldNode| {
        let path = field.path.strip_prefix("networking.").unwrap_or(&field.path);
        let name = path.strip_prefix("subnets.")?.strip_suffix(".name")?;
        (!name.contains('.')).then(|| field.path.replace(".name", ".id"))
    };
    let ids: Vec<(&FieldNode, String)> =
        cluster.fields.iter().filter_map(|field| Some((field, names(field)?))).collect();
    let has = |id: &str| given(changer, id).is_some_and(|id| id != REMOVE);
    let with = ids.iter().filter(|(_, id)| has(id)).count();
    if with == 0 || with == ids.len() {
        return None;
    }
    let (field, id) = ids.iter().find(|(_, id)| !has(id))?;
    let reason = "other subnets of the mirror have an id, and kOps refuses ids for only some subnets";
    Some(Finding { at: cluster.at(field), field: id.clone(), reason: reason.to_string() })
}
