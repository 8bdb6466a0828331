//! The environment of a rehearsal, which simulates everything outside etcd.
//!
//! A change through the API is written to the overlay in the form in which an API server stores it: the object and, for a
//! Service, its allocation. Only changes that are certain are written. Waits end immediately. Actions of operators and
//! controllers are recorded and assumed to be done.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::effect::{Awaited, Effect};
use super::intention::Renumbering;
use super::ownerless_bits::aligned;
use super::steps::{Compiler, FLAGS, Wait};
use crate::ip::{Item, Items};
use crate::operation::{
    Ambient, Answer, Applied, Doing, Environment, Manual, Observed, Records, StepFault, Swap,
};
use crate::store::{Action, Change, Expected, Key, Transaction, WriteStore};
use crate::survey::{Era, Layout, Survey};
use crate::wire::StoredService;
use crate::wire::edit::{self, FieldChange};
use crate::wire::objects::{self, NewIpAddress, RangeAllocation};
use crate::wire::{Field, FieldEdit, Value};

/// The environment of a rehearsal.
pub struct Simulation<'a> {
    store: &'a dyn WriteStore,
    work: &'a Renumbering,
    ambient: &'a dyn Ambient,
    taken_as_done: Mutex<Vec<[String; 2]>>,
    waits: Mutex<usize>,
    /// Lock for the requests to the simulated API server. The server processes one request at a time, so that two requests do not
    /// allocate the same address.
    turn: tokio::sync::Mutex<()>,
}

fn failed(error: impl std::fmt::Display) -> StepFault {
    StepFault::Halt(error.to_string())
}

impl<'a> Simulation<'a> {
    /// Returns the environment for a store that has no other client.
    pub fn new(store: &'a dyn WriteStore, work: &'a Renumbering, ambient: &'a dyn Ambient) -> Self {
        let (taken_as_done, waits, turn) =
            (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { store, work, ambient, taken_as_done, waits, turn }
    }

    /// Returns the actions that were assumed to be done, in order and with their reasons, and the number of waits.
    pub fn into_notes(self) -> (Vec<[String; 2]>, usize) {
        let taken_as_done = self.taken_as_done.into_inner().unwrap_or_else(PoisonError::into_inner);
        (taken_as_done, self.waits.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Simulation<'_> {
    fn layout(&self) -> Layout {
        Layout::new(&self.work.prefix)
    }

    fn take_as_done(&self, what: [String; 2]) {
        tracing::info!("assumed to be done: {}", what[0]);
        self.taken_as_done.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Returns the planned change of the RangeAllocation. No other client allocates in a rehearsal, so the plan is always
    /// current.
    fn planned(&self, plan: impl Fn(&Compiler<'_>) -> Option<Swap>) -> Applied {
        let layout = self.layout();
        let swap = plan(&Compiler { work: self.work, layout: &layout });
        swap.map_or(Applied::NOTHING, |swap| Applied::Changes(Box::new(swap)))
    }

    fn kind_and_key<'m>(&self, manifest: &'m serde_json::Value) -> Result<(&'m str, Key), StepFault> {
        let text = |path: &str| manifest.pointer(path).and_then(|value| value.as_str());
        let (kind, name) = (text("/kind").unwrap_or_default(), text("/metadata/name").unwrap_or_default());
        match (kind, text("/metadata/namespace")) {
            ("ServiceCIDR", None) => Ok((kind, self.layout().service_cidr(name))),
            ("Service", Some(namespace)) => Ok((kind, self.layout().service(namespace, name))),
            _ => Err(StepFault::Halt(format!("a rehearsal cannot change a {kind}"))),
        }
    }

    async fn create(&self, manifest: &serde_json::Value) -> Result<(), StepFault> {
        let text = |path: &str| manifest.pointer(path).and_then(|value| value.as_str());
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name").unwrap_or_default());
        let (_, key) = self.kind_and_key(manifest)?;
        let value = self.fresh(format!("{manifest}\n").as_bytes())?;
        let mut changes = vec![Change { key, expected: Expected::Absent, action: Action::Put(value) }];
        if let (Some(namespace), Some(address)) = (namespace, text("/spec/clusterIP")) {
            let address: IpAddr = address.parse().map_err(failed)?;
            changes.extend(self.allocate(address, namespace, name).await?);
        }
        self.commit(changes).await
    }

    fn fresh(&self, value: &[u8]) -> Result<Vec<u8>, StepFault> {
        let edits = [
            FieldEdit { field: Field::uid(), change: FieldChange::Set(Value::Text(self.ambient.uid())) },
            FieldEdit {
                field: Field::creation_timestamp(),
                change: FieldChange::Set(Value::Time(self.ambient.now())),
            },
        ];
        edit::apply(value, &edits).map_err(failed)
    }

    async fn allocate(&self, address: IpAddr, namespace: &str, name: &str) -> Result<Vec<Change>, StepFault> {
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

    /// Returns the change of an address's bit, if the RangeAllocation has the address. Under dual write, the RangeAllocation gets
    /// the new range only after the flag has changed.
    async fn change_bit(&self, address: IpAddr, allocated: bool) -> Result<Option<Change>, StepFault> {
        let Some(bitmap) = &self.work.bitmap else { return Ok(None) };
        let key = self.layout().range(&bitmap.name);
        let entry = self.store.get(&key).await.map_err(failed)?;
        let entry = entry.ok_or_else(|| StepFault::Halt(format!("`{key}` does not exist")))?;
        let found: RangeAllocation = objects::decode(&entry.value).map_err(failed)?;
        let Some(items) = found.range.as_deref().and_then(Items::parse) else { return Ok(None) };
        let Some(bit) = items.bit(Item::Address(address)) else { return Ok(None) };
        let capacity = items.capacity();
        let (set, clear) = if allocated { (vec![bit], vec![]) } else { (vec![], vec![bit]) };
        let change = FieldChange::Bits { capacity, set, clear };
        let value =
            edit::apply(&entry.value, &[FieldEdit { field: Field::data(), change }]).map_err(failed)?;
        if allocated && value == entry.value {
            return Err(StepFault::Halt(format!("`{address}` is already allocated")));
        }
        Ok(Some(Change { key, expected: Expected::At(entry.mod_revision), action: Action::Put(value) }))
    }

    async fn delete(&self, manifest: &serde_json::Value) -> Result<(), StepFault> {
        let (kind, key) = self.kind_and_key(manifest)?;
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

    async fn release(&self, address: IpAddr) -> Result<Vec<Change>, StepFault> {
        let mut changes: Vec<Change> = self.change_bit(address, false).await?.into_iter().collect();
        let key = self.layout().ip_address(address);
        if let Some(entry) = self.store.get(&key).await.map_err(failed)? {
            changes.push(Change { key, expected: Expected::At(entry.mod_revision), action: Action::Delete });
        }
        Ok(changes)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), StepFault> {
        let transaction = Transaction { guards: Vec::new(), changes };
        self.store.commit(&transaction).await.map(drop).map_err(failed)
    }
}

#[async_trait]
impl Environment<Effect> for Simulation<'_> {
    async fn apply(&self, doing: &Doing<'_, Effect>) -> Result<Applied, StepFault> {
        let _turn = self.turn.lock().await;
        let (effect, back) = (doing.effect, doing.back);
        match effect {
            Effect::Create { manifest } if back => self.delete(manifest).await?,
            Effect::Create { manifest } => self.create(manifest).await?,
            Effect::ReserveBits { batch } => {
                return Ok(self.planned(|compiler| Some(compiler.bits_of(*batch, back))));
            }
            Effect::RewriteBitmap => {
                return Ok(self.planned(|compiler| compiler.bitmap_rewrite().map(|(forward, _)| forward)));
            }
            Effect::RestoreBitmap => {
                return Ok(self.planned(|compiler| compiler.bitmap_rewrite().map(|(_, backward)| backward)));
            }
            Effect::AlignBits => {
                let survey = Survey::read(self.store, &self.layout(), None).await.map_err(failed)?;
                return Ok(Applied::Changes(Box::new(aligned(self.work, &survey, back))));
            }
            // No change is needed here. No other part of a rehearsal reads the object that contains the list, and no other client
            // frees bits.
            Effect::List(_) | Effect::KeepBits { .. } | Effect::ReopenRange => {}
            Effect::CloseRange | Effect::ReplaceRange | Effect::RemoveTemporaryRange => {
                if let Some(what) = effect.cannot_be_rehearsed(self.work) {
                    self.take_as_done(what);
                }
            }
        }
        Ok(Applied::NOTHING)
    }

    async fn observe(&self, doing: &Doing<'_, Effect>) -> Result<Observed, StepFault> {
        let Effect::Create { manifest } = doing.effect else { return Ok(Observed::NotDone) };
        let (_, key) = self.kind_and_key(manifest)?;
        let exists = self.store.get(&key).await.map_err(failed)?.is_some();
        Ok(if exists == doing.back { Observed::NotDone } else { Observed::Done(serde_json::Value::Null) })
    }

    async fn wait(&self, wait: &Wait, _: Records<'_>) -> Result<(), StepFault> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        // Only waits for the data plane are counted. The operation also waits for API servers, controllers or clients.
        *waits = waits.saturating_add(usize::from(wait.kind == Awaited::Barrier));
        Ok(())
    }

    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault> {
        let Manual { name, what, why, undo } = manual;
        let what = undo.as_ref().filter(|_| back).unwrap_or(what);
        self.take_as_done([what.clone(), why.clone()]);
        if name != FLAGS || self.work.era != Era::Bitmap {
            return Ok(Answer::Confirmed);
        }
        // An API server that starts with another range rewrites the RangeAllocation.
        let rewrite = |compiler: &Compiler<'_>| {
            compiler.bitmap_rewrite().map(|(to, from)| if back { from } else { to })
        };
        Ok(match self.planned(rewrite) {
            Applied::Changes(swap) => Answer::Changes(swap),
            Applied::Made(_) => Answer::Confirmed,
        })
    }
}
