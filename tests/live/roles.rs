//! Every group of commands runs with the permissions of its role in `deploy/rbac.yaml` alone, and a role gives no others.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use netsurgeon::ip::Family;
use netsurgeon::kube_api::{Barrier, BarrierError, BarrierRoute, Cluster as Client, Node};
use serde_json::{Value, json};

use super::api_servers::connected;
use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::run::{has_line, says};
use super::serving_cluster::{DEADLINE, NEW_RANGE, Run, Serving, run};

const GROUP: &str = "rbac.authorization.k8s.io";
/// The group of `deploy/rbac.yaml`.
const OPERATORS: &str = "netsurgeon-operators";
/// Roles that are bound to a user of the same name.
const BOUND: [&str; 4] = ["netsurgeon-lock", "netsurgeon-look", "netsurgeon-cni", "netsurgeon-preflight"];

/// Creates the roles, binds each to a user of its own name, the one for operators to their group, and waits until they are in
/// force.
pub async fn install(serving: &Serving) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac.yaml");
    let text = std::fs::read_to_string(file).expect("the roles");
    for part in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(part).expect("an object");
        serving.cluster.api.apply(&object).await;
    }
    for role in BOUND {
        bind(serving, role, role).await;
    }
    for (user, group, path) in [
        ("olga", Some(OPERATORS), "/api/v1/nodes"),
        ("netsurgeon-preflight", None, "/api/v1/nodes"),
        ("netsurgeon-cni", None, "/api/v1/nodes"),
        ("netsurgeon-look", None, "/api/v1/pods"),
        ("netsurgeon-lock", None, "/apis/batch/v1/jobs"),
    ] {
        let api = serving.cluster.api_as(0, user, group).await;
        wait_until("the binding is in force", DEADLINE, async || {
            let answer = api.request(Method::GET, path, "application/json", None).await;
            answer.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

async fn bind(serving: &Serving, user: &str, role: &str) {
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": format!("{user}-{role}")},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
    });
    serving.cluster.api.create(&binding).await;
}

/// Runs the program as a user.
pub fn by(serving: &Serving, user: &str, group: Option<&str>, words: &str) -> Run {
    let mut command = serving.command(words);
    command.env("KUBECONFIG", serving.cluster.kubeconfig_as(0, user, group));
    run(words, command)
}

/// Runs the program as an operator, with the permissions of `netsurgeon-renumber`.
pub fn by_operator(serving: &Serving, words: &str) -> Run {
    by(serving, "olga", Some(OPERATORS), words)
}

/// The checks of a preflight, none of which lacked a permission to read.
fn read_all(ran: &Run) -> Vec<Value> {
    let checks = ran.json()["checks"].as_array().expect("checks").clone();
    assert_eq!(check(&checks, "api")["verdict"], "pass", "it lists missing permissions");
    for check in &checks {
        assert_ne!(check["depends_on"], "api", "{check}");
        let text = check["observed"].as_str().expect("the observed state");
        // The permissions to make the change are listed, too.
        let text = text.replace("this user can read, but cannot change anything; missing permissions: ", "");
        for lack in ["forbidden", "may not", "missing permissions", "not allowed", "no permission"] {
            assert!(!text.contains(lack), "{check}");
        }
    }
    checks
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["name"] == name).expect("the check is listed")
}

fn comes_out(checks: &[Value], name: &str, verdict: &str, seen: &[&str], remedy: &[&str]) {
    let found = check(checks, name);
    assert_eq!(found["verdict"], verdict, "{found}");
    for (field, facts) in [("observed", seen), ("remedy", remedy)] {
        says(found[field].as_str().unwrap_or_default(), facts);
    }
}

#[tokio::test]
async fn each_role_permits_its_commands_and_no_others() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let dns = json!({
        "clusterIP": "10.96.0.10", "selector": {"k8s-app": "kube-dns"},
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
    });
    serving.cluster.api.create_service("kube-system", "kube-dns", dns).await;
    install(&serving).await;
    preflights(&serving);
    refused(&serving).await;

    let probe = serving.probe(&Serving::targets()).await;
    by_operator(&serving, &serving.apply_words()).expect(6);
    serving.restart_with(NEW_RANGE).await;
    let operation = serving.journals().remove(0);
    by_operator(&serving, &format!("operation resume {operation} --confirm flags")).expect(0);
    assert_eq!(serving.cluster_ip("web").await, "10.200.0.5");
    serving.restart_with("10.96.0.0/16").await;
    let back = by_operator(&serving, "renumber rollback --yes --linger 1 --confirm flags").expect(0);
    says(&back.err, &["`clusterDNS`", "2 of 2"]);
    assert!(back.err.contains("`netsurgeon-nodes`"), "{}", back.err);
    serving.assert_unbroken(&probe.stop(), &Serving::targets());
    serving.wait_for_one_range().await;
    serving.assert_clean();

    let lock = "lock --reason window";
    by(&serving, "netsurgeon-lock", None, lock).expect(0);
    by(&serving, "netsurgeon-lock", None, "unlock").expect(0);
    let refused = by(&serving, "netsurgeon-lock", None, &format!("{lock} --for 1h")).expect(1);
    assert!(refused.err.contains("cannot create resource \"jobs\""), "{}", refused.err);
    assert!(refused.err.contains("`netsurgeon-lock-timer`"), "{}", refused.err);
    let shown = by(&serving, "netsurgeon-lock", None, "lock status -o json").expect(0).json();
    assert_eq!(shown["status"], "unlocked", "{shown}");
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "timer", "namespace": "kube-system"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "netsurgeon-lock"}],
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "netsurgeon-lock-timer"},
    });
    serving.cluster.api.create(&binding).await;
    wait_until("the timer's role is in force", DEADLINE, async || {
        let locked = by(&serving, "netsurgeon-lock", None, &format!("{lock} --for 1h"));
        if locked.code == 0 { Ok(()) } else { Err(locked.err) }
    })
    .await;
    by(&serving, "netsurgeon-lock", None, "unlock").expect(0);
    let refused = by_operator(&serving, lock).expect(1);
    assert!(refused.err.contains("validatingadmissionpolic"), "{}", refused.err);
    // It finds the API servers of other tests beside it, which have other ranges: status 3.
    let shown = by(&serving, "netsurgeon-look", None, "controlplane show");
    assert!([0, 3].contains(&shown.code) && !shown.err.contains("not allowed"), "{}", shown.err);
    by(&serving, "netsurgeon-look", None, "certs verify --cidr 10.96.0.0/16").expect(0);
    for reader in ["netsurgeon-look", "netsurgeon-preflight"] {
        let words = format!("{} --metrics-listen 127.0.0.1:0", serving.apply_words());
        let refused = by(&serving, reader, None, &words);
        assert_eq!(refused.code, 1, "{}", refused.err);
    }
}

/// A user who can only read gets a warning, and everything else is the same as for an operator.
fn preflights(serving: &Serving) {
    // The rig's API server has no Pod with its flags, and its certificate is unchanged.
    let words = format!("preflight renumber --to {NEW_RANGE} -o json");
    let operator = read_all(&by_operator(serving, &words));
    comes_out(&operator, "rights", "pass", &["`get nodes/proxy`"], &[]);
    comes_out(&operator, "policies", "pass", &[], &[]);
    let reader = read_all(&by(serving, "netsurgeon-preflight", None, &words));
    let lacks = ["create services", "delete services"];
    comes_out(&reader, "rights", "warn", &lacks, &["`netsurgeon-renumber`"]);
    comes_out(&reader, "policies", "unknown", &["create services"], &["`--skip policies`"]);
    for found in &reader {
        let name = found["name"].as_str().expect("a name");
        if !["rights", "policies"].contains(&name) {
            assert_eq!(found["verdict"], check(&operator, name)["verdict"], "{found}");
        }
    }
    let cni = read_all(&by(serving, "netsurgeon-cni", None, "preflight cni -o json"));
    let lacks = ["patch nodes", "delete pods", "create pods/eviction"];
    comes_out(&cni, "drain-rights", "warn", &lacks, &["deploy/rbac.yaml", "`/etc/kubernetes/admin.conf`"]);
}

/// No user can exec, read Secrets, or reach a kubelet; and users who only read write nothing.
async fn refused(serving: &Serving) {
    let pods = "/api/v1/namespaces/kube-system/pods";
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let change = json!({"spec": {"unschedulable": true}});
    let never = [
        (Method::GET, "/api/v1/secrets".to_string(), None),
        (Method::GET, "/api/v1/nodes/node-1/proxy/configz".to_string(), None),
        (Method::GET, "/api/v1/nodes/node-1/proxy/exec/kube-system/x/x?command=id".to_string(), None),
        (Method::GET, format!("{pods}/x/exec?command=id"), None),
        (Method::POST, format!("{pods}/x/exec?command=id"), None),
        (Method::POST, format!("{pods}/x/attach"), None),
        (Method::POST, format!("{pods}/x/portforward"), None),
        (Method::POST, "/api/v1/namespaces/default/configmaps".to_string(), Some(&map)),
        (Method::PATCH, "/api/v1/nodes/node-1".to_string(), Some(&change)),
    ];
    let writes = [
        (Method::POST, "/api/v1/namespaces/default/services?dryRun=All".to_string(), Some(&service)),
        (Method::PATCH, "/api/v1/namespaces/default/services/web".to_string(), Some(&change)),
        (Method::DELETE, "/api/v1/namespaces/default/services/web".to_string(), None),
        (Method::DELETE, format!("{pods}/x"), None),
    ];
    for (user, group, is_reader) in [
        ("olga", Some(OPERATORS), false),
        ("netsurgeon-lock", None, false),
        ("netsurgeon-look", None, true),
        ("netsurgeon-cni", None, true),
        ("netsurgeon-preflight", None, true),
    ] {
        let api = serving.cluster.api_as(0, user, group).await;
        for (method, path, body) in never.iter().chain(writes.iter().filter(|_| is_reader)) {
            let content =
                if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
            let answer = api.request(method.clone(), path, content, *body).await;
            let is_refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
            assert!(is_refused, "{user}: {method} {path}: {answer:?}");
        }
    }
}

/// Without the optional role netsurgeon cannot ask a node that it does not reach directly, and every message about that names the
/// role; with the role it asks the node.
#[tokio::test]
async fn asking_nodes_through_the_api_server_needs_the_optional_role() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    install(&serving).await;
    let client = connected(&serving.cluster.kubeconfig_as(0, "olga", Some(OPERATORS))).await;
    let barrier = |seconds| Barrier {
        namespace: "kube-system".into(),
        operation: "test".into(),
        family: Family::V4,
        reach: BarrierRoute::NodeProxy,
        deadline: Duration::from_secs(seconds),
        without: BTreeSet::new(),
    };
    let role = ["`get nodes/proxy`", "`netsurgeon-nodes`"];
    let error = client.barrier(&barrier(1)).await.unwrap_err();
    let BarrierError::NotCrossed { silent, of: 2, .. } = &error else { panic!("{error}") };
    assert!(silent.iter().all(|node| has_line(&node.seen, &role)), "{error}");
    let direct = Barrier { reach: BarrierRoute::Auto, ..barrier(60) };
    client.barrier(&direct).await.expect("the nodes are reached directly");
    let kubelet = client.kubelet_dns("node-1").await.unwrap_err();
    says(&kubelet, &role);
    // A node without an address that answers here.
    let node = Node { name: "node-1".into(), internal_ips: Vec::new(), ready: true };
    let health = async |client: &Client| client.proxy_health(&node, 10256).await;
    let fault = health(&client).await.unwrap_err();
    assert!(fault.is_hidden && has_line(&fault.reason, &role), "{fault:?}");

    bind(&serving, "olga", "netsurgeon-nodes").await;
    wait_until("the role is in force", DEADLINE, async || {
        health(&client).await.map_err(|fault| fault.reason)
    })
    .await;
    let crossed = client.barrier(&barrier(60)).await.expect("the API server asks the nodes");
    assert!(crossed.nodes.len() == 2 && crossed.nodes.iter().all(|node| node.through_api_server));
    let kubelet = client.kubelet_dns("node-1").await.unwrap_err();
    assert!(!kubelet.contains("nodes/proxy"), "the rig has no kubelet, and it was asked: {kubelet}");
    let words = format!("preflight renumber --to {NEW_RANGE} --only rights -o json");
    let rights = by_operator(&serving, &words).json()["checks"].as_array().expect("checks").clone();
    assert!(!check(&rights, "rights")["observed"].as_str().unwrap().contains("nodes/proxy"));
    assert_eq!(check(&rights, "rights")["verdict"], "pass");
}
