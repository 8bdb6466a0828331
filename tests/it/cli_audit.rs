//! `audit` on snapshots of etcd that real API servers filled, and on files and processes of this machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use netsurgeon::audit::places::PLACES;
use serde_json::Value;

use crate::program::{run, tell};

/// The fixtures and the ranges of their Services.
const FIXTURES: [(&str, &str); 5] = [
    ("objects", "--old 10.96.0.0/16"),
    ("dualwrite", "--old 10.96.0.0/16"),
    ("bitmap", "--old 10.96.0.0/16"),
    ("json", "--old 10.96.0.0/16"),
    ("dualstack", "--old 10.96.0.0/16 --old fd00:10:96::/112"),
];

fn audit(fixture: &str, old: &str) -> (i32, Value) {
    let output = run(&format!("audit {old} --snapshot testdata/{fixture}.snapshot.db -o json"));
    let code = output.status.code().expect("a status");
    (
        code,
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{fixture}: {error}: {output:?}")),
    )
}

fn findings(told: &Value) -> &[Value] {
    told["findings"].as_array().expect("a list")
}

fn text<'a>(finding: &'a Value, member: &str) -> &'a str {
    finding[member].as_str().unwrap_or_default()
}

#[test]
fn all_service_addresses_are_found_in_every_era() {
    for (fixture, old) in FIXTURES {
        let (code, told) = audit(fixture, old);
        assert_eq!(code, 3, "{fixture}");
        let services =
            run(&format!("inspect list --kind Service --snapshot testdata/{fixture}.snapshot.db -o json"));
        assert!(services.status.success(), "{services:?}");
        let plan = run(&format!(
            "renumber plan --to 10.200.0.0/16 --snapshot testdata/{fixture}.snapshot.db -o json"
        ));
        let plan: Value = serde_json::from_slice(&plan.stdout).expect("a plan");
        let is_of = |place: &str, path: &str, name: &str, found: &str| {
            findings(&told).iter().any(|finding| {
                text(finding, "place") == place
                    && text(finding, "path") == path
                    && text(finding, "name") == name
                    && text(finding, "found") == found
            })
        };
        let moves = plan["moves"].as_array().expect("moves");
        assert!(moves.len() > 8, "{fixture}");
        for candidate in moves {
            let (name, address) =
                (text(candidate, "name"), candidate["old"][0].as_str().expect("an address"));
            assert!(is_of("service-address", "spec.clusterIP", name, address), "{fixture}: {candidate}");
            assert!(is_of("service-address", "spec.clusterIPs[0]", name, address), "{fixture}: {candidate}");
        }
        let places: BTreeSet<&str> = findings(&told).iter().map(|finding| text(finding, "place")).collect();
        let records: &[&str] = match fixture {
            "bitmap" => &["range-allocation"],
            "dualwrite" => &["range-allocation", "ip-address-object", "service-cidr"],
            _ => &["ip-address-object", "service-cidr"],
        };
        for place in records {
            assert!(places.contains(place), "{fixture}: {places:?}");
        }
        assert!(places.contains("kubeadm-config") || fixture == "dualstack", "{fixture}: {places:?}");
        assert!(!places.contains("other"), "{fixture}: an unknown place: {told:#}");
        assert_eq!(told["pods_looked_at"], false);
    }
}

#[test]
fn unused_range_has_no_findings() {
    for (fixture, _) in FIXTURES {
        let (code, told) = audit(fixture, "--old 10.201.0.0/16 --old fd00:dead::/112");
        assert_eq!((code, findings(&told).len()), (0, 0), "{fixture}: {told:#}");
        assert!(told["objects"].as_u64().is_some_and(|count| count > 50), "{fixture}: {told:#}");
    }
}

#[test]
fn table_contains_remedies() {
    let told = tell("audit --old 10.96.0.10/32 --snapshot testdata/objects.snapshot.db");
    assert!(
        told.contains("breaks-at-retirement (") && told.contains("service-address: the Service itself"),
        "{told}"
    );
    assert!(
        told.contains("Service kube-system/kube-dns") && told.contains("remedy: move the Service"),
        "{told}"
    );
    assert!(
        told.contains("note: Pods that started before their Services moved were not checked")
            && told.ends_with("--- exit status 3"),
        "{told}"
    );
}

/// Before a move there is nothing to do for the addresses of Services, nor for the objects that netsurgeon edits.
#[test]
fn places_that_the_move_changes_are_one_table() {
    for (fixture, old) in FIXTURES {
        let (_, told) = audit(fixture, old);
        let is_changed = |finding: &Value| finding["changed_by_move"] == true;
        let of_services =
            ["service-address", "ip-address-object", "service-cidr", "range-allocation", "kubelet-config"];
        for finding in findings(&told) {
            let is_record = of_services.contains(&text(finding, "place"));
            assert!(is_changed(finding) || !is_record, "{fixture}: {finding}");
            assert_eq!(
                is_changed(finding),
                text(finding, "remedy").contains("changes this place itself"),
                "{finding}"
            );
        }
        let table = tell(&format!("audit {old} --snapshot testdata/{fixture}.snapshot.db"));
        assert!(table.contains("changed by the renumbering itself (nothing to do"), "{fixture}: {table}");
        for instruction in ["edit configmap", "service-address: ", "ranges rewrite", "renumber retire"] {
            assert!(!table.contains(instruction), "{fixture}: {instruction}: {table}");
        }
        let own = findings(&told).iter().filter(|finding| !is_changed(finding)).count();
        assert!(own == 0 || table.contains(&format!("; {own} finding")), "{fixture}: {own}: {table}");
    }
    // No component allocates from a single address, so no move of it is ahead.
    let (_, told) = audit("objects", "--old 10.96.0.10/32");
    assert!(findings(&told).iter().all(|finding| finding["changed_by_move"].is_null()), "{told:#}");
}

#[test]
fn wrong_usage_is_reported() {
    assert!(tell("audit --old 10.96.0.1/16 --host").contains("is not a network address"));
    assert!(tell("audit --host").contains("--old <CIDR>"));
    assert!(tell("audit --old 10.96.0.0/16 --root /x").contains("--host"));
    assert!(tell("audit --old 10.96.0.0/16 --host --snapshot x").contains("cannot be used with"));
    let told =
        tell("audit --old 10.96.0.0/16 --etcd-prefix /nothing --snapshot testdata/objects.snapshot.db");
    assert!(told.contains("no keys under the prefix `/nothing`") && told.ends_with("status 1"), "{told}");
}

#[test]
fn every_place_is_documented() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/audit.md"))
        .expect("docs/audit.md");
    for place in PLACES {
        assert!(
            text.contains(&format!("| `{}` |", place.code)),
            "docs/audit.md does not explain `{}`",
            place.code
        );
    }
    let codes: BTreeSet<&str> = PLACES.iter().map(|place| place.code).collect();
    assert_eq!(codes.len(), PLACES.len(), "codes are unique");
}

/// Files of a node: path, content, and the line and the place of the finding.
const FILES: [(&str, &str, u64, &str); 13] = [
    (
        "etc/cni/net.d/calico-kubeconfig",
        "clusters:\n- cluster:\n    server: https://10.96.0.1:443\n",
        3,
        "cni-file",
    ),
    ("etc/cni/net.d/multus.d/multus.kubeconfig", "a: 1\nserver: https://[fd00:96::1]:443\n", 2, "cni-file"),
    ("var/lib/kubelet/config.yaml", "clusterDNS:\n- 10.96.0.10\n", 2, "kubelet-file"),
    (
        "var/lib/kubelet/kubeadm-flags.env",
        "X=1\nKUBELET_KUBEADM_ARGS=\"--cluster-dns=10.96.0.10\"\n",
        2,
        "kubelet-file",
    ),
    ("etc/default/kubelet", "\nKUBELET_EXTRA_ARGS=--cluster-dns=10.96.0.10\n", 2, "kubelet-file"),
    (
        "etc/kubernetes/manifests/kube-apiserver.yaml",
        "a\n    - --service-cluster-ip-range=10.96.0.0/16\n",
        2,
        "static-pod",
    ),
    ("etc/kubernetes/scheduler.conf", "clusters:\n  server: https://10.96.0.1\n", 2, "kubeconfig"),
    (
        "etc/systemd/system/containerd.service.d/http-proxy.conf",
        "[Service]\nEnvironment=\"NO_PROXY=localhost,10.96.0.0/16\"\n",
        2,
        "no-proxy",
    ),
    ("etc/environment", "a=b\nno_proxy=10.96.*\n", 2, "no-proxy"),
    ("etc/resolv.conf", "search x\nnameserver 10.96.0.10\n", 2, "host-resolver"),
    ("etc/dnsmasq.d/cluster.conf", "#\nserver=/cluster.local/10.96.0.10#53\n", 2, "host-resolver"),
    ("etc/rancher/k3s/config.yaml", "a: b\nservice-cidr: \"10.96.0.0/16\"\n", 2, "distribution-file"),
    ("etc/docker/daemon.json", "{\n\"dns\": [\"10.96.0.10\"]}\n", 2, "host-file"),
];

#[test]
fn files_and_processes_of_this_machine_are_checked() {
    let root = tempfile::tempdir().expect("a folder");
    for (path, content, ..) in FILES {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, content).expect("a file");
    }
    // It exits when its stdin is closed.
    let mut process = Command::new("cat")
        .env_clear()
        .env("CART_SERVICE_HOST", "10.96.0.77")
        .env("OTHER", "do-not-tell")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let folder = root.path().display();
    let output = run(&format!("audit --old 10.96.0.0/16 --old fd00:96::/112 --host --root {folder} -o json"));
    let table = tell(&format!("audit --old 10.96.0.0/16 --old fd00:96::/112 --host --root {folder}"));
    let pid = process.id();
    drop(process.stdin.take());
    process.wait().expect("an end");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    for (path, _, line, place) in FILES {
        let those: Vec<&Value> =
            findings(&told).iter().filter(|f| text(f, "file") == format!("/{path}")).collect();
        let [one] = those[..] else { panic!("{path}: {those:?}") };
        assert_eq!((&one["line"], text(one, "place")), (&Value::from(line), place), "{one}");
    }
    let of_process: Vec<&Value> = findings(&told).iter().filter(|f| f["pid"] == pid).collect();
    let [one] = of_process[..] else { panic!("{of_process:?}") };
    assert_eq!(
        (text(one, "process"), text(one, "path"), text(one, "found"), text(one, "place")),
        ("cat", "CART_SERVICE_HOST", "10.96.0.77", "process-environment")
    );
    let all = String::from_utf8_lossy(&output.stdout);
    assert!(!all.contains("do-not-tell") && !table.contains("do-not-tell"));
    assert!(table.contains(&format!("process cat ({pid})")) && table.contains("line 3"), "{table}");
}

/// Every child process inherits its parent's environment, which any user can fill.
#[test]
fn ten_variables_of_a_process_are_listed() {
    let root = tempfile::tempdir().expect("a folder");
    let variables = (0..200).map(|number| (format!("V{number}"), format!("10.96.1.{number}")));
    let mut process = Command::new("cat")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let output = run(&format!("audit --old 10.96.1.0/24 --host --root {} -o json", root.path().display()));
    drop(process.stdin.take());
    process.wait().expect("an end");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let listed = findings(&told).iter().filter(|finding| finding["pid"] == process.id()).count();
    assert_eq!(listed, 10);
    let name = format!("process cat ({})", process.id());
    let keys = told["not_listed"]["keys"].as_array().expect("the objects with more findings");
    assert_eq!(keys.iter().filter(|key| **key == name.as_str()).count(), 1, "{}", told["not_listed"]);
    assert!(told["not_listed"]["count"].as_u64() >= Some(190), "{}", told["not_listed"]);
}

#[test]
fn machine_without_references_has_no_file_findings() {
    let root = tempfile::tempdir().expect("a folder");
    let output = run(&format!("audit --old 10.201.0.0/16 --host --root {} -o json", root.path().display()));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((findings(&told).len(), &told["files"]), (0, &Value::from(0)), "{told:#}");
}
