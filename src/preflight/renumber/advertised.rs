//! `advertised`: whether a component announces ClusterIPs to routers.

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::Value;

use super::Renumber;
use crate::inventory::unread;
use crate::kube_api::accessors::{containers, words};
use crate::preflight::{Check, Judged, Read, Source};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "advertised",
    why: "external routers without a route to the new range drop its traffic",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Finds components that announce ClusterIPs. The plan shows whether Calico announces them. For Cilium, this function reads the
/// BGP advertisements; for kube-router, it reads the flag.
async fn read(input: &Renumber) -> Read<Judged> {
    let cluster = input.read.cluster()?;
    let mut others = Vec::new();
    for version in ["cilium.io/v2", "cilium.io/v2alpha1"] {
        let kind = "CiliumBGPAdvertisement";
        if let Some(found) = input.read.list_if_served(version, kind).await? {
            others.extend(announcing(&found).map(|name| format!("CiliumBGPAdvertisement `{name}`")));
            break;
        }
    }
    let router = cluster.object::<DaemonSet>(Some("kube-system"), "kube-router").await;
    if router.map_err(unread)?.is_some_and(|router| is_announcing(&router)) {
        others.push("DaemonSet `kube-system/kube-router` (`--advertise-cluster-ip`)".to_string());
    }
    let calico = input.plan().await.map(|plan| plan.work.overlaps.len()).unwrap_or_default();
    Ok(judge(calico, &others))
}

/// Checks for components that announce ClusterIPs to external routers. `calico`: number of Calico lists that get the new range.
/// `others`: other components, as text.
fn judge(calico: usize, others: &[String]) -> Judged {
    if !others.is_empty() {
        return Judged::warn(
            format!("components that announce ClusterIPs to routers: {}", others.join(", ")),
            "add the new range to external routers and firewalls before the renumbering, and keep the old one until it is retired",
        );
    }
    if calico > 0 {
        return Judged::pass(format!(
            "Calico announces ClusterIPs; the renumbering adds the new range to {} of Calico",
            counted(calico, "list", "lists")
        ));
    }
    Judged::pass("no known component announces ClusterIPs to routers")
}

/// Returns the names of Cilium's BGP advertisements that include ClusterIPs (`spec.advertisements[].service.addresses`,
/// `pkg/k8s/apis/cilium.io/v2/bgp_advert_types.go`, Cilium v1.18).
fn announcing(advertisements: &[Value]) -> impl Iterator<Item = &str> {
    let has = |object: &&Value| {
        let list = object.pointer("/spec/advertisements").and_then(Value::as_array).into_iter().flatten();
        let addresses = |one: &Value| one.pointer("/service/addresses").and_then(Value::as_array).cloned();
        list.filter_map(addresses).flatten().any(|address| address == "ClusterIP")
    };
    advertisements
        .iter()
        .filter(has)
        .filter_map(|object| object.pointer("/metadata/name").and_then(Value::as_str))
}

/// Returns whether a DaemonSet of kube-router announces ClusterIPs. A DaemonSet announces ClusterIPs if the flag
/// `--advertise-cluster-ip` has no value, or has the value `true` or `1`.
fn is_announcing(router: &DaemonSet) -> bool {
    containers(router).iter().flat_map(words).flat_map(str::split_whitespace).any(|word| {
        word.strip_prefix("--advertise-cluster-ip").is_some_and(|rest| matches!(rest, "" | "=true" | "=1"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn announcing_components_are_a_warning() {
        assert_eq!(judge(0, &[]).verdict, Verdict::Pass);
        assert_eq!(judge(1, &[]).verdict, Verdict::Pass, "the renumbering adds the new range");
        assert_eq!(judge(1, &["kube-router".to_string()]).verdict, Verdict::Warn);
    }

    #[test]
    fn cluster_ip_announcements_are_recognized() {
        let advert = |name: &str, addresses: &[&str]| {
            json!({
                "metadata": {"name": name},
                "spec": {"advertisements": [{"advertisementType": "PodCIDR"}, {"service": {"addresses": addresses}}]},
            })
        };
        let all = [advert("a", &["LoadBalancerIP"]), advert("b", &["ExternalIP", "ClusterIP"])];
        assert_eq!(announcing(&all).collect::<Vec<_>>(), ["b"]);
        let router = |word: &str| -> DaemonSet {
            let pod = json!({"containers": [{"name": "router", "args": ["--run-router", word]}]});
            serde_json::from_value(json!({"spec": {"template": {"spec": pod}}})).unwrap()
        };
        assert!(
            is_announcing(&router("--advertise-cluster-ip=true"))
                && is_announcing(&router("--advertise-cluster-ip"))
        );
        assert!(!is_announcing(&router("--advertise-cluster-ip=false")) && !is_announcing(&router("--v=2")));
    }
}
