//! Refuses to send a change that was prepared too long ago. A process that was suspended can have lost its operation meanwhile.
//!
//! The SDK signs a request when it sends the request, after the caller has checked its fence. Therefore this interceptor runs
//! after the signing. After it, only the signature limits how late a request can arrive: AWS accepts a signature for at most
//! 15 minutes.

use std::time::{Duration, Instant, SystemTime};

use aws_sdk_route53::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_route53::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_route53::error::BoxError;

/// Maximum time between the check of the fence and the request.
const LIMIT: Duration = Duration::from_secs(10);

/// The request was prepared too long ago, and was not sent.
#[derive(Debug, thiserror::Error)]
#[error("this process was suspended for more than {} s", LIMIT.as_secs())]
pub(super) struct Stale;

/// The time at which a request was prepared. The two clocks cover both kinds of suspension: the monotonic clock stops while the
/// machine sleeps, and the system time can be set.
#[derive(Debug)]
pub(super) struct Freshness {
    monotonic: Instant,
    system: SystemTime,
}

impl Freshness {
    /// Returns the freshness of a request that is prepared now.
    pub(super) fn from_now() -> Self {
        Self { monotonic: Instant::now(), system: SystemTime::now() }
    }

    fn is_over(&self) -> bool {
        self.monotonic.elapsed() > LIMIT || self.system.elapsed().is_ok_and(|elapsed| elapsed > LIMIT)
    }
}

impl Intercept for Freshness {
    fn name(&self) -> &'static str {
        "Freshness"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.is_over() { Err(Stale.into()) } else { Ok(()) }
    }
}
