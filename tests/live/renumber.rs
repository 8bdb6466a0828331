//! A renumbering under traffic that does not run straight to its end: rolled back, killed and resumed.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::rig::run::{has_line, says};
use super::serving_cluster::{DEADLINE, NEW_RANGE, SERVICES, Serving, lines_of};

#[tokio::test]
async fn rollback_keeps_changes_of_other_clients() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Iptables).await;
    let old = Serving::targets();
    let node_port = json!({"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]});
    serving.cluster.api.create_service("default", "doors", node_port).await;
    let probe = serving.probe(&old).await;
    serving.apply("").await;
    // An external IP holds one of them, a shadow the other.
    for deleted in ["web-4", "doors"] {
        serving.cluster.api.delete(&format!("/api/v1/namespaces/default/services/{deleted}")).await;
    }
    let path = "/api/v1/namespaces/default/services/web-3";
    serving.cluster.api.merge(path, &json!({"metadata": {"labels": {"release": "2026.3"}}})).await;
    serving.restart_with("10.96.0.0/16").await;
    let rolled_back = serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    for deleted in ["web-4", "doors"] {
        says(&rolled_back.err, &[&format!("default/{deleted} "), "deleted"]);
    }
    let report = probe.stop();
    serving.assert_unbroken(&report, &old);
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    assert_eq!(serving.cluster_ip("kubernetes").await, "10.96.0.1");
    let labelled = serving.cluster.api.get(path).await;
    assert_eq!(labelled["metadata"]["labels"]["release"], "2026.3");
    assert_eq!(labelled["spec"]["externalIPs"], Value::Null, "{labelled}");
    serving.wait_for_one_range().await;
    serving.assert_clean();
    let mut keys = serving.cluster.etcd.keys("/registry/services/specs/").await;
    keys.extend(serving.cluster.etcd.keys("/registry/ipaddresses/").await);
    assert!(!keys.iter().any(|key| key.contains("netsurgeon-") || key.contains("/10.200.")), "{keys:?}");
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation forget {operation}")).expect(0);
    assert_eq!(serving.cluster.etcd.keys("/netsurgeon/").await, Vec::<String>::new());
}

/// A client that resolved a name just before its Service moved back still reaches the new address. The Services are one that its
/// external IP holds and one that a shadow holds, in the first batch and in the last.
#[tokio::test]
async fn rollback_serves_clients_with_cached_new_addresses() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let ports = json!({"type": "NodePort", "clusterIP": "10.96.1.200"});
    serving.cluster.create_echo_service("doors", &json!({"app": "web"}), &ports).await;
    serving.apply("").await;
    let addresses = ["0.5", "1.1", "1.7", "1.24", "1.200"];
    let new = addresses.map(|address| Target::tcp(&format!("10.200.{address}"), 80));
    let old = addresses.map(|address| Target::tcp(&format!("10.96.{address}"), 80));
    let (remembering, asking_anew) = (serving.probe(&new).await, serving.probe(&old).await);
    serving.restart_with("10.96.0.0/16").await;
    let mut running = serving.start_netsurgeon("renumber rollback --yes --linger 600 --confirm flags");
    serving.wait_for_undone(&mut running, SERVICES + 3).await;
    remembering.wait_for_attempts(new[0], 200, DEADLINE).await;
    let remembered = remembering.stop();
    serving.assert_unbroken(&remembered, &new);
    wait_until("the rollback lingers", DEADLINE, async || {
        let said = lines_of(&running.err);
        let lingers = said.iter().any(|line| has_line(line, &["600 s", "`--linger`"]));
        if lingers { Ok(()) } else { Err(format!("{:?}", said.last())) }
    })
    .await;
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    assert_eq!(
        (&status["status"], &status["direction"]),
        (&json!("rolling-back"), &json!("back")),
        "{status}"
    );
    // The operator ends the linger early.
    running.signal(Signal::INT);
    assert_eq!(running.end().await, 6, "{:?}", lines_of(&running.err));
    let paused = paused_line(&lines_of(&running.err).join("\n"));
    says(&paused, &[" Services ", "`netsurgeon operation rollback "]);
    serving.netsurgeon("renumber rollback --yes --linger 0 --confirm flags").expect(0);
    serving.assert_unbroken(&asking_anew.stop(), &old);
    let gone = serving.client.probe(&new);
    for target in new {
        gone.wait_for_failure(target, DEADLINE).await;
    }
}

/// Deletes the IPAddress objects of the allocator that their Services do not list, as a repair loop does that has not observed
/// their date. Returns how many there were. An IPAddress without a Service stays, as in a repair loop during its grace period: a
/// killed process can leave an API server behind that is still creating or deleting a Service of a barrier.
async fn repair(serving: &Serving) -> usize {
    let api = &serving.cluster.api;
    let (path, mut count) = ("/apis/networking.k8s.io/v1/ipaddresses", 0);
    for object in api.list(path).await {
        let (name, parent) =
            (object["metadata"]["name"].as_str().expect("a name"), &object["spec"]["parentRef"]);
        let is_allocators =
            object["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"] == "ipallocator.k8s.io";
        let (namespace, service) = (parent["namespace"].as_str(), parent["name"].as_str());
        let service = format!(
            "/api/v1/namespaces/{}/services/{}",
            namespace.expect("a namespace"),
            service.expect("a name")
        );
        let Some(service) = api.find(&service).await else { continue };
        if is_allocators && service["spec"]["clusterIP"] != name {
            api.delete(&format!("{path}/{name}")).await;
            count += 1;
        }
    }
    count
}

/// Killed before the flips, and again while the old addresses are held.
#[tokio::test]
async fn resume_and_rollback_recreate_ip_addresses_that_a_repair_loop_deleted() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let mut dying = serving.start_netsurgeon(&format!("{} --lock-ttl 2 --rate 20", serving.apply_words()));
    serving.wait_for_records(&mut dying, "date", 10).await;
    drop(dying);
    assert!(repair(&serving).await > 0, "IPAddresses without a Service existed before the flips");
    let operation = serving.journals().remove(0);
    let words = format!("operation resume {operation} --take-over --confirm certificates");
    let resumed = serving.netsurgeon(&words).expect(6);
    says(&resumed.err, &["IPAddress", "recreated"]);
    serving.restart_with(NEW_RANGE).await;
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    serving.netsurgeon("renumber verify").expect(0);

    serving.restart_with("10.96.0.0/16").await;
    assert!(repair(&serving).await > 0, "old addresses are held");
    let undone = serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    says(&undone.err, &["IPAddress", "recreated"]);
    serving.assert_unbroken(&probe.stop(), &old);
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// The deploy lock does not affect netsurgeon: writes of the same user through the API and in etcd continue.
#[tokio::test]
async fn deploy_lock_does_not_block_a_renumbering() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.netsurgeon("lock --what all --operation renumbering --reason renumbering").expect(0);
    let dev = serving.cluster.api_as(0, "dev", Some("system:masters")).await;
    let name = json!({"name": "new", "namespace": "default"});
    let new =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": {"ports": [{"port": 80}]}});
    let refused = dev.try_create(&new).await.expect_err("the cluster is locked");
    says(&refused.to_string(), &["user dev ", "create services", "`netsurgeon unlock`"]);

    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    serving.apply("").await;
    let report = probe.stop();
    serving.assert_unbroken(&report, &old);
    let confirmed = "--confirm soak --confirm certificates-after";
    serving.netsurgeon(&format!("renumber retire --without-evidence --yes {confirmed}")).expect(0);
    assert!(dev.try_create(&new).await.is_err(), "the cluster is still locked");
    serving.netsurgeon("unlock").expect(0);
    dev.create(&new).await;
    serving.assert_clean();
}

/// Killed at random instants and resumed from another folder, until it is complete.
#[tokio::test]
async fn killed_renumber_is_resumed_to_its_end() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    // Slow enough for a test that counts its records.
    let slowly = "--lock-ttl 2 --rate 60";
    let mut words = format!("{} {slowly}", serving.apply_words());
    let mut kills = 0;
    // The first three keys are the lock, the plan and the record that creates the operation.
    while serving.kill_after(&words, 3 + 4 * kills).await {
        kills += 1;
        let (journals, confirmed) = (serving.journals(), "--confirm snapshot --confirm certificates");
        words = format!("operation resume {} --take-over {slowly} {confirmed}", journals[0]);
    }
    println!("killed {kills} times");
    assert!(kills > 5, "{kills}");
    serving.restart_with(NEW_RANGE).await;
    serving.netsurgeon(&format!("{words} --confirm flags")).expect(0);
    let report = probe.stop();
    serving.assert_unbroken(&report, &old);
    serving.netsurgeon("renumber verify").expect(0);
}

/// The API servers are down: refused while one answers, and a recent Lease is reported. Then every Service gets its old address
/// in etcd, and clients do not notice it, neither before an API server starts nor after; then the rest of the rollback follows.
async fn rolled_back_without_an_api_server(era: Era, mode: ProxyMode) {
    let mut serving = Serving::start(era, mode).await;
    let ports = json!({"type": "NodePort", "clusterIP": "10.96.1.200"});
    serving.cluster.create_echo_service("doors", &json!({"app": "web"}), &ports).await;
    let operation = serving.apply("").await;
    let old = ["0.5", "1.1", "1.7", "1.200"].map(|address| Target::tcp(&format!("10.96.{address}"), 80));
    let probe = serving.probe(&old).await;
    let back = "renumber rollback --yes --without-api 1";
    let refused = serving.netsurgeon(back).expect(1);
    says(&refused.err, &["`--without-api`"]);
    serving.cluster.pause_api_server(0);
    let asks = serving.netsurgeon("renumber rollback --without-api 1").expect(1);
    says(&asks.err, &["1 API server ", "15 s"]);
    serving.cluster.resume_api_server(0);
    serving.cluster.stop_api_servers();
    let paused = serving.netsurgeon(back).expect(6);
    let go_on = format!("`netsurgeon operation rollback {operation}`");
    says(&paused.err, &[&go_on]);
    assert!(!has_line(&paused.err, &["API server", "15 s"]), "no Lease is left: {}", paused.err);
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    assert_eq!(status["held"], 0, "every Service has its old address: {status}");
    if era != Era::Bitmap {
        serving.cluster.set_service_cidrs("10.96.0.0/16");
    }
    serving.cluster.start_api_servers().await;
    for (name, address) in [("web", "10.96.0.5"), ("doors", "10.96.1.200"), ("kubernetes", "10.96.0.1")] {
        assert_eq!(serving.cluster_ip(name).await, address, "{name}");
    }
    if era == Era::Bitmap {
        serving.netsurgeon("renumber rollback --yes --linger 1").expect(6);
        serving.restart_with("10.96.0.0/16").await;
    }
    serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
    if era != Era::Bitmap {
        serving.wait_for_one_range().await;
    }
    serving.assert_clean();
}

#[tokio::test]
async fn rollback_works_without_an_api_server() {
    rolled_back_without_an_api_server(Era::Objects, ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn rollback_works_without_an_api_server_in_the_bitmap_era() {
    rolled_back_without_an_api_server(Era::Bitmap, ProxyMode::Iptables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn rollback_works_without_an_api_server_under_dual_write() {
    rolled_back_without_an_api_server(Era::DualWrite, ProxyMode::Iptables).await;
}

/// The one line that says where the operation paused; it is not an error.
fn paused_line(err: &str) -> String {
    let lines: Vec<&str> = err.lines().filter(|line| line.starts_with("paused: ")).collect();
    assert!(lines.len() == 1 && !err.contains("error:"), "once, and not as an error: {err}");
    lines[0].to_owned()
}

/// The command that a pause names, without the name of the program.
fn named(err: &str) -> String {
    let paused = paused_line(err);
    let command = paused.rsplit_once("`netsurgeon ").expect("a command").1;
    command.trim_end_matches('`').to_owned()
}

/// The status of an operation; every command shows the same.
fn status(serving: &Serving) -> Value {
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    let operation = status["operation"].as_str().expect("an id");
    let listed = serving.netsurgeon("operation list -o json").expect(0).json();
    let shown = serving.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
    for other in [&listed["operations"][0], &shown] {
        assert_eq!(other["status"], status["status"], "{other}");
        assert_eq!(other["manual_step"], status["manual_step"], "{other}");
    }
    assert_eq!(shown["next"], status["next"]);
    status
}

const STORED: &str = "/registry/services/specs/default/";

/// Stores a copy of a Service as `late` with an address of the old range, as an API server does that has not observed yet that
/// the range is closed.
async fn store_in_the_old_range(serving: &Serving, stored: &[u8]) {
    let mut late = stored.to_vec();
    for (from, to) in [("web-1", "late1"), ("10.96.1.2", "10.96.8.8")] {
        let starts: Vec<usize> =
            (0..late.len()).filter(|at| late[*at..].starts_with(from.as_bytes())).collect();
        assert!(!starts.is_empty(), "{from} is stored");
        for at in starts {
            late[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
    }
    serving.cluster.etcd.put(&format!("{STORED}late1"), late).await;
}

/// Each pause is printed once, not as an error, and its command continues, up to the end.
#[tokio::test]
async fn every_pause_names_the_command_that_continues() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let stored = serving.cluster.etcd.get(&format!("{STORED}web-1")).await.expect("the Service is stored");
    let apply = format!("{} --until +1s --pause 1", serving.apply_words());
    let until = serving.netsurgeon(&apply).expect(6);
    says(&paused_line(&until.err), &["10 of 26 Services", "`until`"]);
    says(&until.err, &["hint: ", "`netsurgeon operation rollback "]);
    assert_eq!(status(&serving)["status"], "paused");

    let flags = serving.netsurgeon(&named(&until.err)).expect(6);
    says(&paused_line(&flags.err), &["26 of 26 Services", "`flags`"]);
    let stands = status(&serving);
    assert_eq!(
        (&stands["status"], &stands["manual_step"]),
        (&json!("waiting-for-manual-step"), &json!("flags"))
    );
    assert_eq!(stands["next"], format!("netsurgeon {}", named(&flags.err)));
    serving.restart_with(NEW_RANGE).await;
    serving.netsurgeon(&named(&flags.err)).expect(0);
    let stands = status(&serving);
    assert_eq!(stands["status"], "soaking");
    says(stands["next"].as_str().expect("a command"), &["renumber retire"]);

    store_in_the_old_range(&serving, &stored).await;
    let resume = status(&serving)["next"].as_str().expect("a command").to_owned();
    says(&resume, &["netsurgeon operation resume "]);
    let resumed = serving.netsurgeon(resume.trim_start_matches("netsurgeon ")).expect(0);
    says(&resumed.err, &["renumber retire"]);
    assert!(serving.cluster_ip("late1").await.starts_with("10.200."));

    let soak = serving.netsurgeon("renumber retire --without-evidence --yes --confirm cluster-dns").expect(6);
    says(&soak.err, &["hint: ", "`netsurgeon operation rollback "]);
    let operation = serving.journals().remove(0);
    let early = serving.netsurgeon(&format!("operation resume {operation} --confirm soak")).expect(0);
    says(&early.err, &["`--confirm soak`", "`renumber retire`"]);
    let mut retiring = serving.start_netsurgeon(&format!("{} --rate 2", named(&soak.err)));
    serving.wait_for_records(&mut retiring, "retire", 2).await;
    retiring.signal(Signal::INT);
    assert_eq!(retiring.end().await, 6, "{:?}", lines_of(&retiring.err));
    let last = lines_of(&retiring.err).join("\n");
    says(&paused_line(&last), &[" of 27 Services", "`netsurgeon renumber retire "]);
    assert!(!last.contains("rollback"), "{last}");
    let refused = serving.netsurgeon(&format!("operation rollback {operation} --yes")).expect(1);
    says(&refused.err, &["point of no return"]);
    says(&refused.err, &[&format!("`netsurgeon operation resume {operation}`")]);
    serving.netsurgeon(&named(&last)).expect(0);
    serving.assert_clean();
}

/// A rollback prints its steps in advance, and asks for the old range only.
#[tokio::test]
async fn rollback_prints_its_steps_and_asks_for_the_old_range() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.apply("").await;
    let paused = serving.netsurgeon("renumber rollback --yes --linger 0").expect(6);
    let refused = serving.netsurgeon("renumber retire --quiet-for 60 --yes").expect(1);
    says(&refused.err, &["hint: ", "`netsurgeon operation rollback ", " --confirm flags`"]);
    let asked: Vec<&str> = paused.err.lines().filter(|line| line.contains("manual step `flags`")).collect();
    assert!(asked.len() >= 3, "the plan, the step and the pause: {asked:?}");
    assert!(asked.iter().all(|line| !line.contains(NEW_RANGE)), "{asked:?}");
    says(&paused.err, &["26 Services", "10.200.0.0/16 to 10.96.0.0/16"]);
    let words = serving.netsurgeon("renumber status").expect(0).out;
    let status = status(&serving);
    let stands = ["status", "manual_step", "direction"].map(|field| status[field].clone());
    assert_eq!(stands, [json!("waiting-for-manual-step"), json!("flags"), json!("back")], "{status}");
    says(&words, &["back: ", "API server", "`10.96.0.0/16`"]);
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon(&named(&paused.err)).expect(0);
    serving.wait_for_one_range().await;
    serving.assert_clean();
}
