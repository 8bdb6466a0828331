//! The items that the bits of a RangeAllocation represent: addresses of a range, or node ports.

use std::fmt;
use std::net::IpAddr;

use super::ServiceCidr;

/// Maximum number of items in the range of a bitmap. The API server rejects ranges with more than 20 host bits
/// (`cmd/kube-apiserver/app/options/validation.go`, v1.36.3), so an object with a larger range is damaged.
const MOST_ITEMS: u64 = 1 << 20;

/// The items of a range, in the order of the bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// Addresses of a range: bit *i* represents the network address plus 1 plus *i*.
    Addresses(ServiceCidr),
    /// The ports from the first to the last, including both: bit *i* represents the first port plus *i*
    /// (`pkg/registry/core/service/portallocator/allocator.go`, v1.36.3).
    Ports(u16, u16),
}

/// An item of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// An address.
    Address(IpAddr),
    /// A node port.
    Port(u16),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Port(port) => port.fmt(f),
        }
    }
}

impl Items {
    /// Parses the range of a RangeAllocation: a CIDR, or `FIRST-LAST`. Returns `None` for any other text, and for a range that is
    /// too large for a bitmap.
    pub fn parse(range: &str) -> Option<Self> {
        let items = if let Ok(cidr) = range.parse() {
            Self::Addresses(cidr)
        } else {
            let (first, last) = range.split_once('-')?;
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            if first > last {
                return None;
            }
            Self::Ports(first, last)
        };
        (items.capacity() <= MOST_ITEMS).then_some(items)
    }

    /// Returns the number of items.
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Addresses(cidr) => u64::try_from(cidr.bitmap_capacity()).unwrap_or(u64::MAX),
            Self::Ports(first, last) => u64::from(last.saturating_sub(*first)).saturating_add(1),
        }
    }

    /// Returns the item that a bit represents; `None` if the bit is after the last item.
    pub fn item(&self, bit: u64) -> Option<Item> {
        match self {
            Self::Addresses(cidr) => {
                let address = (bit < self.capacity()).then(|| cidr.nth(u128::from(bit).saturating_add(1)))?;
                address.map(Item::Address)
            }
            Self::Ports(first, last) => {
                let port = first.checked_add(u16::try_from(bit).ok()?)?;
                (port <= *last).then_some(Item::Port(port))
            }
        }
    }

    /// Returns the bit that represents an item; `None` if the range does not contain the item.
    pub fn bit(&self, item: Item) -> Option<u64> {
        match (self, item) {
            (Self::Addresses(cidr), Item::Address(address)) => {
                let bit = u64::try_from(cidr.offset(address)?.checked_sub(1)?).ok()?;
                (bit < self.capacity()).then_some(bit)
            }
            (Self::Ports(first, last), Item::Port(port)) if port <= *last => {
                port.checked_sub(*first).map(u64::from)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_addresses_and_ports_are_read() {
        let addresses = Items::parse("10.96.0.0/24").unwrap();
        assert_eq!(addresses.capacity(), 254);
        assert_eq!(addresses.item(9).map(|item| item.to_string()).as_deref(), Some("10.96.0.10"));
        assert_eq!(addresses.bit(Item::Address("10.96.0.10".parse().unwrap())), Some(9));
        let ports = Items::parse("30000-32767").unwrap();
        assert_eq!(ports.capacity(), 2768);
        assert_eq!((ports.item(7), ports.bit(Item::Port(30007))), (Some(Item::Port(30007)), Some(7)));
        assert_eq!(
            (ports.item(2768), ports.bit(Item::Port(29999)), ports.bit(Item::Port(32768))),
            (None, None, None)
        );
        for bad in ["", "x", "7-", "9-3", "10.0.0.0/8", "10.0.0.1/16", "1-70000"] {
            assert_eq!(Items::parse(bad), None, "{bad}");
        }
    }
}
