//! What must know both ranges for a time: Calico's routers, which announce Service ranges to the networks around, and NodeLocal
//! DNSCache, which listens on each node at the address of the cluster's DNS.

use serde_json::{Value, json};

use crate::ip::ServiceCidr;
use crate::renumber::intention::{Move, Overlap, OverlapValue, Turn};
use crate::survey::Survey;

/// Returns all of them.
pub(super) fn overlaps(survey: &Survey, to: &ServiceCidr, moves: &[Move]) -> Vec<Overlap> {
    let mut old = survey.service_ranges();
    old.retain(|range| range.family() == to.family() && range != to);
    let mut found: Vec<Overlap> =
        survey.announced.iter().filter_map(|(name, list)| router(&old, to, name, list)).collect();
    let dns: Vec<(String, String)> = moves
        .iter()
        .filter(|candidate| candidate.turn == Turn::ClusterDns)
        .map(|candidate| (candidate.old_address.to_string(), candidate.new_address.to_string()))
        .collect();
    found.extend(node_local_dns(survey, &dns));
    found
}

/// `spec.serviceClusterIPs` of a BGPConfiguration is a list of ranges (`crd.projectcalico.org/v1`, Calico's API reference).
fn router(old: &[ServiceCidr], to: &ServiceCidr, name: &str, list: &Value) -> Option<Overlap> {
    let before = list.as_array()?;
    let range = |item: &Value| item.get("cidr").and_then(Value::as_str)?.parse::<ServiceCidr>().ok();
    let is_old = |item: &Value| range(item).is_some_and(|range| old.contains(&range));
    if !before.iter().any(is_old) {
        return None;
    }
    let mut both = before.clone();
    if !before.iter().any(|item| range(item) == Some(*to)) {
        both.push(json!({"cidr": to.to_string()}));
    }
    let after: Vec<Value> = both.iter().filter(|item| !is_old(item)).cloned().collect();
    let value = OverlapValue {
        pointer: "/spec/serviceClusterIPs".to_string(),
        before: list.clone(),
        both: both.into(),
        after: after.into(),
    };
    Some(Overlap {
        api_version: "crd.projectcalico.org/v1".to_string(),
        kind: "BGPConfiguration".to_string(),
        namespace: None,
        name: name.to_string(),
        ends_early: false,
        values: vec![value],
    })
}

/// The addresses stand in `-localip`, between commas, and behind `bind` in its Corefile, between blanks (kubernetes/kubernetes
/// `cluster/addons/dns/nodelocaldns/nodelocaldns.yaml`, v1.36.3). What it listens at must be in both: the file comes first, because
/// the Pods are made anew when their arguments change.
fn node_local_dns(survey: &Survey, dns: &[(String, String)]) -> Vec<Overlap> {
    let overlap = |api_version: &str, kind: &str, values: Vec<OverlapValue>| Overlap {
        api_version: api_version.to_string(),
        kind: kind.to_string(),
        namespace: Some("kube-system".to_string()),
        name: "node-local-dns".to_string(),
        ends_early: true,
        values,
    };
    let found = &survey.node_local_dns;
    let mut arguments = Vec::new();
    for (container, words) in found.arguments.iter().enumerate() {
        for (place, word) in words.iter().enumerate() {
            let pointer = format!("/spec/template/spec/containers/{container}/args/{place}");
            arguments.extend(value(pointer, word, &with_addresses(word, dns)));
        }
    }
    if arguments.is_empty() {
        return Vec::new();
    }
    let corefile = found.corefile.as_ref().and_then(|text| {
        let lines = text.split_inclusive('\n').map(|line| {
            let is_bind = line.split_whitespace().next() == Some("bind");
            if is_bind { with_addresses(line, dns) } else { [line.to_string(), line.to_string()] }
        });
        let texts = lines.fold([String::new(), String::new()], |[both, after], [one, other]| {
            [both + &one, after + &other]
        });
        value("/data/Corefile".to_string(), text, &texts)
    });
    let file = corefile.map(|corefile| overlap("v1", "ConfigMap", vec![corefile]));
    file.into_iter().chain([overlap("apps/v1", "DaemonSet", arguments)]).collect()
}

fn value(pointer: String, before: &str, [both, after]: &[String; 2]) -> Option<OverlapValue> {
    let text = |text: &str| Value::from(text);
    (before != both).then(|| OverlapValue {
        pointer,
        before: text(before),
        both: text(both),
        after: text(after),
    })
}

/// Returns a text with each new address beside the old one, parted as it is parted from others, and one with the new ones
/// in place of the old.
fn with_addresses(text: &str, pairs: &[(String, String)]) -> [String; 2] {
    let is_part = |character: char| character.is_ascii_hexdigit() || matches!(character, '.' | ':');
    let (mut both, mut after) = (text.to_string(), text.to_string());
    for (old, new) in pairs {
        let is_whole = |at: usize| {
            let before = text.get(..at).and_then(|before| before.chars().next_back());
            let behind = text.get(at.saturating_add(old.len())..).and_then(|behind| behind.chars().next());
            !before.is_some_and(is_part) && !behind.is_some_and(is_part)
        };
        if text.match_indices(old.as_str()).any(|(at, _)| is_whole(at)) {
            let separator = if text.contains(',') || !text.trim().contains(' ') { ',' } else { ' ' };
            both = both.replace(old, &format!("{old}{separator}{new}"));
            after = after.replace(old, new);
        }
    }
    [both, after]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_announce_both_and_then_the_new_one() {
        let range = |text: &str| -> ServiceCidr { text.parse().unwrap() };
        let (old, to) = ([range("10.96.0.0/16")], range("10.200.0.0/16"));
        let others = [json!({"cidr": "fd00::/112"}), json!({"cidr": "192.0.2.0/24", "note": 1})];
        let mut list = others.to_vec();
        list.insert(1, json!({"cidr": "10.96.0.0/16"}));
        let value = router(&old, &to, "default", &list.clone().into()).unwrap().values.remove(0);
        assert_eq!(value.before, json!(list));
        list.push(json!({"cidr": "10.200.0.0/16"}));
        assert_eq!(value.both, json!(list));
        list.remove(1);
        assert_eq!(value.after, json!(list), "everything else stays, in its order");
        for other in [json!(others), json!([]), json!("10.96.0.0/16"), json!([{"cidr": "10.200.0.0/16"}])] {
            assert_eq!(router(&old, &to, "default", &other), None, "{other}: nothing to do");
        }
    }

    #[test]
    fn a_new_address_stands_beside_the_old_one() {
        let pairs = [("10.96.0.10".to_string(), "10.200.0.10".to_string())];
        let with = |text: &str| with_addresses(text, &pairs);
        assert_eq!(
            with("169.254.20.10,10.96.0.10"),
            ["169.254.20.10,10.96.0.10,10.200.0.10", "169.254.20.10,10.200.0.10"].map(String::from)
        );
        assert_eq!(with("-localip=10.96.0.10")[0], "-localip=10.96.0.10,10.200.0.10");
        assert_eq!(
            with("        bind 169.254.20.10 10.96.0.10\n"),
            [
                "        bind 169.254.20.10 10.96.0.10 10.200.0.10\n",
                "        bind 169.254.20.10 10.200.0.10\n"
            ]
            .map(String::from)
        );
        assert_eq!(with("10.96.0.100,110.96.0.10"), ["10.96.0.100,110.96.0.10"; 2].map(String::from));
    }
}
