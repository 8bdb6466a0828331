//! Reserves and frees bits of the RangeAllocation, according to the current Services. Under dual write, API servers do not
//! rewrite the RangeAllocation when their flag changes. So this module rewrites the whole RangeAllocation after the range of
//! the API servers has changed.

use std::collections::HashSet;

use super::LiveEnvironment;
use crate::ip::{Item, Items};
use crate::operation::{Applied, KeyChange, KeyEdit, StepFault, Swap};
use crate::renumber::index::Index;
use crate::renumber::intention::Move;
use crate::renumber::ownerless_bits::aligned;
use crate::renumber::rewrite::{wanted, wanted_meanwhile};
use crate::renumber::steps::Compiler;
use crate::survey::{Layout, Survey};
use crate::wire::bitmap::Bitmap;
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::{Field, FieldEdit, Value};

impl LiveEnvironment<'_> {
    /// Computes the change that sets the bits of a batch or, in a rollback, clears them. If a bit is already set and no Service
    /// has the address, the bit counts as reserved by the operation, because an API server may have left the bit set. If another
    /// Service has the address, the bit is not changed. In the forward direction, the change is refused, and the error names the
    /// bit. In a rollback, the bit stays set, because the address was allocated again after the planned Service was deleted.
    pub(super) async fn reserved_bits(&self, batch: usize, back: bool) -> Result<Applied, StepFault> {
        let failed = |text: String| StepFault::Halt(format!("the RangeAllocation cannot be read: {text}"));
        let layout = Layout::new(&self.work.prefix);
        let compiler = Compiler { work: self.work, layout: &layout };
        let mut swap = compiler.bits_of(batch, back);
        let survey =
            Survey::read(self.store, &layout, None).await.map_err(|error| failed(error.to_string()))?;
        // If there is no RangeAllocation with the new range, the change is refused later, and the error contains the reason.
        let found = survey.address_bitmap(self.work.family).filter(|it| it.cidr() == Some(self.work.to));
        let Some(found) = found else { return Ok(Applied::Changes(Box::new(swap))) };
        let capacity = compiler.bitmap_capacity();
        let there = Bitmap::from_bytes(&found.data, capacity).map_err(|error| failed(error.to_string()))?;
        let index = Index::of(&survey);
        let is_recreated = |candidate: &Move| {
            let found = index.service(candidate).filter(|service| service.uid != candidate.uid);
            found.is_some_and(|service| service.addresses.contains(&candidate.new_address))
        };
        let is_others = |candidate: &&Move| {
            index.other_owner(candidate, candidate.new_address).is_some() || is_recreated(candidate)
        };
        let others: HashSet<u64> =
            self.work.moves.iter().filter(is_others).map(|it| compiler.bit(it.new_address)).collect();
        for edit in &mut swap.edits {
            let KeyChange::Edit { require, edits, .. } = &mut edit.change else { continue };
            require.push(Condition::Holds(Field::data(), Value::Bytes(found.data.clone())));
            for edit in edits {
                match &mut edit.change {
                    FieldChange::Bits { set, .. } => {
                        set.retain(|bit| others.contains(bit) || !there.is_set(*bit));
                    }
                    FieldChange::Free { bits, .. } => bits.retain(|bit| !others.contains(bit)),
                    _ => {}
                }
            }
        }
        Ok(Applied::Changes(Box::new(swap)))
    }

    /// Computes the change that aligns the RangeAllocation with the addresses of the operation.
    pub(super) async fn aligned_bits(&self, back: bool) -> Result<Applied, StepFault> {
        let survey = Survey::read(self.store, &Layout::new(&self.work.prefix), None).await;
        let survey = survey
            .map_err(|error| StepFault::Halt(format!("the RangeAllocation cannot be read: {error}")))?;
        Ok(Applied::Changes(Box::new(aligned(self.work, &survey, back))))
    }

    /// Computes the change of the RangeAllocation to the new range, or back to the old range. The bits are set for Services and
    /// for the allocator's objects. For the addresses of the operation, [`wanted_meanwhile`] decides whether their bits are set.
    pub(super) async fn rewritten_bitmap(&self, back: bool) -> Result<Applied, StepFault> {
        let failed =
            |text: String| StepFault::Halt(format!("the RangeAllocation cannot be rewritten: {text}"));
        let change = self
            .work
            .bitmap
            .as_ref()
            .ok_or_else(|| failed("the plan contains no change of a RangeAllocation".to_string()))?;
        let layout = Layout::new(&self.work.prefix);
        let survey =
            Survey::read(self.store, &layout, None).await.map_err(|error| failed(error.to_string()))?;
        let found = survey.bitmaps.iter().find(|bitmap| bitmap.name == change.name);
        let found = found.ok_or_else(|| failed(format!("there is no `{}`", change.name)))?;
        let range = if back { change.from.clone() } else { self.work.to.to_string() };
        let items =
            Items::parse(&range).ok_or_else(|| failed(format!("`{range}` is not an address range")))?;
        let mut bits = wanted(&items, &survey, Some(found).filter(|found| found.range == range));
        for (address, is_wanted) in wanted_meanwhile(self.work, &survey, back) {
            if let Some(bit) = items.bit(Item::Address(address)) {
                bits.set(bit, is_wanted);
            }
        }
        let (text, bytes) = (|text: &str| Value::Text(text.to_string()), Value::Bytes);
        let edits = vec![
            FieldEdit::replace(Field::range(), text(&found.range), text(&range)),
            FieldEdit::replace(Field::data(), bytes(found.data.clone()), bytes(bits.to_bytes())),
        ];
        let change = KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() };
        let edits = vec![KeyEdit { key: layout.range(&found.name), change }];
        Ok(Applied::Changes(Box::new(Swap { edits, checks: Vec::new() })))
    }
}
