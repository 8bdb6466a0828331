//! The configuration of this host for AWS, and an account.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use tokio::time::timeout;

use super::AwsError;
use super::error::credentials_reason;

/// The region if none is configured. netsurgeon does not request the region from the machine's metadata service, because this
/// service does not answer outside AWS.
const REGION: &str = "us-east-1";

/// Number of attempts for a request that is throttled or not answered.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const CONNECT: Duration = Duration::from_secs(5);
const ATTEMPT: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_mins(1);
/// Time limit for finding credentials.
const CREDENTIALS: Duration = Duration::from_secs(20);

/// Reads the configuration of this host, and checks that it has credentials. They come from the same sources as for the AWS CLI: the
/// environment, a profile, or a role of the Pod or of the machine. Sends no request to a service. The error is the reason why there are no
/// credentials.
pub async fn configuration() -> Result<SdkConfig, String> {
    let region = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new());
    let region = region.or_else(ProfileFileRegionProvider::new()).or_else(REGION);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(LIMIT)
        .build();
    let retries = RetryConfig::standard().with_max_attempts(ATTEMPTS).with_initial_backoff(FIRST_PAUSE);
    let config = aws_config::defaults(BehaviorVersion::latest())
        .region(region)
        .timeout_config(timeouts)
        .retry_config(retries);
    let config = Box::pin(config.load()).await;
    if let Some(credentials) = config.credentials_provider() {
        let found = timeout(CREDENTIALS, credentials.provide_credentials()).await;
        let found = found.map_err(|_| "no answer within 20 s".to_string())?;
        found.map_err(|error| credentials_reason(&error))?;
    }
    Ok(config)
}

/// The AWS account of this host's credentials.
#[derive(Clone)]
pub struct Account {
    pub(super) config: SdkConfig,
    pub(super) credentials: SharedCredentialsProvider,
}

impl Account {
    /// Returns the account, see [`configuration`].
    pub async fn new() -> Result<Self, AwsError> {
        let config = configuration().await.map_err(AwsError::NoCredentials)?;
        let credentials = config.credentials_provider();
        let credentials = credentials.ok_or_else(|| AwsError::NoCredentials("no provider".to_string()))?;
        Ok(Self { config, credentials })
    }
}
