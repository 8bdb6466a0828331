//! `rehearse` and `renumber plan` from the command line: the README's example, the documented JSON, plan files, and
//! rejected targets.

use std::path::Path;

use serde_json::{Value, json};

use crate::program::{run, run_in, told};

fn json_of(arguments: &str) -> Value {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The first screen of the README shows the real output.
#[test]
fn readme_shows_real_output() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, example) = readme.split_once("```console\n$ netsurgeon ").expect("an example");
    let (command, rest) = example.split_once('\n').unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let printed = String::from_utf8(run(command).stdout).unwrap();
    assert!(printed.starts_with(shown), "the README shows\n{shown}\nbut it is\n{printed}");
}

#[test]
fn rehearsal_json_matches_documentation() {
    for era in ["objects", "dualwrite", "bitmap", "json", "dualstack"] {
        let value = json_of(&format!("rehearse testdata/{era}.snapshot.db --to 10.200.0.0/16 -o json"));
        assert_eq!(value["version"], 1);
        assert_eq!((&value["findings_before"], &value["findings_after"]), (&json!([]), &json!([])), "{era}");
        assert_eq!(value["rollback"], "identical", "{era}");
        let count = |name: &str| value[name].as_u64().unwrap();
        assert_eq!(count("services"), count("moved") + count("skipped"));
        assert!(
            value["external"]
                .as_array()
                .unwrap()
                .iter()
                .all(|e| e["what"].is_string() && e["why"].is_string())
        );
    }
}

#[test]
fn plan_is_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    let arguments = "renumber plan --snapshot testdata/bitmap.snapshot.db --to 10.200.0.0/24 -o json";
    let printed = json_of(&format!("{arguments} --save {}", file.display()));
    let saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(printed, saved);
    assert_eq!(printed["digest"], json_of(arguments)["digest"]);
    let other = json_of("renumber plan --snapshot testdata/bitmap.snapshot.db --to 10.201.0.0/24 -o json");
    assert_ne!(printed["digest"], other["digest"]);
    for one in printed["moves"].as_array().unwrap() {
        for member in ["namespace", "name", "hold"] {
            assert!(one[member].is_string(), "{one}");
        }
        assert_eq!(one["old"].as_array().map(Vec::len), one["new"].as_array().map(Vec::len));
    }
}

/// A file of kubeadm has several documents; a file that cannot be used is an error, not an unknown data plane.
#[test]
fn given_kube_proxy_configuration_is_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cluster =
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n---\n";
    let proxy = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    let snapshot = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/objects.snapshot.db");
    for (content, code, words) in [
        (Some(format!("{cluster}{proxy}mode: ipvs\n")), 1, "kube-proxy runs in mode `ipvs`"),
        (
            Some(format!("{cluster}{proxy}mode: nftables\nclusterCIDR: 10.244.0.0/16\n---\n")),
            0,
            "Services are routed by kube-proxy: nftables, local traffic detected by ClusterCIDR 10.244.0.0/16",
        ),
        (Some(cluster.to_string()), 2, "it contains no KubeProxyConfiguration"),
        (Some(format!("{proxy}---\n{proxy}")), 2, "it contains more than one KubeProxyConfiguration"),
        (Some("kind: [".to_string()), 2, "it is not valid YAML"),
        (None, 1, "cannot read `proxy.yaml`"),
    ] {
        let file = folder.path().join("proxy.yaml");
        match &content {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        for command in ["renumber plan --snapshot", "rehearse"] {
            let arguments = format!("{command} {snapshot} --to 10.200.0.0/16 --kube-proxy-config proxy.yaml");
            let output = run_in(folder.path(), &arguments, b"");
            let said = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{content:?}: {said}");
            assert!(said.contains(words), "{content:?}: {words}: {said}");
        }
    }
}

#[test]
fn invalid_targets_are_rejected() {
    for (to, status, words) in [
        ("10.96.0.0/16", 1, "range is already `10.96.0.0/16`"),
        ("10.0.0.0/8", 1, "overlaps"),
        ("10.244.0.0/20", 1, "overlaps"),
        ("192.0.2.0/24", 1, "of Node `node-1`"),
        ("10.200.0.0/28", 1, "14 free, 25 needed"),
        ("10.200.0.0/30", 1, "at least 8 addresses are needed"),
        ("127.0.0.0/16", 1, "is loopback"),
        ("fd00::/112", 1, "is IPv6, but the cluster's Service range is"),
        (
            "10.200.0.1/16",
            2,
            "is not a network address: the network of that prefix length is `10.200.0.0/16`",
        ),
        ("10.200.0.0", 2, "is not a CIDR"),
    ] {
        for command in
            ["rehearse testdata/objects.snapshot.db", "renumber plan --snapshot testdata/objects.snapshot.db"]
        {
            let output = run(&format!("{command} --to {to}"));
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(status), "{to}: {err}");
            assert!(err.contains(words) && output.stdout.is_empty(), "{to}: {err}");
        }
    }
}
