//! A Service range, and the numbers that the API server derives from the range.

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

/// Maximum number of addresses of an IPv6 range that the bitmap considers, including the network address. The bitmap ignores the
/// remaining addresses of a larger range (`pkg/registry/core/service/ipallocator/bitmap.go`, v1.36.3).
const IPV6_BITMAP_ADDRESSES: u128 = 65_536;

/// Address family, with the same names as in `ipFamilies` of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Reason why a text is not a Service range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The text cannot be parsed.
    #[error("`{text}` is not a CIDR: write it like `10.96.0.0/16` or `fd00:10:96::/112`")]
    Syntax {
        /// The text.
        text: String,
    },
    /// The address has bits set after the prefix.
    #[error("`{text}` is not a network address: the network of that prefix length is `{network}`")]
    HostBits {
        /// The text.
        text: String,
        /// The network with the same prefix length.
        network: String,
    },
}

/// A range of Service addresses: a network address and a prefix length, without host bits.
///
/// Its text has the format of Go's `net.IPNet.String()`, as in a RangeAllocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceCidr(IpNetwork);

impl ServiceCidr {
    /// Returns the address family.
    pub fn family(&self) -> Family {
        if self.0.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Returns the network address.
    pub fn network(&self) -> IpAddr {
        self.0.network()
    }

    /// Returns the prefix length in bits.
    pub fn prefix_len(&self) -> u8 {
        self.0.prefix()
    }

    /// Returns whether the range contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    /// Returns whether the two ranges share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.network()) || other.contains(self.network())
    }

    /// Returns the range that has only this address.
    pub fn single(address: IpAddr) -> Self {
        Self(IpNetwork::from(address))
    }

    /// Returns whether the range contains the whole other range.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix_len() <= other.prefix_len() && self.contains(other.network())
    }

    /// Returns the addresses of this range that are not in the other range, as the fewest ranges, in ascending order.
    pub fn without(&self, other: &Self) -> Vec<Self> {
        if other.covers(self) {
            return Vec::new();
        }
        if !self.covers(other) {
            return vec![*self];
        }
        self.halves().iter().flatten().flat_map(|half| half.without(other)).collect()
    }

    /// Returns the two halves of the range; `None` for a range of a single address.
    fn halves(&self) -> Option<[Self; 2]> {
        let longer = self.prefix_len().checked_add(1)?;
        let width: u32 = if self.0.is_ipv4() { 32 } else { 128 };
        let middle = self.nth(1_u128.checked_shl(width.checked_sub(u32::from(longer))?)?)?;
        let half = |network| IpNetwork::new(network, longer).ok().map(Self);
        Some([half(self.network())?, half(middle)?])
    }

    /// Returns the number of addresses in the range, saturating at `u128::MAX` for `::/0`.
    pub fn size(&self) -> u128 {
        let width: u32 = if self.0.is_ipv4() { 32 } else { 128 };
        let host_bits = width.saturating_sub(u32::from(self.prefix_len()));
        1_u128.checked_shl(host_bits).unwrap_or(u128::MAX)
    }

    /// Returns the number of addresses that Services can use. The network address is excluded. In an IPv4 range the broadcast
    /// address is excluded, too (`ipallocator.go` `hostsPerNetwork`, v1.36.3).
    pub fn capacity(&self) -> u128 {
        let reserved = if self.0.is_ipv4() { 2 } else { 1 };
        self.size().saturating_sub(reserved)
    }

    /// Returns how many addresses a RangeAllocation bitmap of this range covers: [`Self::capacity`], but for IPv6 at most 65,535
    /// (`bitmap.go` `New`, v1.36.3).
    pub fn bitmap_capacity(&self) -> u128 {
        if self.0.is_ipv4() {
            self.capacity()
        } else {
            self.size().min(IPV6_BITMAP_ADDRESSES).saturating_sub(1)
        }
    }

    /// Returns the number of addresses in the static band: the low end of the range, reserved for Services that request an
    /// address. It is `min(max(16, size/16), 256)`, and 0 for ranges of 16 addresses or fewer (KEP-3070; `bitmap.go`
    /// `calculateRangeOffset`, v1.36.3).
    pub fn static_band(&self) -> u128 {
        const LEAST: u128 = 16;
        const MOST: u128 = 256;
        const STEP: u128 = 16;
        let size = self.size();
        if size <= LEAST { 0 } else { size.checked_div(STEP).unwrap_or(0).clamp(LEAST, MOST) }
    }

    /// Returns the first usable address; `None` for a range of a single address. The Service `default/kubernetes` has this
    /// address, and the API server's certificate must cover it.
    pub fn first(&self) -> Option<IpAddr> {
        self.nth(1)
    }

    /// Returns the network address plus an offset; `None` if the result is outside the range.
    pub fn nth(&self, offset: u128) -> Option<IpAddr> {
        if offset >= self.size() {
            return None;
        }
        match self.network() {
            IpAddr::V4(network) => {
                let sum = u32::from(network).checked_add(u32::try_from(offset).ok()?)?;
                Some(IpAddr::V4(Ipv4Addr::from(sum)))
            }
            IpAddr::V6(network) => {
                let sum = u128::from(network).checked_add(offset)?;
                Some(IpAddr::V6(Ipv6Addr::from(sum)))
            }
        }
    }

    /// Returns the offset of an address from the network address; `None` if the address is outside the range.
    pub fn offset(&self, address: IpAddr) -> Option<u128> {
        if !self.contains(address) {
            return None;
        }
        match (address, self.network()) {
            (IpAddr::V4(a), IpAddr::V4(n)) => u32::from(a).checked_sub(u32::from(n)).map(u128::from),
            (IpAddr::V6(a), IpAddr::V6(n)) => u128::from(a).checked_sub(u128::from(n)),
            _ => None,
        }
    }

    /// Returns how many addresses an allocator of this range can allocate: [`Self::bitmap_capacity`] with a bitmap, otherwise
    /// [`Self::capacity`].
    pub fn allocatable(&self, with_bitmap: bool) -> u128 {
        if with_bitmap { self.bitmap_capacity() } else { self.capacity() }
    }

    /// Returns whether an allocator of this range can allocate the address. With a bitmap, an IPv6 range allocates only its first
    /// addresses.
    pub fn is_allocatable(&self, address: IpAddr, with_bitmap: bool) -> bool {
        let capacity = self.allocatable(with_bitmap);
        self.offset(address).is_some_and(|offset| offset >= 1 && offset <= capacity)
    }

    /// Returns whether a Service can have the address. The address must be in the range, and must not be the network address or
    /// the IPv4 broadcast address.
    pub fn is_usable(&self, address: IpAddr) -> bool {
        self.is_allocatable(address, false)
    }
}

impl fmt::Display for ServiceCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network(), self.prefix_len())
    }
}

impl FromStr for ServiceCidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        // `IpNetwork` accepts an address without a prefix length as a range with one address, but a Service range must have a
        // prefix length.
        let parsed: IpNetwork = match text.trim().parse() {
            Ok(network) if text.contains('/') => network,
            _ => return Err(CidrError::Syntax { text: text.to_string() }),
        };
        let network = IpNetwork::new(parsed.network(), parsed.prefix())
            .map_err(|_| CidrError::Syntax { text: text.to_string() })?;
        if parsed.ip() != parsed.network() {
            return Err(CidrError::HostBits { text: text.to_string(), network: network.to_string() });
        }
        Ok(Self(network))
    }
}

impl Serialize for ServiceCidr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServiceCidr {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Returns ranges in the format of `--service-cluster-ip-range`: one range, or one for each family, separated by a comma.
pub fn as_flag(ranges: &[ServiceCidr]) -> String {
    ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns whether an IPv4 address is link-local (RFC 3927), for example the address on which NodeLocal DNSCache listens.
pub fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_link_local())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cidr(text: &str) -> ServiceCidr {
        text.parse().unwrap()
    }

    #[test]
    fn first_address_is_one_above_the_network() {
        assert_eq!(cidr("10.96.0.0/12").first(), Some("10.96.0.1".parse().unwrap()));
        assert_eq!(cidr("fd00:10:96::/112").first(), Some("fd00:10:96::1".parse().unwrap()));
        assert_eq!(cidr("10.0.0.1/32").first(), None);
    }

    #[test]
    fn remainder_of_a_range_is_the_fewest_ranges() {
        let without = |range: &str, other: &str| {
            cidr(range).without(&cidr(other)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(without("10.96.0.0/20", "10.96.0.0/22"), ["10.96.4.0/22", "10.96.8.0/21"]);
        assert_eq!(without("10.96.0.0/20", "10.96.8.0/21"), ["10.96.0.0/21"]);
        assert_eq!(without("10.96.0.0/24", "10.96.0.0/16"), [] as [&str; 0]);
        assert_eq!(without("10.96.0.0/24", "10.96.0.0/24"), [] as [&str; 0]);
        assert_eq!(without("10.96.0.0/24", "10.97.0.0/24"), ["10.96.0.0/24"]);
        assert_eq!(without("10.96.0.0/24", "fd00::/112"), ["10.96.0.0/24"]);
        assert_eq!(without("fd00::/111", "fd00::/112"), ["fd00::1:0/112"]);
        assert_eq!(without("10.96.0.0/31", "10.96.0.1/32"), ["10.96.0.0/32"]);
        assert_eq!(without("::/0", "8000::/1"), ["::/1"]);
    }

    #[test]
    fn host_bits_are_refused_and_the_network_is_suggested() {
        let error = "10.96.0.1/16".parse::<ServiceCidr>().unwrap_err();
        assert!(error.to_string().contains("`10.96.0.0/16`"), "{error}");
        assert!("10.96.0.0".parse::<ServiceCidr>().is_err());
        assert!("10.96.0.0/33".parse::<ServiceCidr>().is_err());
    }

    #[test]
    fn static_band_follows_the_allocator() {
        // Values from the table in KEP-3070.
        for (text, band) in [
            ("10.0.0.0/28", 0),
            ("10.0.0.0/27", 16),
            ("10.0.0.0/24", 16),
            ("10.0.0.0/22", 64),
            ("10.0.0.0/20", 256),
            ("10.0.0.0/12", 256),
            ("fd00::/112", 256),
        ] {
            assert_eq!(cidr(text).static_band(), band, "{text}");
        }
    }

    #[test]
    fn capacities_follow_the_allocators() {
        assert_eq!(cidr("10.0.0.0/24").capacity(), 254);
        assert_eq!(cidr("fd00::/108").capacity(), (1 << 20) - 1);
        assert_eq!(cidr("fd00::/108").bitmap_capacity(), 65_535);
        assert_eq!(cidr("::/0").size(), u128::MAX);
        assert_eq!(cidr("10.0.0.0/31").capacity(), 0);
    }

    proptest! {
        #[test]
        fn offset_and_nth_are_inverse(address: u32, prefix in 0_u8..=32, pick: u32) {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            let range = cidr(&format!("{}/{prefix}", Ipv4Addr::from(address & mask)));
            let offset = u128::from(pick) % range.size();
            let there = range.nth(offset).unwrap();
            prop_assert_eq!(range.offset(there), Some(offset));
            prop_assert!(range.contains(there));
            prop_assert_eq!(range.nth(range.size()), None);
        }

        #[test]
        fn offset_and_nth_are_inverse_v6(address: u128, prefix in 1_u8..=128, pick: u128) {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            let range = cidr(&format!("{}/{prefix}", Ipv6Addr::from(address & mask)));
            let offset = pick % range.size();
            prop_assert_eq!(range.offset(range.nth(offset).unwrap()), Some(offset));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = text.parse::<ServiceCidr>();
        }
    }
}
