//! A live etcd cluster as a store.
//!
//! Every call ends within the time limits of the options. A scan reads all its pages at one revision. Reads are retried while
//! members fail or elect a leader. A write is retried only if it was certainly not executed; otherwise its outcome is reported as
//! unknown.
//!
//! The submodules: [`options`] contains the settings. [`connection`] handles endpoints and retries. [`failure`] classifies
//! errors. [`lease`] implements keys with a TTL. Only this module uses the client library.

mod backup;
mod connection;
mod failure;
mod lease;
mod members;
mod options;
mod tls_alert;

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, Txn, TxnOp};
use etcd_client::{ResponseHeader, TxnOpResponse, TxnResponse, WatchOptions};
use std::collections::HashMap;
use std::time::Duration;

pub use self::backup::Backup;
pub use self::members::{Alarm, Member, MemberStatus};
pub use self::options::EtcdOptions;

use self::connection::{Connection, Request};
use self::failure::{FailureKind, RequestFailure};
use super::lease::LeaseId;
use super::{
    Access, Action, CommitError, Entry, Expected, Guard, Key, KeyRange, ReadStore, Record, Revision,
    StoreError, Transaction, Visitor, WriteStore,
};

/// The first key that etcd accepts. As the end of a range it means "no upper limit" (`RangeRequest` in
/// api/etcdserverpb/rpc.proto, v3.6.16).
const FIRST_KEY: &[u8] = &[0];
/// Maximum size of a response, in bytes. It is etcd's own limit for responses (`maxSendBytes`,
/// server/etcdserver/api/v3rpc/grpc.go, v3.6.16). gRPC's default limit of 4 MiB is too small for a page of large values.
const LARGEST_ANSWER: usize = i32::MAX as usize;
/// Maximum size of a page of a scan, in bytes. A page of 500 values of 1.5 MiB would take 750 MiB, so a larger page is rejected
/// and requested again with fewer keys.
const LARGEST_PAGE: usize = 16 << 20;
/// Maximum number of keys to read in one transaction. etcd's limit is 128 operations (`--max-txn-ops`).
const KEYS_AT_ONCE: usize = 100;
/// Time limit to query the oldest revision, after a read failed because its revision is compacted. Only the error message needs
/// the oldest revision.
const OLDEST_REVISION_PATIENCE: Duration = Duration::from_secs(2);

/// A live etcd cluster. See the module documentation.
pub struct EtcdStore {
    connection: Connection,
    page_size: i64,
}

impl EtcdStore {
    /// Connects, authenticates, and checks the connection with one read.
    ///
    /// Fails with [`StoreError::Configuration`] for unusable certificates, TLS settings or endpoints. Fails with
    /// [`StoreError::Unreachable`] if no endpoint answers within `connect_timeout` multiplied by the number of endpoints. Fails
    /// with [`StoreError::Unauthenticated`] for a wrong password or a rejected client certificate.
    pub async fn connect(options: EtcdOptions) -> Result<Self, StoreError> {
        let page_size = options.page_size.max(1);
        Ok(Self { connection: Connection::open(options).await?, page_size })
    }

    async fn get_range(&self, start: &[u8], options: GetOptions) -> Result<GetResponse, RequestFailure> {
        self.get_range_up_to(LARGEST_ANSWER, start, options).await
    }

    async fn get_range_up_to(
        &self,
        most: usize,
        start: &[u8],
        options: GetOptions,
    ) -> Result<GetResponse, RequestFailure> {
        let send = |client: Client| {
            let (start, options) = (start.to_vec(), options.clone());
            let mut requests = client.kv_client().max_decoding_message_size(most);
            async move { requests.get(start, Some(options)).await }
        };
        self.connection.request(Request::Read, send).await
    }

    /// Reads at most [`KEYS_AT_ONCE`] keys in one transaction.
    async fn get_some(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StoreError> {
        // etcd does not accept an empty key, so an empty key never exists.
        let askable = keys.iter().filter(|key| !key.as_bytes().is_empty());
        let gets: Vec<TxnOp> = askable.map(|key| TxnOp::get(key.as_bytes(), None)).collect();
        let send = |client: Client| {
            let gets = Txn::new().and_then(gets.clone());
            let mut requests = client.kv_client().max_decoding_message_size(LARGEST_ANSWER);
            async move { requests.txn(gets).await }
        };
        let denied = || Access::Read(keys.iter().map(KeyRange::exact).collect());
        let answer = self.connection.request(Request::Read, send).await;
        let answer = answer.map_err(|failure| self.connection.read_error(failure).denied(denied))?;
        let entry = |answer: TxnOpResponse| match answer {
            TxnOpResponse::Get(found) => found.kvs().first().map(|found| record(found).to_entry()),
            _ => None,
        };
        let mut found = answer.op_responses().into_iter().map(entry);
        let of = |key: &Key| if key.as_bytes().is_empty() { None } else { found.next().flatten() };
        Ok(keys.iter().map(of).collect())
    }

    /// Returns the error for a read that failed at a revision.
    async fn read_error(&self, failure: RequestFailure, at: Option<Revision>) -> StoreError {
        let asked = at.unwrap_or_default();
        match failure.kind {
            FailureKind::Compacted => {
                StoreError::Compacted { asked, oldest: self.oldest_revision(asked).await }
            }
            FailureKind::FutureRevision => match self.revision().await {
                Ok(newest) => StoreError::FutureRevision { asked, newest },
                Err(error) => error,
            },
            _ => self.connection.read_error(failure),
        }
    }

    /// Returns the revision of the last compaction. etcd reports it only to a watch that starts at a compacted revision
    /// (`compact_revision` of `WatchResponse`). If etcd does not answer, returns the revision after `asked`.
    async fn oldest_revision(&self, asked: Revision) -> Revision {
        let send = |client: Client| async move {
            let options = WatchOptions::new().with_start_revision(asked.0.max(1));
            let mut stream = client.watch_client().watch(FIRST_KEY, Some(options)).await?;
            while let Some(answer) = stream.message().await? {
                if answer.compact_revision() > 0 {
                    return Ok(answer.compact_revision());
                }
            }
            Ok(0)
        };
        let answer =
            tokio::time::timeout(OLDEST_REVISION_PATIENCE, self.connection.request(Request::Read, send));
        match answer.await {
            Ok(Ok(revision)) if revision > 0 => Revision(revision),
            _ => Revision(asked.0.saturating_add(1)),
        }
    }

    /// Visits one range page by page. If `at` is `None`, all pages are read at the revision of the first page. Returns the
    /// revision, and whether to continue with the next range.
    async fn scan_range(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<(Option<Revision>, bool), StoreError> {
        let mut start = range.start().as_bytes().max(FIRST_KEY).to_vec();
        let end = match range.end() {
            Some(end) if end.as_bytes() <= start.as_slice() => return Ok((at, true)),
            Some(end) => end.as_bytes(),
            None => FIRST_KEY,
        };
        let (mut at, mut keys) = (at, self.page_size);
        loop {
            let options = GetOptions::new().with_range(end).with_limit(keys);
            let options = options.with_revision(at.unwrap_or_default().0);
            let most = if keys == 1 { LARGEST_ANSWER } else { LARGEST_PAGE };
            let page = match self.get_range_up_to(most, &start, options).await {
                Ok(page) => page,
                Err(failure) if failure.kind == FailureKind::TooLarge && keys > 1 => {
                    keys = keys.saturating_div(4).max(1);
                    continue;
                }
                Err(failure) => {
                    let denied = || Access::Read(vec![range.clone()]);
                    return Err(self.read_error(failure, at).await.denied(denied));
                }
            };
            keys = keys.saturating_mul(2).min(self.page_size);
            if at.is_none() {
                at = Some(self.header_revision(page.header().map(ResponseHeader::revision))?);
            }
            for found in page.kvs() {
                if visitor(record(found)).is_break() {
                    return Ok((at, false));
                }
            }
            match page.kvs().last() {
                Some(last) if page.more() => {
                    start = last.key().to_vec();
                    start.push(0);
                }
                _ => return Ok((at, true)),
            }
        }
    }

    fn header_revision(&self, revision: Option<i64>) -> Result<Revision, StoreError> {
        revision.map(Revision).ok_or_else(|| {
            let reason = "the response has no revision".to_string();
            StoreError::Server { endpoints: self.connection.endpoints(), reason }
        })
    }

    /// Returns the revision that the member has applied. Used if the user is not allowed to read [`FIRST_KEY`].
    async fn member_revision(&self) -> Result<Revision, StoreError> {
        let send = |client: Client| async move { client.maintenance_client().status().await };
        let status = self.connection.request(Request::Read, send).await;
        let status = status.map_err(|failure| self.connection.read_error(failure))?;
        self.header_revision(status.header().map(ResponseHeader::revision))
    }

    /// Executes a transaction. Keys that the transaction creates get the lease.
    async fn commit_with(
        &self,
        transaction: &Transaction,
        lease: Option<LeaseId>,
    ) -> Result<Revision, CommitError> {
        transaction.validate()?;
        let etcd_transaction = etcd_transaction(transaction, lease);
        let send = |client: Client| {
            let etcd_transaction = etcd_transaction.clone();
            let mut requests = client.kv_client().max_decoding_message_size(LARGEST_ANSWER);
            async move { requests.txn(etcd_transaction).await }
        };
        let answer = self.connection.request(Request::Write, send).await;
        let answer = answer.map_err(|failure| self.write_error(failure, transaction))?;
        if !answer.succeeded() {
            return Err(self.conflict(transaction, &answer));
        }
        let revision = answer.header().map(ResponseHeader::revision);
        self.header_revision(revision)
            .map_err(|error| CommitError::OutcomeUnknown { reason: error.to_string() })
    }

    /// Returns the error for a failed write.
    fn write_error(&self, failure: RequestFailure, transaction: &Transaction) -> CommitError {
        let denied = || Access::Write(transaction.changes.iter().map(|change| change.key.clone()).collect());
        match failure.kind {
            FailureKind::Refused | FailureKind::NoSuchLease => {
                CommitError::Refused { reason: failure.reason }
            }
            _ if !failure.not_carried_out => CommitError::OutcomeUnknown { reason: failure.reason },
            _ => CommitError::Store(self.connection.read_error(failure).denied(denied)),
        }
    }

    /// Returns the error for the first condition that does not hold. The response of the transaction's else branch contains the
    /// current state of the keys.
    fn conflict(&self, transaction: &Transaction, answer: &TxnResponse) -> CommitError {
        let answers = answer.op_responses();
        let found = answers.iter().flat_map(|answer| match answer {
            TxnOpResponse::Get(found) => found.kvs(),
            _ => &[],
        });
        let entries: HashMap<&[u8], Entry> =
            found.map(|found| (found.key(), record(found).to_entry())).collect();
        let conflict = transaction.first_conflict(|key| entries.get(key.as_bytes()));
        conflict.unwrap_or_else(|| {
            let reason = "it refused a transaction although all its conditions hold".to_string();
            CommitError::Store(StoreError::Server { endpoints: self.connection.endpoints(), reason })
        })
    }
}

/// Converts a transaction to etcd's type. An update keeps the lease of the key; a creation gets the given lease.
fn etcd_transaction(transaction: &Transaction, lease: Option<LeaseId>) -> Txn {
    let guards = transaction.guards.iter().map(|guard| match guard {
        Guard::Unchanged(key, revision) => {
            Compare::mod_revision(key.as_bytes(), CompareOp::Equal, revision.0)
        }
        Guard::SameCreation(key, revision) => {
            Compare::create_revision(key.as_bytes(), CompareOp::Equal, revision.0)
        }
        Guard::Absent(key) => Compare::version(key.as_bytes(), CompareOp::Equal, 0),
    });
    let expectations = transaction.changes.iter().map(|change| match change.expected {
        Expected::Absent => Compare::version(change.key.as_bytes(), CompareOp::Equal, 0),
        Expected::At(revision) => Compare::mod_revision(change.key.as_bytes(), CompareOp::Equal, revision.0),
    });
    let changes = transaction.changes.iter().map(|change| match (&change.action, change.expected) {
        (Action::Delete, _) => TxnOp::delete(change.key.as_bytes(), None),
        (Action::Put(value), Expected::Absent) => {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
            TxnOp::put(change.key.as_bytes(), value.as_slice(), options)
        }
        (Action::Put(value), Expected::At(_)) => {
            let options = PutOptions::new().with_ignore_lease();
            TxnOp::put(change.key.as_bytes(), value.as_slice(), Some(options))
        }
    });
    let read_back = transaction
        .condition_keys()
        .into_iter()
        .map(|key| TxnOp::get(key.as_bytes(), Some(GetOptions::new().with_keys_only())));
    Txn::new()
        .when(guards.chain(expectations).collect::<Vec<_>>())
        .and_then(changes.collect::<Vec<_>>())
        .or_else(read_back.collect::<Vec<_>>())
}

fn record(found: &KeyValue) -> Record<'_> {
    Record {
        key: found.key(),
        value: found.value(),
        create_revision: Revision(found.create_revision()),
        mod_revision: Revision(found.mod_revision()),
        version: found.version(),
        lease: found.lease(),
    }
}

#[async_trait]
impl ReadStore for EtcdStore {
    fn describe(&self) -> String {
        format!("etcd at {}", self.connection.endpoints())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        match self.get_range(FIRST_KEY, GetOptions::new().with_keys_only()).await {
            Ok(answer) => self.header_revision(answer.header().map(ResponseHeader::revision)),
            Err(failure) if failure.kind == FailureKind::PermissionDenied => self.member_revision().await,
            Err(failure) => Err(self.connection.read_error(failure)),
        }
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        if key.as_bytes().is_empty() {
            return Ok(None);
        }
        match self.get_range(key.as_bytes(), GetOptions::new()).await {
            Ok(answer) => Ok(answer.kvs().first().map(|found| record(found).to_entry())),
            Err(failure) => {
                let denied = || Access::Read(vec![KeyRange::exact(key)]);
                Err(self.connection.read_error(failure).denied(denied))
            }
        }
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StoreError> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_AT_ONCE) {
            found.extend(self.get_some(some).await?);
        }
        Ok(found)
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        // In etcd's API a revision below 1 means "the newest revision".
        if let Some(asked) = at.filter(|at| at.0 < 1) {
            return Err(StoreError::Compacted { asked, oldest: Revision(1) });
        }
        let mut at = at;
        for range in ranges {
            let (read_at, go_on) = self.scan_range(range, at, visitor).await?;
            at = read_at;
            if !go_on {
                break;
            }
        }
        match at {
            Some(at) => Ok(at),
            None => self.revision().await,
        }
    }
}

#[async_trait]
impl WriteStore for EtcdStore {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        self.commit_with(transaction, None).await
    }
}
