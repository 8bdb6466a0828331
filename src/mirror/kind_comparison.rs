//! Reads the objects of a kind in both clusters, and compares them.

use std::collections::HashSet;

use futures_util::{StreamExt as _, stream};

use super::decision::{Around, KindPair};
use super::paired_pages::{PAGE, PageFault, PairedPages};
use super::reader::{MirrorReader, reference};
use super::work::Entry;
use crate::inventory::{AT_ONCE, text};
use crate::kube_api::{ClusterError, Collection};
use crate::session::Failure;

/// Maximum number of attempts to continue a list whose revision is compacted.
const MOST_LISTS: usize = 3;

impl MirrorReader {
    /// Returns the entries of a kind in a namespace. `is_there`: whether the namespace and the kind exist in the mirror. The inner error
    /// is of the source.
    pub(super) async fn copied(
        &self,
        pair: &KindPair,
        namespace: &str,
        around: &Around,
        is_there: bool,
    ) -> Result<Result<Vec<Entry>, ClusterError>, Failure> {
        let (mut entries, mut is_ordered, mut attempts) = (Vec::new(), true, 0_usize);
        loop {
            let mut pages = match self.pages(pair, namespace, (is_there, is_ordered)).await {
                Ok(pages) => pages,
                Err(PageFault::Source(error)) => return Ok(Err(error)),
                Err(fault) => return Err(fault.into()),
            };
            let read = self.entries(&mut pages, (pair, namespace, around, is_there), &mut entries);
            match read.await? {
                Ok(()) => return Ok(Ok(entries)),
                Err(PageFault::Disordered) => {
                    entries.clear();
                    is_ordered = false;
                }
                // The revision of the earlier pages is compacted. Reading continues at a newer one, without what was read.
                Err(fault) if fault.is_of_revision() && attempts < MOST_LISTS => {
                    attempts = attempts.saturating_add(1);
                }
                Err(PageFault::Source(error)) => return Ok(Err(error)),
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    async fn pages(
        &self,
        pair: &KindPair,
        namespace: &str,
        (is_there, is_ordered): (bool, bool),
    ) -> Result<PairedPages, PageFault> {
        let version = pair.api_version();
        let collection = Collection::new(&version, &pair.kind.kind, Some(namespace));
        let source = self.source.pages(&collection, PAGE).await.map_err(PageFault::Source)?;
        if !is_there {
            return Ok(PairedPages::new(source, None, is_ordered));
        }
        let namespace = self.options.config.renamed(namespace);
        let collection = Collection::new(&version, &pair.kind.kind, Some(namespace));
        let mirror = self.mirror.pages(&collection, PAGE).await.map_err(PageFault::Mirror)?;
        Ok(PairedPages::new(source, Some(mirror), is_ordered))
    }

    /// Adds the entries of all pages, except those that are known from an earlier attempt.
    async fn entries(
        &self,
        pages: &mut PairedPages,
        (pair, namespace, around, is_there): (&KindPair, &str, &Around, bool),
        entries: &mut Vec<Entry>,
    ) -> Result<Result<(), PageFault>, Failure> {
        let known: HashSet<String> = entries.iter().map(|entry| entry.object.name.clone()).collect();
        loop {
            let mut page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(Ok(())),
                Err(fault) => return Ok(Err(fault)),
            };
            page.retain(|(object, _)| {
                let is_omitted =
                    around.copies_single(&pair.resource) && around.is_controlled(&pair.resource, object);
                !is_omitted && !known.contains(text(object, "/metadata/name"))
            });
            let found = page.iter().map(|(object, live)| {
                let reference = reference(pair, Some(namespace), text(object, "/metadata/name"));
                self.entry(reference, object, live.as_ref(), around, is_there)
            });
            let found: Vec<Result<Entry, Failure>> = stream::iter(found).buffered(AT_ONCE).collect().await;
            for entry in found {
                entries.push(entry?);
            }
        }
    }
}
