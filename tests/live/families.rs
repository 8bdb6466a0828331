//! A cluster with two address families: each is renumbered alone, and the other is not affected.

use serde_json::json;

use super::guard::{guard, told};
use super::rig::cluster::{ClusterOptions, Era};
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::serving_cluster::Serving;

#[tokio::test]
async fn each_family_is_renumbered_alone() {
    let mut options = ClusterOptions::new(Era::Objects);
    "10.96.0.0/16,fd00:10:96::/112".clone_into(&mut options.service_cidrs);
    let mut serving = Serving::start_on(options, ProxyMode::Nftables).await;
    let addresses = ["10.96.0.9", "fd00:10:96::9"];
    let both =
        json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": addresses[0], "clusterIPs": addresses});
    serving.cluster.create_echo_service("both", &json!({"app": "web"}), &both).await;
    let addresses_of = async |serving: &Serving| {
        serving.cluster.api.get("/api/v1/namespaces/default/services/both").await["spec"]["clusterIPs"]
            .clone()
    };

    let old = addresses.map(|address| Target::tcp(address, 80));
    let probe = serving.probe(&old).await;
    serving.apply_to("fd00:10:200::/112", "10.96.0.0/16,fd00:10:200::/112").await;
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
    assert_eq!(addresses_of(&serving).await, json!(["10.96.0.9", "fd00:10:200::9"]));
    // The guard keeps holds of this family, too.
    let path = "/api/v1/namespaces/default/services/both";
    serving.cluster.api.merge(path, &json!({"spec": {"externalIPs": null}})).await;
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired hold-put-back default/both"]);
    assert_eq!(serving.cluster.api.get(path).await["spec"]["externalIPs"], json!(["fd00:10:96::9"]));
    let now = [Target::tcp("10.96.0.9", 80), Target::tcp("fd00:10:200::9", 80)];
    let probe = serving.probe(&now).await;
    serving.retire();
    serving.assert_unbroken(&probe.stop(), &now);
    serving.assert_clean();

    let probe = serving.probe(&now).await;
    serving.apply_to("10.200.0.0/16", "10.200.0.0/16,fd00:10:200::/112").await;
    serving.assert_unbroken(&probe.stop(), &now);
    // An owner makes a Service dual-stack during the soak: the other family does not matter.
    let one = "/api/v1/namespaces/default/services/web-3";
    serving.cluster.api.merge(one, &json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}})).await;
    let both = serving.cluster.api.get(one).await["spec"]["clusterIPs"].clone();
    assert_eq!(both.as_array().map(Vec::len), Some(2), "{both}");
    serving.netsurgeon("renumber verify").expect(0);
    assert_eq!(told(&guard(&serving, "", 0)), Vec::<String>::new());
    serving.retire();
    assert_eq!(serving.cluster.api.get(one).await["spec"]["clusterIPs"], both);
    assert_eq!(addresses_of(&serving).await, json!(["10.200.0.9", "fd00:10:200::9"]));
    serving.assert_clean();
    let ranges = serving.cluster.api.list("/apis/networking.k8s.io/v1/servicecidrs").await;
    let ranges: Vec<_> = ranges.iter().map(|range| range["spec"]["cidrs"].clone()).collect();
    assert_eq!(ranges, [json!(["10.200.0.0/16", "fd00:10:200::/112"])]);
}
