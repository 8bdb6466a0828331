//! Finds addresses of a range, and the range itself, in bytes. Recognizes the notations that people, programs and name servers
//! use.
//!
//! An address does not count if it is part of a longer number (`110.96.0.1`, `1.10.96.0.1`) or follows a letter (`v10.96.0.1`). A
//! range counts if it is the old range or a part of the old range. A larger range that contains the old range (`10.0.0.0/8`,
//! `0.0.0.0/0`) does not count.

mod reverse;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::ip::{Family, ServiceCidr};

/// The notation of a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// An address, for example `10.96.0.10`.
    Address,
    /// A range, for example `10.96.0.0/16` or `10.96.*`.
    Range,
    /// A reverse DNS zone, for example `96.10.in-addr.arpa`.
    ReverseZone,
    /// A name that contains the address with dashes, for example `10-96-0-10.shop.pod`. CoreDNS resolves this name to the
    /// address.
    DashedName,
}

/// A hit: an address or range in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Offset of the first byte of the hit.
    pub start: usize,
    /// Notation of the hit.
    pub form: Form,
    /// The address or range in its canonical form.
    pub found: String,
}

/// The ranges to search for.
#[derive(Debug, Clone)]
pub struct Old {
    ranges: Vec<ServiceCidr>,
    /// Lowest and highest value of the first two octets, for each IPv4 range.
    octets: Vec<[(u8, u8); 2]>,
    /// Lowest and highest value of the first group, for each IPv6 range.
    groups: Vec<(u16, u16)>,
}

impl Old {
    /// Prepares a search for these ranges.
    pub fn new(ranges: Vec<ServiceCidr>) -> Self {
        let (mut octets, mut groups) = (Vec::new(), Vec::new());
        for range in &ranges {
            let last = range.nth(range.size().saturating_sub(1)).unwrap_or(range.network());
            match (range.network(), last) {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    let ([a, b, ..], [c, d, ..]) = (first.octets(), last.octets());
                    octets.push([(a, c), if a == c { (b, d) } else { (0, u8::MAX) }]);
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    let ([a, ..], [b, ..]) = (first.segments(), last.segments());
                    groups.push((a, b));
                }
                _ => {}
            }
        }
        Self { ranges, octets, groups }
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> &[ServiceCidr] {
        &self.ranges
    }

    /// Returns whether an address is in one of the ranges.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Returns whether a range is one of the searched ranges, or a part of one.
    pub(super) fn holds(&self, network: IpAddr, prefix: u8) -> bool {
        self.ranges.iter().any(|range| prefix >= range.prefix_len() && range.contains(network))
    }

    /// Returns whether [`Self::hits`] can find a hit in these bytes or in a part of them. This check is faster than
    /// [`Self::hits`], but can return `true` without a hit.
    pub fn may_say(&self, bytes: &[u8]) -> bool {
        bytes.iter().enumerate().any(|(at, byte)| match byte {
            b'.' | b'-' => self.may_be_dotted(bytes, at),
            b':' => self.may_be_grouped(bytes, at),
            _ => false,
        })
    }

    fn may_be_dotted(&self, bytes: &[u8], at: usize) -> bool {
        let next = after(bytes, at);
        if matches!(next, b'i' | b'I') {
            return reverse::is_suffix(bytes, at.saturating_add(1));
        }
        if !(next.is_ascii_digit() || next == b'*') || !before(bytes, at).is_ascii_digit() {
            return false;
        }
        // The preceding byte can belong to another value, such as the length of a text or a larger number.
        let firsts = (1..=3).filter_map(|width| {
            let digits = bytes.get(at.checked_sub(width)?..at)?;
            octet(digits, 0).filter(|(_, end)| *end == width).map(|(octet, _)| octet)
        });
        let second = octet(bytes, at.saturating_add(1)).map(|(octet, _)| octet);
        let is_within = |(low, high): (u8, u8), octet: u8| low <= octet && octet <= high;
        firsts.into_iter().any(|first| {
            let mut bounds = self.octets.iter().filter(|[bound, _]| is_within(*bound, first));
            bounds.any(|[_, bound]| second.is_none_or(|second| is_within(*bound, second)))
        })
    }

    fn may_be_grouped(&self, bytes: &[u8], at: usize) -> bool {
        self.groups.iter().any(|(low, high)| {
            // An address can start with `::`.
            *low == 0
                || (1..=4).any(|width| {
                    let digits = at.checked_sub(width).and_then(|from| bytes.get(from..at));
                    let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                    let group = text.and_then(|text| u16::from_str_radix(text, 16).ok());
                    group.is_some_and(|group| (low..=high).contains(&&group))
                })
        })
    }

    /// Finds every hit, in order.
    pub fn hits(&self, bytes: &[u8]) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let hit = match byte {
                b'0'..=b'9' if !self.octets.is_empty() => self.dotted(bytes, at),
                _ => None,
            };
            let hit = hit.or_else(|| self.grouped(bytes, at)).or_else(|| reverse::zone(self, bytes, at));
            at = match hit {
                Some((hit, end)) => {
                    hits.push(hit);
                    end.max(at.saturating_add(1))
                }
                None => at.saturating_add(1),
            };
        }
        hits.sort_by_key(|hit| hit.start);
        hits
    }

    /// Reads an IPv4 address, range or dashed name at `start`. Returns the hit and the offset of its end.
    fn dotted(&self, bytes: &[u8], start: usize) -> Option<(Hit, usize)> {
        let hit = |form, found: String, end| Some((Hit { start, form, found }, end));
        if !is_alone(bytes, start) {
            return None;
        }
        if let Some((octets, 4, end)) = octets(bytes, start, b'-') {
            let is_name = byte(bytes, end) == b'.' && after(bytes, end).is_ascii_alphabetic();
            let address = Ipv4Addr::from(octets);
            let is_told = is_name && before(bytes, start) != b'-' && self.contains(address.into());
            return if is_told { hit(Form::DashedName, address.to_string(), end) } else { None };
        }
        let (octets, count, end) = octets(bytes, start, b'.')?;
        let address = Ipv4Addr::from(octets);
        let (next, following) = (byte(bytes, end), after(bytes, end));
        if count < 4 {
            let prefix = u8::try_from(count).ok()?.checked_mul(8)?;
            let is_wild = next == b'.' && following == b'*' && self.holds(address.into(), prefix);
            return if is_wild { hit(Form::Range, format!("{address}/{prefix}"), end) } else { None };
        }
        let is_longer = next.is_ascii_alphanumeric() || (next == b'.' && following.is_ascii_digit());
        if is_longer || reverse::is_suffix(bytes, end.saturating_add(1)) {
            return None;
        }
        self.judged(bytes, address.into(), (start, end))
    }

    /// Reads an IPv6 address or range at `at`. Returns the hit and the offset of its end.
    fn grouped(&self, bytes: &[u8], at: usize) -> Option<(Hit, usize)> {
        let is_part = |byte: u8| byte.is_ascii_hexdigit() || byte == b':';
        let is_first = !is_part(before(bytes, at)) || escaped(bytes, at);
        if self.groups.is_empty() || !is_part(byte(bytes, at)) || !is_first {
            return None;
        }
        let run = bytes.get(at..)?.iter().take_while(|byte| is_part(**byte)).count();
        let end = at.saturating_add(run);
        let mut start = at;
        let previous = before(bytes, at);
        let mut text = std::str::from_utf8(bytes.get(at..end)?).ok()?;
        if previous.is_ascii_alphanumeric() && !escaped(bytes, at) {
            // The text starts with the end of a word, for example with the `d` of `bind:fd00::1`.
            let word = text.find(':')?.saturating_add(1);
            (text, start) = (text.get(word..)?, start.saturating_add(word));
        }
        if text.starts_with(':') && !text.starts_with("::") {
            (text, start) = (text.get(1..)?, start.saturating_add(1));
        }
        let next = byte(bytes, end);
        if next.is_ascii_alphanumeric() || (next == b'.' && after(bytes, end).is_ascii_digit()) {
            return None;
        }
        if text.ends_with(':') && !text.ends_with("::") {
            text = text.get(..text.len().saturating_sub(1))?;
        }
        let address: Ipv6Addr = text.parse().ok()?;
        self.judged(bytes, address.into(), (start, start.saturating_add(text.len())))
    }

    /// Returns the hit if the address, or the range that starts with this address, is in the searched ranges.
    fn judged(&self, bytes: &[u8], address: IpAddr, (start, end): (usize, usize)) -> Option<(Hit, usize)> {
        if let Some((prefix, whole)) = prefix(bytes, end, address) {
            let range = format!("{address}/{prefix}").parse::<ServiceCidr>();
            if range.is_ok() {
                let hit = Hit { start, form: Form::Range, found: format!("{address}/{prefix}") };
                return self.holds(address, prefix).then_some((hit, whole));
            }
        }
        let hit = Hit { start, form: Form::Address, found: address.to_string() };
        self.contains(address).then_some((hit, end))
    }
}

/// Reads a prefix length, such as `/16`, after an address. The slash can be escaped, for example in JSON and URLs. Returns the
/// number and the offset of its end.
fn prefix(bytes: &[u8], end: usize, address: IpAddr) -> Option<(u8, usize)> {
    let rest = bytes.get(end..)?;
    let slashes: [&[u8]; 4] = [b"/", b"\\/", b"%2F", b"%2f"];
    let slash = slashes.into_iter().find(|slash| rest.starts_with(slash))?;
    let (number, end) = octet(bytes, end.saturating_add(slash.len()))?;
    let most = if Family::of(address) == Family::V4 { 32 } else { 128 };
    let next = byte(bytes, end);
    let is_more = next.is_ascii_alphanumeric() || (next == b'.' && after(bytes, end).is_ascii_digit());
    (number <= most && !is_more).then_some((number, end))
}

/// Returns whether a word can start at `start`, because the bytes before it do not belong to the same word.
fn is_alone(bytes: &[u8], start: usize) -> bool {
    match before(bytes, start) {
        b'.' => !start.checked_sub(1).is_some_and(|dot| before(bytes, dot).is_ascii_digit()),
        previous if previous.is_ascii_alphanumeric() => escaped(bytes, start),
        _ => true,
    }
}

/// Returns whether the preceding bytes are an escape sequence, such as `\n`, `\u003d` or `%3D`.
fn escaped(bytes: &[u8], start: usize) -> bool {
    let Some(past) = bytes.get(..start) else { return false };
    match past {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'%', a, b] => a.is_ascii_hexdigit() && b.is_ascii_hexdigit(),
        [.., b'\\', b'u', a, b, c, d] => [a, b, c, d].into_iter().all(u8::is_ascii_hexdigit),
        _ => false,
    }
}

/// Reads a number from 0 to 255 with up to three digits. Accepts leading zeros, because the API server accepts them in addresses
/// (`ParseIPSloppy`, `k8s.io/utils/net`). Returns the number and the offset of its end.
pub(super) fn octet(bytes: &[u8], from: usize) -> Option<(u8, usize)> {
    let rest = bytes.get(from..)?;
    let digits = rest.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
    let text = rest.get(..digits).filter(|_| digits <= 3).and_then(|text| std::str::from_utf8(text).ok())?;
    Some((text.parse().ok()?, from.saturating_add(digits)))
}

/// Reads up to four octets with a separator. Returns the octets, their count, and the offset of the end.
fn octets(bytes: &[u8], start: usize, separator: u8) -> Option<([u8; 4], usize, usize)> {
    let mut all = [0; 4];
    let (mut count, mut end) = (0, start);
    for (place, slot) in all.iter_mut().enumerate() {
        if place > 0 && byte(bytes, end) != separator {
            break;
        }
        let from = if place == 0 { start } else { end.saturating_add(1) };
        let Some((number, next)) = octet(bytes, from) else { break };
        (*slot, count, end) = (number, place.saturating_add(1), next);
    }
    (count > 0).then_some((all, count, end))
}

pub(super) fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

pub(super) fn before(bytes: &[u8], at: usize) -> u8 {
    at.checked_sub(1).map_or(0, |at| byte(bytes, at))
}

fn after(bytes: &[u8], at: usize) -> u8 {
    byte(bytes, at.saturating_add(1))
}

#[cfg(test)]
mod tests;
