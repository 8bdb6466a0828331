//! Reads the links of this network namespace and their addresses (`include/uapi/linux/if_link.h`, `if_addr.h`, Linux 6.12).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::list;
use super::model::{Link, LinkAddress, Part};
use crate::host::netlink::{Family, Netlink, attribute, native32, text};

/// Message types `RTM_GETLINK` and `RTM_GETADDR`, with the sizes of their headers.
const GET_LINK: (u16, usize) = (18, 16);
const GET_ADDRESS: (u16, usize) = (22, 8);
/// Attributes of a link: `IFLA_IFNAME`, `IFLA_MASTER`, and `IFLA_INFO_KIND` in `IFLA_LINKINFO`.
const NAME: u16 = 3;
const MASTER: u16 = 10;
const INFO: u16 = 18;
const KIND: u16 = 1;
/// Attributes of an address: `IFA_ADDRESS` and `IFA_LOCAL`. For a link to a peer, `IFA_LOCAL` is the own address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

pub(super) fn read() -> Part<Link> {
    let (kind, header) = GET_LINK;
    let mut masters: BTreeMap<u32, u32> = BTreeMap::new();
    let found = list(Netlink::open(Family::Route), kind, &[vec![0; header]], |body| {
        let attributes = body.get(header..)?;
        let link = Link {
            index: native32(body.get(4..)?)?,
            name: text(attributes, NAME)?,
            kind: attribute(attributes, INFO).and_then(|info| text(info, KIND)),
            master: None,
        };
        Some((link, attribute(attributes, MASTER).and_then(native32)))
    });
    let names: BTreeMap<u32, String> =
        found.items.iter().map(|(link, _)| (link.index, link.name.clone())).collect();
    masters.extend(found.items.iter().filter_map(|(link, master)| Some((link.index, (*master)?))));
    let name_of = |index: u32| names.get(masters.get(&index)?).cloned();
    let items = found.items.into_iter().map(|(link, _)| Link { master: name_of(link.index), ..link });
    Part { items: items.collect(), coverage: found.coverage }
}

pub(super) fn addresses(links: &Part<Link>) -> Part<LinkAddress> {
    let (kind, header) = GET_ADDRESS;
    list(Netlink::open(Family::Route), kind, &[vec![0; header]], |body| {
        let (prefix_len, index) = (*body.get(1)?, native32(body.get(4..)?)?);
        let attributes = body.get(header..)?;
        let address = attribute(attributes, LOCAL).or_else(|| attribute(attributes, ADDRESS)).and_then(ip)?;
        Some(LinkAddress { link: name(links, index)?, address: IpNetwork::new(address, prefix_len).ok()? })
    })
}

/// Returns the name of a link.
pub(super) fn name(links: &Part<Link>, index: u32) -> Option<String> {
    links.items.iter().find(|link| link.index == index).map(|link| link.name.clone())
}

/// Reads an address of 4 or 16 bytes.
pub(super) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let of_four = |bytes: [u8; 4]| IpAddr::from(bytes);
    let of_sixteen = |bytes: [u8; 16]| IpAddr::from(bytes);
    bytes.try_into().map(of_four).or_else(|_| bytes.try_into().map(of_sixteen)).ok()
}
