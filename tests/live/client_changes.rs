//! Changes by clients to their Services during the move, each of which once stopped an operation permanently. None stops it now,
//! forward or back, and no other Service is disturbed.

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, ENDING, Serving};

/// Of Services in the namespace `default`.
const SERVICES_PATH: &str = "/api/v1/namespaces/default/services";

pub fn path(name: &str) -> String {
    format!("{SERVICES_PATH}/{name}")
}

/// The only shadow of a kind (`hold`, `warm`) that stands in for a Service.
pub async fn shadow_of(serving: &Serving, service: &str, kind: &str) -> Option<Value> {
    let all = serving.cluster.api.list(SERVICES_PATH).await;
    let is_it = |shadow: &&Value| {
        let name = shadow["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with(&format!("netsurgeon-{kind}-"))
            && shadow["metadata"]["annotations"]["netsurgeon.io/stands-in-for"] == service
    };
    all.iter().find(is_it).cloned()
}

/// Selector and ports of Services change between the plan and the end: their shadows follow, forward and back.
#[tokio::test]
async fn shadows_follow_their_services_forward_and_back() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let api = &serving.cluster.api;
    let web = json!({"app": "web"});
    let doors = json!({"type": "NodePort", "clusterIP": "10.96.2.1"});
    serving.cluster.create_echo_service("doors", &web, &doors).await;
    let words = format!("{} --hold shadow", serving.apply_words());
    serving.netsurgeon(&words).expect(6);
    // From blue to green, and a second port.
    let green = serving.cluster.create_pod(1, "green-1", &json!({"app": "green"})).await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}, {"name": "more", "port": 81, "targetPort": 8080}]);
    let found = api.get(&path("doors")).await["spec"]["ports"].clone();
    let target = found[0]["targetPort"].clone();
    let mut ports = ports;
    for port in ports.as_array_mut().expect("a list") {
        port["targetPort"] = target.clone();
    }
    api.merge(&path("doors"), &json!({"spec": {"selector": {"app": "green"}, "ports": ports}})).await;
    let operation = serving.journals().remove(0);
    serving.restart_with("10.200.0.0/16").await;
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    let behind = serving.netsurgeon("renumber verify -o json");
    assert!(behind.code == 3 && behind.out.contains("shadow-behind"), "{}{}", behind.out, behind.err);
    serving.netsurgeon("renumber guard --once").expect(0);
    serving.netsurgeon("renumber verify").expect(0);
    for port in [80, 81] {
        let target = Target::tcp("10.96.2.1", port);
        wait_until("the old address routes to the new Pod", DEADLINE, async || {
            match serving.client.ask(target) {
                Ok((_, server)) if server == "green-1" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    // The same during the rollback, which recreates the shadow that holds the new address.
    serving.cluster.api.merge(&path("doors"), &json!({"spec": {"selector": {"app": "web"}}})).await;
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    assert_eq!(serving.cluster_ip("doors").await, "10.96.2.1");
    assert!(shadow_of(&serving, "doors", "hold").await.is_none(), "no shadow is left");
    serving.wait_for_one_range().await;
    serving.assert_clean();
    drop(green);
}

const POLICY: &str = "not-this-one";

/// The API server's answer to a client that creates a Service with the name of a shadow.
async fn tries_shadow(serving: &Serving, digits: &str) -> Result<(), String> {
    let name = format!("x-{digits}");
    let trial = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    });
    serving.cluster.api.try_create(&trial).await.map_err(|error| error.to_string())?;
    serving.cluster.api.delete(&path(&name)).await;
    Ok(())
}

/// The digits at the end of the names of a Service's shadows.
async fn digits_of(serving: &Serving, service: &str) -> String {
    let found = serving.cluster.api.get(&path(service)).await;
    found["metadata"]["uid"].as_str().expect("a uid").replace('-', "")[..16].to_owned()
}

/// Installs a policy that rejects these operations on Services for which a CEL expression is false.
pub async fn refuse(serving: &Serving, operations: &[&str], expression: &str) {
    let api = &serving.cluster.api;
    api.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["services"],
            }]},
            "validations": [{"expression": expression, "message": "not this one"}],
        },
    }))
    .await;
    api.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    }))
    .await;
}

/// Removes the policy; API servers notice that after a while.
pub async fn refuse_no_more(serving: &Serving) {
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    serving.cluster.api.delete(&format!("{bindings}/{POLICY}")).await;
}

/// Installs a policy that rejects to create and to change shadows of a Service.
async fn shadows_are_refused(serving: &Serving, service: &str) {
    let digits = digits_of(serving, service).await;
    refuse(serving, &["CREATE", "UPDATE"], &format!("!object.metadata.name.endsWith('{digits}')")).await;
    wait_until("the policy is in force", DEADLINE, async || match tries_shadow(serving, &digits).await {
        Err(error) if error.contains("not this one") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// A Service that is deleted, one whose namespace is deleted, and one whose shadow a policy rejects.
#[tokio::test]
async fn service_that_cannot_move_stops_no_other() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let api = &serving.cluster.api;
    api.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "passing"}})).await;
    let web = json!({"app": "web"});
    for (name, address) in [("refused", "10.96.2.1"), ("deleted", "10.96.2.2")] {
        let spec = json!({"type": "NodePort", "clusterIP": address});
        serving.cluster.create_echo_service(name, &web, &spec).await;
    }
    let elsewhere = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "gone", "namespace": "passing"},
        "spec": {"type": "NodePort", "selector": web, "ports": [{"port": 80}]},
    });
    api.create(&elsewhere).await;
    shadows_are_refused(&serving, "refused").await;
    let folder = serving.cluster.directory().join("plan.json").display().to_string();
    serving
        .netsurgeon(&format!("renumber plan --to 10.200.0.0/16 --batch-size 10 --save {folder}"))
        .expect(0);
    let apply = format!("renumber apply --plan {folder} --no-snapshot --yes --confirm certificates");
    let mut running = serving.start_netsurgeon(&apply);
    serving.wait_for_records(&mut running, "reserve", 1).await;
    serving.cluster.api.delete(&path("deleted")).await;
    serving.cluster.api.delete("/api/v1/namespaces/passing").await;
    // Deleted Services are skipped; the operator has to permit the skip of the rejected one.
    assert_eq!(running.end().await, 5, "it stops at the rejected Service");
    let operation = serving.journals().remove(0);
    let resume = format!("operation resume {operation} --confirm certificates --max-failures 1");
    serving.netsurgeon(&resume).expect(6);
    serving.restart_with("10.200.0.0/16").await;
    let resumed = serving.netsurgeon(&format!("{resume} --confirm flags")).expect(3);
    assert!(resumed.err.contains("not this one"), "{}", resumed.err);
    assert_eq!(serving.cluster_ip("refused").await, "10.96.2.1");
    assert_eq!(serving.cluster_ip("web").await, "10.200.0.5");
    // The rollback needs nothing from the policy: the Service has its old address.
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// A policy prevents a shadow from following its Service: the rollback skips this Service only.
#[tokio::test]
async fn shadow_that_cannot_follow_stops_no_other() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let door = json!({"type": "NodePort", "clusterIP": "10.96.2.1"});
    serving.cluster.create_echo_service("a-door", &json!({"app": "web"}), &door).await;
    serving.netsurgeon(&serving.apply_words()).expect(6);
    shadows_are_refused(&serving, "a-door").await;
    let client = json!({"spec": {"selector": {"app": "client"}}});
    serving.cluster.api.merge(&path("a-door"), &client).await;
    for _ in 0..2 {
        let stuck = serving.netsurgeon("renumber rollback --yes --linger 1").expect(5);
        assert!(stuck.err.contains("default/a-door") && stuck.err.contains("not this one"), "{}", stuck.err);
        assert!(serving.cluster_ip("a-door").await.starts_with("10.200."), "it has not moved back");
        assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    }
    refuse_no_more(&serving).await;
    let digits = digits_of(&serving, "a-door").await;
    wait_until("the policy is removed", DEADLINE, async || tries_shadow(&serving, &digits).await).await;
    serving.netsurgeon("renumber rollback --yes --linger 1").expect(0);
    assert_eq!(serving.cluster_ip("a-door").await, "10.96.2.1");
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// After the flags no Service gets an address of the old range, although old addresses are held. A rollback opens the old range
/// again, and a Service that is created there does not prevent `retire`.
#[tokio::test]
async fn old_range_is_closed_after_the_flags_and_opened_by_a_rollback() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let operation = serving.apply("").await;
    let probe = serving.probe(&old).await;
    let born = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("born-{number}"), "namespace": "default"}, "spec": {"ports": [{"port": 80}]},
        })
    };
    for number in 0..30 {
        let made = serving.cluster.api.create(&born(number)).await;
        let address = made["spec"]["clusterIP"].as_str().unwrap_or_default().to_string();
        assert!(address.starts_with("10.200."), "{address}");
    }
    serving.restart_with("10.96.0.0/16").await;
    let back = serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    says(&back.err, &["30 Services", "`10.200.0.0/16`", "`default/born-"]);
    serving.assert_unbroken(&probe.stop(), &old);
    let again = serving.netsurgeon("renumber plan --to 10.200.0.0/16").expect(1);
    says(&again.err, &["30 Services", "`default/born-0`"]);
    for number in 0..30 {
        serving.cluster.api.delete(&path(&format!("born-{number}"))).await;
    }
    let made = serving.cluster.api.create(&born(30)).await;
    let address = made["spec"]["clusterIP"].as_str().unwrap_or_default().to_string();
    assert!(address.starts_with("10.96."), "{address}");
    serving.wait_for_one_range().await;
    std::fs::remove_file(serving.cluster.directory().join("before.db"))
        .expect("the snapshot of the first one");
    let again = serving.apply("").await;
    assert_ne!(again, operation);
    serving.netsurgeon(&format!("renumber retire --without-evidence --yes {ENDING}")).expect(0);
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// Fields that owners change while old addresses are held, and their values after `retire`.
#[tokio::test]
async fn retire_keeps_fields_that_owners_changed() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.apply("").await;
    let api = &serving.cluster.api;
    let own = "203.0.113.7";
    let change = async |name: &str, spec: Value| drop(api.merge(&path(name), &json!({"spec": spec})).await);
    change("web-1", json!({"externalIPs": ["10.96.1.2", own]})).await;
    change("web-2", json!({"externalIPs": [own], "externalTrafficPolicy": "Cluster"})).await;
    change("web-3", json!({"type": "NodePort", "externalTrafficPolicy": "Local"})).await;
    change("web-4", json!({"type": "LoadBalancer"})).await;
    let seen = serving.netsurgeon("renumber guard --once").expect(3);
    assert!(seen.err.contains("web-2") || seen.out.contains("web-2"), "{}{}", seen.out, seen.err);
    serving.netsurgeon(&format!("renumber retire --without-evidence --yes {ENDING}")).expect(0);
    let spec = async |name: &str| api.get(&path(name)).await["spec"].clone();
    assert_eq!(spec("web-1").await["externalIPs"], json!([own]));
    assert_eq!(spec("web-1").await["externalTrafficPolicy"], "Cluster");
    assert_eq!(spec("web-2").await["externalIPs"], json!([own]));
    assert_eq!(spec("web-3").await["externalTrafficPolicy"], "Local", "its owner set it");
    assert_eq!(spec("web-4").await["externalIPs"], Value::Null);
    // The owner of each can still update it.
    for name in ["web-1", "web-2", "web-3", "web-4"] {
        change(name, json!({"sessionAffinity": "ClientIP"})).await;
    }
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// Services of the first batch of ten, with their old addresses.
const FIRST: [(&str, &str); 6] = [
    ("a-door", "10.96.2.1"),
    ("web-1", "10.96.1.2"),
    ("web-10", "10.96.1.11"),
    ("web-11", "10.96.1.12"),
    ("web-13", "10.96.1.14"),
    ("web-12", "10.96.1.13"),
];
/// The Services that move.
const MOVING: usize = 5;

/// Starts, and is killed while the first batch waits for its nodes: the prewarmed Services have not moved.
async fn killed_before_the_first_flip(serving: &mut Serving, words: &str, prewarmed: usize) {
    let mut running = serving.start_netsurgeon(words);
    serving.wait_for_records(&mut running, "reserve", 1).await;
    serving.proxies[1].pause();
    serving.wait_for_records(&mut running, "prewarm", prewarmed).await;
    drop(running);
    serving.proxies[1].resume();
}

/// Changes by owners between the prewarming of these Services and their move: each Service is planned again.
async fn change_the_first_batch(serving: &Serving) {
    let change = async |name: &str, spec: Value| {
        drop(serving.cluster.api.merge(&path(name), &json!({"spec": spec})).await);
    };
    let shadow = shadow_of(serving, "a-door", "hold").await.expect("the shadow exists");
    let shadow = path(shadow["metadata"]["name"].as_str().expect("a name"));
    // A client with enough permissions can delete the shadow by force.
    serving.cluster.api.merge(&shadow, &json!({"metadata": {"finalizers": null}})).await;
    serving.cluster.api.delete(&shadow).await;
    // Clients replace the Service by their own version; two of them want other values now.
    change("web-13", json!({"externalTrafficPolicy": "Cluster"})).await;
    change("web-1", json!({"externalIPs": null, "externalTrafficPolicy": null})).await;
    let listed = serving.cluster.api.get(&path("web-10")).await["spec"]["externalIPs"].clone();
    let first = listed[0].as_str().expect("it is prewarmed").to_string();
    change("web-10", json!({"externalIPs": [first, "203.0.113.7"]})).await;
    change("web-11", json!({"type": "NodePort"})).await;
    change("web-12", external_name()).await;
}

/// The fields that make a Service an ExternalName.
pub fn external_name() -> Value {
    json!({
        "type": "ExternalName", "externalName": "else.where", "clusterIP": null, "clusterIPs": null,
        "externalIPs": null, "externalTrafficPolicy": null, "ipFamilies": null, "ipFamilyPolicy": null,
        "internalTrafficPolicy": null,
    })
}

/// Starts, up to the first batch, which comes after the flags in the bitmap era. So many Services of the batch are prewarmed:
/// shadows hold the others.
pub async fn begun_and_killed(serving: &mut Serving, era: Era, prewarmed: usize) {
    let words = format!("{} --lock-ttl 2", serving.apply_words());
    if era == Era::Bitmap {
        serving.netsurgeon(&words).expect(6);
        serving.restart_with("10.200.0.0/16").await;
        let operation = serving.journals().remove(0);
        let resume = format!("operation resume {operation} --confirm flags --lock-ttl 2");
        killed_before_the_first_flip(serving, &resume, prewarmed).await;
    } else {
        killed_before_the_first_flip(serving, &words, prewarmed).await;
    }
}

/// The Services of the first batch change before they move. The operation continues without help, each old address answers all
/// the time, and the end, or a rollback, leaves every Service as its owner wants it.
async fn changed_before_they_move(era: Era) {
    // Without holds by external IPs there is no prewarming by them: nftables of Kubernetes 1.32.
    let mode = if era == Era::Bitmap { ProxyMode::Iptables } else { ProxyMode::Nftables };
    let mut serving = Serving::start(era, mode).await;
    let door = json!({"type": "NodePort", "clusterIP": "10.96.2.1"});
    serving.cluster.create_echo_service("a-door", &json!({"app": "web"}), &door).await;
    let targets: Vec<Target> = FIRST[..MOVING].iter().map(|(_, address)| Target::tcp(address, 80)).collect();
    begun_and_killed(&mut serving, era, 9).await;
    let probe = serving.probe(&targets).await;
    change_the_first_batch(&serving).await;
    let operation = serving.journals().remove(0);
    // The exit status reports the one Service that cannot move.
    let resumed = if era == Era::Bitmap {
        serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(3)
    } else {
        let first = serving.netsurgeon(&format!("operation resume {operation}")).expect(6);
        serving.restart_with("10.200.0.0/16").await;
        serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(3);
        first
    };
    for (name, _) in &FIRST[..MOVING] {
        assert!(resumed.err.contains(&format!("default/{name}: planned again: ")), "{}", resumed.err);
        let address = serving.cluster_ip(name).await;
        assert!(address.starts_with("10.200."), "{name}: {address}");
    }
    says(&resumed.err, &["default/web-12", "skipped"]);
    let verified = serving.netsurgeon("renumber verify -o json").expect(3).json();
    let findings = verified["findings"].as_array().expect("a list");
    assert!(findings.len() == 1 && findings[0]["code"] == "moved-service-gone", "{findings:?}");
    serving.netsurgeon("renumber guard --once").expect(0);
    let report = probe.stop();
    println!("{report}");
    assert!(report.failures().is_empty(), "{report}");
    if era == Era::DualWrite {
        serving.retire();
    } else {
        back(&mut serving, era, &targets).await;
    }
    let spec = async |name: &str| serving.cluster.api.get(&path(name)).await["spec"].clone();
    let range = if era == Era::DualWrite { "10.200." } else { "10.96." };
    for (name, _) in &FIRST[..MOVING] {
        let address = serving.cluster_ip(name).await;
        assert!(address.starts_with(range), "{name}: {address}");
    }
    for name in ["web-1", "web-13"] {
        let found = spec(name).await;
        assert_eq!((&found["externalIPs"], &found["externalTrafficPolicy"]), (&Value::Null, &Value::Null));
    }
    assert_eq!(spec("web-10").await["externalIPs"], json!(["203.0.113.7"]));
    assert_eq!(spec("web-10").await["externalTrafficPolicy"], "Cluster");
    assert_eq!(spec("web-11").await["type"], "NodePort");
    assert_eq!(spec("web-12").await["type"], "ExternalName");
    if era != Era::Bitmap {
        serving.wait_for_one_range().await;
    }
    serving.assert_clean();
}

/// Rolls back while clients use the old addresses.
async fn back(serving: &mut Serving, era: Era, targets: &[Target]) {
    let probe = serving.probe(targets).await;
    let back = "renumber rollback --yes --linger 1";
    // In the bitmap era the flags change after the Services have moved back.
    if era == Era::Bitmap {
        serving.netsurgeon(back).expect(6);
    }
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon(&format!("{back} --confirm flags")).expect(0);
    let report = probe.stop();
    println!("{report}");
    assert!(report.failures().is_empty(), "{report}");
}

#[tokio::test]
async fn services_that_change_before_they_move_are_planned_again() {
    Box::pin(changed_before_they_move(Era::Objects)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn services_that_change_before_they_move_are_planned_again_under_dual_write() {
    Box::pin(changed_before_they_move(Era::DualWrite)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn services_that_change_before_they_move_are_planned_again_in_the_bitmap_era() {
    Box::pin(changed_before_they_move(Era::Bitmap)).await;
}

/// In the bitmap era addresses are reserved batch by batch, after the flags. A Service that is created on a planned address keeps
/// it, and is named; the other Service gets another address.
#[tokio::test]
async fn service_whose_new_address_is_taken_is_planned_again() {
    let mut serving = Serving::start(Era::Bitmap, ProxyMode::Nftables).await;
    let old = Serving::targets();
    serving.netsurgeon(&serving.apply_words()).expect(6);
    let operation = serving.journals().remove(0);
    serving.restart_with("10.200.0.0/16").await;
    let born = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "born", "namespace": "default"},
        "spec": {"clusterIP": "10.200.1.2", "ports": [{"port": 80}]},
    });
    serving.cluster.api.create(&born).await;
    let probe = serving.probe(&old).await;
    let resumed = serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    says(&resumed.err, &["default/web-1:", "`10.200.1.2`", "`default/born`"]);
    assert_eq!(serving.cluster_ip("born").await, "10.200.1.2");
    let moved = serving.cluster_ip("web-1").await;
    assert!(moved.starts_with("10.200.") && moved != "10.200.1.2", "{moved}");
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
    serving.retire();
    serving.assert_clean();
}

/// A ServiceCIDR that another client created is kept: its owner deletes it after the flags, and a rollback asks to create it
/// again.
#[tokio::test]
async fn other_ranges_are_left_to_their_owners() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let all = "/apis/networking.k8s.io/v1/servicecidrs";
    let extra = |name: &str| json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    serving.cluster.api.create(&extra("extra")).await;
    wait_until("the ServiceCIDR allocates addresses", DEADLINE, async || {
        let spec = json!({"clusterIP": "10.97.0.7", "selector": {"app": "web"}, "ports": [{"port": 80}]});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "there", "namespace": "default"}, "spec": spec});
        serving.cluster.api.try_create(&service).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    serving.netsurgeon(&serving.apply_words()).expect(6);
    serving.restart_with("10.200.0.0/16").await;
    let operation = serving.journals().remove(0);
    let paused = serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(6);
    says(&paused.err, &["`other-ranges`", "`kubectl delete servicecidr --wait=false extra`"]);
    says(&paused.err, &["other-ranges: ", "ServiceCIDR `extra`"]);
    says(&paused.err, &["paused: ", "`other-ranges`"]);
    serving.cluster.api.delete(&format!("{all}/extra")).await;
    let resumed = serving.netsurgeon(&format!("operation resume {operation}")).expect(0);
    says(&resumed.err, &["other-ranges: ", "verified"]);
    assert!(serving.cluster_ip("there").await.starts_with("10.200."));

    let paused = serving.netsurgeon("renumber rollback --yes --linger 0").expect(6);
    says(&paused.err, &["paused: ", "`other-ranges`"]);
    says(&paused.err, &["other-ranges: ", "ServiceCIDR", "`10.97.0.0/24`"]);
    serving.cluster.api.create(&extra("extra-again")).await;
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon("renumber rollback --yes --linger 0 --confirm flags").expect(0);
    assert_eq!(serving.cluster_ip("there").await, "10.97.0.7");
    wait_until("two ServiceCIDRs are left", DEADLINE, async || {
        let left = serving.cluster.api.list(all).await.len();
        if left == 2 { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    serving.assert_clean();
}
