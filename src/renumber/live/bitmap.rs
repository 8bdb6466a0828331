//! The RangeAllocation under dual write, at the moment when the API servers have got another range: it follows
//! nobody's flag, so it is rewritten here, with the bits of the Services that there are by then.

use std::collections::HashSet;
use std::net::IpAddr;

use super::LiveWorld;
use crate::ip::{Item, Items};
use crate::operation::{Fault, KeyChange, KeyEdit, Swap};
use crate::renumber::ranges::wanted;
use crate::survey::{Layout, Survey};
use crate::wire::{Field, FieldEdit, Value};

impl LiveWorld<'_> {
    /// Computes the change of the RangeAllocation to the new range, or back to the old one. Its bits are those that
    /// Services and the allocator's objects ask for, and those of Services that are about to have them: that are
    /// moved later, or have yet to be moved back.
    pub(super) async fn rewritten_bitmap(&self, back: bool) -> Result<Swap, Fault> {
        let failed = |text: String| Fault::Halt(format!("the RangeAllocation cannot be rewritten: {text}"));
        let change = self.work.bitmap.as_ref().ok_or_else(|| failed("none was planned".to_string()))?;
        let layout = Layout::new(&self.work.prefix);
        let survey =
            Survey::read(self.store, &layout, None).await.map_err(|error| failed(error.to_string()))?;
        let found = survey.bitmaps.iter().find(|bitmap| bitmap.name == change.name);
        let found = found.ok_or_else(|| failed(format!("there is no `{}`", change.name)))?;
        let range = if back { change.from.clone() } else { self.work.to.to_string() };
        let items =
            Items::parse(&range).ok_or_else(|| failed(format!("`{range}` is no range of addresses")))?;
        let mut bits = wanted(&items, &survey);
        let with_address = survey.services.iter().filter(|service| !service.addresses.is_empty());
        let there: HashSet<&str> = with_address.map(|service| service.uid.as_str()).collect();
        let listed: HashSet<IpAddr> =
            survey.services.iter().flat_map(|service| service.addresses.iter().copied()).collect();
        for candidate in &self.work.moves {
            let address = if back { candidate.old_address } else { candidate.new_address };
            // What is kept for a Service that was deleted, or has no address any more, is no Service's.
            let is_there = there.contains(candidate.uid.as_str()) || listed.contains(&address);
            if let Some(bit) = items.bit(Item::Address(address)) {
                bits.set(bit, is_there);
            }
        }
        let (text, bytes) = (|text: &str| Value::Text(text.to_string()), Value::Bytes);
        let edits = vec![
            FieldEdit::replace(Field::range(), text(&found.range), text(&range)),
            FieldEdit::replace(Field::data(), bytes(found.data.clone()), bytes(bits.to_bytes())),
        ];
        let change = KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() };
        Ok(Swap { edits: vec![KeyEdit { key: layout.range(&found.name), change }], checks: Vec::new() })
    }
}
