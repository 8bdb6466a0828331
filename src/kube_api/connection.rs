//! Sends requests to the API at one address, each with a deadline.
//!
//! The crate `kube` builds and sends the requests. The type `Api` of that crate does not give the guarantees that netsurgeon
//! needs, so this module does not use it. This module retries a read if a retry can help. It sends a change again only if the API
//! server has certainly not executed it before. It limits the size of an answer. It does not log answers, because an answer can
//! be a Secret. (`Client::request` of kube 5 logs an answer that it cannot parse.)

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::{Client, Config};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::{Instant, sleep, timeout};

use super::ClusterError;
use super::answer::{Answer, Tried, warnings};
use super::chain::chain;
use super::clock::Clock;
use super::error::{About, excerpt, refusal};
use super::kinds::Kinds;

/// Timeout for opening a connection. This is twice the time of the first two SYN retransmissions (1 s, then 2 s).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
/// Timeout for one attempt of a read request. The retry uses a new connection, which a load balancer may route to another API
/// server.
const READ_ATTEMPT: Duration = Duration::from_secs(10);
/// Maximum size of an API server's answer, in bytes. The largest answers are the metrics of an API server with many kinds.
const LARGEST: usize = 64 << 20;
/// Maximum size of the answer to a request that is sent only once, in bytes. The expected answer is a word, a number or a short
/// list, but a program other than an API server may answer.
const LARGEST_ONCE: usize = 1 << 20;
/// Maximum size of a page of a list, in bytes. netsurgeon requests a larger page again with fewer objects.
const LARGEST_PAGE: usize = 8 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Kubelets and HTTP proxies answer in plain text.
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/plain;q=0.9");
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("netsurgeon/", env!("CARGO_PKG_VERSION")));

/// A request to the API.
#[derive(Debug, Clone)]
pub(super) struct Call {
    verb: Verb,
    request: Request<Vec<u8>>,
    /// The object of the request, for error messages.
    subject: String,
}

impl Call {
    /// Returns a call for a `request` that `kube` has built. `subject` names the object of the request in error messages.
    pub(super) fn new(
        verb: Verb,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
        subject: impl Into<String>,
    ) -> Result<Self, ClusterError> {
        let unusable = |error| ClusterError::Manifest { reason: chain(&error) };
        Ok(Self { verb, request: request.map_err(unusable)?, subject: subject.into() })
    }

    /// Returns a call that reads a path such as `/version`, which belongs to no object.
    pub(super) fn read(path: &str) -> Result<Self, ClusterError> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
        Self::new(Verb::Get, request, format!("`{path}`"))
    }
}

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Replace,
    Patch,
    Delete,
}

impl Verb {
    fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Replace => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// A request that got no answer.
#[derive(Debug, Clone)]
pub(super) struct TransportFault {
    kind: TransportFaultKind,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransportFaultKind {
    /// The request was never sent.
    NotSent,
    /// The connection broke.
    Lost,
    TimedOut,
    Untrusted,
    /// The answer is longer than the limit.
    TooLarge,
    /// No credentials, for example because a plugin failed.
    Credentials,
}

impl fmt::Display for TransportFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// A client for the API at one address.
pub(super) struct Connection {
    client: Client,
    config: Config,
    timeout: Duration,
    server: String,
    kinds: Arc<Kinds>,
    clock: Clock,
}

impl Connection {
    /// Creates a client without connecting.
    pub(super) fn new(config: Config, timeout: Duration) -> Result<Self, ClusterError> {
        Self::knowing(config, timeout, Arc::default())
    }

    /// Creates a client for another API server of the same cluster. Both clients share the cache of kinds.
    pub(super) fn beside(&self, config: Config) -> Result<Self, ClusterError> {
        Self::knowing(config, self.timeout, self.kinds.clone())
    }

    fn knowing(mut config: Config, timeout: Duration, kinds: Arc<Kinds>) -> Result<Self, ClusterError> {
        config.connect_timeout = Some(CONNECT_TIMEOUT.min(timeout));
        // By default `kube` retries a 503 for minutes. Here a 503 is a valid answer.
        config.default_retry = false;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_string();
        let client = Client::try_from(config.clone()).map_err(|error| ClusterError::Configuration {
            what: format!("the kubeconfig's entry for `{server}`"),
            reason: chain(&error),
        })?;
        Ok(Self { client, config, timeout, server, kinds, clock: Clock::default() })
    }

    /// Returns the URL of the API server.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the client, for streams. Requests that can change something use [`Call`].
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the clock of the API server at this address.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the cache of discovered kinds.
    pub(super) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    fn about<'a>(&'a self, call: &'a Call) -> About<'a> {
        About { server: &self.server, verb: call.verb.word(), subject: &call.subject }
    }

    /// Sends a request and reads the returned object.
    pub(super) async fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClusterError> {
        let answer = self.request(call).await?;
        self.object(call, &answer.body)
    }

    /// Sends a dry run and reads its result.
    pub(super) async fn tried(&self, call: &Call) -> Result<Tried, ClusterError> {
        let answer = self.request(call).await?;
        Ok(Tried { object: self.object(call, &answer.body)?, warnings: answer.warnings })
    }

    /// Parses an object; if parsing fails, parses it without its conditions. Go writes an unset time as `null`, but the type of
    /// `lastTransitionTime` in `metav1.Condition` does not accept `null`. Any controller can write such a condition to a Service,
    /// because API servers do not check the conditions (`ValidateServiceStatusUpdate`, `pkg/apis/core/validation/validation.go`,
    /// v1.36.3).
    pub(super) fn object<T: DeserializeOwned>(&self, call: &Call, body: &[u8]) -> Result<T, ClusterError> {
        self.read(call, body).or_else(|error| without_conditions(body).ok_or(error))
    }

    /// Parses the body of an answer.
    pub(super) fn read<'a, T: Deserialize<'a>>(
        &self,
        call: &Call,
        body: &'a [u8],
    ) -> Result<T, ClusterError> {
        serde_json::from_slice(body).map_err(|error| ClusterError::Answer {
            server: self.server.clone(),
            subject: call.subject.clone(),
            reason: format!("{error}: {}", excerpt(body)),
        })
    }

    /// Sends a request and returns its successful answer. Retries while a retry is safe and can help.
    pub(super) async fn request(&self, call: &Call) -> Result<Answer, ClusterError> {
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let left = self.timeout.saturating_sub(started.elapsed());
            let limit = if call.verb.is_read() { left.min(READ_ATTEMPT) } else { left };
            let most = if call.verb == Verb::List { LARGEST_PAGE } else { LARGEST };
            let (again, asked, error) = match self.within(call, limit, most).await {
                Ok(answer) if (200..300).contains(&answer.code) => return Ok(answer),
                Ok(answer) => {
                    // The API server answers 429 before it executes the request (API priority and fairness).
                    let again = match answer.code {
                        429 => true,
                        500 | 502..=504 => call.verb.is_read(),
                        _ => false,
                    };
                    (again, answer.retry_after, refusal(self.about(call), &answer))
                }
                Err(fault) => {
                    let again = match fault.kind {
                        TransportFaultKind::NotSent => true,
                        TransportFaultKind::Lost | TransportFaultKind::TimedOut => call.verb.is_read(),
                        TransportFaultKind::Untrusted
                        | TransportFaultKind::TooLarge
                        | TransportFaultKind::Credentials => false,
                    };
                    (again, None, self.error(call, &fault))
                }
            };
            let wait = asked.unwrap_or_default().max(pause);
            if !again || started.elapsed().saturating_add(wait) >= self.timeout {
                return Err(error);
            }
            tracing::debug!(%error, "a request to the API failed, retrying");
            sleep(wait).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Sends a request once. Returns any answer of at most 1 MiB that arrives before the timeout.
    pub(super) async fn once(&self, call: &Call, limit: Duration) -> Result<Answer, TransportFault> {
        self.within(call, limit, LARGEST_ONCE).await
    }

    async fn within(&self, call: &Call, limit: Duration, most: usize) -> Result<Answer, TransportFault> {
        match timeout(limit, self.exchange(call, most)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(TransportFault {
                kind: TransportFaultKind::TimedOut,
                reason: format!("no answer within {} ms", limit.as_millis()),
            }),
        }
    }

    /// Sends a request once. `most` is the maximum size of the answer, in bytes.
    async fn exchange(&self, call: &Call, most: usize) -> Result<Answer, TransportFault> {
        let mut request = call.request.clone().map(Body::from);
        request.headers_mut().entry(header::ACCEPT).or_insert(ACCEPTED);
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        tracing::debug!(server = self.server, method = %request.method(), path = %request.uri(), "request to the API");
        let sent = Instant::now();
        let response = self.client.send(request).await.map_err(|error| TransportFault::of(&error))?;
        let code = response.status().as_u16();
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let date = response.headers().get("Date").and_then(|value| value.to_str().ok());
        let date = date.and_then(|text| OffsetDateTime::parse(text, &Rfc2822).ok());
        // A proxy that cannot reach the API server answers with its own time.
        if let Some(date) = date.filter(|_| code < 500) {
            self.clock.saw(date, sent, Instant::now());
        }
        let warnings = warnings(response.headers());
        let body = Limited::new(response.into_body(), most).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return TransportFault {
                    kind: TransportFaultKind::TooLarge,
                    reason: format!("it has more than {} MiB", most >> 20),
                };
            }
            TransportFault { kind: TransportFaultKind::Lost, reason: chain(error.as_ref()) }
        })?;
        Ok(Answer { code, body: body.to_bytes().into(), retry_after, date, warnings })
    }

    /// Returns the error of a request without an answer.
    pub(super) fn error(&self, call: &Call, fault: &TransportFault) -> ClusterError {
        let (server, reason) = (self.server.clone(), fault.reason.clone());
        let seconds = self.timeout.as_secs();
        match fault.kind {
            TransportFaultKind::NotSent | TransportFaultKind::Lost => {
                ClusterError::Unreachable { server, seconds, reason }
            }
            TransportFaultKind::Untrusted => ClusterError::Untrusted { server, reason },
            TransportFaultKind::TooLarge => {
                ClusterError::TooLarge { server, subject: call.subject.clone(), reason }
            }
            TransportFaultKind::Credentials => ClusterError::Configuration {
                what: format!("the kubeconfig's credentials for `{server}`"),
                reason,
            },
            TransportFaultKind::TimedOut => ClusterError::TimedOut {
                server,
                verb: call.verb.word(),
                subject: call.subject.clone(),
                seconds,
            },
        }
    }
}

impl TransportFault {
    /// Classifies a transport failure by the text of its causes, because hyper and rustls offer no other way.
    fn of(error: &kube::Error) -> Self {
        let reason = chain(error);
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        let kind = if has(&["invalid peer certificate"]) {
            TransportFaultKind::Untrusted
        } else if matches!(error, kube::Error::Auth(_)) || has(&["auth error", "auth exec"]) {
            TransportFaultKind::Credentials
        } else if has(&["tcp connect error", "dns error", "Connection refused", "client error (Connect)"]) {
            TransportFaultKind::NotSent
        } else {
            TransportFaultKind::Lost
        };
        // These prefixes come from the libraries and do not describe the cause.
        let wrappers = ["ServiceError: ", "client error (Connect): "];
        let cause = wrappers.iter().fold(reason.as_str(), |text, one| text.strip_prefix(one).unwrap_or(text));
        Self { kind, reason: cause.to_string() }
    }
}

fn without_conditions<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    let mut object: Value = serde_json::from_slice(body).ok()?;
    object.pointer_mut("/status")?.as_object_mut()?.remove("conditions")?;
    serde_json::from_value(object).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::*;

    #[test]
    fn service_with_a_null_condition_time_is_read() {
        let service = |time: Value| {
            let condition = json!({"type": "a/b", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time});
            json!({"metadata": {"name": "web"}, "status": {"conditions": [condition]}}).to_string()
        };
        let read = |text: String| {
            let typed = serde_json::from_str::<Service>(&text);
            (typed.is_ok(), without_conditions::<Service>(text.as_bytes()).and_then(|one| one.metadata.name))
        };
        assert_eq!(read(service(json!("2026-11-26T10:00:00Z"))), (true, Some("web".into())));
        assert_eq!(read(service(Value::Null)), (false, Some("web".into())));
        assert_eq!(read(json!({"status": {}}).to_string()), (true, None));
        assert_eq!(read(json!({"metadata": 1, "status": {"conditions": []}}).to_string()), (false, None));
    }
}
