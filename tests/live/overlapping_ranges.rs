//! A range that grows, shrinks or gets another base in place, under traffic: Services whose address both ranges have get no write,
//! no connection fails, and no address has two owners at any revision of etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::rig::api::Api;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, ENDING, Run, Serving};
use super::storm::witness::Witness;

/// How many Services are created after the full range has grown.
const MORE: usize = 60;

impl Serving {
    /// Starts with a range, and with Services at the addresses `BASE.0.5` and `BASE.1.*`.
    async fn with_range(era: Era, range: &str, base: &str) -> Self {
        let mut options = ClusterOptions { nodes: 2, ..ClusterOptions::new(era) };
        range.clone_into(&mut options.service_cidrs);
        "10.96.0.0/16,10.96.128.0/17,10.97.0.0/16".clone_into(&mut options.certified_cidrs);
        let cluster = Cluster::start(options).await;
        // The nftables mode of 1.32 does not hold external IPs.
        let mode = if era == Era::Bitmap { ProxyMode::Iptables } else { ProxyMode::Nftables };
        let proxies = cluster.start_proxies(mode).await;
        Self::furnish_at(cluster, proxies, base).await
    }

    fn status(&self) -> Value {
        self.netsurgeon("renumber status -o json").expect(0).json()
    }

    async fn witness(&self, era: Era) -> Witness {
        Witness::start(self.cluster.etcd.client().await, era != Era::Bitmap, |name| {
            !name.contains("/netsurgeon-")
        })
        .await
    }

    /// Changes the range, whole, and retires what is left of the old one.
    async fn change_to(&mut self, era: Era, range: &str, flag: &str) {
        let words =
            format!("renumber apply --to {range} --no-snapshot --yes --batch-size 10 --confirm certificates");
        self.apply_with(&words, flag).await;
        self.netsurgeon("renumber verify").expect(0);
        // A change that moves no Service needs no evidence.
        let evidence = if self.status()["held"] == 0 { "" } else { "--without-evidence" };
        self.netsurgeon(&format!("renumber retire {evidence} --yes {ENDING}")).expect(0);
        self.settled(era, flag).await;
        self.assert_clean();
    }

    /// Waits until the ranges of the cluster are only those of the flag.
    async fn settled(&self, era: Era, flag: &str) {
        if era == Era::Bitmap {
            return;
        }
        wait_until("ServiceCIDR `kubernetes` is alone, with the range of the flag", DEADLINE, async || {
            let ranges = self.cluster.api.list("/apis/networking.k8s.io/v1/servicecidrs").await;
            let cidrs: Vec<&str> = flag.split(',').collect();
            let is_alone = ranges.len() == 1 && ranges[0]["spec"]["cidrs"] == json!(cidrs);
            if is_alone { Ok(()) } else { Err(format!("{ranges:?}")) }
        })
        .await;
    }

    /// The revision of each Service: equal if nothing was written to them.
    async fn revisions(&self) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        for object in self.cluster.api.list("/api/v1/services").await {
            let metadata = &object["metadata"];
            found.insert(metadata["name"].to_string(), metadata["resourceVersion"].clone());
        }
        found
    }
}

/// Grows on the same base, which moves nothing, is rolled back, grows again, and shrinks back: only Services outside move.
async fn grown_and_shrunk(era: Era) {
    let mut serving = Serving::with_range(era, "10.96.0.0/20", "10.96").await;
    let witness = serving.witness(era).await;
    let targets = Serving::targets();
    let probe = serving.probe(&targets).await;
    let before = serving.revisions().await;

    let planned = serving.netsurgeon("renumber plan --to 10.96.0.0/16").expect(0);
    says(&planned.err, &["no Service moves; the Service range changes", "26 already in `10.96.0.0/16`"]);
    says(&planned.err, &["writes nothing to them"]);
    says(
        &planned.err,
        &["`10.96.0.0/20` becomes `10.96.0.0/16`", "the flag of every API server, which restarts it"],
    );
    says(&planned.err, &["certificates stay as they are"]);
    assert_eq!(era != Era::Bitmap, planned.err.contains("kubectl apply -f - <<<"), "{}", planned.err);
    let tested = serving.netsurgeon(
        "preflight renumber --to 10.96.0.0/16 --only kube-proxy,windows,plan,certificates,overlaps",
    );
    says(&tested.expect(0).out, &["kube-proxy", "pass", "no Service moves"]);
    let words = "renumber apply --to 10.96.0.0/16 --no-snapshot --yes";
    let operation = serving.apply_with(words, "10.96.0.0/16").await;
    serving.netsurgeon(&format!("operation rollback {operation} --yes")).expect(6);
    serving.restart_with("10.96.0.0/20").await;
    serving.netsurgeon(&format!("operation rollback {operation} --yes --confirm flags")).expect(0);
    serving.settled(era, "10.96.0.0/20").await;
    serving.assert_clean();

    serving.change_to(era, "10.96.0.0/16", "10.96.0.0/16").await;
    assert_eq!(serving.revisions().await, before, "no Service was written");

    let far = json!({"clusterIP": "10.96.200.1"});
    serving.cluster.create_echo_service("far", &json!({"app": "web"}), &far).await;
    // The last address of the smaller range, which no Service can have there.
    let edge = json!({"clusterIP": "10.96.15.255"});
    serving.cluster.create_echo_service("edge", &json!({"app": "web"}), &edge).await;
    let old = Target::tcp("10.96.200.1", 80);
    let far_probe = serving.probe(&[old]).await;
    let words = "renumber apply --to 10.96.0.0/20 --no-snapshot --yes --confirm certificates";
    serving.apply_with(words, "10.96.0.0/20").await;
    let now = serving.cluster_ip("far").await;
    assert!(now.starts_with("10.96.") && !now.starts_with("10.96.200."), "{now}");
    let moved = serving.cluster_ip("edge").await;
    assert_ne!(moved, "10.96.15.255");
    serving.assert_unbroken(&far_probe.stop(), &[old]);
    serving.retire();
    serving.settled(era, "10.96.0.0/20").await;
    serving.assert_clean();
    let mut after = serving.revisions().await;
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before, "only the Services outside were written");
    serving.assert_unbroken(&probe.stop(), &targets);
    assert_eq!(witness.with(|seen| seen.wrong.clone()), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
async fn range_grows_and_shrinks() {
    Box::pin(grown_and_shrunk(Era::Objects)).await;
}

#[tokio::test]
async fn range_grows_and_shrinks_under_dual_write() {
    Box::pin(grown_and_shrunk(Era::DualWrite)).await;
}

#[tokio::test]
#[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
async fn range_grows_and_shrinks_in_the_bitmap_era() {
    Box::pin(grown_and_shrunk(Era::Bitmap)).await;
}

/// Grows to the left, so that `default/kubernetes` gets another address, which both ranges have; then moves to the upper half.
async fn rebased(era: Era) {
    let mut serving = Serving::with_range(era, "10.97.0.0/16", "10.97").await;
    let witness = serving.witness(era).await;
    let targets = [Target::tcp("10.97.0.5", 80), Target::tcp("10.97.1.7", 80)];
    let probe = serving.probe(&targets).await;
    let words = "renumber apply --to 10.96.0.0/15 --no-snapshot --yes --confirm certificates";
    serving.apply_with(words, "10.96.0.0/15").await;
    assert_eq!(serving.cluster_ip("kubernetes").await, "10.96.0.1");
    assert_eq!(serving.cluster_ip("web").await, "10.97.0.5");
    // The old address is held although the new range has it, too.
    let refused = serving.ask_for("10.97.0.1").await.expect_err("the address is held");
    says(&refused, &["already allocated"]);
    serving.retire();
    serving.settled(era, "10.96.0.0/15").await;
    serving.assert_clean();
    serving.change_to(era, "10.97.0.0/16", "10.97.0.0/16").await;
    assert_eq!(serving.cluster_ip("kubernetes").await, "10.97.0.1");
    serving.assert_unbroken(&probe.stop(), &targets);
    assert_eq!(witness.with(|seen| seen.wrong.clone()), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
async fn range_gets_another_base() {
    Box::pin(rebased(Era::Objects)).await;
}

#[tokio::test]
#[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
async fn range_gets_another_base_under_dual_write() {
    Box::pin(rebased(Era::DualWrite)).await;
}

#[tokio::test]
async fn range_gets_another_base_in_the_bitmap_era() {
    Box::pin(rebased(Era::Bitmap)).await;
}

/// One family of a dual-stack cluster grows; the other is not affected.
#[tokio::test]
async fn one_family_grows() {
    let mut serving = Serving::with_range(Era::Objects, "10.96.0.0/16,fd00:10:96::/112", "10.96").await;
    let addresses = ["10.96.0.9", "fd00:10:96::9"];
    let both =
        json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": addresses[0], "clusterIPs": addresses});
    serving.cluster.create_echo_service("both", &json!({"app": "web"}), &both).await;
    let before = serving.revisions().await;
    let targets = addresses.map(|address| Target::tcp(address, 80));
    let probe = serving.probe(&targets).await;
    serving.change_to(Era::Objects, "fd00:10:96::/108", "10.96.0.0/16,fd00:10:96::/108").await;
    assert_eq!(serving.revisions().await, before, "no Service was written");
    serving.assert_unbroken(&probe.stop(), &targets);
}

/// Creates Services as fast as one client can.
struct Creator {
    is_open: Arc<AtomicBool>,
    created: Arc<AtomicUsize>,
    task: JoinHandle<Vec<String>>,
    stop: Arc<AtomicBool>,
}

impl Creator {
    fn start(api: Api) -> Self {
        let [is_open, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let created = Arc::new(AtomicUsize::new(0));
        let (opened, stopped, count) = (is_open.clone(), stop.clone(), created.clone());
        let task = tokio::spawn(async move {
            let mut refused = Vec::new();
            for number in 0.. {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let metadata = json!({"name": format!("new-{number}"), "namespace": "default"});
                let spec = json!({"ports": [{"port": 80}]});
                let service =
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
                let was_open = opened.load(Ordering::SeqCst);
                match api.try_create(&service).await {
                    Ok(_) => {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    // While the API server restarts, no request gets an answer.
                    Err(kube::Error::Api(status)) if was_open => refused.push(status.message.clone()),
                    Err(_) => {}
                }
                // Other requests, and netsurgeon, share two processors with this client.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            refused
        });
        Self { is_open, created, task, stop }
    }

    /// Waits for a creation. From now on, no creation may be refused.
    async fn open(&self) {
        self.wait_for(1).await;
        self.is_open.store(true, Ordering::SeqCst);
        self.wait_for(MORE).await;
    }

    async fn wait_for(&self, more: usize) {
        let before = self.created.load(Ordering::SeqCst);
        wait_until("Services are created", DEADLINE, async || {
            let created = self.created.load(Ordering::SeqCst) - before;
            if created >= more { Ok(()) } else { Err(created.to_string()) }
        })
        .await;
    }

    /// Waits for more creations, then stops. Returns the refusals since the range was open.
    async fn stop(self) -> Vec<String> {
        self.wait_for(MORE).await;
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("the client ends")
    }
}

/// A full /23 grows to a /20 while a client creates Services: none is refused once the new range is open.
async fn full_range(era: Era) {
    let mut serving = Serving::with_range(era, "10.96.0.0/23", "10.96").await;
    let witness = serving.witness(era).await;
    let targets = Serving::targets();
    let probe = serving.probe(&targets).await;
    let api = serving.cluster.api.clone();
    for number in 0.. {
        let spec = json!({"ports": [{"port": 80}]});
        let metadata = json!({"name": format!("full-{number}"), "namespace": "default"});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        if let Err(refused) = api.try_create(&service).await {
            says(&refused.to_string(), &["range is full"]);
            break;
        }
    }
    let creator = Creator::start(api);
    let words = "renumber apply --to 10.96.0.0/20 --no-snapshot --yes";
    let paused = serving.netsurgeon(words).expect(6);
    says(&paused.err, &["--confirm flags"]);
    if era != Era::Bitmap {
        creator.open().await;
    }
    // An API server that has just started can refuse Services, because it has not read the ServiceCIDRs yet.
    creator.is_open.store(false, Ordering::SeqCst);
    serving.restart_with("10.96.0.0/20").await;
    creator.open().await;
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    serving.retire();
    serving.settled(era, "10.96.0.0/20").await;
    assert_eq!(creator.stop().await, Vec::<String>::new());
    serving.assert_unbroken(&probe.stop(), &targets);
    assert_eq!(witness.with(|seen| seen.wrong.clone()), Vec::<String>::new());
    let checked = serving.netsurgeon("ranges check -o json");
    let is_error = |finding: &&Value| finding["severity"] == "error";
    let checked = checked.json();
    assert_eq!(checked["findings"].as_array().expect("findings").iter().find(is_error), None, "{checked}");
}

#[tokio::test]
#[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
async fn full_range_grows() {
    Box::pin(full_range(Era::Objects)).await;
}

#[tokio::test]
async fn full_range_grows_under_dual_write() {
    Box::pin(full_range(Era::DualWrite)).await;
}

#[tokio::test]
#[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
async fn full_range_grows_in_the_bitmap_era() {
    Box::pin(full_range(Era::Bitmap)).await;
}

impl Serving {
    /// Creates a ServiceCIDR as its user does, and a Service with one of its addresses.
    async fn add_range(&self, name: &str) {
        let (range, address) = ("10.96.16.0/20", "10.96.16.5");
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "more"}, "spec": {"cidrs": [range]},
        });
        self.cluster.api.create(&object).await;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": address, "selector": {"app": "web"}, "ports": [{"name": "tcp", "port": 80, "targetPort": 7}]},
        });
        wait_until("the allocator gives an address of the ServiceCIDR", DEADLINE, async || {
            self.cluster.api.try_create(&service).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Does the manual step `other-ranges`.
    async fn delete_added_range(&self, paused: &Run) {
        says(&paused.err, &["`other-ranges`", "kubectl delete servicecidr --wait=false more"]);
        self.cluster.api.delete("/apis/networking.k8s.io/v1/servicecidrs/more").await;
    }
}

/// A range that a user has added is closed, and then it is merged with the range of the API servers.
#[tokio::test]
async fn added_range_is_closed_or_merged() {
    let era = Era::Objects;
    let mut serving = Serving::with_range(era, "10.96.0.0/20", "10.96").await;
    let before = serving.revisions().await;
    serving.add_range("closed").await;
    let paused = serving.netsurgeon("renumber apply --to 10.96.0.0/20 --no-snapshot --yes").expect(6);
    assert!(!paused.err.contains("set-range"), "the flag stays as it is: {}", paused.err);
    serving.delete_added_range(&paused).await;
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation}")).expect(0);
    let now = serving.cluster_ip("closed").await;
    assert!(!now.starts_with("10.96.16."), "{now}");
    serving.retire();
    serving.settled(era, "10.96.0.0/20").await;
    serving.assert_clean();

    serving.add_range("merged").await;
    serving.netsurgeon("renumber apply --to 10.96.0.0/16 --no-snapshot --yes").expect(6);
    serving.restart_with("10.96.0.0/16").await;
    let operation = serving.journals().remove(0);
    let paused = serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(6);
    serving.delete_added_range(&paused).await;
    serving.netsurgeon(&format!("operation resume {operation}")).expect(0);
    serving.retire();
    serving.settled(era, "10.96.0.0/16").await;
    serving.assert_clean();
    assert_eq!(serving.cluster_ip("merged").await, "10.96.16.5");
    let mut after = serving.revisions().await;
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before, "no other Service was written");
}

/// In the bitmap era, an API server can allocate an old address that the new range also has, once a client has deleted the shadow
/// that holds it. The guard puts the shadow back while the address is free. Afterwards, nothing takes it from its new owner.
#[tokio::test]
async fn held_address_that_was_taken_keeps_its_owner() {
    let era = Era::Bitmap;
    let mut serving = Serving::with_range(era, "10.97.0.0/16", "10.97").await;
    let witness = serving.witness(era).await;
    let words = "renumber apply --to 10.96.0.0/15 --no-snapshot --yes --confirm certificates";
    let operation = serving.apply_with(words, "10.96.0.0/15").await;
    let hold = async || {
        let services = serving.cluster.api.list("/api/v1/namespaces/default/services").await;
        let is_hold = |service: &&Value| service["spec"]["clusterIP"] == "10.97.0.1";
        services
            .iter()
            .find(is_hold)
            .map(|service| service["metadata"]["name"].as_str().expect("a name").to_owned())
    };
    let delete = async |name: &str| {
        serving.cluster.api.delete(&format!("/api/v1/namespaces/default/services/{name}")).await;
    };

    let name = hold().await.expect("a shadow holds the address");
    delete(&name).await;
    serving.netsurgeon("renumber guard --once").expect(0);
    assert_eq!(hold().await, Some(name.clone()), "it is put back");
    serving.ask_for("10.97.0.1").await.expect_err("its bit is set");

    delete(&name).await;
    serving.ask_for("10.97.0.1").await.expect("the address is free");
    let told = serving.netsurgeon("renumber guard --once");
    says(&format!("{}{}", told.out, told.err), &["10.97.0.1", "is now allocated to another Service"]);
    assert_eq!(hold().await.as_deref(), Some("tenant-10-97-0-1"));
    let back = serving.netsurgeon(&format!("operation rollback {operation} --yes --linger 0"));
    assert_ne!(back.code, 0, "{}", back.err);
    assert_eq!(serving.cluster_ip("kubernetes").await, "10.96.0.1", "its old address has another owner");
    assert_eq!(witness.with(|seen| seen.wrong.clone()), Vec::<String>::new());
}
