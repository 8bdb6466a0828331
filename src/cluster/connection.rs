//! Requests to one address of the API, each of which ends in time.
//!
//! It promises that a read is tried again while that can help, and that a change is sent a second time only
//! when it is certain that the first one was not carried out.

use std::fmt;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::{Instant, sleep, timeout};

use super::ClusterError;
use super::answer::Answer;
use super::chain::chain;
use super::error::{About, excerpt, refusal};

/// How long it may take until a connection stands: twice a SYN's retransmissions (1 s, then 2 s).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
/// After so long a read is tried anew on a fresh connection, which a load balancer may give to another server.
const READ_ATTEMPT: Duration = Duration::from_secs(10);
/// More than this no API server answers with, in bytes: the metrics of one with many kinds are its longest answer.
const LARGEST: usize = 64 << 20;
/// What is asked once is answered by a word, a number or a short list; others than API servers may answer, too.
const LARGEST_ONCE: usize = 1 << 20;
/// A page of a list that is larger is asked for again with fewer objects.
const LARGEST_PAGE: usize = 8 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub(super) verb: Verb,
    /// With its query.
    pub(super) path: String,
    pub(super) body: Option<&'a Value>,
    /// In words, for errors.
    pub(super) subject: String,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    /// A list of metadata alone (`PartialObjectMetadataList`, 1.15 and later): what objects hold is not sent.
    ListMetadata,
    Create,
    Replace,
    /// A JSON merge patch (RFC 7386).
    Merge,
    Delete,
}

impl Verb {
    fn method(self) -> Method {
        match self {
            Self::Get | Self::List | Self::ListMetadata => Method::GET,
            Self::Create => Method::POST,
            Self::Replace => Method::PUT,
            Self::Merge => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }

    fn content_type(self) -> &'static str {
        if self == Self::Merge { "application/merge-patch+json" } else { "application/json" }
    }

    fn accepted(self) -> &'static str {
        if self == Self::ListMetadata {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json, text/plain;q=0.9"
        }
    }

    fn is_read(self) -> bool {
        self == Self::Get || self.is_list()
    }

    fn is_list(self) -> bool {
        matches!(self, Self::List | Self::ListMetadata)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List | Self::ListMetadata => "list",
            Self::Create => "create",
            Self::Replace => "update",
            Self::Merge => "patch",
            Self::Delete => "delete",
        }
    }
}

/// Why nothing came back.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    kind: FaultKind,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultKind {
    /// The request was never sent.
    NotSent,
    /// The connection broke.
    Lost,
    TimedOut,
    Untrusted,
    /// The answer goes on and on.
    TooLarge,
    /// Credentials that could not be had, such as from a plugin.
    Credentials,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// A client of one address.
pub(super) struct Connection {
    client: Client,
    config: Config,
    timeout: Duration,
    server: String,
}

impl Connection {
    /// Makes a client. Nothing is dialled yet.
    pub(super) fn new(mut config: Config, timeout: Duration) -> Result<Self, ClusterError> {
        config.connect_timeout = Some(CONNECT_TIMEOUT.min(timeout));
        // It would repeat what is 503, which is an answer here, and for minutes.
        config.default_retry = false;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_string();
        let client = Client::try_from(config.clone()).map_err(|error| ClusterError::Configuration {
            what: format!("what the kubeconfig says about `{server}`"),
            reason: chain(&error),
        })?;
        Ok(Self { client, config, timeout, server })
    }

    /// Returns the URL.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn about<'a>(&'a self, call: &'a Call<'_>) -> About<'a> {
        About { server: &self.server, verb: call.verb.word(), subject: &call.subject }
    }

    /// Sends a request and reads the object that comes back.
    pub(super) async fn json(&self, call: &Call<'_>) -> Result<Value, ClusterError> {
        let answer = self.request(call).await?;
        self.read(call, &answer.body)
    }

    /// Reads what was answered, or the part of it that is wanted.
    pub(super) fn read<'a, T: Deserialize<'a>>(
        &self,
        call: &Call<'_>,
        body: &'a [u8],
    ) -> Result<T, ClusterError> {
        serde_json::from_slice(body).map_err(|error| ClusterError::Answer {
            server: self.server.clone(),
            subject: call.subject.clone(),
            reason: format!("{error}: {}", excerpt(body)),
        })
    }

    /// Sends a request, again while that is safe and can help, and returns the answer if it is a success.
    pub(super) async fn request(&self, call: &Call<'_>) -> Result<Answer, ClusterError> {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let left = self.timeout.saturating_sub(begun.elapsed());
            let limit = if call.verb.is_read() { left.min(READ_ATTEMPT) } else { left };
            let most = if call.verb.is_list() { LARGEST_PAGE } else { LARGEST };
            let (again, asked, error) = match self.within(call, limit, most).await {
                Ok(answer) if (200..300).contains(&answer.code) => return Ok(answer),
                Ok(answer) => {
                    // 429 comes before anything is done (API priority and fairness).
                    let again = match answer.code {
                        429 => true,
                        500 | 502..=504 => call.verb.is_read(),
                        _ => false,
                    };
                    (again, answer.retry_after, refusal(self.about(call), &answer))
                }
                Err(fault) => {
                    let again = match fault.kind {
                        FaultKind::NotSent => true,
                        FaultKind::Lost | FaultKind::TimedOut => call.verb.is_read(),
                        FaultKind::Untrusted | FaultKind::TooLarge | FaultKind::Credentials => false,
                    };
                    (again, None, self.error(call, &fault))
                }
            };
            let wait = asked.unwrap_or_default().max(pause);
            if !again || begun.elapsed().saturating_add(wait) >= self.timeout {
                return Err(error);
            }
            tracing::debug!(%error, "a request to the API failed, trying again");
            sleep(wait).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Sends a request once, and returns whatever answer comes within the time. It has at most 1 MiB.
    pub(super) async fn once(&self, call: &Call<'_>, limit: Duration) -> Result<Answer, Fault> {
        self.within(call, limit, LARGEST_ONCE).await
    }

    async fn within(&self, call: &Call<'_>, limit: Duration, most: usize) -> Result<Answer, Fault> {
        match timeout(limit, self.exchange(call, most)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault {
                kind: FaultKind::TimedOut,
                reason: format!("no answer within {} ms", limit.as_millis()),
            }),
        }
    }

    /// `most`: the longest answer that is taken, in bytes.
    async fn exchange(&self, call: &Call<'_>, most: usize) -> Result<Answer, Fault> {
        let body = call.body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder()
            .method(call.verb.method())
            .uri(&call.path)
            .header("Content-Type", call.verb.content_type())
            .header("Accept", call.verb.accepted())
            .header("User-Agent", concat!("netsurgeon/", env!("CARGO_PKG_VERSION")))
            .body(Body::from(body))
            .map_err(|error| Fault { kind: FaultKind::Credentials, reason: error.to_string() })?;
        tracing::debug!(server = self.server, method = %call.verb.method(), path = call.path, "request to the API");
        let response = self.client.send(request).await.map_err(|error| Fault::of(&error))?;
        let code = response.status().as_u16();
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let date = response.headers().get("Date").and_then(|value| value.to_str().ok());
        let date = date.and_then(|text| OffsetDateTime::parse(text, &Rfc2822).ok());
        let body = Limited::new(response.into_body(), most).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return Fault {
                    kind: FaultKind::TooLarge,
                    reason: format!("more than {} MiB came", most >> 20),
                };
            }
            Fault { kind: FaultKind::Lost, reason: chain(error.as_ref()) }
        })?;
        Ok(Answer { code, body: body.to_bytes().into(), retry_after, date })
    }

    /// Words a request that got no answer.
    pub(super) fn error(&self, call: &Call<'_>, fault: &Fault) -> ClusterError {
        let (server, reason) = (self.server.clone(), fault.reason.clone());
        let seconds = self.timeout.as_secs();
        match fault.kind {
            FaultKind::NotSent | FaultKind::Lost => ClusterError::Unreachable { server, seconds, reason },
            FaultKind::Untrusted => ClusterError::Untrusted { server, reason },
            FaultKind::TooLarge => ClusterError::TooLarge { server, subject: call.subject.clone(), reason },
            FaultKind::Credentials => ClusterError::Configuration {
                what: format!("the kubeconfig's credentials for `{server}`"),
                reason,
            },
            FaultKind::TimedOut => ClusterError::TimedOut {
                server,
                verb: call.verb.word(),
                subject: call.subject.clone(),
                seconds,
            },
        }
    }
}

impl Fault {
    /// Judges a failure of the transport by the words of its causes, which hyper and rustls give us nowhere
    /// else.
    fn of(error: &kube::Error) -> Self {
        let reason = chain(error);
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        let kind = if has(&["invalid peer certificate"]) {
            FaultKind::Untrusted
        } else if matches!(error, kube::Error::Auth(_)) || has(&["auth error", "auth exec"]) {
            FaultKind::Credentials
        } else if has(&["tcp connect error", "dns error", "Connection refused", "client error (Connect)"]) {
            FaultKind::NotSent
        } else {
            FaultKind::Lost
        };
        Self { kind, reason }
    }
}
