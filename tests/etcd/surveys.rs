//! Surveys of a live etcd that is compacted while it is read.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::{Entry, Key, KeyRange, ReadStore, Record, Revision, StoreError, Visit, Visitor};
use netsurgeon::survey::{Layout, Survey, SurveyError};
use serde_json::json;

use crate::rig::etcd::Etcd;
use crate::store::{VERSIONS, connect, options, plain};

const SERVICES: u32 = 5;

/// The store, with writes and compactions between the pages of its first scans.
struct Compacting<'e> {
    etcd: &'e Etcd,
    store: EtcdStore,
    /// How many scans meet a compaction.
    left: AtomicU32,
}

impl Compacting<'_> {
    /// Replaces a value, so that the pages that were read have an old revision, and compacts up to the new one.
    fn compact(&self) {
        self.etcd.etcdctl(&["put", "/other", "1"]);
        let newest = self.etcd.etcdctl(&["get", "/other", "--write-out=json"]);
        let newest: serde_json::Value = serde_json::from_str(&newest).expect("JSON");
        self.etcd.etcdctl(&["compact", &newest["header"]["revision"].to_string()]);
    }
}

#[async_trait]
impl ReadStore for Compacting<'_> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.store.get(key).await
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        let mut is_due = self.left.load(Ordering::SeqCst) > 0;
        let mut visit = |record: Record<'_>| -> Visit {
            if std::mem::take(&mut is_due) {
                self.left.fetch_sub(1, Ordering::SeqCst);
                self.compact();
            }
            match visitor(record) {
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
                stop @ ControlFlow::Break(()) => stop,
            }
        };
        self.store.scan(ranges, at, &mut visit).await
    }
}

async fn furnish(etcd: &Etcd) {
    for number in 0..SERVICES {
        let object = json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": {"namespace": "default", "name": format!("s{number}"), "uid": format!("u{number}")},
            "spec": {"clusterIP": format!("10.96.0.{number}"), "clusterIPs": [format!("10.96.0.{number}")]},
        });
        etcd.put(&format!("/registry/services/specs/default/s{number}"), object.to_string()).await;
    }
}

#[tokio::test]
async fn survey_restarts_after_compaction() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        furnish(&etcd).await;
        let started = connect(options(&etcd)).await.revision().await.expect("a revision");
        for compactions in [1, 2] {
            let store = connect(EtcdOptions { page_size: 1, ..options(&etcd) }).await;
            let store = Compacting { etcd: &etcd, store, left: AtomicU32::new(compactions) };
            let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
            assert_eq!(survey.services.len(), usize::try_from(SERVICES).unwrap(), "each once");
            assert!(survey.revision > started, "{} is a new revision", survey.revision);
            assert_eq!(store.left.load(Ordering::SeqCst), 0, "all compactions happened");
        }
        // If it never ends, the reason is reported; the same for a given revision.
        let store = connect(EtcdOptions { page_size: 1, ..options(&etcd) }).await;
        let store = Compacting { etcd: &etcd, store, left: AtomicU32::new(100) };
        let outcome = Survey::read(&store, &Layout::default(), None).await;
        assert!(matches!(outcome, Err(SurveyError::Store(StoreError::Compacted { .. }))), "{outcome:?}");
        let newest = store.revision().await.expect("a revision");
        let outcome = Survey::read(&store, &Layout::default(), Some(newest)).await;
        assert!(matches!(outcome, Err(SurveyError::Store(StoreError::Compacted { .. }))), "{outcome:?}");
    }
}
