//! `webhooks`: whether the webhooks that a renumbering needs can answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Renumber;
use crate::inventory::service::TrimmedService;
use crate::inventory::webhooks::{AdmittedKind, AdmittedObject, Backends, Webhook, dead};
use crate::ip::ServiceCidr;
use crate::kube_api::accessors::{labels, name, namespace};
use crate::kube_api::{MANAGED_BY, passing};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::renumber::hold::Hold;
use crate::survey::Era;
use crate::wire::objects::{ALLOCATOR, IP_FAMILY, MANAGED_BY as ALLOCATED_BY};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "webhooks",
    why: "an unavailable webhook rejects changes of Services during the renumbering",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Policy engines that can reject later updates of Services. Each entry has a part of the webhook's name, and the name of the
/// engine.
const ENGINES: [(&str, &str); 2] = [("kyverno", "Kyverno"), ("gatekeeper", "Gatekeeper")];

/// Checks the webhooks and the ready endpoints of their Services.
async fn read(input: &Renumber) -> Read<Judged> {
    let found = input.read.webhooks_for(&written(input).await?).await?;
    let backends = input.read.backends(&found).await?;
    let old = input.retired().await?;
    Ok(judge(&found, &backends, &old))
}

/// Returns the objects that pass admission during a renumbering. These are the Services that move, because clients can update
/// them during this time, and the objects that the renumbering creates. Without a plan, all Services count as moving.
async fn written(input: &Renumber) -> Read<Vec<AdmittedObject>> {
    let (services, namespaces) = (input.read.services().await?, input.read.objects::<Namespace>().await?);
    let of_namespaces = namespaces.iter().map(|one| (name(one).to_string(), labels(one).clone())).collect();
    let moves = input.plan().await.ok().map(|plan| &plan.work.moves);
    let candidates: Option<BTreeSet<(&str, &str)>> =
        moves.map(|moves| moves.iter().map(|one| (&*one.namespace, &*one.name)).collect());
    let is_moved = |service: &&TrimmedService| {
        candidates.as_ref().is_none_or(|all| all.contains(&(namespace(*service), name(*service))))
    };
    let changed = services.iter().filter(is_moved).map(|one| (AdmittedKind::Service, &one.metadata));
    let shadows = moves.into_iter().flatten().filter(|one| one.hold == Hold::Shadow);
    let ours = labelled(&[MANAGED_BY]);
    let mut made = Vec::new();
    for one in shadows {
        let metadata = ObjectMeta { namespace: Some(one.namespace.to_string()), ..ours.clone() };
        made.extend(one.has_copies().then(|| (AdmittedKind::EndpointSlice, metadata.clone())));
        made.push((AdmittedKind::Service, metadata));
    }
    let family = input.options.to.family();
    made.push((AdmittedKind::Service, passing("barrier", "kube-system", "preflight")));
    if input.survey().await?.era.era != Era::Bitmap {
        let allocated = labelled(&[(IP_FAMILY, &family.to_string()), (ALLOCATED_BY, ALLOCATOR)]);
        made.push((AdmittedKind::IpAddress, allocated));
        // The ServiceCIDR that the API servers create has no labels.
        made.extend([ours, ObjectMeta::default()].map(|one| (AdmittedKind::ServiceCidr, one)));
    }
    let all = changed.chain(made.iter().map(|(kind, metadata)| (*kind, metadata)));
    Ok(all.filter_map(|(kind, metadata)| AdmittedObject::of(kind, metadata, &of_namespaces)).collect())
}

fn labelled(labels: &[(&str, &str)]) -> ObjectMeta {
    let labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }
}

/// Checks the webhooks. `old`: ranges of the addresses that stop answering.
fn judge(webhooks: &[Webhook], backends: &Backends, old: &[ServiceCidr]) -> Judged {
    let is_old = |address: IpAddr| old.iter().any(|range| range.contains(address));
    let fixed = webhooks.iter().filter_map(|webhook| {
        let address = address(webhook).filter(|address| is_old(*address))?;
        Some(format!("{} is called at `{address}`, an address of the old range", webhook.name))
    });
    let wrong: Vec<String> = fixed.chain(dead(webhooks, backends)).collect();
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(&wrong),
            "repair the backend of the webhook, or delete the webhook configuration: without the backend, the API server rejects changes of the renumbering; if the configuration contains an address, replace the address with a Service (`clientConfig.service`)",
        );
    }
    let needed: Vec<&Webhook> = webhooks.iter().filter(|webhook| webhook.is_needed()).collect();
    if needed.is_empty() {
        let left_out = webhooks.iter().filter(|webhook| webhook.is_left_out && webhook.refuses).count();
        let more = match left_out {
            0 => String::new(),
            _ => format!(
                "; {} the objects that a renumbering changes",
                counted(left_out, "webhook does not select", "webhooks do not select")
            ),
        };
        return Judged::pass(format!("the changes of a renumbering do not depend on a webhook{more}"));
    }
    let names: Vec<String> = needed.iter().map(|webhook| webhook.told()).collect();
    let mut engines: Vec<&str> = needed.iter().filter_map(|webhook| engine(webhook)).collect();
    engines.sort_unstable();
    engines.dedup();
    let mut remedy =
        "make sure that each backend runs on several nodes, and do not change it during the renumbering"
            .to_string();
    if !engines.is_empty() {
        remedy = format!(
            "{remedy}; {} may reject later updates of Services with external IPs: exempt these Services, or use `--hold shadow`",
            engines.join(" and ")
        );
    }
    Judged::warn(
        format!(
            "the changes of a renumbering depend on {}: {}",
            counted(names.len(), "webhook", "webhooks"),
            first_few(&names)
        ),
        remedy,
    )
}

/// Returns the IP address in the webhook's URL; `None` if the URL has a host name.
fn address(webhook: &Webhook) -> Option<IpAddr> {
    let (_, rest) = webhook.url.as_deref()?.split_once("://")?;
    let place = rest.split(['/', '?']).next()?;
    let host = match place.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => place.split(':').next()?,
    };
    host.parse().ok()
}

fn engine(webhook: &Webhook) -> Option<&'static str> {
    ENGINES.iter().find(|(part, _)| webhook.name.contains(part)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::inventory::webhooks::testing::{configured, rules};
    use crate::preflight::Verdict;

    #[test]
    fn webhooks_that_select_nothing_are_counted() {
        let none = json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "objectSelector": {"matchLabels": {"app": "web"}},
        });
        let judged = judge(&configured(&rules("services", "*"), &none), &BTreeMap::new(), &[]);
        assert_eq!(judged.verdict, Verdict::Pass);
        assert!(
            judged.observed.ends_with("; 1 webhook does not select the objects that a renumbering changes"),
            "{judged:?}"
        );
    }

    #[test]
    fn unevaluated_match_conditions_are_reported() {
        let never = json!({"matchConditions": [{"name": "never", "expression": "false"}]});
        let judged = judge(&configured(&rules("services", "*"), &never), &BTreeMap::new(), &[]);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert!(
            judged.observed.ends_with("(on Services; its `matchConditions` are not evaluated)"),
            "{judged:?}"
        );
    }

    #[test]
    fn needed_webhook_must_have_a_ready_backend() {
        let key = ("shop".to_string(), "check".to_string());
        let service = json!({"clientConfig": {"service": {"namespace": "shop", "name": "check"}}});
        let needed = configured(&rules("services", "*"), &service);
        let judged = |ready: Option<usize>| judge(&needed, &BTreeMap::from([(key.clone(), ready)]), &[]);
        assert_eq!(judged(Some(2)).verdict, Verdict::Warn);
        assert!(judged(Some(0)).observed.ends_with("Service `shop/check`, which has no ready endpoint"));
        assert_eq!(judged(None).verdict, Verdict::Fail);
        let mut ignored = service.clone();
        ignored["failurePolicy"] = json!("Ignore");
        let ignored = configured(&rules("services", "*"), &ignored);
        assert_eq!(judge(&ignored, &BTreeMap::from([(key, None)]), &[]).verdict, Verdict::Pass);
    }

    #[test]
    fn webhook_url_in_the_old_range_fails() {
        let old = ["10.96.0.0/16".parse().unwrap(), "fd00::/112".parse().unwrap()];
        let at = |url: &str| {
            let webhooks = configured(&rules("pods", "*"), &json!({"clientConfig": {"url": url}}));
            judge(&webhooks, &BTreeMap::new(), &old).verdict
        };
        assert_eq!(at("https://10.96.0.7:8443/validate"), Verdict::Fail);
        assert_eq!(at("https://[fd00::7]/validate"), Verdict::Fail);
        assert_eq!(at("https://10.97.0.7/validate"), Verdict::Pass);
        assert_eq!(at("https://hooks.example.com/10.96.0.7"), Verdict::Pass);
    }

    #[test]
    fn policy_engines_are_named() {
        let webhooks = [Webhook {
            name: "ValidatingWebhookConfiguration `kyverno-resource-validating-webhook-cfg`".into(),
            asked: BTreeSet::from(["Services"]),
            is_left_out: false,
            has_conditions: false,
            refuses: true,
            service: None,
            url: None,
        }];
        let judged = judge(&webhooks, &BTreeMap::new(), &[]);
        assert!(judged.remedy.contains("Kyverno may reject"), "{}", judged.remedy);
    }
}
