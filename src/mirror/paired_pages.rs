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
    /// Objects of the mirror that the source can still have.
    live: HashMap<String, Value>,
    /// The last name that was read in the source, and in the mirror.
    last_of_source: String,
    last_of_mirror: String,
    /// Whether both lists are in the order of their names.
    is_ordered: bool,
}

impl PairedPages {
    pub fn new(source: Pages, mirror: Option<Pages>, is_ordered: bool) -> Self {
        let (last_of_source, last_of_mirror) = (String::new(), String::new());
        Self { source, mirror, live: HashMap::new(), last_of_source, last_of_mirror, is_ordered }
    }

    /// Reads the next objects of the source, with those of the mirror; `None` after the last page.
    pub async fn next(&mut self) -> Result<Option<Vec<Paired>>, PageFault> {
        let Some(found) = self.source.next().await.map_err(PageFault::Source)? else { return Ok(None) };
        follow(&mut self.last_of_source, &found, self.is_ordered)?;
        while !found.is_empty() && (!self.is_ordered || self.last_of_mirror < self.last_of_source) {
            let Some(pages) = &mut self.mirror else { break };
            let Some(page) = pages.next().await.map_err(PageFault::Mirror)? else {
                self.mirror = None;
                break;
            };
            follow(&mut self.last_of_mirror, &page, self.is_ordered)?;
            self.live.extend(page.into_iter().map(|object| (name(&object).to_string(), object)));
        }
        let paired = found.into_iter().map(|object| {
            let live = self.live.remove(name(&object));
            (object, live)
        });
        let paired = paired.collect();
        if self.is_ordered {
            self.live.retain(|name, _| *name > self.last_of_source);
        }
        Ok(Some(paired))
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
