//! A store that fails at a given commit, in a given way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use netsurgeon::operation::{Ambient as _, LeaseHolder, State};
use netsurgeon::store::overlay::Overlay;
use netsurgeon::store::{
    Action, Change, CommitError, Entry, Expected, Guard, Key, KeyRange, ReadStore, Revision, StoreError,
    Transaction, Visitor, WriteStore,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;

use crate::harness::{Constant, LOCK, OPERATION, keys};

/// What fails, and at which commit, counted from 1 since the last [`Saboteur::arm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    None,
    /// This commit and all later ones are rejected: the process can do nothing more.
    Stop(usize),
    /// Another client wrote first, this once.
    Conflict(usize),
    /// Just before it another client rewrites every object unchanged: all revisions that were read before are out of date.
    Touched(usize),
    /// It was applied, and the answer is lost.
    LostAfter(usize),
    /// It was not applied, and the answer is lost.
    LostBefore(usize),
    /// The answer is lost, and it is applied only after the process has looked the outcome up.
    LostAndLate(usize),
    /// Just before it, another client takes the lease over.
    LockLost(usize),
    /// It was applied; before its answer arrives, another client takes the lease over and completes the step.
    LostToAnother(usize),
}

/// An overlay that fails on request.
pub struct Saboteur {
    overlay: Overlay,
    fault: Mutex<Sabotage>,
    commits: AtomicUsize,
    /// A delayed commit, and the number of reads before it is applied.
    late: Mutex<Option<(Transaction, usize)>>,
    /// How long each call takes, at random; `None`: no delay.
    unrest: Mutex<Option<StdRng>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl Saboteur {
    /// Returns a store that does not fail yet.
    pub fn over(overlay: Overlay) -> Self {
        Self {
            overlay,
            fault: Mutex::new(Sabotage::None),
            commits: AtomicUsize::new(0),
            late: Mutex::default(),
            unrest: Mutex::default(),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        }
    }

    /// Chooses the next fault and counts from 0 again.
    pub fn arm(&self, fault: Sabotage) {
        *lock(&self.fault) = fault;
        self.commits.store(0, Ordering::SeqCst);
    }

    /// Returns the number of attempted commits since the last fault was chosen.
    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// From now on each call takes a random time, so that concurrent calls interleave.
    pub fn unsettle(&self, seed: u64) {
        *lock(&self.unrest) = Some(StdRng::seed_from_u64(seed));
    }

    /// Returns the highest number of concurrent calls.
    pub fn most_under_way(&self) -> usize {
        self.most_under_way.load(Ordering::SeqCst)
    }

    /// Waits for a random number of turns.
    async fn tarry(&self) {
        let turns = lock(&self.unrest).as_mut().map_or(0, |random| random.random_range(0..4));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    async fn slowly<T>(&self, call: impl Future<Output = T>) -> T {
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        self.tarry().await;
        let outcome = call.await;
        self.tarry().await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Creates the key of the lease, as its holder; returns the precondition of every later write.
    pub async fn take_lock(&self, holder: &str) -> Guard {
        let key = Key::from(LOCK);
        if let Some(entry) = self.overlay.get(&key).await.expect("a read") {
            let expected = Expected::At(entry.mod_revision);
            let change = Change { key: key.clone(), expected, action: Action::Delete };
            let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
            self.overlay.commit(&transaction).await.expect("a commit");
        }
        let claim = LeaseHolder {
            holder: holder.into(),
            pid: 1,
            operation: OPERATION.into(),
            purpose: "a test".into(),
            since: Constant.now(),
        };
        let value = serde_json::to_vec(&claim).expect("JSON");
        let change = Change { key: key.clone(), expected: Expected::Absent, action: Action::Put(value) };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        let created = self.overlay.commit(&transaction).await.expect("a commit");
        Guard::SameCreation(key, created)
    }

    /// Changes a key as another client would.
    pub async fn meddle(&self, key: &Key, value: Vec<u8>) {
        self.meddle_with(key, Action::Put(value)).await;
    }

    /// Creates a key as another client would.
    pub async fn create(&self, key: &Key, value: Vec<u8>) {
        let change = Change { key: key.clone(), expected: Expected::Absent, action: Action::Put(value) };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        self.overlay.commit(&transaction).await.expect("a commit");
    }

    /// Deletes a key as another client would.
    pub async fn delete(&self, key: &Key) {
        self.meddle_with(key, Action::Delete).await;
    }

    async fn meddle_with(&self, key: &Key, action: Action) {
        let entry = self.overlay.get(key).await.expect("a read").expect("the key exists");
        let expected = Expected::At(entry.mod_revision);
        let change = Change { key: key.clone(), expected, action };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        self.overlay.commit(&transaction).await.expect("a commit");
    }

    /// Applies a delayed commit, after enough reads or if it cannot wait.
    async fn arrive(&self, now: bool) {
        let due = {
            let mut late = lock(&self.late);
            if let Some((_, reads)) = late.as_mut() {
                *reads = reads.saturating_sub(1);
            }
            if late.as_ref().is_some_and(|(_, reads)| now || *reads == 0) { late.take() } else { None }
        };
        if let Some((transaction, _)) = due {
            self.overlay.commit(&transaction).await.expect("it would succeed at once");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost() -> CommitError {
    CommitError::OutcomeUnknown { reason: "the test lost it".into() }
}

#[async_trait]
impl ReadStore for Saboteur {
    fn describe(&self) -> String {
        self.overlay.describe()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.overlay.revision().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.slowly(async {
            self.arrive(false).await;
            self.overlay.get(key).await
        })
        .await
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        self.overlay.scan(ranges, at, visitor).await
    }
}

#[async_trait]
impl WriteStore for Saboteur {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        self.slowly(self.commit_or_fail(transaction)).await
    }
}

impl Saboteur {
    async fn commit_or_fail(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        self.arrive(true).await;
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = *lock(&self.fault);
        match fault {
            Sabotage::Stop(at) if number >= at => Err(CommitError::Store(StoreError::Server {
                endpoints: "test".into(),
                reason: "stopped".into(),
            })),
            Sabotage::Conflict(at) if number == at => {
                let change = transaction.changes.first().expect("a change");
                let (key, expected) = (change.key.clone(), change.expected);
                Err(CommitError::Conflict { key, expected, found: None })
            }
            Sabotage::Touched(at) if number == at => {
                for (key, value) in keys(&self.overlay, "/registry/").await {
                    self.meddle(&key, value).await;
                }
                self.overlay.commit(transaction).await
            }
            Sabotage::LostBefore(at) if number == at => Err(lost()),
            Sabotage::LostAfter(at) if number == at => {
                self.overlay.commit(transaction).await?;
                Err(lost())
            }
            Sabotage::LostAndLate(at) if number == at => {
                // The first read looks the record up; the second one starts the next attempt.
                *lock(&self.late) = Some((transaction.clone(), 2));
                Err(lost())
            }
            Sabotage::LockLost(at) if number == at => {
                self.take_lock("bob@elsewhere").await;
                self.overlay.commit(transaction).await
            }
            Sabotage::LostToAnother(at) if number == at => {
                self.overlay.commit(transaction).await?;
                for change in &transaction.changes {
                    if let Action::Put(value) = &change.action
                        && change.key.to_string().contains("/steps/")
                    {
                        let mut record: Value = serde_json::from_slice(value).expect("a record is JSON");
                        record["state"] = State::Done.to_string().into();
                        self.meddle(&change.key, record.to_string().into_bytes()).await;
                    }
                }
                self.take_lock("bob@elsewhere").await;
                Err(lost())
            }
            _ => self.overlay.commit(transaction).await,
        }
    }
}
