//! Reads the objects of a kind in both clusters page by page, and pairs those with the same name. Only a few pages are in memory.
//!
//! An API server lists the objects of a namespace in the order of their names, because etcd stores them in this order. Other servers,
//! such as those of aggregated APIs, can have another order. If a list is in another order, all objects of the mirror are kept.

use std::collections::HashMap;

use serde_json::Value;

use crate::inventory::text;
use crate::kube_api::{ClusterError, Pages};
use crate::session::{ExitKind, Failure};

/// Maximum number of objects in a page.
pub(super) const PAGE: u32 = 100;

/// An object of the source, and the object of the mirror with this name.
pub(super) type Paired = (Value, Option<Value>);

/// Why a page cannot be read.
pub(super) enum PageFault {
    /// Of the source.
    Source(ClusterError),
    /// Of the mirror.
    Mirror(ClusterError),
    /// A list is not in the order of its names, so objects of the mirror can already have been dropped.
    Disordered,
}

impl PageFault {
    /// Returns whether an API server no longer has the revision of the earlier pages.
    pub fn is_of_revision(&self) -> bool {
        matches!(self, Self::Source(error) | Self::Mirror(error) if matches!(error, ClusterError::Server { code: 410, .. }))
    }
}

impl From<PageFault> for Failure {
    fn from(fault: PageFault) -> Self {
        match fault {
            PageFault::Source(error) | PageFault::Mirror(error) => error.into(),
            PageFault::Disordered => Self::of(ExitKind::Bug, "a list is in no order"),
        }
    }
}

/// The objects of a kind in both clusters.
pub(super) struct PairedPages {
    source: Pages,
    /// `None` after the last page, and if the mirror has no such objects.
    mirror: Option<Pages>,
    pairing: Pairing,
}

/// Pairs objects by their names.
struct Pairing {
    /// Objects of the mirror that the source can still have.
    live: HashMap<String, Value>,
    /// The last name that was read in the source, and in the mirror.
    last_of_source: String,
    last_of_mirror: String,
    /// Whether both lists must be in the order of their names.
    is_ordered: bool,
}

impl PairedPages {
    pub fn new(source: Pages, mirror: Option<Pages>, is_ordered: bool) -> Self {
        Self { source, mirror, pairing: Pairing::new(is_ordered) }
    }

    /// Reads the next objects of the source, with those of the mirror; `None` after the last page.
    pub async fn next(&mut self) -> Result<Option<Vec<Paired>>, PageFault> {
        let Some(found) = self.source.next().await.map_err(PageFault::Source)? else {
            self.check_rest().await?;
            return Ok(None);
        };
        self.pairing.follow(&found)?;
        while !found.is_empty() && self.pairing.needs_more() {
            let Some(pages) = &mut self.mirror else { break };
            match pages.next().await.map_err(PageFault::Mirror)? {
                Some(page) => self.pairing.add(page)?,
                None => self.mirror = None,
            }
        }
        Ok(Some(self.pairing.pair(found)))
    }

    /// Reads the remaining pages of the mirror. Fails if they have names that should have come before.
    async fn check_rest(&mut self) -> Result<(), PageFault> {
        // A user need not have the permission to list a kind in the mirror that the source does not use.
        let mirror = self.mirror.as_mut().filter(|_| !self.pairing.last_of_source.is_empty());
        let Some(pages) = mirror else { return Ok(()) };
        while let Some(page) = pages.next().await.map_err(PageFault::Mirror)? {
            self.pairing.check(&page)?;
        }
        Ok(())
    }
}

impl Pairing {
    fn new(is_ordered: bool) -> Self {
        let (last_of_source, last_of_mirror) = (String::new(), String::new());
        Self { live: HashMap::new(), last_of_source, last_of_mirror, is_ordered }
    }

    /// Notes the names of a page of the source.
    fn follow(&mut self, page: &[Value]) -> Result<(), PageFault> {
        follow(&mut self.last_of_source, page, self.is_ordered)
    }

    /// Returns whether another page of the mirror can have objects of the page of the source.
    fn needs_more(&self) -> bool {
        !self.is_ordered || self.last_of_mirror < self.last_of_source
    }

    /// Adds a page of the mirror.
    fn add(&mut self, page: Vec<Value>) -> Result<(), PageFault> {
        self.check(&page)?;
        self.live.extend(page.into_iter().map(|object| (name(&object).to_string(), object)));
        Ok(())
    }

    /// Notes the names of a page of the mirror.
    fn check(&mut self, page: &[Value]) -> Result<(), PageFault> {
        follow(&mut self.last_of_mirror, page, self.is_ordered)
    }

    /// Pairs a page of the source. Drops what no later page can have.
    fn pair(&mut self, page: Vec<Value>) -> Vec<Paired> {
        let with_live = |object: Value| {
            let live = self.live.remove(name(&object));
            (object, live)
        };
        let paired = page.into_iter().map(with_live).collect();
        if self.is_ordered {
            self.live.retain(|name, _| *name > self.last_of_source);
        }
        paired
    }
}

/// Notes the last name of a page. Fails if the names must be in their order, and are not.
fn follow(last: &mut String, page: &[Value], is_ordered: bool) -> Result<(), PageFault> {
    for object in page {
        let name = name(object);
        if is_ordered && name < last.as_str() {
            return Err(PageFault::Disordered);
        }
        last.clear();
        last.push_str(name);
    }
    Ok(())
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pages(names: &[String], size: usize) -> Vec<Vec<Value>> {
        let object = |name: &String| json!({"metadata": {"name": name}});
        names.chunks(size).map(|names| names.iter().map(object).collect()).collect()
    }

    /// Reads the pages of both clusters, as [`PairedPages::next`] does. Returns each name of the source, with whether the mirror has it,
    /// and the maximum number of objects of the mirror in memory. `None` if a list is in no order.
    fn paired(
        (source, mirror): (&[String], &[String]),
        size: usize,
        is_ordered: bool,
    ) -> Option<(Vec<(String, bool)>, usize)> {
        let mut pairing = Pairing::new(is_ordered);
        let (mut live, mut found, mut most) = (pages(mirror, size).into_iter(), Vec::new(), 0);
        for page in pages(source, size) {
            pairing.follow(&page).ok()?;
            while pairing.needs_more() {
                let Some(page) = live.next() else { break };
                pairing.add(page).ok()?;
                most = most.max(pairing.live.len());
            }
            let pairs = pairing.pair(page);
            assert!(pairs.iter().all(|(one, other)| other.as_ref().is_none_or(|other| one == other)));
            found.extend(pairs.iter().map(|(one, other)| (name(one).to_string(), other.is_some())));
        }
        live.try_for_each(|page| pairing.check(&page)).ok()?;
        Some((found, most))
    }

    proptest! {
        #[test]
        fn every_object_is_paired_in_any_order(
            source in prop::collection::btree_set("[a-c]{1,4}", 0..40),
            mirror in prop::collection::btree_set("[a-c]{1,4}", 0..40),
            size in 1..8_usize,
            order in any::<u64>(),
        ) {
            let expected: Vec<(String, bool)> =
                source.iter().map(|name| (name.clone(), mirror.contains(name))).collect();
            let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<String>>();
            let (of_source, mut of_mirror) = (list(&source), list(&mirror));
            let (found, _) = paired((&of_source, &of_mirror), size, true).expect("both are in order");
            prop_assert_eq!(&found, &expected);

            of_mirror.sort_by_key(|name| name.bytes().fold(order, |sum, byte| sum.wrapping_mul(31) ^ u64::from(byte)));
            if let Some((found, _)) = paired((&of_source, &of_mirror), size, true) {
                prop_assert_eq!(&found, &expected, "another order is refused before an object is lost");
            }
            let (found, _) = paired((&of_source, &of_mirror), size, false).expect("any order");
            prop_assert_eq!(&found, &expected);
        }
    }

    #[test]
    fn only_some_objects_are_in_memory() {
        let names: Vec<String> = (0..1_000).map(|number| format!("a{number:04}")).collect();
        let (found, most) = paired((&names, &names), 10, true).expect("both are in order");
        assert_eq!((found.len(), most), (1_000, 10));
    }
}
