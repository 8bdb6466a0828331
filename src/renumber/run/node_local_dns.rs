//! Checks that NodeLocal DNSCache does not use the old address of the cluster's DNS. The check covers the configuration of
//! NodeLocal DNSCache and the age of its Pods. A Pod gets the address of the upstream DNS from its environment variables, which
//! the kubelet set when the Pod started.

use std::net::IpAddr;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

use crate::kube_api::accessors::{containers, name, words};
use crate::kube_api::{Cluster, ClusterError, Typed};
use crate::words::counted;

const NAMESPACE: &str = "kube-system";
/// Name of the DaemonSet and of its ConfigMap (`cluster/addons/dns/nodelocaldns/nodelocaldns.yaml`, v1.36.3).
const NAME: &str = "node-local-dns";

/// Checks the configuration of NodeLocal DNSCache, which must not contain any of the addresses `old`. Every Pod of NodeLocal
/// DNSCache must be newer than `since`, in seconds since 1970. Returns what was verified, or what is missing.
pub(super) async fn followed(cluster: &Cluster, old: &[IpAddr], since: i64) -> Result<String, String> {
    let Some(set) = get::<DaemonSet>(cluster).await? else {
        return Ok(format!("verified: DaemonSet `{NAMESPACE}/{NAME}` does not exist"));
    };
    let config = get(cluster).await?.unwrap_or_default();
    told(&set, &config, old)?;
    let labels = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref());
    let labels = labels.into_iter().flatten().map(|(name, value)| format!("{name}={value}"));
    let labels = labels.collect::<Vec<_>>().join(",");
    if labels.is_empty() {
        return Err(format!(
            "DaemonSet `{NAMESPACE}/{NAME}` has no `matchLabels`, so its Pods cannot be checked"
        ));
    }
    let pods = cluster.objects(Some(NAMESPACE), Some(&labels)).await.map_err(|error| error.to_string())?;
    made_anew(&set, &pods, since)
}

async fn get<K: Typed>(cluster: &Cluster) -> Result<Option<K>, String> {
    cluster.object(Some(NAMESPACE), NAME).await.map_err(|error: ClusterError| error.to_string())
}

/// Fails if the arguments of the DaemonSet or the Corefile contain an old address.
fn told(set: &DaemonSet, config: &ConfigMap, old: &[IpAddr]) -> Result<(), String> {
    let has = |text: &str| {
        let mut words =
            text.split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | '=' | '[' | ']'));
        words.find_map(|word| word.parse::<IpAddr>().ok().filter(|address| old.contains(address)))
    };
    let mut words = containers(set).iter().flat_map(words);
    if let Some(address) = words.find_map(has) {
        return Err(format!("DaemonSet `{NAMESPACE}/{NAME}` still has `{address}` among its arguments"));
    }
    match config.data.iter().flatten().find_map(|(_, text)| has(text)) {
        Some(address) => Err(format!("the Corefile in ConfigMap `{NAMESPACE}/{NAME}` still has `{address}`")),
        None => Ok(()),
    }
}

/// Fails unless every Pod was created after `since`, and the DaemonSet has the desired number of ready Pods.
fn made_anew(set: &DaemonSet, pods: &[Pod], since: i64) -> Result<String, String> {
    let is_old =
        |pod: &&Pod| pod.metadata.creation_timestamp.as_ref().is_some_and(|made| made.0.as_second() <= since);
    let mut old = pods.iter().filter(is_old);
    if let Some(first) = old.next() {
        let count = old.count().saturating_add(1);
        return Err(format!(
            "Pods of DaemonSet `{NAMESPACE}/{NAME}` that were created before the last Service moved: {count} of {}; the first is `{}`",
            pods.len(),
            name(first)
        ));
    }
    let status = set.status.as_ref();
    let (wanted, ready) =
        status.map(|status| (status.desired_number_scheduled, status.number_ready)).unwrap_or_default();
    if ready < wanted {
        return Err(format!("ready Pods of DaemonSet `{NAMESPACE}/{NAME}`: {ready} of {wanted}"));
    }
    let pods = counted(pods.len(), "Pod", "Pods");
    Ok(format!("verified: {pods} of DaemonSet `{NAMESPACE}/{NAME}`, created after the Services moved"))
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;

    use super::*;

    fn typed<K: DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn old_address_in_configuration_is_refused() {
        let old: Vec<IpAddr> = vec!["10.96.0.10".parse().unwrap(), "fd00::a".parse().unwrap()];
        let of = |local: &str, corefile: &str| {
            let container =
                json!({"name": "node-cache", "args": ["-localip", local, "-conf", "/etc/Corefile"]});
            let set = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
            told(&typed(set), &typed(json!({"data": {"Corefile": corefile}})), &old)
        };
        let corefile =
            "cluster.local:53 {\n  bind 169.254.20.10 10.200.0.10\n  forward . __PILLAR__CLUSTER__DNS__\n}";
        assert_eq!(of("169.254.20.10,10.200.0.10", corefile), Ok(()));
        assert_eq!(of("169.254.20.10,10.96.0.100", corefile), Ok(()), "another address");
        assert!(
            of("169.254.20.10,10.96.0.10", corefile)
                .unwrap_err()
                .contains("`10.96.0.10` among its arguments")
        );
        assert!(of("-localip=fd00::a", corefile).unwrap_err().contains("`fd00::a`"));
        let bound = corefile.replace("10.200.0.10", "10.96.0.10");
        assert!(of("169.254.20.10", &bound).unwrap_err().contains("Corefile"));
    }

    #[test]
    fn pod_older_than_the_move_is_refused() {
        let set = |ready: u8| typed(json!({"status": {"desiredNumberScheduled": 2, "numberReady": ready}}));
        let pod =
            |name: &str, made: &str| typed(json!({"metadata": {"name": name, "creationTimestamp": made}}));
        let (before, after) = ("2026-03-01T10:00:00Z", "2026-03-01T10:00:02Z");
        let since = OffsetDateTime::parse("2026-03-01T10:00:01Z", &Rfc3339).unwrap().unix_timestamp();
        let of = |pods: &[Pod]| made_anew(&set(2), pods, since);
        assert!(of(&[pod("a", after), pod("b", after)]).is_ok());
        let error = of(&[pod("a", after), pod("b", before)]).unwrap_err();
        assert!(error.contains("1 of 2;") && error.ends_with("the first is `b`"), "{error}");
        assert!(made_anew(&set(1), &[pod("a", after)], since).unwrap_err().ends_with("1 of 2"));
    }
}
