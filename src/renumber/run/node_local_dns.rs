//! Whether NodeLocal DNSCache has followed the cluster's DNS: what it is told, and when its Pods were made. They know the
//! address of the DNS behind it from the environment that the kubelet gave them when they began.

use std::net::IpAddr;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cluster::{Cluster, ClusterError, Collection, ObjectRef};

const NAMESPACE: &str = "kube-system";
/// Of the DaemonSet and of its ConfigMap (`cluster/addons/dns/nodelocaldns/nodelocaldns.yaml`, v1.36.3).
const NAME: &str = "node-local-dns";

/// Looks whether nothing of it has one of these addresses, and every Pod of it is younger than that, in seconds since
/// 1970; says what it has seen, or what is missing.
pub(super) async fn followed(cluster: &Cluster, old: &[IpAddr], since: i64) -> Result<String, String> {
    let Some(set) = get(cluster, "apps/v1", "DaemonSet").await? else {
        return Ok(format!("seen to be done: DaemonSet `{NAMESPACE}/{NAME}` is gone"));
    };
    let config = get(cluster, "v1", "ConfigMap").await?.unwrap_or_default();
    told(&set, &config, old)?;
    let labels = set.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)))
        .collect();
    if labels.is_empty() {
        return Err(format!(
            "DaemonSet `{NAMESPACE}/{NAME}` selects its Pods in a way that is not known here"
        ));
    }
    let pods = Collection::new("v1", "Pod", Some(NAMESPACE));
    let pods = cluster.list(&pods, Some(&labels.join(","))).await.map_err(|error| error.to_string())?;
    made_anew(&set, &pods, since)
}

async fn get(cluster: &Cluster, api_version: &str, kind: &str) -> Result<Option<Value>, String> {
    let object = ObjectRef::new(api_version, kind, Some(NAMESPACE), NAME);
    cluster.get(&object).await.map_err(|error: ClusterError| error.to_string())
}

/// Neither the arguments of the DaemonSet nor the Corefile may have an old address.
fn told(set: &Value, config: &Value, old: &[IpAddr]) -> Result<(), String> {
    let has = |text: &str| {
        let mut words =
            text.split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | '=' | '[' | ']'));
        words.find_map(|word| word.parse::<IpAddr>().ok().filter(|address| old.contains(address)))
    };
    let containers = set.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let words = containers.into_iter().flatten().flat_map(|container| {
        let lists = ["command", "args"].map(|name| container.get(name).and_then(Value::as_array));
        lists.into_iter().flatten().flatten().filter_map(Value::as_str)
    });
    if let Some(address) = words.into_iter().find_map(has) {
        return Err(format!("DaemonSet `{NAMESPACE}/{NAME}` still has `{address}` among its arguments"));
    }
    let texts = config.get("data").and_then(Value::as_object).into_iter().flatten();
    match texts.filter_map(|(_, text)| text.as_str()).find_map(has) {
        Some(address) => Err(format!("the Corefile in ConfigMap `{NAMESPACE}/{NAME}` still has `{address}`")),
        None => Ok(()),
    }
}

/// As many Pods as there are nodes for it must be ready, each made after that.
fn made_anew(set: &Value, pods: &[Value], since: i64) -> Result<String, String> {
    let text = |object: &Value, path: &str| {
        object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string()
    };
    let is_old = |pod: &&Value| {
        let made = OffsetDateTime::parse(&text(pod, "/metadata/creationTimestamp"), &Rfc3339);
        made.is_ok_and(|made| made.unix_timestamp() <= since)
    };
    let old: Vec<String> = pods.iter().filter(is_old).map(|pod| text(pod, "/metadata/name")).collect();
    if let Some(first) = old.first() {
        let count = old.len();
        return Err(format!(
            "{count} of {} Pods of DaemonSet `{NAMESPACE}/{NAME}` were made before the Services moved, the first is `{first}`",
            pods.len()
        ));
    }
    let number = |path: &str| set.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let (wanted, ready) = (number("/status/desiredNumberScheduled"), number("/status/numberReady"));
    if ready < wanted {
        return Err(format!("{ready} of {wanted} Pods of DaemonSet `{NAMESPACE}/{NAME}` are ready"));
    }
    Ok(format!("seen to be done: all {} Pods of it were made after the Services had moved", pods.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_old_address_may_be_left() {
        let old: Vec<IpAddr> = vec!["10.96.0.10".parse().unwrap(), "fd00::a".parse().unwrap()];
        let of = |local: &str, corefile: &str| {
            let container = json!({"args": ["-localip", local, "-conf", "/etc/Corefile"]});
            let set = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
            told(&set, &json!({"data": {"Corefile": corefile}}), &old)
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
    fn every_pod_must_be_younger_than_the_move() {
        let set = json!({"status": {"desiredNumberScheduled": 2, "numberReady": 2}});
        let pod = |name: &str, made: &str| json!({"metadata": {"name": name, "creationTimestamp": made}});
        let (before, after) = ("2026-03-01T10:00:00Z", "2026-03-01T10:00:02Z");
        let since = OffsetDateTime::parse("2026-03-01T10:00:01Z", &Rfc3339).unwrap().unix_timestamp();
        let of = |pods: &[Value]| made_anew(&set, pods, since);
        assert!(of(&[pod("a", after), pod("b", after)]).is_ok());
        let error = of(&[pod("a", after), pod("b", before)]).unwrap_err();
        assert!(error.starts_with("1 of 2 Pods") && error.ends_with("the first is `b`"), "{error}");
        let coming = json!({"status": {"desiredNumberScheduled": 2, "numberReady": 1}});
        assert!(made_anew(&coming, &[pod("a", after)], since).unwrap_err().starts_with("1 of 2 Pods"));
    }
}
