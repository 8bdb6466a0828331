//! The roles and manifests of `deploy/`: permissions that no role may grant, and fields that every container has.

use std::collections::BTreeSet;

use serde_json::Value;

/// Roles that change nothing, as their label states.
const READ_ONLY: [&str; 10] = [
    "netsurgeon-cni",
    "netsurgeon-dns",
    "netsurgeon-evidence-reader",
    "netsurgeon-look",
    "netsurgeon-mirror",
    "netsurgeon-mirror-parity",
    "netsurgeon-mirror-secrets",
    "netsurgeon-mirror-source",
    "netsurgeon-mirror-source-more",
    "netsurgeon-preflight",
];
/// Optional roles: no manifest binds them.
const OPTIONAL: [&str; 6] = [
    "netsurgeon-lock-timer",
    "netsurgeon-mirror-activate",
    "netsurgeon-mirror-sans",
    "netsurgeon-mirror-secrets",
    "netsurgeon-mirror-write",
    "netsurgeon-nodes",
];
/// The only role with the node proxy, the only one that reads Secrets, and the only one that may create a workload in kube-system (a
/// Job).
const NODES: &str = "netsurgeon-nodes";
const SECRETS: &str = "netsurgeon-mirror-secrets";
const TIMER: &str = "netsurgeon-lock-timer";
/// The only role that may create copies, with Secrets and workloads.
const COPIES: &str = "netsurgeon-mirror-write";
/// The only role that may change workloads, and create none.
const ACTIVATE: &str = "netsurgeon-mirror-activate";
/// Permission to create or change one of these runs any container, with any ServiceAccount of the namespace, on any node.
const RUNNING: [&str; 8] = [
    "pods",
    "jobs",
    "cronjobs",
    "deployments",
    "statefulsets",
    "daemonsets",
    "replicasets",
    "replicationcontrollers",
];
/// Labels that may be aggregated into a role: both mark roles that read, without Secrets.
const AGGREGATED: [&str; 2] =
    ["rbac.authorization.k8s.io/aggregate-to-view", "netsurgeon.io/aggregate-to-mirror-source"];

/// Every object of every manifest, with the name of its file.
fn objects() -> Vec<(String, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a manifest");
            for part in text.split("\n---\n") {
                all.push((name.clone(), serde_saphyr::from_str(part).expect("an object")));
            }
        }
    }
    assert!(all.len() > 30, "{}", all.len());
    all
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

fn roles() -> Vec<Value> {
    let is_role = |object: &Value| object["kind"] == "ClusterRole" || object["kind"] == "Role";
    objects().into_iter().map(|(_, object)| object).filter(is_role).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The permissions of a rule that no role may grant, or not this one.
fn excess(holder: &str, is_reader: bool, rule: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let (resources, verbs) = (texts(&rule["resources"]), texts(&rule["verbs"]));
    let urls = texts(&rule["nonResourceURLs"]);
    for text in resources.iter().chain(&verbs).chain(&urls).chain(&texts(&rule["apiGroups"])) {
        if text.contains('*') {
            found.push(format!("a wildcard `{text}`"));
        }
    }
    for resource in &resources {
        let is_proxy = resource.ends_with("/proxy") && !(holder == NODES && *resource == "nodes/proxy");
        let is_entry =
            ["pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers"].contains(resource);
        let is_token = *resource == "serviceaccounts/token";
        if is_proxy || is_entry || is_token || *resource == "secrets" && ![SECRETS, COPIES].contains(&holder)
        {
            found.push(format!("`{resource}`"));
        }
    }
    let runs =
        resources.iter().any(|resource| RUNNING.contains(resource)) && ![TIMER, COPIES].contains(&holder);
    for verb in &verbs {
        let is_activation = holder == ACTIVATE && *verb == "patch";
        if runs && ["create", "update", "patch"].contains(verb) && !is_activation {
            found.push(format!("`{verb}` of {resources:?}, which runs what its user likes"));
        }
        if ["escalate", "bind", "impersonate"].contains(verb) {
            found.push(format!("`{verb}`"));
        }
        // Access reviews store nothing.
        let is_review = *verb == "create" && resources == ["subjectaccessreviews"];
        if is_reader && !["get", "list"].contains(verb) && !is_review {
            found.push(format!("`{verb}` of {resources:?} in a role that reads"));
        }
    }
    found
}

fn is_reader(role: &Value) -> bool {
    role["metadata"]["labels"]["netsurgeon.io/access"] == "read"
}

#[test]
fn roles_grant_no_excess_permission() {
    for role in roles() {
        for rule in role["rules"].as_array().expect("rules") {
            let found = excess(name(&role), is_reader(&role), rule);
            assert!(found.is_empty(), "{} gives {}", name(&role), found.join(", "));
        }
        for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
            let labels = selector["matchLabels"].as_object().expect("labels");
            assert!(!labels.is_empty() && selector.as_object().unwrap().len() == 1, "{role}");
            assert!(labels.keys().all(|label| AGGREGATED.contains(&label.as_str())), "{role}");
        }
    }
}

#[test]
fn excess_permission_is_detected() {
    let rule = |resources: &[&str], verbs: &[&str]| serde_json::json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    for (role, resource, verb) in [
        ("x", "*", "get"),
        ("x", "pods", "*"),
        ("x", "pods/exec", "get"),
        ("x", "pods/attach", "create"),
        ("x", "pods/portforward", "get"),
        ("x", "nodes/proxy", "get"),
        ("x", "secrets", "list"),
        ("x", "clusterroles", "escalate"),
        ("x", "clusterroles", "bind"),
        ("x", "users", "impersonate"),
        ("x", "jobs", "create"),
        ("x", "daemonsets", "patch"),
        (NODES, "pods/exec", "get"),
        (NODES, "services/proxy", "get"),
    ] {
        assert_eq!(excess(role, false, &rule(&[resource], &[verb])).len(), 1, "{role} {resource} {verb}");
    }
    assert_eq!(excess(NODES, false, &rule(&["nodes/proxy"], &["get"])), Vec::<String>::new());
    assert_eq!(excess(SECRETS, true, &rule(&["secrets"], &["get", "list"])), Vec::<String>::new());
    for verb in ["create", "update", "patch", "delete", "deletecollection"] {
        assert_eq!(excess("x", true, &rule(&["services"], &[verb])).len(), 1, "{verb}");
        assert_eq!(excess("x", false, &rule(&["services"], &[verb])), Vec::<String>::new(), "{verb}");
    }
    assert_eq!(excess("x", true, &rule(&["subjectaccessreviews"], &["create"])), Vec::<String>::new());
    assert_eq!(excess("x", true, &rule(&["subjectaccessreviews", "services"], &["create"])).len(), 1);
}

#[test]
fn reading_roles_are_labelled() {
    let roles = roles();
    let marked: BTreeSet<&str> = roles.iter().filter(|role| is_reader(role)).map(name).collect();
    assert_eq!(marked, BTreeSet::from(READ_ONLY));
}

#[test]
fn optional_roles_are_not_bound() {
    let roles = roles();
    for optional in OPTIONAL {
        assert!(roles.iter().any(|role| name(role) == optional), "{optional}");
    }
    for (file, object) in objects() {
        if let Some(bound) = object["roleRef"]["name"].as_str() {
            assert!(!OPTIONAL.contains(&bound), "{file} binds {bound}");
            assert!(roles.iter().any(|role| name(role) == bound), "{file} binds {bound}, which is nowhere");
        }
    }
}

/// Objects of kube-system with which a user controls the cluster, or stops it.
const PRECIOUS: [(&str, &[&str]); 6] = [
    (
        "configmaps",
        &[
            "aws-auth",
            "cilium-config",
            "coredns",
            "extension-apiserver-authentication",
            "kube-proxy",
            "kubeadm-config",
            "kubelet-config",
        ],
    ),
    ("leases", &["kube-controller-manager", "kube-scheduler"]),
    ("secrets", &["bootstrap-token-abcdef"]),
    ("serviceaccounts", &["clusterrole-aggregation-controller"]),
    ("daemonsets", &["kube-proxy"]),
    ("deployments", &["coredns"]),
];
/// Roles that may change all objects of a kind, also in kube-system: what moves, what holds old addresses, and the names.
const WHOLE_KINDS: [(&str, &str); 8] = [
    ("netsurgeon-renumber", "services"),
    ("netsurgeon-renumber", "endpointslices"),
    ("netsurgeon-guard", "services"),
    ("netsurgeon-guard", "endpointslices"),
    ("netsurgeon-dns-annotations", "services"),
    ("netsurgeon-dns-annotations", "ingresses"),
    (TIMER, "jobs"),
    ("netsurgeon-renumber", "servicecidrs"),
];

/// Roles for the namespaces of copies or of Certificates. A comment in the manifest says that they are bound only there.
const IN_NAMESPACES: [&str; 3] = [ACTIVATE, COPIES, "netsurgeon-mirror-sans"];

/// The objects of a kind that a rule can replace or delete: `None` if none, otherwise their names; empty for all.
fn replaces<'r>(rule: &'r Value, resource: &str) -> Option<Vec<&'r str>> {
    let is_change = |verb: &&str| ["update", "patch", "delete", "deletecollection"].contains(verb);
    let is_of = texts(&rule["resources"]).contains(&resource) && texts(&rule["verbs"]).iter().any(is_change);
    is_of.then(|| texts(&rule["resourceNames"]))
}

/// Whether a role is in force in kube-system, or can be bound there.
fn reaches_kube_system(role: &Value) -> bool {
    let is_bound_elsewhere = IN_NAMESPACES.contains(&name(role));
    (role["kind"] == "ClusterRole" && !is_bound_elsewhere) || role["metadata"]["namespace"] == "kube-system"
}

#[test]
fn no_role_can_replace_an_object_of_kube_system() {
    let mut whole = BTreeSet::new();
    let roles = roles();
    for role in roles.iter().filter(|role| reaches_kube_system(role)) {
        for rule in role["rules"].as_array().expect("rules") {
            for (resource, names) in PRECIOUS {
                let reached = replaces(rule, resource);
                let is_reached =
                    |name: &&&str| reached.as_ref().is_some_and(|all| all.is_empty() || all.contains(name));
                let reached: Vec<_> = names.iter().filter(is_reached).collect();
                assert!(reached.is_empty(), "{} can replace {resource} {reached:?}", name(role));
            }
            for resource in texts(&rule["resources"]) {
                if replaces(rule, resource).is_some_and(|names| names.is_empty()) {
                    whole.insert((name(role), resource));
                }
            }
        }
    }
    // BGPConfigurations are cluster-scoped.
    whole.remove(&("netsurgeon-renumber", "bgpconfigurations"));
    assert_eq!(whole, BTreeSet::from(WHOLE_KINDS));
    let records = roles.iter().filter(|role| role["metadata"]["namespace"] == "netsurgeon");
    assert_eq!(records.count(), 3, "records have a namespace of their own");
    let rule = serde_json::json!({"resources": ["configmaps"], "verbs": ["get", "list", "create", "update"]});
    assert_eq!(replaces(&rule, "configmaps"), Some(Vec::new()), "a rule without names reaches all");
}

/// A tag can be moved to another image, which would get the keys of etcd, or root on every node.
#[test]
fn images_are_pinned_by_digest() {
    let mut count = 0;
    for (file, object) in objects() {
        let pod = &object["spec"]["template"]["spec"];
        for list in ["initContainers", "containers"] {
            for container in pod[list].as_array().into_iter().flatten() {
                assert_eq!(container["image"], "FILL-IN/netsurgeon@sha256:DIGEST", "{file}");
                count += 1;
            }
        }
    }
    assert_eq!(count, 5);
}

/// A wrong argument would only show in the cluster.
#[test]
fn preflight_job_has_valid_arguments() {
    let is_job = |(file, object): &(String, Value)| file == "preflight.yaml" && object["kind"] == "Job";
    let (_, job) = objects().into_iter().find(is_job).expect("the Job");
    let arguments = texts(&job["spec"]["template"]["spec"]["containers"][0]["args"]).join(" ");
    let nowhere = "--etcd-endpoints http://127.0.0.1:1 --etcd-timeout 1 --kubeconfig /dev/null";
    let output = crate::program::run(&format!("{arguments} {nowhere}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(shown["target"], "renumber", "{said}");
}
