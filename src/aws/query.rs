//! Requests to the query API of a service (AWS Query and EC2 Query protocols of Smithy).

use std::convert::Infallible;
use std::fmt;

use aws_config::BehaviorVersion;
use aws_runtime::auth::SigV4OperationSigningConfig;
use aws_runtime::auth::sigv4::{SCHEME_ID, SigV4AuthScheme};
use aws_smithy_runtime::client::orchestrator::operation::Operation;
use aws_smithy_runtime::client::retries::classifiers::{HttpStatusCodeClassifier, TransientErrorClassifier};
use aws_smithy_runtime_api::client::auth::static_resolver::StaticAuthSchemeOptionResolver;
use aws_smithy_runtime_api::client::auth::{AuthSchemeOptionResolverParams, SharedAuthScheme};
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse, OrchestratorError};
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::client::retries::classifiers::{ClassifyRetry, RetryAction};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;
use aws_smithy_runtime_api::client::runtime_plugin::StaticRuntimePlugin;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::Layer;
use aws_smithy_types::retry::ErrorKind;
use aws_types::SigningName;
use aws_types::region::SigningRegion;
use aws_types::service_config::ServiceConfigKey;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::body_limit::BodyLimit;
use super::error::{causes, innermost};
use super::{Account, AwsError, Region};
use crate::words::brief;

/// Maximum number of pages of a list.
const MOST_PAGES: usize = 1000;

/// A service with a query API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Amazon EC2.
    Ec2,
    /// AWS Identity and Access Management.
    Iam,
    /// AWS Security Token Service.
    Sts,
}

impl Service {
    /// Returns the name in policies, signatures and host names.
    fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Iam => "iam",
            Self::Sts => "sts",
        }
    }

    /// Returns the version of the API.
    fn version(self) -> &'static str {
        match self {
            Self::Ec2 => "2016-11-15",
            Self::Iam => "2010-05-08",
            Self::Sts => "2011-06-15",
        }
    }

    /// Returns the region of signatures.
    fn signing_region(self, region: &Region) -> String {
        if self == Self::Iam { region.of_iam().to_string() } else { region.to_string() }
    }

    /// Returns the URL of the service, unless the host configures another one.
    fn url(self, region: &Region) -> String {
        match self {
            Self::Iam => format!("https://{}/", region.iam_host()),
            _ => format!("https://{}.{region}.{}/", self.name(), region.domain()),
        }
    }
}

/// A request: an action with its parameters.
#[derive(Debug, Clone)]
pub struct Query {
    service: Service,
    action: &'static str,
    parameters: Vec<(String, String)>,
}

/// Formats the action as in a policy: `ec2:DescribeInstances`.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.service.name(), self.action)
    }
}

impl Query {
    /// Returns a request without parameters.
    pub fn new(service: Service, action: &'static str) -> Self {
        Self { service, action, parameters: Vec::new() }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// Adds a filter of EC2 with its values, as filter number 1.
    #[must_use]
    pub fn filtered<'v>(self, name: &str, values: impl IntoIterator<Item = &'v str>) -> Self {
        let query = self.with("Filter.1.Name", name);
        values
            .into_iter()
            .zip(1u32..)
            .fold(query, |query, (value, number)| query.with(format!("Filter.1.Value.{number}"), value))
    }

    /// Returns the form.
    fn form(&self) -> String {
        let head = [("Action", self.action), ("Version", self.service.version())];
        let rest = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs = head.into_iter().chain(rest);
        let encoded: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        encoded.join("&")
    }
}

/// Encodes a value for a form (RFC 3986, section 2.1).
fn escaped(value: &str) -> String {
    let of = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(of).collect()
}

/// The answer of a service.
#[derive(Debug)]
struct Answer {
    status: u16,
    body: String,
}

/// The error document of EC2 (`Response/Errors/Error`) or of the other services (`ErrorResponse/Error`).
#[derive(Deserialize)]
struct ErrorDocument {
    #[serde(rename = "Error")]
    error: Option<ErrorText>,
    #[serde(rename = "Errors")]
    errors: Option<ErrorList>,
}

#[derive(Deserialize)]
struct ErrorList {
    #[serde(rename = "Error")]
    error: ErrorText,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ErrorText {
    code: String,
    #[serde(default)]
    message: String,
}

/// Retries requests that a service throttles. The standard classifiers look only at the status, which is 400 for these.
#[derive(Debug)]
struct Throttled;

impl ClassifyRetry for Throttled {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let answer = context.output_or_error().and_then(Result::ok);
        let answer = answer.and_then(|output| output.downcast_ref::<Answer>());
        let is_throttled = answer.is_some_and(|answer| {
            // Names of the codes: `Throttling`, `ThrottlingException`, `RequestLimitExceeded`.
            let codes = ["<Code>Throttling", "<Code>RequestLimitExceeded", "<Code>RequestThrottled"];
            answer.status >= 400 && codes.iter().any(|code| answer.body.contains(code))
        });
        if is_throttled {
            RetryAction::retryable_error(ErrorKind::ThrottlingError)
        } else {
            RetryAction::NoActionIndicated
        }
    }

    fn name(&self) -> &'static str {
        "throttled"
    }
}

impl Account {
    /// Sends a request, and parses the answer.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        region: &Region,
        query: &Query,
    ) -> Result<T, AwsError> {
        let answer = self.send(region, query).await?;
        let garbled = |reason: String| AwsError::Garbled { action: query.to_string(), reason };
        if answer.status >= 500 {
            let reason = format!("status {}", answer.status);
            return Err(AwsError::Lost { action: query.to_string(), reason });
        }
        if answer.status >= 300 {
            let document: Result<ErrorDocument, _> = quick_xml::de::from_str(&answer.body);
            let error = document.ok().and_then(|found| found.error.or(found.errors.map(|list| list.error)));
            let error = error.ok_or_else(|| garbled(format!("status {}", answer.status)))?;
            return Err(AwsError::refused(query.to_string(), error.code, brief(&error.message).into_owned()));
        }
        quick_xml::de::from_str(&answer.body).map_err(|error| garbled(error.to_string()))
    }

    /// Reads all pages of a list. `next` takes the token of the next page from a page, and returns the name of its parameter with it.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        region: &Region,
        query: &Query,
        next: impl Fn(&T) -> Option<(&'static str, String)>,
    ) -> Result<Vec<T>, AwsError> {
        let (mut pages, mut asked) = (Vec::new(), query.clone());
        while pages.len() < MOST_PAGES {
            let page: T = self.read(region, &asked).await?;
            let token = next(&page).filter(|(_, token)| !token.is_empty());
            pages.push(page);
            match token {
                Some((name, token)) => asked = query.clone().with(name, token),
                None => return Ok(pages),
            }
        }
        Err(AwsError::Garbled { action: query.to_string(), reason: format!("{MOST_PAGES} pages and no end") })
    }

    async fn send(&self, region: &Region, query: &Query) -> Result<Answer, AwsError> {
        let operation = self.operation(region, query);
        operation.invoke(query.form()).await.map_err(|error: SdkError<Infallible, HttpResponse>| {
            let unusable = causes(&error).find_map(|cause| cause.downcast_ref());
            match unusable {
                Some(unusable) => AwsError::NoCredentials(super::credentials_reason(unusable)),
                None => AwsError::Lost { action: query.to_string(), reason: innermost(&error) },
            }
        })
    }

    /// Returns an operation of the SDK's runtime that signs and sends a form.
    fn operation(&self, region: &Region, query: &Query) -> Operation<String, Answer, Infallible> {
        let service = query.service;
        let mut signing = Layer::new("signing");
        signing.store_put(AuthSchemeOptionResolverParams::new(()));
        signing.store_put(SigV4OperationSigningConfig {
            region: Some(SigningRegion::from(aws_config::Region::new(service.signing_region(region)))),
            name: Some(SigningName::from_static(service.name())),
            ..SigV4OperationSigningConfig::default()
        });
        let resolver = StaticAuthSchemeOptionResolver::new(vec![SCHEME_ID]);
        let components = RuntimeComponentsBuilder::new("signing")
            .with_auth_scheme_option_resolver(Some(resolver))
            .with_auth_scheme(SharedAuthScheme::new(SigV4AuthScheme::new()))
            .with_identity_resolver(SCHEME_ID, self.credentials.clone())
            .with_identity_cache(self.config.identity_cache());
        let plugin =
            StaticRuntimePlugin::new().with_config(signing.freeze()).with_runtime_components(components);
        let mut builder = Operation::builder()
            .service_name(service.name())
            .operation_name(query.action)
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&self.url(service, region))
            .retry_classifier(TransientErrorClassifier::<Infallible>::new())
            .retry_classifier(HttpStatusCodeClassifier::default())
            .retry_classifier(Throttled)
            .interceptor(BodyLimit)
            .runtime_plugin(plugin);
        if let Some(retries) = self.config.retry_config() {
            builder = builder.standard_retry(retries);
        }
        if let Some(timeouts) = self.config.timeout_config() {
            builder = builder.timeout_config(timeouts.clone());
        }
        if let Some(client) = self.config.http_client() {
            builder = builder.http_client(client);
        }
        builder
            .serializer(|form: String| {
                let mut request = HttpRequest::new(SdkBody::from(form));
                request.set_method("POST")?;
                request.headers_mut().insert("content-type", "application/x-www-form-urlencoded");
                Ok(request)
            })
            .deserializer(|response: &HttpResponse| {
                let bytes = response.body().bytes().unwrap_or_default();
                let body = String::from_utf8(bytes.to_vec()).map_err(OrchestratorError::other)?;
                Ok::<_, OrchestratorError<Infallible>>(Answer { status: response.status().as_u16(), body })
            })
            .build()
    }

    /// Returns the URL of a service. `AWS_ENDPOINT_URL_EC2` and the like win over `AWS_ENDPOINT_URL`, as for the AWS CLI.
    fn url(&self, service: Service, region: &Region) -> String {
        let (id, env) = match service {
            Service::Ec2 => ("ec2", "AWS_ENDPOINT_URL_EC2"),
            Service::Iam => ("iam", "AWS_ENDPOINT_URL_IAM"),
            Service::Sts => ("sts", "AWS_ENDPOINT_URL_STS"),
        };
        let key = ServiceConfigKey::builder().service_id(id).env(env).profile("endpoint_url").build().ok();
        let own = key.and_then(|key| self.config.service_config()?.load_config(key));
        own.or_else(|| self.config.endpoint_url().map(str::to_string)).unwrap_or_else(|| service.url(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_has_the_action_and_escaped_parameters() {
        let query = Query::new(Service::Ec2, "DescribeInstances").filtered("tag:a b", ["x/y", "é"]);
        assert_eq!(
            query.form(),
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Aa%20b&Filter.1.Value.1=x%2Fy&Filter.1.Value.2=%C3%A9"
        );
        assert_eq!(query.to_string(), "ec2:DescribeInstances");
    }

    #[test]
    fn endpoints_depend_on_the_partition() {
        assert_eq!(Service::Ec2.url(&Region::new("eu-west-1")), "https://ec2.eu-west-1.amazonaws.com/");
        assert_eq!(Service::Sts.url(&Region::new("cn-north-1")), "https://sts.cn-north-1.amazonaws.com.cn/");
        assert_eq!(Service::Iam.url(&Region::new("eu-west-1")), "https://iam.amazonaws.com/");
    }
}
