//! The Services that the API servers themselves need: the Services of admission webhooks, conversion webhooks and aggregated
//! APIs. If the API servers cannot reach such a Service, they reject writes or a part of the API is missing. Both can disturb an
//! operation that uses the API.
//!
//! The API servers connect to the Service's ClusterIP (`staging/src/k8s.io/apiserver/pkg/util/proxy/proxy.go` and
//! `kube-aggregator/pkg/apiserver/resolvers.go`, v1.36.3). A webhook with a URL refers to no Service.

use super::Layout;
use crate::wire::objects::{
    self, ApiService, CustomResourceDefinition, CustomResourceDefinitionV1beta1,
    MutatingWebhookConfiguration, ServiceReference, ValidatingWebhookConfiguration, Webhook,
    WebhookClientConfig,
};
use crate::wire::{Text, WireError};

/// Namespace and name of a Service.
pub(super) type Named = (Text, Text);

/// The kinds of objects that refer to such Services, each with its key prefix and the function that reads its values.
pub(super) struct Readers([(String, Reader); 4]);

type Reader = fn(&[u8]) -> Result<Vec<Named>, WireError>;

impl Readers {
    pub(super) fn new(layout: &Layout) -> Self {
        let [validating, mutating, aggregated, custom] = layout.api_extensions();
        Self([
            (validating, of_validating as Reader),
            (mutating, of_mutating),
            (aggregated, of_aggregated),
            (custom, of_custom),
        ])
    }

    /// Returns the Services to which the object with this key refers; `None` if the object is of another kind.
    pub(super) fn read(&self, key: &[u8], value: &[u8]) -> Option<Result<Vec<Named>, WireError>> {
        let (_, reader) = self.0.iter().find(|(prefix, _)| key.starts_with(prefix.as_bytes()))?;
        Some(reader(value))
    }
}

fn of_validating(value: &[u8]) -> Result<Vec<Named>, WireError> {
    objects::decode::<ValidatingWebhookConfiguration>(value).map(|object| called(object.webhooks))
}

fn of_mutating(value: &[u8]) -> Result<Vec<Named>, WireError> {
    objects::decode::<MutatingWebhookConfiguration>(value).map(|object| called(object.webhooks))
}

/// Reads the Service of an APIService. APIs that an API server serves itself have an APIService without a Service.
fn of_aggregated(value: &[u8]) -> Result<Vec<Named>, WireError> {
    let object: ApiService = objects::decode(value)?;
    Ok(object.spec.and_then(|spec| spec.service).and_then(named).into_iter().collect())
}

/// Reads the Service of a conversion webhook in a CustomResourceDefinition. Few definitions have a webhook, and a definition can
/// be large, so a text without the word `Webhook` is not parsed. API servers store definitions as v1beta1, which has the webhook
/// in another field (`pkg/controlplane/apiserver/apiextensions.go`, v1.36.3).
fn of_custom(value: &[u8]) -> Result<Vec<Named>, WireError> {
    if std::str::from_utf8(value).is_ok_and(|text| !text.contains("Webhook")) {
        return Ok(Vec::new());
    }
    let (strategy, config) = if objects::type_of(value)?.api_version.ends_with("/v1beta1") {
        let object: CustomResourceDefinitionV1beta1 = objects::decode(value)?;
        let conversion = object.spec.and_then(|spec| spec.conversion).unwrap_or_default();
        (conversion.strategy, conversion.webhook_client_config)
    } else {
        let object: CustomResourceDefinition = objects::decode(value)?;
        let conversion = object.spec.and_then(|spec| spec.conversion).unwrap_or_default();
        (conversion.strategy, conversion.webhook.and_then(|webhook| webhook.client_config))
    };
    let config = config.filter(|_| strategy.as_deref() == Some("Webhook"));
    Ok(of_client(config).into_iter().collect())
}

fn called(webhooks: Vec<Webhook>) -> Vec<Named> {
    webhooks.into_iter().filter_map(|webhook| of_client(webhook.client_config)).collect()
}

fn of_client(config: Option<WebhookClientConfig>) -> Option<Named> {
    config?.service.and_then(named)
}

fn named(reference: ServiceReference) -> Option<Named> {
    Some((reference.namespace?.into(), reference.name?.into()))
}
