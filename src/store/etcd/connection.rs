//! Sends requests to any member that answers. Each endpoint has its own client. After a failure, the connection tries the next
//! endpoint, with a limited back-off.
//!
//! Every request ends within the time limits of the options. A write is retried only if etcd certainly did not execute it.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, GetOptions, ResponseHeader, TlsOptions};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::EtcdOptions;
use super::failure::{FailureKind, RequestFailure};
use super::tls_alert::tls_alert;
use crate::store::{Access, StoreError};

/// Pause after every endpoint has failed once. The pause doubles with each round.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Timeout for an endpoint to report its cluster id when the connection is opened. An unreachable endpoint is skipped.
const FELLOWS: Duration = Duration::from_secs(2);
/// Maximum number of authentications for one request. etcd rejects a new token only for a short time, until all members have the
/// same auth store.
const MOST_AUTHENTICATIONS: u32 = 4;

/// Whether a request is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// The request changes nothing, or can be repeated safely.
    Read,
    /// The request changes data and must not be repeated.
    Write,
}

/// Time limits of a request.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Time limit of the request, including all retries. An attempt that started within this time is completed.
    patience: Duration,
    /// Time limit of one attempt.
    request: Duration,
}

/// The clients of an etcd cluster.
pub(super) struct Connection {
    options: EtcdOptions,
    tls: Option<TlsOptions>,
    urls: Vec<String>,
    /// One client for each URL, created on first use.
    clients: Vec<Mutex<Option<Client>>>,
    /// Index of the endpoint to use next.
    current: AtomicUsize,
    /// Id of the cluster, and the index of the first endpoint that reported it.
    cluster: OnceLock<(u64, usize)>,
}

impl Connection {
    /// Connects to the first endpoint that answers, and checks that the other endpoints belong to the same cluster.
    pub(super) async fn open(options: EtcdOptions) -> Result<Self, StoreError> {
        let urls = options.urls()?;
        let tls = options.tls()?;
        let clients = urls.iter().map(|_| Mutex::new(None)).collect();
        let (current, cluster) = (AtomicUsize::new(0), OnceLock::new());
        let connection = Self { options, tls, urls, clients, current, cluster };
        let patience = connection.options.connect_timeout.saturating_mul(connection.endpoint_count());
        let limits = connection.limits(patience);
        let opened = connection.request_within(limits, Request::Read, |_| async { Ok(()) }).await;
        opened.map_err(|failure| connection.error(failure, patience))?;
        connection.is_of_one_cluster().await.map_err(|failure| connection.error(failure, patience))?;
        Ok(connection)
    }

    /// Checks that all endpoints that answer in time belong to one cluster. Later connections are checked, too.
    async fn is_of_one_cluster(&self) -> Result<(), RequestFailure> {
        let all = (0..self.urls.len()).map(|endpoint| timeout(FELLOWS, self.client(endpoint)));
        for answer in join_all(all).await.into_iter().flatten() {
            if let Err(failure) = answer
                && failure.kind == FailureKind::OtherCluster
            {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Checks that an endpoint has the same cluster id as the other endpoints.
    fn same_cluster(&self, endpoint: usize, cluster: Option<u64>) -> Result<(), RequestFailure> {
        let Some(cluster) = cluster else { return Ok(()) };
        let (first, teller) = *self.cluster.get_or_init(|| (cluster, endpoint));
        if first == cluster {
            return Ok(());
        }
        let url = |endpoint: usize| self.urls.get(endpoint).map(String::as_str).unwrap_or_default();
        let reason = format!(
            "`{}` is a member of etcd cluster {first:x}, but `{}` is a member of etcd cluster {cluster:x}; give endpoints of one cluster",
            url(teller),
            url(endpoint)
        );
        Err(RequestFailure { kind: FailureKind::OtherCluster, not_carried_out: true, reason })
    }

    /// Returns the endpoints, for headings and errors.
    pub(super) fn endpoints(&self) -> String {
        self.urls.join(",")
    }

    /// Returns the time limit of one request.
    pub(super) fn request_timeout(&self) -> Duration {
        self.options.request_timeout
    }

    /// Sends a request. Retries the request, on the same endpoint or another endpoint, if a retry is safe and can help.
    pub(super) async fn request<T, F>(
        &self,
        kind: Request,
        send: impl Fn(Client) -> F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        self.request_within(self.limits(self.options.retry_for), kind, send).await
    }

    /// Sends an idempotent request for which an answer is useful only within a time limit. Every endpoint gets an equal part of
    /// this time.
    pub(super) async fn request_soon<T, F>(
        &self,
        within: Duration,
        send: impl Fn(Client) -> F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let each = within.checked_div(self.endpoint_count()).unwrap_or(within);
        let limits = Limits { patience: within, request: self.options.request_timeout.min(each) };
        self.request_within(limits, Request::Read, send).await
    }

    /// Sends a read-only request to every endpoint once.
    pub(super) async fn every_endpoint<T, F>(
        &self,
        within: Duration,
        send: impl Fn(Client) -> F,
    ) -> Vec<Result<T, RequestFailure>>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        join_all((0..self.urls.len()).map(|endpoint| self.attempt(endpoint, within, within, &send))).await
    }

    /// Connects to other endpoints with the same credentials.
    pub(super) async fn elsewhere(&self, urls: &[String], within: Duration) -> Result<Self, StoreError> {
        let options = EtcdOptions {
            endpoints: urls.to_vec(),
            connect_timeout: self.options.connect_timeout.min(within),
            ..self.options.clone()
        };
        Self::open(options).await
    }

    fn limits(&self, patience: Duration) -> Limits {
        Limits { patience, request: self.options.request_timeout }
    }

    fn endpoint_count(&self) -> u32 {
        u32::try_from(self.urls.len()).unwrap_or(u32::MAX)
    }

    async fn request_within<T, F>(
        &self,
        limits: Limits,
        kind: Request,
        send: impl Fn(Client) -> F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let started = Instant::now();
        let mut attempts = 0_u32;
        let mut authentications = 0_u32;
        loop {
            let left = limits.patience.saturating_sub(started.elapsed());
            let endpoint = self.current.load(Ordering::Relaxed);
            let failure = match self.attempt(endpoint, left, limits.request, &send).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            attempts = attempts.saturating_add(1);
            match failure.kind {
                FailureKind::Token => {
                    authentications = authentications.saturating_add(1);
                    self.forget(endpoint);
                    if authentications > MOST_AUTHENTICATIONS {
                        return Err(RequestFailure { kind: FailureKind::Unauthenticated, ..failure });
                    }
                }
                FailureKind::Transient if kind == Request::Read || failure.not_carried_out => {
                    self.turn_from(endpoint);
                }
                _ => return Err(failure),
            }
            let pause = self.pause(attempts);
            if started.elapsed().saturating_add(pause) >= limits.patience {
                return Err(self.explained(endpoint, failure).await);
            }
            tracing::debug!(reason = failure.reason, attempts, "etcd request failed, retrying");
            sleep(pause).await;
        }
    }

    /// Asks a server that ended the connection whether it refuses the client certificate.
    async fn explained(&self, endpoint: usize, failure: RequestFailure) -> RequestFailure {
        let url = self.urls.get(endpoint).filter(|_| self.tls.is_some() && failure.is_cut_off());
        let Some(url) = url else { return failure };
        match tls_alert(url, &self.options).await {
            Some(reason) => RequestFailure { kind: FailureKind::Unauthenticated, reason, ..failure },
            None => failure,
        }
    }

    /// Sends a request once, to one endpoint.
    async fn attempt<T, F>(
        &self,
        endpoint: usize,
        left: Duration,
        limit: Duration,
        send: &impl Fn(Client) -> F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let connect_limit = self.options.connect_timeout.min(left);
        let client = match timeout(connect_limit, self.client(endpoint)).await {
            Ok(client) => client?,
            Err(_) => return Err(RequestFailure::timed_out(connect_limit.as_secs()).beforehand()),
        };
        // An attempt keeps its own time limit, even if the total time ends first. An early abort would leave the outcome of a
        // write unknown.
        if let Ok(answer) = timeout(limit, send(client)).await {
            return answer.map_err(RequestFailure::from);
        }
        // The connection may be broken without an error, so the next request connects again.
        self.forget(endpoint);
        Err(RequestFailure::timed_out(limit.as_secs()))
    }

    /// Returns the client of an endpoint, after it has authenticated and received one response.
    async fn client(&self, endpoint: usize) -> Result<Client, RequestFailure> {
        let slot = |endpoint: usize| self.clients.get(endpoint).map(|slot| slot.lock());
        let ready = slot(endpoint).and_then(|slot| slot.unwrap_or_else(PoisonError::into_inner).clone());
        if let Some(client) = ready {
            return Ok(client);
        }
        let url = self.urls.get(endpoint).cloned().unwrap_or_default();
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.options.connect_timeout)
            .with_require_leader(true);
        if let Some(tls) = self.tls.clone() {
            options = options.with_tls(tls);
        }
        if let Some((name, password)) = &self.options.user {
            options = options.with_user(name, password);
        }
        let client =
            Client::connect([url], Some(options)).await.map_err(|e| RequestFailure::from(e).beforehand())?;
        let cluster = probe(&client).await.map_err(RequestFailure::beforehand)?;
        self.same_cluster(endpoint, cluster)?;
        if let Some(slot) = slot(endpoint) {
            *slot.unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        }
        Ok(client)
    }

    /// Drops the client of an endpoint, so that the next request connects and authenticates again.
    fn forget(&self, endpoint: usize) {
        if let Some(slot) = self.clients.get(endpoint) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Switches to the next endpoint, unless another request has switched already.
    fn turn_from(&self, endpoint: usize) {
        let next = endpoint.saturating_add(1).checked_rem(self.urls.len()).unwrap_or_default();
        let _ = self.current.compare_exchange(endpoint, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the pause before the next attempt. There is no pause until every endpoint has been tried. Then the pause doubles
    /// with each round, up to a maximum. A random jitter shortens the pause by up to one half, so that clients do not retry at
    /// the same time.
    fn pause(&self, attempts: u32) -> Duration {
        let rounds = attempts.checked_div(self.endpoint_count()).unwrap_or_default();
        let Some(doublings) = rounds.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Returns the error for a failed read.
    pub(super) fn read_error(&self, failure: RequestFailure) -> StoreError {
        self.error(failure, self.options.retry_for)
    }

    /// Returns the error for a request that was retried for the time `patience`.
    pub(super) fn error(&self, failure: RequestFailure, patience: Duration) -> StoreError {
        let endpoints = self.endpoints();
        let reason = failure.reason;
        match failure.kind {
            // A proxy that is starting can cause this error, so the request was retried. An error that remains after the retries
            // is a configuration error.
            FailureKind::Transient if reason.contains("tls handshake eof") => StoreError::Configuration {
                what: format!("the connection to etcd at `{endpoints}`"),
                reason: format!("{reason}; check whether this endpoint uses https"),
            },
            FailureKind::Transient => {
                StoreError::Unreachable { endpoints, seconds: patience.as_secs(), reason }
            }
            FailureKind::Token | FailureKind::Unauthenticated => {
                StoreError::Unauthenticated { endpoints, reason }
            }
            FailureKind::PermissionDenied => {
                StoreError::PermissionDenied { endpoints, access: Access::Administer("do this"), reason }
            }
            FailureKind::Configuration | FailureKind::OtherCluster => {
                StoreError::Configuration { what: format!("the connection to etcd at `{endpoints}`"), reason }
            }
            FailureKind::Compacted
            | FailureKind::FutureRevision
            | FailureKind::Refused
            | FailureKind::TooLarge
            | FailureKind::NoSuchLease
            | FailureKind::Other => StoreError::Server { endpoints, reason },
        }
    }
}

/// Reads one key with a quorum, to check that the endpoint answers and accepts the credentials. The user does not need the
/// permission to read this key. Returns the cluster id, if the response contains it.
async fn probe(client: &Client) -> Result<Option<u64>, RequestFailure> {
    let options = GetOptions::new().with_limit(1).with_keys_only();
    match client.kv_client().get(super::FIRST_KEY, Some(options)).await.map_err(RequestFailure::from) {
        // Every user is allowed to read the status of a member.
        Err(failure) if failure.kind == FailureKind::PermissionDenied => {
            let status = client.maintenance_client().status().await.map_err(RequestFailure::from)?;
            Ok(status.header().map(ResponseHeader::cluster_id))
        }
        other => other.map(|answer| answer.header().map(ResponseHeader::cluster_id)),
    }
}
