//! `netsurgeon preflight renumber` on a cluster that is ready, and on the same cluster with one fault after the other.

mod cni;
mod dns;
mod mirror;
mod nodes;
mod objects;
mod security;

use std::path::Path;

use serde_json::{Value, json};

use super::certificates::{self, Hosts};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, NEW_RANGE, Serving, command, run};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Runs checks; returns the exit status, and each check.
fn look(serving: &Serving, words: &str) -> (i32, Vec<Value>) {
    let ran = serving.netsurgeon(&format!("preflight renumber --to {NEW_RANGE} -o json {words}"));
    let shown: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
    (ran.code, shown["checks"].as_array().expect("checks").clone())
}

/// Runs one check, which must fail for a reason.
fn fails(serving: &Serving, name: &str, reason: &[&str]) {
    let (code, checks) = look(serving, &format!("--only {name}"));
    assert_eq!(code, 3);
    let found = checks.iter().find(|check| check["name"] == name).expect("the check is listed");
    assert_eq!(found["verdict"], "fail", "{found}");
    says(found["observed"].as_str().unwrap(), reason);
    assert!(!found["remedy"].as_str().unwrap_or_default().is_empty(), "it has a remedy: {found}");
    assert!(checks.iter().filter(|check| check["verdict"] == "skipped").count() == checks.len() - 1);
}

/// Runs one check.
fn verdict(serving: &Serving, name: &str, words: &str) -> Value {
    let (_, checks) = look(serving, &format!("--only {name} {words}"));
    checks.iter().find(|check| check["name"] == name).expect("the check is listed").clone()
}

/// Runs one check, which must warn for a reason, and have a remedy.
fn warns(serving: &Serving, name: &str, reason: &[&str]) -> Value {
    let found = verdict(serving, name, "");
    assert_eq!(found["verdict"], "warn", "{found}");
    says(found["observed"].as_str().unwrap(), reason);
    assert!(!found["remedy"].as_str().unwrap_or_default().is_empty(), "it has a remedy: {found}");
    found
}

#[tokio::test]
async fn renumber_checks_pass_or_name_the_fault() {
    let (mut serving, hosts) = certificates::start(Era::Objects, ProxyMode::Nftables).await;
    fails(&serving, "certificates", &["`10.200.0.1`"]);
    hosts.reissue(&serving, &format!("--for-cidr {NEW_RANGE}"), &format!("--cidr {NEW_RANGE}"));
    let keys = async |serving: &Serving| {
        let mut keys = serving.cluster.etcd.keys("/registry/services/specs/").await;
        keys.extend(serving.cluster.etcd.keys("/registry/ipaddresses/").await);
        keys.extend(serving.cluster.etcd.keys("/registry/servicecidrs/").await);
        keys.extend(serving.cluster.etcd.keys("/netsurgeon/").await);
        keys
    };
    let before = keys(&serving).await;
    let report = serving.cluster.directory().join("preflight.xml");
    let backup = serving.cluster.directory().join("before.db");
    serving.cluster.etcd.snapshot(&backup);
    // The Services of this cluster were created with explicit addresses, so that their manifests pin them.
    let words = format!("--strict --skip pinned --backup {} --junit {}", backup.display(), report.display());
    let (code, checks) = look(&serving, &words);
    let bad: Vec<&Value> = checks.iter().filter(|check| check["verdict"] != "pass").collect();
    assert!(code == 0 && bad.len() == 1 && bad[0]["name"] == "pinned", "{bad:?}");
    let tested = checks.iter().find(|check| check["name"] == "versions-tested").expect("the check is listed");
    says(tested["observed"].as_str().unwrap(), &["v1.37.2", "1.32.2", "1.36.3", " 1.37.2"]);
    assert_eq!(keys(&serving).await, before, "nothing was written");
    let report = std::fs::read_to_string(report).expect("a file");
    assert!(report.contains(&format!("tests=\"{}\" failures=\"0\" errors=\"0\"", checks.len())), "{report}");
    let shown = serving.netsurgeon(&format!("preflight renumber --to {NEW_RANGE}")).expect(0);
    let warned = ["backup", "pinned"];
    assert!(
        shown.err.contains(&format!("{} pass, {} warn", checks.len() - 2, warned.len())),
        "{}",
        shown.err
    );
    for name in warned {
        assert!(shown.out.contains(&format!("warn {name}: ")), "{}", shown.out);
    }

    with_other_flags(&serving).await;
    with_other_backups(&serving, &backup);
    nodes::each_in_turn(&mut serving).await;
    objects::each_in_turn(&serving).await;
    security::each_in_turn(&serving).await;
    with_a_policy(&serving).await;
    without_rights(&serving).await;
    let grown = serving.netsurgeon("preflight renumber --to 10.96.0.0/15 --only plan").expect(0);
    says(&grown.out, &["plan", "pass", "no Service moves", "10.96.0.0/15"]);
    let overlapping = serving.netsurgeon("preflight renumber --to 10.244.0.0/16 --only plan").expect(3);
    says(&overlapping.out, &["plan", "fail", "`10.244.0.0/16`"]);
    let unknown = serving.netsurgeon(&format!("preflight renumber --to {NEW_RANGE} --only flags")).expect(2);
    says(&unknown.err, &["api, etcd-members, "]);

    serving.cluster.pause_api_server(1);
    let (code, checks) = look(&serving, "--only api-servers,allocations --within 60");
    serving.cluster.resume_api_server(1);
    let of =
        |name: &str| checks.iter().find(|check| check["name"] == name).expect("the check is listed").clone();
    assert_eq!((code, &of("allocations")["verdict"]), (3, &json!("pass")), "the other checks continue");
    assert_eq!(of("api-servers")["verdict"], "fail", "{}", of("api-servers"));
    with_another_gate(&mut serving, &hosts).await;
}

/// A version that does not store allocations as objects by default does so here, and RBAC denies nothing.
#[tokio::test]
async fn api_server_with_other_flags_fails_the_checks() {
    let mut options = ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Bitmap) };
    options.api_server_flags = vec![
        "--feature-gates=MultiCIDRServiceAllocator=true".to_owned(),
        "--runtime-config=networking.k8s.io/v1beta1=true".to_owned(),
        "--authorization-mode=AlwaysAllow".to_owned(),
    ];
    let cluster = Cluster::start(options).await;
    assert!(!cluster.etcd.keys("/registry/ipaddresses/").await.is_empty(), "allocations are objects");
    let words = format!("preflight renumber --to {NEW_RANGE} --only versions-tested,authorization -o json");
    let found = run(&words, command(&cluster, &words)).expect(3).json();
    let checks = found["checks"].as_array().expect("checks");
    let failed = |name: &str| {
        let found = checks.iter().find(|check| check["name"] == name).expect("the check is listed");
        assert_eq!(found["verdict"], "fail", "{found}");
        found
    };
    let found = failed("authorization");
    says(found["remedy"].as_str().unwrap(), &["`--authorization-mode=Node,RBAC`", "`AlwaysAllow`"]);
    let found = failed("versions-tested");
    let seen = found["observed"].as_str().unwrap();
    says(seen, &["v1.32.2", "`MultiCIDRServiceAllocator`"]);
    says(found["remedy"].as_str().unwrap(), &["1.33.6"]);

    // The API server has no Pod that shows its flags. The check that needs the same flags is skipped with `api-flags`.
    for (skip, verdicts) in [("room", ["unknown", "unknown"]), ("api-flags", ["skipped", "skipped"])] {
        let words = format!("preflight renumber --to {NEW_RANGE} --skip {skip} -o json");
        let found = run(&words, command(&cluster, &words)).expect(3).json();
        let of = |name: &str| {
            found["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap().clone()
        };
        let (flags, overrides) = (of("api-flags"), of("etcd-overrides"));
        assert_eq!([&flags["verdict"], &overrides["verdict"]], verdicts, "{flags} {overrides}");
        assert_eq!(overrides["depends_on"], "api-flags", "{overrides}");
    }
}

/// One API server restarts with a feature gate that the other does not have.
async fn with_another_gate(serving: &mut Serving, hosts: &Hosts) {
    let manifest = hosts.manifests[1].join("kube-apiserver.yaml");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    let first = "    - kube-apiserver\n";
    assert!(text.contains(first), "{text}");
    let more = format!("{first}    - --feature-gates=OpenAPIEnums=false\n");
    std::fs::write(&manifest, text.replacen(first, &more, 1)).expect("the manifest is written");
    serving.cluster.obey_manifests(1).await;
    wait_until("the gates of both are compared", DEADLINE, async || {
        let found = verdict(serving, "api-gates", "");
        if found["verdict"] == "fail" { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    fails(serving, "api-gates", &["`OpenAPIEnums`", "on at 192.0.2.10:"]);
}

/// A snapshot of another cluster, and a truncated one.
fn with_other_backups(serving: &Serving, own: &Path) {
    let judged = |file: &Path, verdict_of: &str, reason: &[&str]| {
        let found = verdict(serving, "backup", &format!("--backup {}", file.display()));
        assert_eq!(found["verdict"], verdict_of, "{found}");
        says(found["observed"].as_str().unwrap(), reason);
    };
    judged(own, "pass", &["revision ", "0 h"]);
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/objects.snapshot.db");
    judged(&other, "fail", &["another cluster"]);
    let mut bytes = std::fs::read(own).expect("a snapshot");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let broken = serving.cluster.directory().join("broken.db");
    std::fs::write(&broken, bytes).expect("the snapshot is written");
    judged(&broken, "fail", &["SHA-256"]);
}

async fn with_other_flags(serving: &Serving) {
    let own = serving.cluster.api_servers[1].command();
    let other: Vec<String> = own.iter().map(|word| word.replace("10.96.0.0/16", "10.97.0.0/16")).collect();
    serving.cluster.mirror("kube-apiserver", 1, &other).await;
    fails(serving, "api-flags", &["`10.97.0.0/16`"]);
    let mut split = own.clone();
    split
        .push("--etcd-servers-overrides=/events#http://127.0.0.1:1,/services#http://127.0.0.1:1".to_string());
    serving.cluster.mirror("kube-apiserver", 1, &split).await;
    fails(serving, "etcd-overrides", &["`/services`", "`--etcd-servers-overrides`"]);
    serving.cluster.mirror("kube-apiserver", 1, &own).await;
}

/// A policy that forbids external IPs.
async fn with_a_policy(serving: &Serving) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["services"]});
    let expression = "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-external-ips"},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "external IPs are forbidden here"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-external-ips"}, "spec": {"policyName": "no-external-ips", "validationActions": ["Deny"]},
    });
    serving.cluster.api.create(&policy).await;
    serving.cluster.api.create(&binding).await;
    let verdict = |words: &str| {
        let (_, checks) = look(serving, &format!("--only policies {words}"));
        checks.iter().find(|check| check["name"] == "policies").expect("the check is listed").clone()
    };
    wait_until("the policy is in force", DEADLINE, async || {
        let found = verdict("");
        if found["verdict"] == "fail" { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    fails(serving, "policies", &["external IPs are forbidden here"]);
    assert_eq!(verdict("--hold shadow")["verdict"], "pass", "shadows need none");
    serving.cluster.api.delete(&format!("{BINDINGS}/no-external-ips")).await;
    serving.cluster.api.delete(&format!("{POLICIES}/no-external-ips")).await;
}

async fn without_rights(serving: &Serving) {
    let words = format!("preflight renumber --to {NEW_RANGE} --only rights");
    let refused = |check: &str, reason: &str| {
        let mut command = serving.command(&words);
        command.env("KUBECONFIG", serving.cluster.kubeconfig_as(0, "nobody", None));
        let refused = run(&words, command).expect(3);
        says(&refused.out, &[check, reason]);
    };
    refused("rights", "get Namespace `kube-system`");
    let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]});
    let group = "rbac.authorization.k8s.io";
    let (version, metadata) = (format!("{group}/v1"), json!({"name": "nobody"}));
    let api = &serving.cluster.api;
    api.create(&json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}))
        .await;
    let subject = json!({"apiGroup": group, "kind": "User", "name": "nobody"});
    api.create(&json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "nobody"},
    }))
    .await;
    refused("rights", "get services, list services");
}
