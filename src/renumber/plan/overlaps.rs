//! Lists of Service ranges that Calico's routers announce to other networks. Each list must contain both the old and the new
//! range while both are in use.

use serde_json::{Value, json};

use crate::ip::ServiceCidr;
use crate::renumber::intention::Overlap;
use crate::survey::Survey;

/// Returns the lists that must contain the new range in addition to the old range.
pub(super) fn overlaps(survey: &Survey, to: &ServiceCidr) -> Vec<Overlap> {
    let mut old = survey.service_ranges();
    old.retain(|range| range.family() == to.family() && range != to);
    survey.announced.iter().filter_map(|(name, list)| router(&old, to, name, list)).collect()
}

/// Returns the change of `spec.serviceClusterIPs` of a BGPConfiguration, which is a list of ranges (`crd.projectcalico.org/v1`,
/// Calico's API reference). A listed range that is larger than an old range was chosen by the operator, so it stays.
fn router(old: &[ServiceCidr], to: &ServiceCidr, name: &str, list: &Value) -> Option<Overlap> {
    let range = |item: &Value| item.get("cidr").and_then(Value::as_str)?.parse::<ServiceCidr>().ok();
    let items: Vec<(&Value, ServiceCidr)> =
        list.as_array()?.iter().filter_map(|item| Some((item, range(item)?))).collect();
    let announces = |range: &ServiceCidr| old.iter().any(|old| old.overlaps(range));
    if !items.iter().any(|(_, range)| announces(range)) {
        return None;
    }
    let is_there = items.iter().any(|(_, range)| range == to);
    let going = items.iter().filter(|(_, range)| old.contains(range)).map(|(item, _)| (*item).clone());
    Some(Overlap {
        api_version: "crd.projectcalico.org/v1".to_string(),
        kind: "BGPConfiguration".to_string(),
        name: name.to_string(),
        pointer: "/spec/serviceClusterIPs".to_string(),
        old: going.collect(),
        new: if is_there { Vec::new() } else { vec![json!({"cidr": to.to_string()})] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_announce_the_new_range_beside_the_old_one() {
        let range = |text: &str| -> ServiceCidr { text.parse().unwrap() };
        let (old, to) = ([range("10.96.0.0/16")], range("10.200.0.0/16"));
        let of = |list: Value| router(&old, &to, "default", &list).map(|found| (found.old, found.new));
        let item = |cidr: &str| json!({"cidr": cidr});
        let new = vec![item("10.200.0.0/16")];
        let both = json!([item("fd00::/112"), item("10.96.0.0/16"), {"cidr": "192.0.2.0/24", "note": 1}]);
        assert_eq!(of(both), Some((vec![item("10.96.0.0/16")], new.clone())));
        assert_eq!(of(json!([item("10.96.0.0/12")])), Some((vec![], new)), "more than the old range stays");
        let there = json!([item("10.96.0.0/16"), item("10.200.0.0/16")]);
        assert_eq!(of(there), Some((vec![item("10.96.0.0/16")], vec![])));
        for other in [json!([item("192.0.2.0/24")]), json!([]), json!("10.96.0.0/16")] {
            assert_eq!(of(other.clone()), None, "{other}: nothing to do");
        }
    }
}
