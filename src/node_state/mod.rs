//! Reads what is on a node: links, routes, rules, packet filters, IP sets, IPsec, programs and files of network plug-ins.
//!
//! Everything is read over netlink and from files, without programs of the host; `iptables-legacy-save` is the only exception
//! ([`legacy`]). Nothing is written, and no kernel module is loaded: a part of the kernel that is not loaded receives no request.
//! Each list has a limit. A list that is incomplete contains the reason ([`Coverage`]).

pub mod model;

mod configurations;
mod files;
mod ipsets;
mod leases;
pub mod legacy;
mod links;
mod nft;
mod nft_rule;
mod routes;
mod save_text;
mod traffic_control;
mod xfrm;

use std::io;
use std::path::Path;

pub use model::*;

use crate::host::kernel::KernelPart;
use crate::host::netlink::{Family, List, Netlink};
use crate::host::untrusted_root::Root;

/// Version of the format of [`NodeState`].
const VERSION: u8 = 1;

/// Limit for the number of messages of each list.
const MOST: usize = 200_000;

/// Reads the state of this node. `root` is the folder in which the root file system of the node is mounted; network state is read
/// from the network namespace of this thread. Blocks the thread.
pub fn read(root: &Path) -> NodeState {
    let folder = Root::open(root);
    let ipsets = ipsets::read();
    let links = links::read();
    let rules_of_nft = nft::read(&ipsets);
    let (of_files, of_network) = (files::read(&folder), configurations::read(&folder));
    NodeState {
        version: VERSION,
        node: crate::host::name(),
        addresses: links::addresses(&links),
        routes: routes::routes(&links),
        policy_rules: routes::policy_rules(),
        nft_tables: rules_of_nft,
        legacy_tables: legacy::read(root),
        ipsets,
        xfrm_states: xfrm::states(),
        xfrm_policies: xfrm::policies(),
        traffic_filters: traffic_control::read(&links),
        bpf_pins: files::bpf_pins(&folder),
        table_names: files::table_names(&folder),
        files: of_files,
        configurations: of_network,
        leases: leases::leases(&folder),
        results: leases::results(&folder),
        links,
    }
}

/// Reads a list of the kernel, and converts each message. `None` of the conversion skips a message.
fn list<T>(
    socket: io::Result<Netlink>,
    kind: u16,
    bodies: &[Vec<u8>],
    of: impl Fn(&[u8]) -> Option<T>,
) -> Part<T> {
    let read = |mut socket: Netlink| -> io::Result<(Vec<T>, Option<String>)> {
        let (mut items, mut gap) = (Vec::new(), None);
        for body in bodies {
            let List { messages, gap: cut } = socket.list(kind, body, MOST)?;
            items.extend(messages.iter().filter_map(|message| of(&message.body)));
            gap = gap.or(cut);
        }
        Ok((items, gap))
    };
    match socket.and_then(read) {
        Ok((items, gap)) => Part::with_gap(items, gap),
        Err(error) => Part::unread(&error),
    }
}

/// Opens a socket for a part of the kernel, if it is loaded. Otherwise returns an empty list that says so, or the error.
fn socket_of<T>(part: KernelPart, family: Family) -> Result<Netlink, Part<T>> {
    match part.is_loaded() {
        Ok(true) => Netlink::open(family).map_err(|error| Part::unread(&error)),
        Ok(false) => Err(Part::absent(format!("the kernel has not loaded `{}`", part.module()))),
        Err(error) => Err(Part::unread(&error)),
    }
}
