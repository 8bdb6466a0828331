//! Reads the names of the BPF programs that traffic control runs at links (`include/uapi/linux/rtnetlink.h`, `pkt_cls.h`, Linux
//! 6.12).

use std::collections::BTreeSet;

use super::links::name;
use super::list;
use super::model::{Link, Part, TrafficFilter};
use crate::host::netlink::{Family, Netlink, attribute, native32, text};

/// Message types `RTM_GETQDISC` and `RTM_GETTFILTER`. Both have a `tcmsg`.
const GET_QUEUE: u16 = 38;
const GET_FILTER: u16 = 46;
const HEADER: usize = 20;
/// The two places of a queue `clsact`, with their names.
const PLACES: [(u32, &str); 2] = [(0xffff_fff2, "ingress"), (0xffff_fff3, "egress")];
/// Attributes: `TCA_KIND`, `TCA_OPTIONS`, and in the options of `bpf` `TCA_BPF_NAME`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const PROGRAM: u16 = 7;
/// Limit for the number of links whose filters are read.
const MOST_LINKS: usize = 10_000;

pub(super) fn read(links: &Part<Link>) -> Part<TrafficFilter> {
    let queues = list(Netlink::open(Family::Route), GET_QUEUE, &[vec![0; HEADER]], |body| {
        let kind = text(body.get(HEADER..)?, KIND)?;
        (kind == "clsact" || kind == "ingress").then_some(native32(body.get(4..)?)?)
    });
    let mut gap = queues.gap().map(ToString::to_string);
    let indexes: BTreeSet<u32> = queues.items.into_iter().collect();
    if indexes.len() > MOST_LINKS {
        gap = Some(format!("more than {MOST_LINKS} links have filters"));
    }
    let mut found = BTreeSet::new();
    for index in indexes.into_iter().take(MOST_LINKS) {
        let link = name(links, index).unwrap_or_default();
        for (parent, direction) in PLACES {
            let mut body = vec![0; 4];
            body.extend(index.to_ne_bytes());
            body.extend([0; 4]);
            body.extend(parent.to_ne_bytes());
            body.extend([0; 4]);
            let filters = list(Netlink::open(Family::Route), GET_FILTER, &[body], program);
            gap = gap.or(filters.gap().map(ToString::to_string));
            found.extend(filters.items.into_iter().map(|program| TrafficFilter {
                link: link.clone(),
                direction: direction.to_string(),
                program,
            }));
        }
    }
    Part::with_gap(found.into_iter().collect(), gap)
}

fn program(body: &[u8]) -> Option<String> {
    let attributes = body.get(HEADER..)?;
    let options = attribute(attributes, OPTIONS)?;
    (text(attributes, KIND)? == "bpf").then(|| text(options, PROGRAM))?
}
