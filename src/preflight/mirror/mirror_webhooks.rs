//! `mirror-webhooks`: whether the webhooks of the mirror can admit the copied objects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Mirror;
use crate::inventory::pod_templates::Template;
use crate::inventory::webhooks::{AdmittedKind, AdmittedObject, Backends, Webhook, dead};
use crate::kube_api::accessors::{labels, name};
use crate::preflight::secrets_role::without_secrets;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "mirror-webhooks",
    why: "an unavailable webhook rejects the copied objects",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

/// Reads the mirror's webhooks for the copied objects, for their namespaces, and for the Pods that workloads create.
async fn read(input: &Mirror) -> Read<Judged> {
    let made = input.source.namespaces().await?;
    let namespaces: BTreeMap<String, _> =
        made.iter().map(|one| (name(one).to_string(), labels(one).clone())).collect();
    let found = input.source.copied().await?;
    let copied = found
        .objects
        .iter()
        .filter_map(|(copied, object)| AdmittedObject::of(copied.admitted, object, &namespaces));
    let made =
        made.iter().filter_map(|one| AdmittedObject::of(AdmittedKind::Namespace, &one.metadata, &namespaces));
    let pod = |template: &Template| {
        let (namespace, labels) = (Some(template.namespace.clone()), Some(template.labels.clone()));
        let metadata = ObjectMeta { namespace, labels, ..ObjectMeta::default() };
        AdmittedObject::of(AdmittedKind::Pod, &metadata, &namespaces)
    };
    let pods = input.source.templates().await?.iter().filter_map(pod);
    let written: Vec<AdmittedObject> =
        copied.chain(pods).chain(made).collect::<BTreeSet<_>>().into_iter().collect();
    let webhooks = input.target.webhooks_for(&written).await?;
    let judged = judge(&webhooks, &input.target.backends(&webhooks).await?);
    Ok(if found.is_without_secrets { without_secrets(judged) } else { judged })
}

/// Checks the mirror's webhooks that must admit copied objects. A webhook with a URL is not tested.
fn judge(webhooks: &[Webhook], backends: &Backends) -> Judged {
    let dead = dead(webhooks, backends);
    if !dead.is_empty() {
        return Judged::fail(
            first_few(&dead),
            "start the backend of the webhook on the mirror, or delete the webhook configuration there until the backend runs: without the \
             backend the API server rejects the copied objects",
        );
    }
    let (by_service, by_url): (Vec<&Webhook>, Vec<&Webhook>) =
        webhooks.iter().filter(|webhook| webhook.is_needed()).partition(|webhook| webhook.service.is_some());
    let can = match by_service.len() {
        0 if by_url.is_empty() => "the copied objects do not depend on a webhook".to_string(),
        0 => "no webhook with a Service must admit copied objects".to_string(),
        count => counted(
            count,
            "webhook must admit copied objects, and is ready",
            "webhooks must admit copied objects, and all are ready",
        ),
    };
    if by_url.is_empty() {
        return Judged::pass(can);
    }
    let told =
        by_url.iter().map(|one| format!("{} at {}", one.told(), one.url.as_deref().unwrap_or("no URL")));
    Judged::warn(
        format!(
            "{can}; {} not tested: {}",
            counted(by_url.len(), "webhook with a URL was", "webhooks with a URL were"),
            first_few(&told.collect::<Vec<_>>())
        ),
        "make sure that the mirror's API servers reach this URL, and that `caBundle` matches: on the mirror, run `kubectl create \
         --dry-run=server` for an object that the webhook's rules match",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn webhook_without_a_ready_backend_on_the_mirror_fails() {
        let called = |service: Option<(String, String)>, refuses: bool| Webhook {
            name: "ValidatingWebhookConfiguration `x`, webhook `x`".into(),
            asked: ["Services"].into(),
            is_left_out: false,
            has_conditions: false,
            refuses,
            service,
            url: None,
        };
        let place = || ("shop".to_string(), "hook".to_string());
        let of = |refuses: bool, ready: Option<usize>| {
            judge(&[called(Some(place()), refuses)], &BTreeMap::from([(place(), ready)]))
        };
        assert_eq!(of(true, Some(1)).observed, "1 webhook must admit copied objects, and is ready");
        assert_eq!(of(false, None).verdict, Verdict::Pass, "its failure is ignored");
        assert!(
            of(true, Some(0))
                .observed
                .ends_with("(on Services) needs Service `shop/hook`, which has no ready endpoint")
        );
        assert_eq!(of(true, None).verdict, Verdict::Fail);
        let outside = Webhook { url: Some("https://policy.example.com/check".into()), ..called(None, true) };
        let judged = judge(std::slice::from_ref(&outside), &BTreeMap::new());
        assert_eq!(judged.verdict, Verdict::Warn, "it is not tested");
        assert!(
            judged
                .observed
                .starts_with("no webhook with a Service must admit copied objects; 1 webhook with a URL")
                && judged.observed.ends_with("(on Services) at https://policy.example.com/check"),
            "{}",
            judged.observed
        );
        let ignored = Webhook { refuses: false, ..outside };
        assert_eq!(judge(&[ignored], &BTreeMap::new()).verdict, Verdict::Pass);
    }
}
