//! `versions-tested`: whether netsurgeon is tested with the versions of the API servers.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::Renumber;
use crate::inventory::ServerState;
use crate::inventory::version::level;
use crate::ip::{Family, ServiceCidr};
use crate::preflight::{Check, Judged, Read, Source};
use crate::survey::Era;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "versions-tested",
    why: "different versions of API servers repair addresses differently",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Minor versions that count as tested. The tests run API servers 1.32.2, 1.36.3 (which emulates 1.33), and 1.37.2.
const TESTED: RangeInclusive<u32> = 29..=37;
const MEASURED: &str = "tested with 1.32.2, 1.36.3 and 1.37.2";

async fn read(input: &Renumber) -> Read<Judged> {
    Ok(judge(input.read.server_states().await?, input.survey().await?.era.era, &input.options.to))
}

/// Compares the versions of the API servers with the tested versions, and reports versions with known differences. `era`: how
/// Kubernetes stores allocations.
fn judge(states: &[ServerState], era: Era, to: &ServiceCidr) -> Judged {
    let versions: BTreeSet<&str> = states.iter().filter_map(|one| one.version.as_deref().ok()).collect();
    let seen = versions.iter().copied().collect::<Vec<_>>().join(", ");
    if versions.is_empty() {
        return Judged::unknown("no API server reports its version", "");
    }
    for version in versions {
        let Some((minor, patch)) = level(version) else {
            return Judged::unknown(format!("`{version}` is not a known version"), "");
        };
        if minor < 33 && era != Era::Bitmap {
            return Judged::fail(
                format!(
                    "{seen} with the feature gate `MultiCIDRServiceAllocator`, which is off by default before 1.33"
                ),
                "upgrade to 1.33.6 or later first: this combination is not tested",
            );
        }
        if minor == 33 && patch < 6 {
            return Judged::warn(
                format!(
                    "{seen}: before 1.33.6 the repair loop deletes and recreates addresses that are \
                     reserved before their Services exist"
                ),
                "upgrade to 1.33.6 or later first",
            );
        }
        if minor == 34 && to.family() == Family::V6 && to.prefix_len() <= 64 {
            return Judged::warn(
                format!(
                    "{seen}: with an IPv6 range of /64, users have reported addresses outside of the range"
                ),
                "use a range of /108 to /112",
            );
        }
        if !TESTED.contains(&minor) {
            return Judged::warn(
                format!("{seen}: outside the range 1.{} to 1.{}; {MEASURED}", TESTED.start(), TESTED.end()),
                "first rehearse the renumbering on a test cluster of this version",
            );
        }
    }
    Judged::pass(format!("{seen}; {MEASURED}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn untested_and_faulty_versions_are_reported() {
        let judged = |version: &str, era: Era, to: &str| {
            let state = ServerState { at: String::new(), version: Ok(version.into()), skew: Some(0) };
            judge(&[state], era, &to.parse().unwrap()).verdict
        };
        let (to, objects) = ("10.200.0.0/16", Era::Objects);
        assert_eq!(judged("v1.37.2", objects, to), Verdict::Pass);
        assert_eq!(judged("v1.32.2+k3s1", Era::Bitmap, to), Verdict::Pass);
        assert_eq!(judged("v1.32.2", objects, to), Verdict::Fail);
        assert_eq!(judged("v1.33.5", Era::DualWrite, to), Verdict::Warn);
        assert_eq!(judged("v1.33.6-gke.100", Era::DualWrite, to), Verdict::Pass);
        assert_eq!(judged("v1.34.1", objects, "fd00::/64"), Verdict::Warn);
        assert_eq!(judged("v1.34.1", objects, "fd00::/112"), Verdict::Pass);
        assert_eq!(judged("v1.38.0-rc.1", objects, to), Verdict::Warn);
        assert_eq!(judged("v1.28.4", Era::Bitmap, to), Verdict::Warn);
        assert_eq!(judged("unreleased", objects, to), Verdict::Unknown);
    }
}
