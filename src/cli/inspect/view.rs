//! Converts a stored value to a tree. The bitmap of a RangeAllocation becomes a list of the allocated addresses or ports.

use serde_json::{Map, Value as Json};

use crate::ip;
use crate::wire::bitmap::Bitmap;
use crate::wire::objects::{self, RangeAllocation};
use crate::wire::{Envelope, WireError, tree};

/// How the items of a RangeAllocation are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Items {
    /// Consecutive items together, as in `10.96.0.1-10.96.0.5`.
    Together,
    /// Each item separately, so that two trees can be compared.
    Each,
}

/// Returns the tree of a stored value.
pub(super) fn of(value: &[u8], items: Items) -> Result<Json, WireError> {
    let mut shown = tree::of(value)?;
    let is_range = shown.get("kind").and_then(Json::as_str) == Some("RangeAllocation");
    if let (true, Ok(object)) = (is_range, objects::decode::<RangeAllocation>(value))
        && let (Some(decoded), Some(members)) = (allocated(&object, items), shown.as_object_mut())
    {
        members.shift_remove("data");
        members.insert("allocated".into(), decoded);
    }
    Ok(shown)
}

/// Returns the name of the encoding of a stored value.
pub(super) fn encoding(value: &[u8]) -> &'static str {
    Envelope::of(value).map_or("unknown", |envelope| envelope.encoding())
}

/// Reads the bitmap. Returns `None` if the range and the bits do not match. The command then shows the stored form.
fn allocated(object: &RangeAllocation, items: Items) -> Option<Json> {
    let kind = ip::Items::parse(object.range.as_deref()?)?;
    let bits = Bitmap::from_bytes(object.data.as_deref().unwrap_or_default(), kind.capacity()).ok()?;
    let mut decoded = Map::new();
    decoded.insert("capacity".into(), bits.capacity().into());
    decoded.insert("used".into(), bits.used().into());
    let listed = match items {
        Items::Together => Json::Array(runs(&bits, &kind)),
        Items::Each => bits.iter_set().map(|bit| (name(&kind, bit), Json::Bool(true))).collect(),
    };
    decoded.insert("items".into(), listed);
    Some(Json::Object(decoded))
}

/// Returns an item as text.
fn name(kind: &ip::Items, bit: u64) -> String {
    kind.item(bit).map(|item| item.to_string()).unwrap_or_default()
}

fn runs(bits: &Bitmap, kind: &ip::Items) -> Vec<Json> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for bit in bits.iter_set() {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(bit) => *last = bit,
            _ => runs.push((bit, bit)),
        }
    }
    let text = |(first, last): (u64, u64)| {
        if first == last { name(kind, first) } else { format!("{}-{}", name(kind, first), name(kind, last)) }
    };
    runs.into_iter().map(|run| Json::String(text(run))).collect()
}
