//! The owner of each address, after every revision of etcd.
//!
//! A Service owns its ClusterIPs, and those of its external IPs that are in the two ranges; a shadow of netsurgeon owns its
//! address for the Service that it stands in for. No address may have two owners at any revision, and no Service that no client
//! changes may be without its IPAddress.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use etcd_client::{Client, EventType, GetOptions, KeyValue, WatchOptions};
use netsurgeon::wire::{StoredAddress, StoredService};
use tokio::task::JoinHandle;

use super::bits::Bits;

const SERVICES: &str = "/registry/services/specs/";
const ADDRESSES: &str = "/registry/ipaddresses/";
const BITS: &str = "/registry/ranges/serviceips";
/// How many addresses that lost their owner are kept.
const FREED: usize = 64;

/// Follows etcd's history.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    follower: JoinHandle<()>,
}

/// The state at a revision.
#[derive(Default)]
pub struct Seen {
    pub revisions: u64,
    /// Violations, with the revision.
    pub wrong: Vec<String>,
    /// Addresses of shadows, whose Services had become ExternalNames, when they were allocated to other Services.
    pub released: Vec<String>,
    /// Addresses that two Services of clients had because an API server had deleted the IPAddress of the first: its repair loop
    /// deletes a faulty IPAddress by name, which may be another object by then.
    pub repaired: Vec<String>,
    /// IPAddress objects that were missing although a Service that clients change had the address.
    pub missing: Vec<String>,
    /// Addresses that lost their last owner, newest last.
    pub freed: VecDeque<IpAddr>,
    pub bits: Bits,
    /// Owner and addresses of each Service, by `namespace/name`.
    services: BTreeMap<String, (String, Vec<IpAddr>)>,
    /// The addresses that Services have: an IPAddress may be written before a Service has its address.
    had: BTreeSet<IpAddr>,
    /// The parent of each IPAddress.
    parents: BTreeMap<IpAddr, String>,
    /// The parents of IPAddresses that other clients deleted: without a record of netsurgeon in the same transaction.
    deleted_by_others: BTreeMap<IpAddr, String>,
    has_objects: bool,
}

impl Witness {
    /// Starts with the present state. `is_steady` selects the Services that no client changes.
    pub async fn start(mut client: Client, has_objects: bool, is_steady: fn(&str) -> bool) -> Self {
        let mut seen = Seen { has_objects, ..Seen::default() };
        let options = GetOptions::new().with_prefix();
        let mut revision = 0;
        for prefix in [SERVICES, ADDRESSES, BITS] {
            let at = if revision == 0 { options.clone() } else { options.clone().with_revision(revision) };
            let found = client.get(prefix, Some(at)).await.expect("etcd answers");
            revision = found.header().expect("a header").revision();
            for pair in found.kvs() {
                seen.take(pair, false, false);
            }
        }
        seen.had = seen.services.values().flat_map(|(_, addresses)| addresses.clone()).collect();
        let seen = Arc::new(Mutex::new(seen));
        let theirs = seen.clone();
        let follower = tokio::spawn(async move {
            let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
            let mut stream = client.watch("/", Some(options)).await.expect("etcd watches");
            while let Ok(Some(response)) = stream.message().await {
                let mut seen = theirs.lock().expect("no thread panics");
                let pairs: Vec<(&KeyValue, bool)> = response
                    .events()
                    .iter()
                    .filter_map(|event| Some((event.kv()?, event.event_type() == EventType::Delete)))
                    .collect();
                for same in pairs.chunk_by(|one, other| one.0.mod_revision() == other.0.mod_revision()) {
                    let is_recorded = same
                        .iter()
                        .any(|(pair, _)| pair.key_str().is_ok_and(|key| key.starts_with("/netsurgeon/")));
                    let changed: BTreeSet<IpAddr> = same
                        .iter()
                        .flat_map(|(pair, is_deleted)| seen.take(pair, *is_deleted, is_recorded))
                        .collect();
                    let written: BTreeSet<String> = same
                        .iter()
                        .filter_map(|(pair, _)| pair.key_str().ok()?.strip_prefix(SERVICES))
                        .map(str::to_owned)
                        .collect();
                    seen.judge((same[0].0.mod_revision(), is_recorded), (&changed, &written), is_steady);
                }
            }
        });
        Self { seen, follower }
    }

    /// Reads the present state.
    pub fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        assert!(!self.follower.is_finished(), "etcd's history is followed to the end");
        look(&mut self.seen.lock().expect("no thread panics"))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Seen {
    /// Processes one key, and returns the addresses that changed. `is_recorded`: whether a record of netsurgeon was written in
    /// the same transaction.
    fn take(&mut self, pair: &KeyValue, is_deleted: bool, is_recorded: bool) -> Vec<IpAddr> {
        let key = pair.key_str().unwrap_or_default();
        if let Some(name) = key.strip_prefix(SERVICES) {
            let new = (!is_deleted).then(|| owned(name, pair.value()));
            let old = self.services.remove(name);
            let mut changed: Vec<IpAddr> = old.into_iter().flat_map(|(_, addresses)| addresses).collect();
            if let Some(new) = new {
                changed.extend(&new.1);
                self.services.insert(name.to_owned(), new);
            }
            changed
        } else if let Some(address) = key.strip_prefix(ADDRESSES).and_then(|name| name.parse().ok()) {
            let parent = self.parents.remove(&address);
            if is_deleted {
                self.deleted_by_others.remove(&address);
                self.deleted_by_others
                    .extend(parent.filter(|_| !is_recorded).map(|parent| (address, parent)));
            } else {
                let object = StoredAddress::decode(pair.value()).expect("an IPAddress");
                let parent = format!("{}/{}", object.parent_namespace, object.parent_name);
                if self.deleted_by_others.get(&address) == Some(&parent) {
                    self.deleted_by_others.remove(&address);
                }
                self.parents.insert(address, parent);
            }
            vec![address]
        } else {
            if key == BITS && !is_deleted {
                self.bits.take(pair.mod_revision(), pair.value(), is_recorded);
            }
            Vec::new()
        }
    }

    /// Of the tuples: the revision, and whether it has a record of netsurgeon; the addresses that changed, and the Services that
    /// were written.
    fn judge(
        &mut self,
        (revision, is_recorded): (i64, bool),
        (changed, written): (&BTreeSet<IpAddr>, &BTreeSet<String>),
        is_steady: fn(&str) -> bool,
    ) {
        self.revisions += 1;
        for address in changed {
            let having: Vec<(&String, &String)> = self
                .services
                .iter()
                .filter(|(_, (_, addresses))| addresses.contains(address))
                .map(|(name, (owner, _))| (name, owner))
                .collect();
            if !having.is_empty() {
                self.had.insert(*address);
            } else if self.had.remove(address) {
                self.bits.lost(revision, *address, is_recorded);
            }
            let owners: BTreeSet<&String> = having.iter().map(|(_, owner)| *owner).collect();
            // An address that only a shadow has may be free for the allocator.
            if having.iter().all(|(name, owner)| name != owner) {
                self.freed.push_back(*address);
                if self.freed.len() > FREED {
                    self.freed.pop_front();
                }
            }
            let Some(owner) = owners.first().map(|owner| (*owner).clone()) else { continue };
            if owners.len() > 1 {
                let said = format!("revision {revision}: {address} is owned by {owners:?}");
                // An API server releases the address of a Service that becomes an ExternalName, even if another Service has it:
                // until the next step removes the shadow, the allocator may allocate it again. A finalizer keeps a Service that
                // is deleted. A shadow never takes an address of another Service.
                let own = having.iter().filter(|(name, owner)| name == owner).count();
                let is_there = having.iter().all(|(_, owner)| self.services.contains_key(*owner));
                let takes = having.iter().any(|(name, owner)| name != owner && written.contains(*name));
                let is_deleted = |parent| owners.contains(parent);
                let theirs =
                    own == having.len() && self.deleted_by_others.get(address).is_some_and(is_deleted);
                let list = if theirs {
                    &mut self.repaired
                } else if own < 2 && !takes && is_there {
                    &mut self.released
                } else {
                    &mut self.wrong
                };
                list.push(said);
            }
            // A shadow that does not have its Service's address yet has its own.
            let parent = self.parents.get(address);
            let is_kept = parent
                .is_some_and(|parent| *parent == owner || having.iter().any(|(name, _)| *name == parent));
            if self.has_objects && !is_kept {
                let said =
                    format!("revision {revision}: {address} of {owner} has an IPAddress of {parent:?}");
                if is_steady(&owner) { self.wrong.push(said) } else { self.missing.push(said) }
            }
        }
    }
}

/// The owner for whom a Service has its addresses, and the addresses.
fn owned(name: &str, value: &[u8]) -> (String, Vec<IpAddr>) {
    let service = StoredService::decode(value).expect("a Service");
    let stands_in_for = StoredService::annotation(value, "netsurgeon.io/stands-in-for").expect("a Service");
    let owner = match (name.split_once('/'), stands_in_for) {
        (Some((namespace, own)), Some(other)) if own.starts_with("netsurgeon-") => {
            format!("{namespace}/{other}")
        }
        _ => name.to_owned(),
    };
    let spec = &service.spec;
    let all = spec.cluster_ips.iter().chain(&spec.cluster_ip).chain(&spec.external_ips);
    let in_ranges = |address: &IpAddr| {
        let text = address.to_string();
        ["10.96.", "10.97.", "10.200.", "fd00:10:96::"].iter().any(|range| text.starts_with(range))
    };
    let mut addresses: Vec<IpAddr> = all.filter_map(|text| text.parse().ok()).filter(in_ranges).collect();
    addresses.sort_unstable();
    addresses.dedup();
    (owner, addresses)
}
