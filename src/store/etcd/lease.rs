//! Leases of a live etcd cluster.
//!
//! Each renewal of a lease is a separate request to any member that answers. This module does not use a long stream of renewals,
//! because the client would have to detect a broken stream before it could replace the stream.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, Error};

use super::EtcdStore;
use super::connection::Request;
use super::failure::FailureKind;
use crate::store::lease::{Granted, LeaseId, LeaseStore};
use crate::store::{Action, Change, CommitError, Expected, Key, Revision, StoreError, Transaction};

/// Message of the client library for a response without a TTL (`LeaseClient::keep_alive`).
const LEASE_NOT_FOUND: &str = "lease not found";

#[async_trait]
impl LeaseStore for EtcdStore {
    async fn grant(&self, ttl: Duration) -> Result<Granted, StoreError> {
        let seconds = whole_seconds(ttl);
        let send = |client: Client| async move { client.lease_client().grant(seconds, None).await };
        // If the request is sent twice, etcd creates two leases; the unused lease expires.
        let answer = self.connection.request(Request::Read, send).await;
        let answer = answer.map_err(|failure| self.connection.read_error(failure))?;
        let ttl = Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or_default());
        Ok(Granted { lease: LeaseId(answer.id()), ttl })
    }

    async fn create(&self, key: &Key, value: &[u8], lease: LeaseId) -> Result<Revision, CommitError> {
        let action = Action::Put(value.to_vec());
        let change = Change { key: key.clone(), expected: Expected::Absent, action };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        self.commit_with(&transaction, Some(lease)).await
    }

    async fn keep_alive(&self, lease: LeaseId, within: Duration) -> Result<bool, StoreError> {
        let send = |client: Client| async move {
            match client.lease_client().keep_alive(lease.0).await {
                Ok(_) => Ok(true),
                Err(Error::LeaseKeepAliveError(reason)) if reason.contains(LEASE_NOT_FOUND) => Ok(false),
                Err(error) => Err(error),
            }
        };
        match self.connection.request_soon(within, send).await {
            Err(failure) if failure.kind == FailureKind::NoSuchLease => Ok(false),
            answer => answer.map_err(|failure| self.connection.error(failure, within)),
        }
    }

    async fn time_left(&self, lease: LeaseId) -> Result<Option<Duration>, StoreError> {
        let send = |client: Client| async move { client.lease_client().time_to_live(lease.0, None).await };
        let answer = self.connection.request(Request::Read, send).await;
        let answer = answer.map_err(|failure| self.connection.read_error(failure))?;
        // The TTL of an expired lease is -1 (`LeaseTimeToLiveResponse`, api/etcdserverpb/rpc.proto, v3.6.16).
        Ok(u64::try_from(answer.ttl()).ok().map(Duration::from_secs))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let send = |client: Client| async move { client.lease_client().revoke(lease.0).await };
        match self.connection.request(Request::Read, send).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.kind == FailureKind::NoSuchLease => Ok(()),
            Err(failure) => Err(self.connection.read_error(failure)),
        }
    }
}

/// Returns the TTL in whole seconds, as etcd requires. A fraction is rounded up.
fn whole_seconds(ttl: Duration) -> i64 {
    let fraction = u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(ttl.as_secs().saturating_add(fraction)).unwrap_or(i64::MAX).max(1)
}
