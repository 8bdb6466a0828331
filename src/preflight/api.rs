//! Checks the API servers: readiness, versions, and clocks.

use std::collections::BTreeSet;

use super::{Judged, one_minor};
use crate::ip::{Family, ServiceCidr};
use crate::survey::Era;

/// An API server with its version and clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    /// Address of the API server.
    pub at: String,
    /// Version of the API server, or why the server is not ready.
    pub version: Result<String, String>,
    /// Smallest possible difference between the server's clock and this host's, in milliseconds. Positive: the server is ahead.
    /// `None`: the server reported no time.
    pub skew: Option<i64>,
}

/// Largest accepted clock difference in milliseconds. The repair loop deletes orphaned addresses that are 5 s old (`repairip.go`,
/// v1.36.3), and in tests a difference of 10 s was too large.
const MOST_SKEW: i64 = 1000;

/// Checks whether each API server is ready.
pub fn servers(met: &[Met]) -> Judged {
    let ill: Vec<String> =
        met.iter().filter_map(|one| Some(format!("{}: {}", one.at, one.version.as_ref().err()?))).collect();
    match ill.first() {
        None if met.is_empty() => Judged::fail("no API server was found", "start one"),
        None => {
            let places: Vec<&str> = met.iter().map(|one| one.at.as_str()).collect();
            Judged::pass(format!("{} ready: {}", met.len(), places.join(", ")))
        }
        Some(_) => Judged::fail(
            format!("{} of {} are not ready: {}", ill.len(), met.len(), ill.join("; ")),
            "repair it, or stop it permanently: a stopped API server disappears from the endpoints of `default/kubernetes` within 15 s",
        ),
    }
}

/// Checks whether all API servers have the same minor version.
pub fn versions(met: &[Met]) -> Judged {
    let versions = met.iter().filter_map(|one| one.version.as_deref().ok());
    one_minor("API server", versions, "finish the upgrade of the control plane first")
}

/// Minor versions that count as tested. The tests run 1.32.2, 1.36.3 emulating 1.33, and 1.37.2.
const TESTED: std::ops::RangeInclusive<u32> = 29..=37;
const MEASURED: &str = "tested with 1.32.2, 1.36.3 and 1.37.2";

/// Returns the minor version and the patch level of a version such as `v1.36.3`. A suffix is ignored.
pub(super) fn level(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("v1.")?.splitn(2, '.');
    let minor = parts.next()?.parse().ok()?;
    let patch = parts.next()?;
    let end = patch.find(|c: char| !c.is_ascii_digit()).unwrap_or(patch.len());
    Some((minor, patch.get(..end)?.parse().ok()?))
}

/// Compares the versions with the tested ones, and patch levels with known differences. `era`: where allocations are stored.
pub fn tested(met: &[Met], era: Era, to: &ServiceCidr) -> Judged {
    let versions: BTreeSet<&str> = met.iter().filter_map(|one| one.version.as_deref().ok()).collect();
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
                "upgrade to 1.33.6 or later first: this is not tested",
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
                format!("{seen}: there are reports of addresses outside the range with an IPv6 range of /64"),
                "use a range of /108 to /112",
            );
        }
        if !TESTED.contains(&minor) {
            return Judged::warn(
                format!("{seen}: outside the range 1.{} to 1.{}; {MEASURED}", TESTED.start(), TESTED.end()),
                "rehearse it on a test cluster of that version first",
            );
        }
    }
    Judged::pass(format!("{seen}; {MEASURED}"))
}

/// Checks the clocks: the difference from this host's clock must be at most a second.
pub fn clocks(met: &[Met]) -> Judged {
    let silent: Vec<&str> = met.iter().filter(|one| one.skew.is_none()).map(|one| one.at.as_str()).collect();
    if !silent.is_empty() || met.is_empty() {
        return Judged::unknown(
            format!("API servers that do not report their time: {}", silent.join(", ")),
            "`kubectl get --raw /version` must succeed on each of them: the `Date` header of this response has the time",
        );
    }
    let off = |one: &Met| {
        one.skew.filter(|skew| skew.abs() > MOST_SKEW).map(|skew| format!("{}: {} ms", one.at, skew))
    };
    let wrong: Vec<String> = met.iter().filter_map(off).collect();
    if wrong.is_empty() {
        let most = met.iter().filter_map(|one| one.skew.map(i64::abs)).max().unwrap_or_default();
        return Judged::pass(format!(
            "the clock of each API server is within {most} ms of this host's clock (± 1 s)"
        ));
    }
    Judged::fail(
        format!("clocks differ from this host's clock: {}", wrong.join(", ")),
        "synchronise this host's clock, or theirs (NTP): netsurgeon sets the creation time of addresses from this host's clock",
    )
}

/// Returns the smallest possible difference between a clock and this host's, in milliseconds. The clock reported a whole second
/// (`said`) between two moments of this host.
pub fn skew(before: i64, said: i64, after: i64) -> i64 {
    let latest = said.saturating_add(999);
    if said > after {
        said.saturating_sub(after)
    } else if latest < before {
        latest.saturating_sub(before)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    fn met(version: &str, skew: i64) -> Met {
        Met { at: "192.0.2.10:6443".into(), version: Ok(version.into()), skew: Some(skew) }
    }

    #[test]
    fn servers_must_be_ready_and_have_one_minor_version() {
        let down = Met { version: Err("etcd failed".into()), ..met("", 0) };
        assert_eq!(servers(&[met("v1.36.3", 0)]).verdict, Verdict::Pass);
        assert_eq!(servers(&[met("v1.36.3", 0), down]).verdict, Verdict::Fail);
        assert_eq!(servers(&[]).verdict, Verdict::Fail);
        assert_eq!(versions(&[met("v1.36.3", 0), met("v1.36.1", 0)]).verdict, Verdict::Pass);
        assert_eq!(versions(&[met("v1.36.3", 0), met("v1.35.9", 0)]).verdict, Verdict::Fail);
    }

    #[test]
    fn untested_and_faulty_versions_are_reported() {
        let judged =
            |version: &str, era: Era, to: &str| tested(&[met(version, 0)], era, &to.parse().unwrap()).verdict;
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

    #[test]
    fn clocks_must_be_within_a_second() {
        assert_eq!(clocks(&[met("v1", 900)]).verdict, Verdict::Pass);
        assert_eq!(clocks(&[met("v1", 0), met("v1", -1001)]).verdict, Verdict::Fail);
        assert_eq!(clocks(&[Met { skew: None, ..met("v1", 0) }]).verdict, Verdict::Unknown);
    }

    #[test]
    fn skew_allows_for_whole_seconds() {
        assert_eq!(skew(10_500, 10_000, 10_600), 0);
        assert_eq!(skew(10_999, 10_000, 11_200), 0);
        assert_eq!(skew(10_500, 13_000, 10_600), 2400);
        assert_eq!(skew(10_500, 8_000, 10_600), -1501);
    }
}
