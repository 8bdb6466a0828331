//! The last change of each bit of the RangeAllocation, after every revision of etcd: it shows which component has to free a bit
//! without a Service.
//!
//! An API server that is frozen or ends during a request leaves bits behind, of Services that it was about to create, or has
//! deleted. Under dual write no component repairs them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netsurgeon::ip::{Item, Items};
use netsurgeon::wire::RangeAllocation;
use netsurgeon::wire::bitmap::Bitmap;
use netsurgeon::wire::objects::decode;

#[derive(Default)]
pub struct Bits {
    set: BTreeSet<IpAddr>,
    /// The addresses whose bit was set, or whose last Service was deleted, in a transaction with a record of netsurgeon.
    ours: BTreeSet<IpAddr>,
    history: BTreeMap<IpAddr, Vec<String>>,
}

impl Bits {
    /// Records a RangeAllocation as it is stored.
    pub fn take(&mut self, revision: i64, value: &[u8], is_recorded: bool) {
        let stored: RangeAllocation = decode(value).expect("a RangeAllocation");
        let Some(items) = stored.range.as_deref().and_then(Items::parse) else { return };
        let data = stored.data.unwrap_or_default();
        let bits = Bitmap::from_bytes(&data, items.capacity()).expect("a bitmap");
        let address = |bit| match items.item(bit) {
            Some(Item::Address(address)) => Some(address),
            _ => None,
        };
        let set: BTreeSet<IpAddr> = bits.iter_set().filter_map(address).collect();
        let added: Vec<IpAddr> = set.difference(&self.set).copied().collect();
        let removed: Vec<IpAddr> = self.set.difference(&set).copied().collect();
        self.set = set;
        for address in removed {
            self.note(revision, address, "cleared", is_recorded);
        }
        for address in added {
            self.blame(revision, address, "set", is_recorded);
        }
    }

    /// An address has lost its last Service.
    pub fn lost(&mut self, revision: i64, address: IpAddr, is_recorded: bool) {
        if self.set.contains(&address) {
            self.blame(revision, address, "no Service's any more", is_recorded);
        }
    }

    fn blame(&mut self, revision: i64, address: IpAddr, what: &str, is_recorded: bool) {
        if is_recorded {
            self.ours.insert(address);
        } else {
            self.ours.remove(&address);
        }
        self.note(revision, address, what, is_recorded);
    }

    fn note(&mut self, revision: i64, address: IpAddr, what: &str, is_recorded: bool) {
        let by = if is_recorded { " by netsurgeon" } else { "" };
        self.history.entry(address).or_default().push(format!("revision {revision}: {what}{by}"));
    }

    /// Whether netsurgeon had to free it.
    pub fn is_ours(&self, address: IpAddr) -> bool {
        self.ours.contains(&address)
    }

    pub fn history(&self, address: IpAddr) -> String {
        self.history.get(&address).map_or_else(String::new, |changes| changes.join(", "))
    }
}
