//! Finds Pods that started before a Service gave up its address, and still have the address.
//!
//! The kubelet creates a container's environment when the container starts (`getServiceEnvVarMap`, `pkg/kubelet/kubelet_pods.go`,
//! v1.36.3). The environment has the variables of `default/kubernetes` and, unless `enableServiceLinks` is false, of every
//! Service in the Pod's namespace. The kubelet creates `resolv.conf` with the Pod's sandbox (`GetPodDNS`,
//! `pkg/kubelet/network/dns/dns.go`).

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use memchr::memmem;

use super::finding;
use super::places;
use super::scan::{Form, Old};
use super::{Finding, Subject};
use crate::store::Record;
use crate::wire::WireError;
use crate::wire::objects::{self, StartedPod};

/// Maximum number of variables that a finding lists for one container.
const TOLD: usize = 3;

/// An address that a Service gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
    /// The address that the Service gave up.
    pub address: IpAddr,
    /// When the Service gave up the address, in seconds since 1970.
    pub at: i64,
    /// Whether the Service is `default/kubernetes`.
    pub is_kubernetes: bool,
    /// Whether the Service is the cluster's DNS. Kubelets give its address to Pods.
    pub is_dns: bool,
}

impl Given {
    /// Returns the name of the environment variable, in the format of the kubelet (`makeEnvVariableName`,
    /// `pkg/kubelet/envvars/envvars.go`, v1.36.3).
    fn variable(&self) -> String {
        format!("{}_SERVICE_HOST", self.name.to_uppercase().replace('-', "_"))
    }
}

/// Returns the findings if the record is a running Pod. Ignores addresses in `given_up` that are not in the old ranges.
pub(super) fn look(old: &Old, given_up: &[Given], record: Record<'_>) -> Result<Vec<Finding>, WireError> {
    if memmem::find(record.key, b"/pods/").is_none() {
        return Ok(Vec::new());
    }
    match objects::decode::<StartedPod>(record.value) {
        Ok(pod) => Ok(judge(old, given_up, &record.key.escape_ascii().to_string(), &pod)),
        Err(WireError::WrongKind { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn judge(old: &Old, given_up: &[Given], key: &str, pod: &StartedPod) -> Vec<Finding> {
    let (meta, spec) = (pod.metadata.clone().unwrap_or_default(), pod.spec.clone().unwrap_or_default());
    let status = pod.status.clone().unwrap_or_default();
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Vec::new();
    }
    let namespace = meta.namespace.unwrap_or_default();
    let subject = Arc::new(Subject::Object {
        key: key.to_string(),
        kind: "Pod".into(),
        namespace: namespace.clone(),
        name: meta.name.unwrap_or_default(),
    });
    let given_up: Vec<&Given> = given_up.iter().filter(|given| old.contains(given.address)).collect();
    let mut findings = Vec::new();
    let has_links = spec.enable_service_links != Some(false);
    for container in status.container_statuses {
        let running = container.state.and_then(|state| state.running);
        let Some(started) = running.and_then(|running| running.started_at?.seconds) else { continue };
        let is_told = |given: &&&Given| {
            given.at >= started && (given.is_kubernetes || (has_links && given.namespace == namespace))
        };
        let told: Vec<&Given> = given_up.iter().filter(is_told).copied().collect();
        let path = format!(
            "status.containerStatuses[{}].state.running.startedAt",
            container.name.unwrap_or_default()
        );
        findings.extend(environment(&subject, path, &told));
    }
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let asks =
        policy == "ClusterFirstWithHostNet" || (policy == "ClusterFirst" && spec.host_network != Some(true));
    let made = status.start_time.and_then(|time| time.seconds);
    let dns = given_up.iter().find(|given| given.is_dns && made.is_some_and(|made| given.at >= made));
    if let Some(given) = dns.filter(|_| asks) {
        let found = (Form::Address, Some(given.address.to_string()));
        findings.push(finding(&places::STARTED_RESOLVER, subject, ("status.startTime".into(), None), found));
    }
    findings
}

/// Returns a finding for a container with old addresses in its environment. The finding has the names of the variables.
fn environment(subject: &Arc<Subject>, path: String, told: &[&Given]) -> Option<Finding> {
    let first = told.iter().find(|given| given.is_kubernetes).or_else(|| told.first())?;
    let mut names: Vec<String> = told.iter().map(|given| given.variable()).collect();
    names.sort_by_key(|name| name != "KUBERNETES_SERVICE_HOST");
    let more = names.len().saturating_sub(TOLD);
    names.truncate(TOLD);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let found = (Form::Address, Some(first.address.to_string()));
    let place = &places::STARTED_ENVIRONMENT;
    let whole = finding(place, subject.clone(), (path, None), found);
    Some(Finding { meaning: Cow::Owned(format!("{}: {}", place.meaning, names.join(", "))), ..whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(namespace: &str, name: &str, address: &str, at: i64) -> Given {
        Given {
            namespace: namespace.into(),
            name: name.into(),
            address: address.parse().unwrap(),
            at,
            is_kubernetes: name == "kubernetes",
            is_dns: name == "kube-dns",
        }
    }

    fn pod(spec: &str, started: &str) -> StartedPod {
        let text = format!(
            r#"{{"kind":"Pod","metadata":{{"namespace":"shop","name":"p"}},"spec":{spec},"status":{{"phase":"Running",
            "startTime":"{started}","containerStatuses":[{{"name":"app","state":{{"running":{{"startedAt":"{started}"}}}}}}]}}}}"#
        );
        objects::decode(text.as_bytes()).unwrap()
    }

    #[test]
    fn pod_older_than_a_move_is_reported_with_its_variables() {
        let old = Old::new(vec!["10.96.0.0/16".parse().unwrap()]);
        let moved = 1_800_000_000;
        let all = [
            given("default", "kubernetes", "10.96.0.1", moved),
            given("kube-system", "kube-dns", "10.96.0.10", moved),
            given("shop", "the-cart", "10.96.0.7", moved),
            given("other", "web", "10.96.0.8", moved),
        ];
        let of = |spec: &str, started: &str| judge(&old, &all, "/registry/pods/shop/p", &pod(spec, started));
        let (before, after) = ("2027-01-15T07:59:59Z", "2027-01-15T08:00:01Z");
        let found = of("{}", before);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].meaning.ends_with("KUBERNETES_SERVICE_HOST, THE_CART_SERVICE_HOST"), "{found:?}");
        assert_eq!(
            (found[0].found.as_deref(), found[1].found.as_deref()),
            (Some("10.96.0.1"), Some("10.96.0.10"))
        );
        assert!(of("{}", after).is_empty());
        let found = of(r#"{"enableServiceLinks":false,"hostNetwork":true}"#, before);
        assert!(found.len() == 1 && found[0].meaning.ends_with(": KUBERNETES_SERVICE_HOST"), "{found:?}");
        let elsewhere = Old::new(vec!["10.97.0.0/16".parse().unwrap()]);
        assert!(judge(&elsewhere, &all, "k", &pod("{}", before)).is_empty());
    }
}
