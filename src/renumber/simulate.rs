//! What stands in for the world outside etcd in a rehearsal.
//!
//! Changes through the API are carried out on the overlay as the API server would store them, as far as
//! that is certain: the object, and for a Service its allocation. Waiting ends at once. What people or
//! controllers do is noted and taken as done.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::intention::Renumbering;
use super::steps::{KEEP_BITS, REOPEN_RANGE, RESERVE_BITS, RESTORE_BITMAP, REWRITE_BITMAP, word};
use crate::ip::{Item, Items};
use crate::operation::{Ambient, Answer, ApiChange, External, Fault, Observed, Wait, World};
use crate::store::{Action, Change, Expected, Key, Transaction, WriteStore};
use crate::survey::{Era, Layout};
use crate::wire::StoredService;
use crate::wire::edit::{self, FieldChange};
use crate::wire::objects::{self, NewIpAddress, RangeAllocation};
use crate::wire::{Field, FieldEdit, Value};

/// The world of a rehearsal.
pub struct Simulation<'a> {
    store: &'a dyn WriteStore,
    work: &'a Renumbering,
    ambient: &'a dyn Ambient,
    externals: Mutex<Vec<External>>,
    waits: Mutex<usize>,
    /// The API server of a rehearsal serves one request at a time: its allocations are no race.
    turn: tokio::sync::Mutex<()>,
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::Halt(error.to_string())
}

impl<'a> Simulation<'a> {
    /// Returns the world around a store that nobody else uses.
    pub fn new(store: &'a dyn WriteStore, work: &'a Renumbering, ambient: &'a dyn Ambient) -> Self {
        let (externals, waits, turn) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { store, work, ambient, externals, waits, turn }
    }

    /// Returns what was taken as done, in order, and how often something was waited for.
    pub fn into_notes(self) -> (Vec<External>, usize) {
        let externals = self.externals.into_inner().unwrap_or_else(PoisonError::into_inner);
        (externals, self.waits.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Simulation<'_> {
    fn layout(&self) -> Layout {
        Layout::new(&self.work.prefix)
    }

    fn key_of(&self, kind: &str, namespace: Option<&str>, name: &str) -> Result<Key, Fault> {
        match (kind, namespace) {
            ("ServiceCIDR", None) => Ok(self.layout().service_cidr(name)),
            ("Service", Some(namespace)) => Ok(self.layout().service(namespace, name)),
            _ => Err(Fault::Halt(format!("a rehearsal cannot change a {kind}"))),
        }
    }

    async fn create(&self, manifest: &serde_json::Value) -> Result<(), Fault> {
        let text = |path: &str| manifest.pointer(path).and_then(|value| value.as_str());
        let (kind, name) = (text("/kind").unwrap_or_default(), text("/metadata/name").unwrap_or_default());
        let namespace = text("/metadata/namespace");
        let key = self.key_of(kind, namespace, name)?;
        let value = self.fresh(format!("{manifest}\n").as_bytes())?;
        let mut changes = vec![Change { key, expected: Expected::Absent, action: Action::Put(value) }];
        if let (Some(namespace), Some(address)) = (namespace, text("/spec/clusterIP")) {
            let address: IpAddr = address.parse().map_err(failed)?;
            changes.extend(self.allocate(address, namespace, name).await?);
        }
        self.commit(changes).await
    }

    fn fresh(&self, value: &[u8]) -> Result<Vec<u8>, Fault> {
        let edits = [
            FieldEdit { field: Field::uid(), change: FieldChange::Set(Value::Text(self.ambient.uid())) },
            FieldEdit {
                field: Field::creation_timestamp(),
                change: FieldChange::Set(Value::Time(self.ambient.now())),
            },
        ];
        edit::apply(value, &edits).map_err(failed)
    }

    async fn allocate(&self, address: IpAddr, namespace: &str, name: &str) -> Result<Vec<Change>, Fault> {
        let mut changes: Vec<Change> = self.change_bit(address, true).await?.into_iter().collect();
        if self.work.era != Era::Bitmap {
            let new = NewIpAddress {
                api_version: &self.work.api_version,
                address,
                parent: (namespace, name),
                uid: &self.ambient.uid(),
                created: self.ambient.now(),
            };
            let action = Action::Put(new.encode(self.work.encoding));
            changes.push(Change {
                key: self.layout().ip_address(address),
                expected: Expected::Absent,
                action,
            });
        }
        Ok(changes)
    }

    /// Where there is a bitmap, and it is the new range's. Under dual write it becomes that when the flag changes.
    async fn change_bit(&self, address: IpAddr, allocated: bool) -> Result<Option<Change>, Fault> {
        let Some(bitmap) = &self.work.bitmap else { return Ok(None) };
        let key = self.layout().range(&bitmap.name);
        let entry = self.store.get(&key).await.map_err(failed)?;
        let entry = entry.ok_or_else(|| Fault::Halt(format!("`{key}` does not exist")))?;
        let found: RangeAllocation = objects::decode(&entry.value).map_err(failed)?;
        let items = Items::Addresses(self.work.to);
        let is_new = found.range.is_some_and(|range| range == self.work.to.to_string());
        let Some(bit) = items.bit(Item::Address(address)).filter(|_| is_new) else { return Ok(None) };
        let capacity = items.capacity();
        let (set, clear) = if allocated { (vec![bit], vec![]) } else { (vec![], vec![bit]) };
        let change = FieldChange::Bits { capacity, set, clear };
        let value =
            edit::apply(&entry.value, &[FieldEdit { field: Field::data(), change }]).map_err(failed)?;
        if allocated && value == entry.value {
            return Err(Fault::Halt(format!("`{address}` is already allocated")));
        }
        Ok(Some(Change { key, expected: Expected::At(entry.mod_revision), action: Action::Put(value) }))
    }

    async fn delete(&self, kind: &str, namespace: Option<&str>, name: &str) -> Result<(), Fault> {
        let key = self.key_of(kind, namespace, name)?;
        let Some(entry) = self.store.get(&key).await.map_err(failed)? else { return Ok(()) };
        let expected = Expected::At(entry.mod_revision);
        let mut changes = vec![Change { key, expected, action: Action::Delete }];
        if kind == "Service" {
            let service = StoredService::decode(&entry.value).map_err(failed)?;
            for address in service.spec.addresses() {
                changes.extend(self.release(address).await?);
            }
        }
        self.commit(changes).await
    }

    async fn release(&self, address: IpAddr) -> Result<Vec<Change>, Fault> {
        let mut changes: Vec<Change> = self.change_bit(address, false).await?.into_iter().collect();
        let key = self.layout().ip_address(address);
        if let Some(entry) = self.store.get(&key).await.map_err(failed)? {
            changes.push(Change { key, expected: Expected::At(entry.mod_revision), action: Action::Delete });
        }
        Ok(changes)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), Fault> {
        let transaction = Transaction { guards: Vec::new(), changes };
        self.store.commit(&transaction).await.map(drop).map_err(failed)
    }
}

#[async_trait]
impl World for Simulation<'_> {
    async fn api(&self, change: &ApiChange) -> Result<(), Fault> {
        let _turn = self.turn.lock().await;
        match change {
            ApiChange::Create { manifest } => self.create(manifest).await,
            ApiChange::Delete { kind, namespace, name, .. } => {
                self.delete(kind, namespace.as_deref(), name).await
            }
            // Of objects that nothing else here looks at.
            ApiChange::List { .. } => Ok(()),
        }
    }

    async fn observe(&self, change: &ApiChange) -> Result<Observed, Fault> {
        let (key, wanted) = match change {
            ApiChange::Create { manifest } => {
                let text = |path: &str| manifest.pointer(path).and_then(|value| value.as_str());
                let name = text("/metadata/name").unwrap_or_default();
                let kind = text("/kind").unwrap_or_default();
                (self.key_of(kind, text("/metadata/namespace"), name)?, true)
            }
            ApiChange::Delete { kind, namespace, name, .. } => {
                (self.key_of(kind, namespace.as_deref(), name)?, false)
            }
            ApiChange::List { .. } => return Ok(Observed::NotDone),
        };
        let exists = self.store.get(&key).await.map_err(failed)?.is_some();
        Ok(if exists == wanted { Observed::Done } else { Observed::NotDone })
    }

    async fn wait(&self, wait: &Wait) -> Result<(), Fault> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        // The others are for what an API server or a controller knows.
        *waits = waits.saturating_add(usize::from(wait.name == word::BARRIER));
        Ok(())
    }

    async fn external(&self, external: &External, back: bool) -> Result<Answer, Fault> {
        if matches!(external.name.as_str(), REOPEN_RANGE | RESTORE_BITMAP) && !back {
            return Ok(Answer::Confirmed);
        }
        // Nobody frees anything meanwhile, either.
        if external.name == KEEP_BITS {
            return Ok(Answer::Confirmed);
        }
        // Nobody else allocates anything meanwhile: what was planned is what would be computed.
        let planned = if back { &external.assumed_back } else { &external.assumed };
        if let (RESERVE_BITS | REWRITE_BITMAP | RESTORE_BITMAP, Some(planned)) =
            (external.name.as_str(), planned)
        {
            return Ok(Answer::Changes(Box::new(planned.clone())));
        }
        self.externals.lock().unwrap_or_else(PoisonError::into_inner).push(external.clone());
        Ok(Answer::Assumed)
    }
}
