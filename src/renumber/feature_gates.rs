//! Determines how API servers allocate addresses, from the feature gates that the API servers report.

use std::collections::BTreeMap;

use crate::survey::Era;
use crate::words::first_few;

/// Returns the era in which an API server with these feature gates allocates addresses (`pkg/registry/core/rest/storage_core.go`,
/// v1.36.3). Returns `None` if the gates do not show the era.
fn era_of(gates: &BTreeMap<String, bool>) -> Option<Era> {
    match (gates.get("MultiCIDRServiceAllocator")?, gates.get("DisableAllocatorDualWrite")) {
        (false, _) => Some(Era::Bitmap),
        (true, Some(true)) => Some(Era::Objects),
        (true, Some(false)) => Some(Era::DualWrite),
        (true, None) => None,
    }
}

/// Returns a message and a hint if API servers allocate addresses in a different era than etcd shows (`stored`). The message
/// names these API servers. Returns `None` if all API servers allocate in the era `stored`, or if their gates do not show the
/// era.
pub fn not_as_stored(
    gates: &[(String, BTreeMap<String, bool>)],
    stored: Era,
) -> Option<(String, &'static str)> {
    let others = gates.iter().filter_map(|(at, own)| Some((at, era_of(own).filter(|era| *era != stored)?)));
    let words: Vec<String> =
        others.map(|(at, era)| format!("API server {at} allocates addresses in era {era}")).collect();
    (!words.is_empty()).then(|| {
        (
            format!("the data in etcd shows era {stored}, but {}", first_few(&words)),
            "create a Service and delete it again: etcd then shows how the API servers allocate addresses; \
             if that changes nothing, compare the range of RangeAllocation `serviceips` (`netsurgeon \
             ranges show`) with the API servers' `--service-cluster-ip-range`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn era_follows_from_the_gates() {
        let gates = |multi: bool, alone: bool| {
            BTreeMap::from([
                ("MultiCIDRServiceAllocator".to_string(), multi),
                ("DisableAllocatorDualWrite".to_string(), alone),
            ])
        };
        let all = [gates(true, true), gates(true, false), gates(false, false), BTreeMap::new()];
        let eras = [Some(Era::Objects), Some(Era::DualWrite), Some(Era::Bitmap), None];
        assert_eq!(all.each_ref().map(era_of), eras);
        let servers = [("a".to_string(), gates(true, true)), ("b".to_string(), gates(true, false))];
        assert!(not_as_stored(&servers[..1], Era::Objects).is_none());
        let (observed, _) = not_as_stored(&servers, Era::Objects).expect("b differs");
        assert!(observed.contains("API server b allocates"), "{observed}");
    }
}
