//! Names in Route 53 that ExternalDNS owns: it runs on both clusters, beside the weighted record sets of netsurgeon.

use aws_sdk_route53::types::{ResourceRecordSet, RrType};
use netsurgeon::dns::external_dns::owner as owner_of;
use serde_json::json;

use super::ownership::deploy;
use super::route53::{API, Hosted, NEW_HOST, OLD_HOST, PROXY};
use super::{NEW, OLD, PATIENCE, ZONE, serve};
use crate::rig::cluster::Cluster;
use crate::rig::external_dns::ExternalDns;
use crate::rig::process::wait_until;
use crate::rig::route53_proxy::Proxy;

/// The names: the load balancer of `www` has an address, that of `shop` a host name.
const HOSTS: [&str; 2] = ["www", "shop"];

impl Hosted {
    /// Serves the names on a cluster, with a TTL that ExternalDNS gives the record of `www`.
    async fn publish(cluster: &Cluster, ip: &str, host: &str) {
        serve(cluster, "www", json!({"ip": ip})).await;
        serve(cluster, "shop", json!({"hostname": host})).await;
        let ttl = json!({"metadata": {"annotations": {"external-dns.kubernetes.io/ttl": "4"}}});
        let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/www";
        cluster.api.merge(path, &ttl).await;
    }

    /// The record sets of the names that are not ownership records.
    async fn records(&self) -> Vec<ResourceRecordSet> {
        let mut sets = self.api.sets(&self.zone).await;
        sets.retain(|set| !matches!(set.r#type, RrType::Txt | RrType::Ns | RrType::Soa));
        sets
    }

    /// The owners in the TXT records, each once.
    async fn owners(&self) -> Vec<String> {
        let sets = self.api.sets(&self.zone).await;
        let values = sets.iter().filter(|set| set.r#type == RrType::Txt);
        let values = values.flat_map(|set| set.resource_records.iter().flatten());
        let mut owners: Vec<String> = values.filter_map(|value| owner_of(&value.value)).collect();
        owners.sort();
        owners.dedup();
        owners
    }

    /// Checks that two more loops of each ExternalDNS change no record.
    async fn stays(&self, controllers: [&ExternalDns; 2], owner: &str) {
        let before = self.api.sets(&self.zone).await;
        for controller in controllers {
            controller.tries(2).await;
        }
        let logs = || controllers.map(ExternalDns::log).join("\n");
        assert_eq!(self.api.sets(&self.zone).await, before, "{}", logs());
        assert_eq!(self.owners().await, [owner], "{}", logs());
    }
}

/// Starts the ExternalDNS of a cluster, and creates the Deployment from which netsurgeon reads its owner.
async fn external_dns(cluster: &Cluster, owner: &str, proxy: &Proxy) -> ExternalDns {
    deploy(cluster, owner, &["--provider=aws"]).await;
    ExternalDns::start_on_route53(owner, cluster.kubeconfig(), ZONE, &proxy.url)
}

/// In each loop ExternalDNS tries to create the simple set of its Ingress, because it does not know the weighted sets. Route 53
/// refuses that.
#[tokio::test]
async fn external_dns_of_both_clusters_leaves_weighted_sets_to_netsurgeon() {
    let world = Hosted::start(&[]).await;
    let (cluster, mirror) = (&world.sides.cluster, &world.sides.mirror);
    let at = |address: &str| address.parse().expect("an address");
    let proxy = Proxy::of_one_policy(at(PROXY), at(API));
    Hosted::publish(cluster, OLD, OLD_HOST).await;
    let blue = external_dns(cluster, "blue", &proxy).await;
    wait_until("ExternalDNS has created the names", PATIENCE, async || {
        let found = world.records().await;
        let names: Vec<&str> = found.iter().map(|set| set.name.as_str()).collect();
        let is_there = |host: &str| names.contains(&format!("{host}.{ZONE}.").as_str());
        if HOSTS.iter().all(|host| is_there(host)) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    Hosted::publish(mirror, NEW, NEW_HOST).await;
    let green = external_dns(mirror, "green", &proxy).await;
    let both = [&blue, &green];
    world.stays(both, "blue").await;
    let before = world.api.sets(&world.zone).await;
    assert_eq!(proxy.refused(), 0);
    let visitors = HOSTS.map(|host| world.visitor(host));
    let plan = world.plan("--shares 50 --force short-soak");
    let run = |stage: &str| {
        world.netsurgeon(&format!("dns cutover --plan {plan} {stage} --yes -o json")).expect(0).json()
    };
    let operation = run("--stage 1")["operation"].as_str().expect("an id").to_owned();
    let half = |kinds: &[&str]| kinds.iter().map(|kind| ((*kind).to_owned(), 50)).collect::<Vec<_>>();
    assert_eq!(world.weights("www").await, half(&["A"]));
    assert_eq!(world.weights("shop").await, half(&["A", "AAAA"]));
    world.stays(both, "netsurgeon").await;
    println!("{} requests of ExternalDNS were refused", proxy.refused());
    assert!(proxy.refused() > 1, "{}", blue.log());
    run("--all");
    world.stays(both, "green").await;
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    assert_eq!(world.api.sets(&world.zone).await, before, "every record set is as before");
    world.stays(both, "blue").await;
    for visitor in &visitors {
        let seen = visitor.take();
        println!("{} requests", seen.all());
        assert!(seen.failures.is_empty() && seen.all() > 0, "{:?} of {}", seen.failures.first(), seen.all());
    }
}
