//! Finds reverse DNS zones, for example `96.10.in-addr.arpa` (RFC 1035, 3.5) or `6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa` (RFC 3596,
//! 2.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Form, Hit, Old, before, byte, octet};

const V4: &[u8] = b"in-addr.arpa";
const V6: &[u8] = b"ip6.arpa";
/// Minimum number of labels of an IPv4 zone that is larger than the old range. A zone with fewer labels does not count, because
/// it is too general.
const FEWEST: usize = 2;

/// Returns whether the suffix of a reverse zone starts at `at`.
pub(super) fn is_suffix(bytes: &[u8], at: usize) -> bool {
    suffix(bytes, at).is_some()
}

fn suffix(bytes: &[u8], at: usize) -> Option<&'static [u8]> {
    let starts = |name: &&[u8]| {
        let end = at.saturating_add(name.len());
        bytes.get(at..end).is_some_and(|found| found.eq_ignore_ascii_case(name))
    };
    [V4, V6].into_iter().find(starts)
}

/// Reads the zone that ends with the suffix at `at`. `in-addr.arpa` without further labels is not a hit.
pub(super) fn zone(old: &Old, bytes: &[u8], at: usize) -> Option<(Hit, usize)> {
    if !matches!(byte(bytes, at), b'i' | b'I') || before(bytes, at) != b'.' {
        return None;
    }
    let name = suffix(bytes, at)?;
    let is_v4 = name == V4;
    let is_part =
        |byte: &u8| *byte == b'.' || if is_v4 { byte.is_ascii_digit() } else { byte.is_ascii_hexdigit() };
    let dot = at.checked_sub(1)?;
    let labels = bytes.get(..dot)?.rsplit(|byte| !is_part(byte)).next()?;
    let words = labels.rsplit(|byte| *byte == b'.').filter(|label| !label.is_empty());
    let (network, prefix) = if is_v4 { v4(words)? } else { v6(words)? };
    let is_old = old.holds(network, prefix) || is_v4 && covers(old, network, prefix);
    let start = dot.checked_sub(labels.len())?;
    let end = at.saturating_add(name.len());
    let found = String::from_utf8_lossy(bytes.get(start..end)?).trim_start_matches('.').to_lowercase();
    is_old.then_some((Hit { start, form: Form::ReverseZone, found }, end))
}

/// Returns whether the zone is the smallest zone that contains an old range. The zone can be larger than the range if the prefix
/// length of the range is not a multiple of eight.
fn covers(old: &Old, network: IpAddr, prefix: u8) -> bool {
    let octets = usize::from(prefix).checked_div(8).unwrap_or_default();
    octets >= FEWEST
        && old.ranges().iter().any(|range| {
            let whole = format!("{network}/{prefix}").parse::<crate::ip::ServiceCidr>();
            let is_smallest = range.prefix_len().checked_sub(prefix).is_some_and(|bits| bits < 8);
            is_smallest && whole.is_ok_and(|whole| whole.contains(range.network()))
        })
}

fn v4<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<(IpAddr, u8)> {
    let mut octets = [0_u8; 4];
    let mut count: u8 = 0;
    for (label, slot) in labels.zip(octets.iter_mut()) {
        *slot = octet(label, 0).filter(|(_, end)| *end == label.len())?.0;
        count = count.saturating_add(1);
    }
    Some((Ipv4Addr::from(octets).into(), count.saturating_mul(8))).filter(|_| count > 0)
}

fn v6<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<(IpAddr, u8)> {
    let (mut bits, mut count): (u128, u8) = (0, 0);
    for label in labels.take(32) {
        let nibble = std::str::from_utf8(label).ok().and_then(|text| u128::from_str_radix(text, 16).ok());
        let nibble = nibble.filter(|_| label.len() == 1)?;
        count = count.saturating_add(1);
        let shift = 128_u32.saturating_sub(u32::from(count).saturating_mul(4));
        bits |= nibble.checked_shl(shift).unwrap_or_default();
    }
    Some((Ipv6Addr::from(bits).into(), count.saturating_mul(4))).filter(|_| count > 0)
}
