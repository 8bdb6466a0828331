//! Limits the size of answers. A server at a configured endpoint can send answers without an end, and the SDK reads each answer
//! completely before it parses the answer.

use std::mem::replace;

use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextMut as Received;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use http_body_util::Limited;

/// Maximum size of one answer, in bytes. A page of record sets of Route 53 has at most 300. With 100 texts of 255 bytes in each record
/// set, a page has 12 MB.
const LARGEST: usize = 16 << 20;

/// Limits the size of each answer.
#[derive(Debug)]
pub struct BodyLimit;

impl Intercept for BodyLimit {
    fn name(&self) -> &'static str {
        "BodyLimit"
    }

    fn modify_before_deserialization(
        &self,
        received: &mut Received<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let body = received.response_mut().body_mut();
        let whole = replace(body, SdkBody::taken());
        *body = whole.map_preserve_contents(|body| SdkBody::from_body_1_x(Limited::new(body, LARGEST)));
        Ok(())
    }
}
