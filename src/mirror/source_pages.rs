//! The objects of the source that an operation copies, read page by page. The steps of a kind run in the order of the names, which is
//! also the order of a list. So one list takes the place of a request for each object, and only a page is in memory.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Mutex;

use super::paired_pages::PAGE;
use super::work::{Entry, Reference};
use crate::inventory::text;
use crate::kube_api::{ClusterError, Collection, Pages, ReadOnly};

/// Number of copies of a kind in a namespace from which its objects are listed.
pub(super) const MANY: usize = 10;
/// How long an object of a page is used. The source can change it afterwards.
const FRESH: Duration = Duration::from_secs(10);

/// A kind, and a namespace.
pub(super) type Group = (String, Option<String>);

/// Returns the group of an object.
pub(super) fn group(object: &Reference) -> Group {
    (object.resource.clone(), object.namespace.clone())
}

/// The objects, each group read on first use.
#[derive(Default)]
pub(super) struct SourcePages(HashMap<Group, Mutex<Listed>>);

/// The objects of a group.
#[derive(Default)]
struct Listed {
    /// The names of the objects that are copied.
    planned: HashSet<String>,
    /// `None` before the first page.
    pages: Option<Pages>,
    /// Whether there is no other page.
    is_over: bool,
    /// The last name that was read.
    last: String,
    /// Objects that no step has taken yet.
    kept: HashMap<String, (Value, Instant)>,
}

impl SourcePages {
    /// Returns the pages for copies that are created. Reads nothing yet.
    pub fn of<'e>(created: impl Iterator<Item = &'e Entry>) -> Self {
        let mut groups: HashMap<Group, HashSet<String>> = HashMap::new();
        for entry in created {
            groups.entry(group(&entry.object)).or_default().insert(entry.object.name.clone());
        }
        let many = groups.into_iter().filter(|(_, names)| names.len() >= MANY);
        Self(
            many.map(|(group, planned)| (group, Mutex::new(Listed { planned, ..Listed::default() })))
                .collect(),
        )
    }

    /// Returns an object with this uid; `None` if no page has it, so that only a request of its own shows its state.
    pub async fn take(&self, source: &ReadOnly, object: &Reference, uid: &str) -> Option<Value> {
        let mut listed = self.0.get(&group(object))?.lock().await;
        loop {
            if let Some((found, read)) = listed.kept.remove(&object.name) {
                return Some(found)
                    .filter(|found| read.elapsed() < FRESH && text(found, "/metadata/uid") == uid);
            }
            if listed.is_over || object.name <= listed.last || !listed.planned.contains(&object.name) {
                return None;
            }
            if let Err(error) = listed.read_page(source, object).await {
                tracing::debug!(%error, "a page of the source cannot be read");
                listed.is_over = true;
            }
        }
    }
}

impl Listed {
    async fn read_page(&mut self, source: &ReadOnly, object: &Reference) -> Result<(), ClusterError> {
        let mut pages = if let Some(pages) = self.pages.take() {
            pages
        } else {
            let namespace = object.namespace.as_deref();
            source.pages(&Collection::new(&object.api_version, &object.kind, namespace), PAGE).await?
        };
        let page = pages.next().await?;
        self.pages = Some(pages);
        self.is_over = page.is_none();
        let read = Instant::now();
        self.kept.retain(|_, (_, read)| read.elapsed() < FRESH);
        for found in page.into_iter().flatten() {
            let name = text(&found, "/metadata/name").to_string();
            self.last.clone_from(&name);
            if self.planned.contains(&name) {
                self.kept.insert(name, (found, read));
            }
        }
        Ok(())
    }
}
