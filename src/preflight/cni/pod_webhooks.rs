//! `pod-webhooks`: which webhooks must admit Pods, but are reachable only over the Pod network.

use std::collections::BTreeSet;

use super::Cni;
use crate::inventory::pod_webhooks::{PodWebhooks, admitted_pods};
use crate::inventory::webhooks::Webhook;
use crate::preflight::{Check, Judged, Read, Source, first_few};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "pod-webhooks",
    why: "while the Pod network is down, the API server cannot call a webhook that it reaches over this network, and rejects every Pod",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Checks the webhooks that are called for the Pods of a CNI, and the webhooks that are called for any Pod.
async fn read(input: &Cni) -> Read<Judged> {
    let (own, all) = admitted_pods(&input.read.objects().await?, input.read.pods().await?);
    let (of_own, of_all) = (input.read.webhooks_for(&own).await?, input.read.webhooks_for(&all).await?);
    let both: Vec<Webhook> = of_own.iter().chain(&of_all).cloned().collect();
    Ok(judge(&of_own, &of_all, &input.read.on_the_host(&both).await?))
}

/// Checks the webhooks that must admit Pods. See [`PodWebhooks::of`].
fn judge(own: &[Webhook], all: &[Webhook], on_the_host: &BTreeSet<(String, String)>) -> Judged {
    let PodWebhooks { own, all, .. } = PodWebhooks::of(own, all, on_the_host);
    if !own.is_empty() {
        return Judged::fail(
            format!(
                "webhooks that are reached over the Pod network must admit the Pods of a CNI: {}",
                first_few(&own)
            ),
            "exclude the namespaces of both CNIs (`namespaceSelector`), or set `failurePolicy: Ignore` during the change: without a network \
             neither CNI can start",
        );
    }
    if all.is_empty() {
        return Judged::pass("no webhook that must admit Pods is reached over the Pod network");
    }
    Judged::warn(
        format!("webhooks that are reached over the Pod network must admit Pods: {}", first_few(&all)),
        "set `failurePolicy: Ignore` during the change, or run the webhook's backend in the host network",
    )
}
