//! The rules of `netsurgeon mirror plan --config` on two real clusters, and the table of Pod specifications against the types of
//! `k8s.io/api`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use netsurgeon::mirror::rules::POD_SPECS;

use serde_json::{Value, json};

use super::mirror_pair::{Pair, actions, object_in as object, stored};
use super::rig::api_gate::{ApiGate, Trouble, Troubles};
use super::rig::run::says;

/// A value that only the Secrets of the mirror may contain.
const CANARY: &str = "canary-of-the-registry";

const CONFIG: &str = r#"
namespaces: [shop, pay]
rename: {shop: shop-green, pay: pay-green}
kinds: {exclude: [Role]}
images:
- {from: registry.example.com/, to: registry-green.example.com/}
- {from: docker.io/, to: registry-green.example.com/hub/}
- {from: registry.exmaple.com/, to: registry-green.example.com/}
pullSecrets:
- {name: regcred, fromFile: dockerconfig.json, attachTo: serviceAccounts}
hosts:
- {suffix: example.com, add: green.example.com}
passive: {workloads: ["tier=worker"]}
run: ["app=poller"]
replicas: {factor: 0.5, minimum: 1}
patches:
- kinds: [ConfigMap]
  names: fragile
  patch: [{op: replace, path: /data/none, value: x}]
- kinds: [Deployment]
  names: web
  patch: {metadata: {annotations: {patched: "yes"}}}
text:
- {kinds: [ConfigMap], from: db.blue.internal, to: db.green.internal}
"#;

fn workload(kind: &str, name: &str, tier: &str, replicas: u32) -> Value {
    let labels = json!({"app": name, "tier": tier});
    let spec = json!({
        "serviceAccountName": "web",
        "initContainers": [{"name": "init", "image": "nginx:1.27"}],
        "containers": [{"name": "main", "image": "registry.example.com/web:1",
                        "env": [{"name": "REDIS", "value": "redis.shop:6379"}]}],
    });
    let template = json!({"metadata": {"labels": labels.clone()}, "spec": spec});
    let spec =
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template});
    let mut found = object("shop", "apps/v1", kind, name, &json!({"spec": spec}));
    found["metadata"]["labels"] = labels;
    if kind == "StatefulSet" {
        found["spec"]["serviceName"] = json!(name);
    }
    found
}

fn budget(name: &str) -> Value {
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": name}}});
    object("shop", "policy/v1", "PodDisruptionBudget", name, &json!({"spec": spec}))
}

/// The objects of the source, each with its action and the code of the reason.
fn declared() -> Vec<(Value, &'static str, &'static str)> {
    [access_and_traffic(), workloads(), configuration()].concat()
}

fn access_and_traffic() -> Vec<(Value, &'static str, &'static str)> {
    let pay_selector = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "pay"}}});
    let subjects = json!([
        {"kind": "ServiceAccount", "name": "billing", "namespace": "pay"},
        {"kind": "Group", "name": "system:serviceaccounts:pay", "apiGroup": "rbac.authorization.k8s.io"},
    ]);
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let rule = json!({"host": "www.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}});
    let spec = json!({"rules": [rule], "tls": [{"hosts": ["www.example.com"], "secretName": "web-tls"}]});
    let mut ingress = object("shop", "networking.k8s.io/v1", "Ingress", "web", &json!({"spec": spec}));
    ingress["metadata"]["annotations"] =
        json!({"external-dns.alpha.kubernetes.io/hostname": "www.example.com"});
    let secrets = json!({"imagePullSecrets": [{"name": "keys"}]});
    let viewer = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let binding = json!({"roleRef": viewer, "subjects": subjects});
    let policy =
        json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [pay_selector]}]});
    let service = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    let name = json!({"type": "ExternalName", "externalName": "ledger.pay.svc.cluster.local"});
    let copied = [
        object("shop", "v1", "ServiceAccount", "web", &secrets),
        object("pay", "v1", "ServiceAccount", "billing", &json!({})),
        object("shop", "rbac.authorization.k8s.io/v1", "RoleBinding", "billing", &binding),
        object("shop", "networking.k8s.io/v1", "NetworkPolicy", "web", &json!({"spec": policy})),
        object("shop", "v1", "Service", "web", &json!({"spec": service})),
        object("shop", "v1", "Service", "ledger", &json!({"spec": name})),
        ingress,
    ];
    copied.map(|object| (object, "create", "")).to_vec()
}

fn workloads() -> Vec<(Value, &'static str, &'static str)> {
    let mut with_claims = workload("StatefulSet", "db", "worker", 1);
    with_claims["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "busybox"}]}}});
    let cron_job = json!({"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"});
    let scaler = json!({"spec": {"maxReplicas": 9, "scaleTargetRef": target}});
    vec![
        (workload("Deployment", "web", "front", 5), "create", ""),
        (workload("Deployment", "worker", "worker", 4), "create", ""),
        (workload("Deployment", "poller", "back", 1), "create", ""),
        (workload("Deployment", "silent", "back", 1), "left-out", "no-service"),
        (workload("StatefulSet", "cache", "worker", 2), "create", ""),
        (with_claims, "left-out", "kind-not-copied"),
        (workload("StatefulSet", "plain", "back", 1), "left-out", "kind-not-copied"),
        (budget("worker"), "left-out", "passive-budget"),
        (budget("web"), "create", ""),
        (object("shop", "autoscaling/v2", "HorizontalPodAutoscaler", "worker", &scaler), "create", ""),
        (object("pay", "batch/v1", "CronJob", "nightly", &cron_job), "create", ""),
    ]
}

fn configuration() -> Vec<(Value, &'static str, &'static str)> {
    let settings = json!({"data": {"db": "db.blue.internal", "redis": "redis.shop:6379"}});
    let fragile = json!({"data": {"a": "b"}});
    let secret = json!({"type": "Opaque", "stringData": {"a": "of the source"}});
    vec![
        (object("shop", "v1", "ConfigMap", "settings", &settings), "create", ""),
        (object("shop", "v1", "ConfigMap", "fragile", &fragile), "left-out", "rule-failed"),
        (object("shop", "v1", "Secret", "regcred", &secret), "left-out", "pull-secret"),
    ]
}

/// Writes the configuration and the file of its pull secret. Returns the option for the command.
fn configure(pair: &Pair, credentials: &str) -> String {
    pair.workspace.write("dockerconfig.json", credentials);
    let path = pair.workspace.write("mirror.yaml", CONFIG);
    format!("--config {}", path.display())
}

fn plan(pair: &Pair, config: &str) -> (Value, String) {
    let run = pair.run(&format!("plan {config} --save {} -o json", pair.plan)).expect(0);
    (run.json(), run.err)
}

/// Returns every object of the mirror's copied namespaces, without what API servers and controllers add.
async fn copies(pair: &Pair) -> Vec<Value> {
    let kinds = [
        "api/v1/{}/serviceaccounts",
        "api/v1/{}/services",
        "api/v1/{}/configmaps",
        "apis/apps/v1/{}/deployments",
        "apis/apps/v1/{}/statefulsets",
        "apis/batch/v1/{}/cronjobs",
        "apis/rbac.authorization.k8s.io/v1/{}/rolebindings",
        "apis/networking.k8s.io/v1/{}/networkpolicies",
        "apis/networking.k8s.io/v1/{}/ingresses",
        "apis/policy/v1/{}/poddisruptionbudgets",
    ];
    let mut found = Vec::new();
    for namespace in ["shop-green", "pay-green"] {
        for kind in kinds {
            let path = format!("/{}", kind.replace("{}", &format!("namespaces/{namespace}")));
            for mut object in pair.mirror.api.list(&path).await {
                object["metadata"]["managedFields"] = Value::Null;
                found.push(object);
            }
        }
    }
    found
}

fn images(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str() {
                    Some(image) if key == "image" => found.push(image.to_owned()),
                    _ => images(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| images(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn rules_change_every_copy() {
    let pair = Pair::start(true).await;
    for namespace in ["shop", "pay"] {
        pair.source.api.create_namespace(namespace).await;
    }
    for (object, _, _) in declared() {
        pair.source.api.create(&object).await;
    }
    let before = stored(&pair.mirror).await;
    let config = configure(
        &pair,
        &format!("{{\"auths\": {{\"registry-green.example.com\": {{\"auth\": \"{CANARY}\"}}}}}}"),
    );

    let (planned, told) = plan(&pair, &config);
    for (object, expected, reason) in declared() {
        let entries = planned["objects"].as_array().expect("objects");
        let uid = |entry: &&Value| {
            entry["kind"] == object["kind"]
                && entry["name"] == object["metadata"]["name"]
                && entry["uid"] != ""
        };
        let entry =
            entries.iter().find(uid).unwrap_or_else(|| panic!("{object} is not in the plan: {planned}"));
        let code = entry["reason"].as_str().unwrap_or_default();
        assert_eq!((entry["action"].as_str(), code), (Some(expected), reason), "{entry}");
    }
    for expected in [
        "images[2] of the configuration (from `registry.exmaple.com/`) matches no image",
        "mention the renamed namespace `shop`",
        "ConfigMap shop-green/settings (1)",
        "Deployment shop-green/web (1)",
        "the configuration excludes this kind",
        "1 CronJob is suspended in the mirror",
        "2 workloads have 0 replicas in the mirror",
    ] {
        says(&told, &[expected]);
    }
    assert!(!told.contains("images[0]") && !told.contains("hosts[0]"), "{told}");
    assert_eq!(stored(&pair.mirror).await, before, "a plan writes nothing");

    let applied = pair.run(&format!("apply --plan {} --yes -o json -vv", pair.plan)).expect(0);
    let operation = applied.json()["operation"].as_str().expect("an id").to_owned();
    copies_follow_the_rules(&pair).await;
    passive_workload_is_verified(&pair).await;
    passive_objects_are_found_in_renamed_namespaces(&pair);
    let verified = pair.run(&format!("verify --skip-readiness --plan {} -o json", pair.plan)).expect(0);
    let (again, _) = plan(&pair, &config);
    assert_eq!(actions(&again).keys().collect::<Vec<_>>(), ["left-out", "same"], "{again}");

    // The credentials are in the Secrets of the mirror, and in nothing else.
    let records = pair.mirror.api.get("/api/v1/namespaces/netsurgeon/configmaps").await.to_string();
    let file = std::fs::read_to_string(&pair.plan).expect("a plan");
    let encoded = "Y2FuYXJ5LW9mLXRoZS1yZWdpc3Ry";
    for text in [&file, &told, &applied.out, &applied.err, &verified.out, &verified.err, &records] {
        assert!(!text.contains(CANARY) && !text.contains(&encoded[..20]), "{text}");
    }
    changed_credentials_are_an_update(&pair, &config).await;

    pair.run(&format!("teardown {operation} --yes")).expect(0);
    everything_is_removed(&pair, &before).await;
}

async fn everything_is_removed(pair: &Pair, before: &BTreeMap<String, Vec<u8>>) {
    for listed in pair.operation("list -o json").expect(0).json()["operations"].as_array().expect("a list") {
        pair.operation(&format!("forget {} --yes", listed["operation"].as_str().expect("an id"))).expect(0);
    }
    pair.mirror_is(before).await;
}

async fn copies_follow_the_rules(pair: &Pair) {
    let copies = copies(pair).await;
    let mut found = Vec::new();
    for copy in &copies {
        images(copy, &mut found);
        let mut text = copy.clone();
        text["data"] = Value::Null;
        let text = text.to_string().replace("redis.shop:6379", "");
        for reference in ["\"shop\"", "\"pay\"", ".shop.", ".pay.", ":shop\"", ":pay\""] {
            assert!(!text.contains(reference), "{reference} is in {text}");
        }
    }
    assert_eq!(found.len(), 9, "two images of four workloads, and one of a CronJob: {found:?}");
    assert!(found.iter().all(|image| image.starts_with("registry-green.example.com/")), "{found:?}");
    assert!(
        found.iter().any(|image| image == "registry-green.example.com/hub/library/nginx:1.27"),
        "{found:?}"
    );

    let get = async |path: &str| pair.mirror.api.get(&format!("/{path}")).await;
    for namespace in ["shop-green", "pay-green"] {
        let secret = get(&format!("api/v1/namespaces/{namespace}/secrets/regcred")).await;
        assert_eq!(secret["type"], "kubernetes.io/dockerconfigjson");
    }
    let account = get("api/v1/namespaces/shop-green/serviceaccounts/web").await;
    assert_eq!(account["imagePullSecrets"], json!([{"name": "keys"}, {"name": "regcred"}]));
    let ingress = get("apis/networking.k8s.io/v1/namespaces/shop-green/ingresses/web").await;
    assert_eq!(ingress["spec"]["rules"][1]["host"], "www.green.example.com");
    assert_eq!(ingress["spec"]["tls"][0]["hosts"], json!(["www.example.com", "www.green.example.com"]));
    let annotation = &ingress["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"];
    assert_eq!(annotation, "www.example.com,www.green.example.com");
    let settings = get("api/v1/namespaces/shop-green/configmaps/settings").await;
    assert_eq!(settings["data"], json!({"db": "db.green.internal", "redis": "redis.shop:6379"}));
    for (path, replicas, wanted) in [
        ("deployments/web", 3, None),
        ("deployments/poller", 1, None),
        ("deployments/worker", 0, Some("1")),
        ("statefulsets/cache", 0, Some("1")),
    ] {
        let found = get(&format!("apis/apps/v1/namespaces/shop-green/{path}")).await;
        let annotation = found["metadata"]["annotations"]["mirror.netsurgeon.io/replicas"].as_str();
        assert_eq!((found["spec"]["replicas"].as_u64(), annotation), (Some(replicas), wanted), "{path}");
    }
    let web = get("apis/apps/v1/namespaces/shop-green/deployments/web").await;
    assert_eq!(web["metadata"]["annotations"]["patched"], "yes");
    assert!(pair.mirror.api.find("/api/v1/namespaces/shop").await.is_none());
}

/// A passive workload with replicas is found.
async fn passive_workload_is_verified(pair: &Pair) {
    pair.run("verify --skip-readiness").expect(0);
    let path = "/apis/apps/v1/namespaces/shop-green/statefulsets/cache";
    pair.mirror.api.merge(path, &json!({"spec": {"replicas": 1}})).await;
    says(
        &pair.run("verify --skip-readiness").expect(3).out,
        &["StatefulSet shop/cache", "active, must be passive"],
    );
    pair.mirror.api.merge(path, &json!({"spec": {"replicas": 0}})).await;
    pair.run("verify --skip-readiness").expect(0);
}

/// An activation finds the copies in the namespaces with other names.
fn passive_objects_are_found_in_renamed_namespaces(pair: &Pair) {
    let planned = pair.run("activate --dry-run -o json").expect(0).json();
    let found: Vec<String> = planned["objects"]
        .as_array()
        .expect("objects")
        .iter()
        .map(|one| {
            let of = |field: &str| one[field].as_str().expect("a text").to_owned();
            [of("name"), of("action"), of("namespace"), of("mirror_namespace")].join(" ")
        })
        .collect();
    assert_eq!(
        found,
        ["nightly move pay pay-green", "worker move shop shop-green", "cache move shop shop-green"]
    );
}

/// Other credentials are an update, which names the field and not its value. A recorded plan does not read the file.
async fn changed_credentials_are_an_update(pair: &Pair, config: &str) {
    configure(pair, "{\"auths\": {}}");
    let (planned, _) = plan(pair, config);
    let updated: Vec<&Value> = planned["objects"]
        .as_array()
        .expect("objects")
        .iter()
        .filter(|one| one["action"] == "update")
        .collect();
    assert_eq!(updated.len(), 2, "{planned}");
    assert_eq!(updated[0]["fields"], json!(["data..dockerconfigjson"]), "{planned}");
    pair.run(&format!("apply --plan {} --yes", pair.plan)).expect(0);
    let secret = pair.mirror.api.get("/api/v1/namespaces/shop-green/secrets/regcred").await;
    assert_eq!(secret["data"][".dockerconfigjson"], "eyJhdXRocyI6IHt9fQ==");
    let other = pair.workspace.write("other.yaml", "namespaces: [shop]\n");
    let refused = pair.run(&format!("plan -n pay --config {}", other.display())).expect(2);
    says(&refused.err, &["does not contain the namespace `pay`"]);
}

/// A process that continues from the record does not read the file of a pull secret, whatever has become of it. A new plan copies the
/// Secret.
#[tokio::test]
async fn resumed_operation_reads_no_pull_secret() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace("shop").await;
    }
    pair.source
        .api
        .create(&object("shop", "v1", "ConfigMap", "settings", &json!({"data": {"a": "b"}})))
        .await;
    let rules = "namespaces: [shop]\npullSecrets:\n- {name: regcred, fromFile: dockerconfig.json}\n";
    let config = format!("--config {}", pair.workspace.write("mirror.yaml", rules).display());
    let file = pair.workspace.write("dockerconfig.json", "{\"auths\": {}}");
    let secret = "/api/v1/namespaces/shop/secrets/regcred";
    let troubles = Troubles::of("/shop/");
    let gate = ApiGate::open(pair.mirror.api.client(), &troubles).await;
    let gated = pair.workspace.write("gate.conf", gate.kubeconfig()).display().to_string();
    for is_missing in [false, true] {
        pair.workspace.write("dockerconfig.json", "{\"auths\": {}}");
        plan(&pair, &config);
        troubles.arm(Trouble::KilledBefore(1));
        let words = format!(
            "mirror apply --plan {} --yes --parallel 1 --lock-ttl 2 --mirror-kubeconfig {gated}",
            pair.plan
        );
        let mut child =
            pair.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        troubles.killed().await;
        child.kill().expect("the process runs");
        child.wait().expect("the process has ended");
        if is_missing {
            std::fs::remove_file(&file).expect("the file exists");
        } else {
            pair.workspace.write("dockerconfig.json", format!("{{\"auths\": {{\"{CANARY}\": {{}}}}}}"));
        }
        let listed = pair.operation("list -o json").expect(0).json();
        let id = listed["operations"][0]["operation"].as_str().expect("an id").to_owned();
        let source = pair.source.kubeconfig().display().to_string();
        let resume = format!("resume {id} --source-kubeconfig {source} --lock-ttl 2 --take-over");
        let resumed = pair.operation(&resume).expect(3);
        says(
            &resumed.err,
            &["secrets/shop/regcred", "dockerconfig.json", "read only by `mirror apply --plan`"],
        );
        says(&resumed.err, &["to copy the skipped objects", "mirror plan --config FILE"]);
        assert!(!resumed.err.contains(CANARY), "{}", resumed.err);
        assert!(pair.mirror.api.find(secret).await.is_none());
        assert!(pair.mirror.api.find("/api/v1/namespaces/shop/configmaps/settings").await.is_some());
        pair.run(&format!("teardown {id} --yes")).expect(0);
        pair.forget_all();
    }
    // The plan itself needs the file, and `apply` as well.
    let refused = pair.run(&format!("plan {config} --save {}", pair.plan)).expect(1);
    says(&refused.err, &["dockerconfig.json", "cannot be read"]);
    let skipped = pair.workspace.write("dockerconfig.json", "{\"auths\": {}}");
    plan(&pair, &config);
    std::fs::remove_file(skipped).expect("the file exists");
    says(&pair.apply().expect(3).err, &["secrets/shop/regcred", "cannot be read"]);
    pair.workspace.write("dockerconfig.json", "{\"auths\": {}}");
    plan(&pair, &config);
    pair.apply().expect(0);
    assert!(pair.mirror.api.find(secret).await.is_some());
}

/// A struct of a Go package: its fields, each with its name in JSON and its type.
type Struct = Vec<(String, String)>;

/// Reads the structs of a Go file. A field that is embedded has no name.
fn structs(text: &str) -> BTreeMap<String, Struct> {
    let (mut found, mut open) = (BTreeMap::new(), None);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["type", name, "struct", "{"] => {
                open = Some((*name).to_owned());
                found.insert((*name).to_owned(), Struct::new());
            }
            ["}"] => open = None,
            [field, rest @ ..] if open.is_some() && !field.starts_with("//") => {
                let of = line
                    .split_once("json:\"")
                    .map_or("", |(_, tag)| tag.split([',', '"']).next().unwrap_or(""));
                let kind = rest.first().filter(|word| !word.starts_with('`')).unwrap_or(field);
                let kind = kind.trim_start_matches(['*', '[', ']']).to_owned();
                let fields = found.get_mut(open.as_deref().expect("a struct")).expect("a struct");
                fields.push((of.to_owned(), kind));
            }
            _ => {}
        }
    }
    found
}

/// Collects the places of `PodSpec` in a struct.
fn pod_places(all: &BTreeMap<String, Struct>, name: &str, path: &str, found: &mut BTreeSet<String>) {
    for (field, kind) in all.get(name).into_iter().flatten() {
        // Types of other packages that matter here are those of core/v1.
        let kind = kind.rsplit('.').next().expect("a name");
        let path = if field.is_empty() { path.to_owned() } else { format!("{path}/{field}") };
        match kind {
            "PodSpec" => drop(found.insert(path)),
            kind if path.matches('/').count() < 8 => pod_places(all, kind, &path, found),
            _ => {}
        }
    }
}

/// Every kind of `k8s.io/api` that contains the specification of a Pod is in the table, with its place, and no other kind is.
#[test]
fn table_of_pod_specifications_is_complete() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controlplane");
    let mut go = Command::new("go");
    go.args(["list", "-modfile=k8s-1.37.2.mod", "-m", "-f", "{{.Dir}}", "k8s.io/api"]).current_dir(&folder);
    let output = go.env("GOWORK", "off").env("GOTOOLCHAIN", "auto").output().expect("`make rig` needs Go");
    let root = String::from_utf8(output.stdout).expect("a path");
    let root = Path::new(root.trim());
    assert!(root.join("core/v1/types.go").exists(), "`make rig` downloads k8s.io/api: {:?}", output.stderr);
    let read = |path: &Path| structs(&std::fs::read_to_string(path).expect("a Go file"));
    let core = read(&root.join("core/v1/types.go"));
    let mut found = BTreeSet::new();
    for group in std::fs::read_dir(root).expect("groups").flatten() {
        // No server since Kubernetes 1.22 serves this group.
        if group.file_name() == "extensions" || !group.path().is_dir() {
            continue;
        }
        for version in std::fs::read_dir(group.path()).expect("versions").flatten() {
            let path = version.path().join("types.go");
            if !path.exists() {
                continue;
            }
            let own = read(&path);
            let name = group.file_name().to_string_lossy().into_owned();
            let name = if name == "core" { String::new() } else { name };
            let mut all = core.clone();
            all.extend(own.clone());
            for (kind, fields) in &own {
                let is_root = fields.iter().any(|(_, kind)| kind == "metav1.ObjectMeta")
                    && fields.iter().any(|(_, kind)| kind == "metav1.TypeMeta");
                let mut places = BTreeSet::new();
                pod_places(&all, kind, "", &mut places);
                if is_root {
                    let resource = format!("{name}/{}s", kind.to_lowercase());
                    found.extend(places.into_iter().map(|place| (resource.clone(), place)));
                }
            }
        }
    }
    let table: BTreeSet<(String, String)> =
        POD_SPECS.iter().map(|(kind, place)| ((*kind).to_owned(), (*place).to_owned())).collect();
    assert_eq!(found, table);
}
