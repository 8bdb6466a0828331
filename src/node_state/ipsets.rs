//! Reads the IP sets of this network namespace, without their entries (`include/uapi/linux/netfilter/ipset/ip_set.h`, Linux 6.12).

use super::model::{IpSet, Part};
use super::{list, socket_of};
use crate::host::kernel::KernelPart;
use crate::host::netlink::{Family, GENERIC, Netlink, attribute, big32, encode, text};

/// Message types: `NFNL_SUBSYS_IPSET` with `IPSET_CMD_LIST` and `IPSET_CMD_GET_BYNAME`.
const LIST: u16 = 6 << 8 | 7;
const GET_BY_NAME: u16 = 6 << 8 | 0xe;
/// Attributes of a set: `IPSET_ATTR_PROTOCOL`, `_SETNAME`, `_TYPENAME`, `_FLAGS`, `_DATA` and `_INDEX`.
const PROTOCOL: u16 = 1;
const NAME: u16 = 2;
const KIND: u16 = 3;
const FLAGS: u16 = 6;
const DATA: u16 = 7;
const INDEX: u16 = 11;
/// Attribute in `IPSET_ATTR_DATA`: `IPSET_ATTR_REFERENCES`.
const REFERENCES: u16 = 25;
/// Flag of an attribute in network byte order.
const BIG: u16 = 0x4000;
/// Flag of a request: no entries (`IPSET_FLAG_LIST_HEADER`).
const ONLY_HEADER: u32 = 4;
/// Oldest protocol version, and the one with `IPSET_CMD_GET_BYNAME`.
const OLDEST: u8 = 6;
const WITH_INDEX: u8 = 7;
/// The address family in a request. The kernel ignores it in these requests.
const V4: u8 = 2;

pub(super) fn read() -> Part<IpSet> {
    let socket = match socket_of(KernelPart::IpSets, Family::Netfilter) {
        Ok(socket) => socket,
        Err(part) => return part,
    };
    let mut body = vec![V4, 0, 0, 0];
    body.extend(encode(PROTOCOL, &[OLDEST]));
    body.extend(encode(FLAGS | BIG, &ONLY_HEADER.to_be_bytes()));
    let mut sets = list(Ok(socket), LIST, &[body], set);
    // A large set can occur in several messages.
    sets.items.dedup_by(|one, other| one.name == other.name);
    if let Ok(mut socket) = Netlink::open(Family::Netfilter) {
        for set in &mut sets.items {
            set.index = index(&mut socket, &set.name);
        }
    }
    sets
}

fn set(body: &[u8]) -> Option<IpSet> {
    let attributes = body.get(GENERIC..)?;
    let data = attribute(attributes, DATA);
    let references = data.and_then(|data| attribute(data, REFERENCES)).and_then(big32);
    Some(IpSet {
        name: text(attributes, NAME)?,
        kind: text(attributes, KIND).unwrap_or_default(),
        references: references.unwrap_or_default(),
        index: None,
    })
}

/// Returns the number by which rules refer to a set. Kernels before Linux 4.20 do not report it.
fn index(socket: &mut Netlink, name: &str) -> Option<u16> {
    let mut body = vec![V4, 0, 0, 0];
    body.extend(encode(PROTOCOL, &[WITH_INDEX]));
    body.extend(encode(NAME, &[name.as_bytes(), &[0]].concat()));
    let answer = socket.one(GET_BY_NAME, &body).ok()??;
    let value = attribute(answer.body.get(GENERIC..)?, INDEX)?;
    value.get(..2)?.try_into().map(u16::from_be_bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = set(&bytes);
        }
    }
}
