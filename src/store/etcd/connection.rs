//! Requests to any member that answers: one client per endpoint, the next one if one fails, with a
//! bounded back-off.
//!
//! Its guarantees: every request ends within a time that the options give, and a write is sent a
//! second time only if the first one was certainly not executed.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, GetOptions, ResponseHeader, TlsOptions};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::EtcdOptions;
use super::failure::{Failure, Kind};
use crate::store::{Access, StoreError};

/// First pause after every endpoint has failed once; it doubles with each round.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long an endpoint can take to report its cluster when the connection is opened; an unreachable one is skipped.
const FELLOWS: Duration = Duration::from_secs(2);
/// A new token is refused only while the members' auth stores differ, which lasts only moments.
const MOST_AUTHENTICATIONS: u32 = 4;

/// Whether a request is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// It changes nothing.
    Read,
    /// It does.
    Write,
}

/// The time limit of a request.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// With all retries; an attempt that started within it is completed.
    patience: Duration,
    /// Sent once.
    request: Duration,
}

/// The clients of an etcd.
pub(super) struct Connection {
    options: EtcdOptions,
    tls: Option<TlsOptions>,
    urls: Vec<String>,
    /// One for each URL, created on first use.
    clients: Vec<Mutex<Option<Client>>>,
    /// The index of the next endpoint.
    current: AtomicUsize,
    /// The id of the cluster, and the first endpoint that reported it.
    cluster: OnceLock<(u64, usize)>,
}

impl Connection {
    /// Connects to the first endpoint that answers.
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

    /// Checks that all endpoints that answer in time belong to one cluster; later connections are checked again.
    async fn is_of_one_cluster(&self) -> Result<(), Failure> {
        let all = (0..self.urls.len()).map(|endpoint| timeout(FELLOWS, self.client(endpoint)));
        for answer in join_all(all).await.into_iter().flatten() {
            if let Err(failure) = answer
                && failure.kind == Kind::OtherCluster
            {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Compares the cluster of an endpoint with that of the other endpoints.
    fn same_cluster(&self, endpoint: usize, cluster: Option<u64>) -> Result<(), Failure> {
        let Some(cluster) = cluster else { return Ok(()) };
        let (first, teller) = *self.cluster.get_or_init(|| (cluster, endpoint));
        if first == cluster {
            return Ok(());
        }
        let url = |endpoint: usize| self.urls.get(endpoint).map(String::as_str).unwrap_or_default();
        let reason = format!(
            "`{}` is a member of etcd cluster {first:x}, `{}` of etcd cluster {cluster:x}; give endpoints of one cluster",
            url(teller),
            url(endpoint)
        );
        Err(Failure { kind: Kind::OtherCluster, not_carried_out: true, reason })
    }

    /// Returns the endpoints, for headings and errors.
    pub(super) fn endpoints(&self) -> String {
        self.urls.join(",")
    }

    /// Returns the time limit of one response.
    pub(super) fn request_timeout(&self) -> Duration {
        self.options.request_timeout
    }

    /// Sends a request, with retries and other endpoints if that is safe and useful.
    pub(super) async fn request<T, F>(&self, kind: Request, send: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        self.request_within(self.limits(self.options.retry_for), kind, send).await
    }

    /// Sends an idempotent request that is useless after a time limit: every endpoint gets a part of
    /// that time.
    pub(super) async fn request_soon<T, F>(
        &self,
        within: Duration,
        send: impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let each = within.checked_div(self.endpoint_count()).unwrap_or(within);
        let limits = Limits { patience: within, request: self.options.request_timeout.min(each) };
        self.request_within(limits, Request::Read, send).await
    }

    /// Sends a read-only request to every endpoint, once.
    pub(super) async fn every_endpoint<T, F>(
        &self,
        within: Duration,
        send: impl Fn(Client) -> F,
    ) -> Vec<Result<T, Failure>>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        join_all((0..self.urls.len()).map(|endpoint| self.attempt(endpoint, within, within, &send))).await
    }

    /// Connects to other endpoints in the same way.
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
    ) -> Result<T, Failure>
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
                Kind::Token => {
                    authentications = authentications.saturating_add(1);
                    self.forget(endpoint);
                    if authentications > MOST_AUTHENTICATIONS {
                        return Err(Failure { kind: Kind::Unauthenticated, ..failure });
                    }
                }
                Kind::Transient if kind == Request::Read || failure.not_carried_out => {
                    self.turn_from(endpoint);
                }
                _ => return Err(failure),
            }
            let pause = self.pause(attempts);
            if started.elapsed().saturating_add(pause) >= limits.patience {
                return Err(failure);
            }
            tracing::debug!(reason = failure.reason, attempts, "etcd request failed, retrying");
            sleep(pause).await;
        }
    }

    /// Sends a request once, to one endpoint.
    async fn attempt<T, F>(
        &self,
        endpoint: usize,
        left: Duration,
        limit: Duration,
        send: &impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let connect_limit = self.options.connect_timeout.min(left);
        let client = match timeout(connect_limit, self.client(endpoint)).await {
            Ok(client) => client?,
            Err(_) => return Err(Failure::timed_out(connect_limit.as_secs()).beforehand()),
        };
        // An attempt that has started keeps its own time limit even if the total ends meanwhile: to abort a write
        // would make its outcome unknown without need.
        if let Ok(answer) = timeout(limit, send(client)).await {
            return answer.map_err(Failure::from);
        }
        // The connection can be broken without notice: the next request connects again.
        self.forget(endpoint);
        Err(Failure::timed_out(limit.as_secs()))
    }

    /// Returns the client of an endpoint, authenticated and verified by one response.
    async fn client(&self, endpoint: usize) -> Result<Client, Failure> {
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
            Client::connect([url], Some(options)).await.map_err(|e| Failure::from(e).beforehand())?;
        let cluster = probe(&client).await.map_err(Failure::beforehand)?;
        self.same_cluster(endpoint, cluster)?;
        if let Some(slot) = slot(endpoint) {
            *slot.unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        }
        Ok(client)
    }

    /// Drops an endpoint's client, so that the next request connects and authenticates again.
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

    /// No pause until every endpoint was tried, then a doubling one, with a jitter of up to one half so
    /// that several clients do not retry together.
    fn pause(&self, attempts: u32) -> Duration {
        let rounds = attempts.checked_div(self.endpoint_count()).unwrap_or_default();
        let Some(doublings) = rounds.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Builds the error of a failed read.
    pub(super) fn read_error(&self, failure: Failure) -> StoreError {
        self.error(failure, self.options.retry_for)
    }

    /// Builds the error of a request that was retried for this time.
    pub(super) fn error(&self, failure: Failure, patience: Duration) -> StoreError {
        let endpoints = self.endpoints();
        let reason = failure.reason;
        match failure.kind {
            // A proxy may have been starting, so the request was retried; not any longer.
            Kind::Transient if reason.contains("tls handshake eof") => StoreError::Configuration {
                what: format!("the connection to etcd at `{endpoints}`"),
                reason: format!("{reason}; check whether this endpoint uses https"),
            },
            Kind::Transient => StoreError::Unreachable { endpoints, seconds: patience.as_secs(), reason },
            Kind::Token | Kind::Unauthenticated => StoreError::Unauthenticated { endpoints, reason },
            Kind::PermissionDenied => {
                StoreError::PermissionDenied { endpoints, access: Access::Administer("do this"), reason }
            }
            Kind::Configuration | Kind::OtherCluster => {
                StoreError::Configuration { what: format!("the connection to etcd at `{endpoints}`"), reason }
            }
            Kind::Compacted
            | Kind::FutureRevision
            | Kind::Refused
            | Kind::TooLarge
            | Kind::NoSuchLease
            | Kind::Other => StoreError::Server { endpoints, reason },
        }
    }
}

/// Verifies that the endpoint answers and accepts the credentials: one key, read through a quorum. A user
/// without permission to read that key is accepted.
/// Returns the id of its cluster, if the response has it.
async fn probe(client: &Client) -> Result<Option<u64>, Failure> {
    let options = GetOptions::new().with_limit(1).with_keys_only();
    match client.kv_client().get(super::FIRST_KEY, Some(options)).await.map_err(Failure::from) {
        // Every user is allowed to get a member's status.
        Err(failure) if failure.kind == Kind::PermissionDenied => {
            let status = client.maintenance_client().status().await.map_err(Failure::from)?;
            Ok(status.header().map(ResponseHeader::cluster_id))
        }
        other => other.map(|answer| answer.header().map(ResponseHeader::cluster_id)),
    }
}
