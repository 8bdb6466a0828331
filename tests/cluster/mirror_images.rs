//! The check `images` of `netsurgeon preflight mirror`, with real registries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::mirror_pair::{NAMESPACE, Pair, account_exists, object};
use super::rig::api::object_path;
use super::rig::process::free_port;
use super::rig::registry::{Access, Registry, USER, docker_config};
use super::rig::run::{Run, run, says};
use super::rig::workspace::Workspace;

const CANARY: &str = "password-canary";

impl Pair {
    /// Runs the check, with the log of every request.
    fn check_images(&self, words: &str) -> (Value, Run) {
        let mirror = self.mirror.kubeconfig().display();
        let words = format!(
            "-vvv preflight mirror --only images -n {NAMESPACE} -o json --mirror-kubeconfig {mirror} {words}"
        );
        let run = run(&words, self.command(&words));
        let encoded = STANDARD.encode(format!("{}:{}", USER.0, USER.1));
        // The last is the start of a token.
        for secret in [CANARY, &encoded, "eyJ0eXAi"] {
            assert!(!run.out.contains(secret) && !run.err.contains(secret), "{secret} is in the output");
        }
        let checks = run.json()["checks"].as_array().expect("checks").clone();
        (checks.into_iter().find(|check| check["name"] == "images").expect("the check"), run)
    }

    /// Runs the check, which must have this verdict and these facts.
    #[track_caller]
    fn images_are(&self, words: &str, verdict: &str, facts: &[&str]) -> Value {
        let (check, run) = self.check_images(words);
        assert_eq!(check["verdict"], verdict, "{check}");
        assert_eq!(run.code, if matches!(verdict, "pass" | "warn") { 0 } else { 3 });
        says(check["observed"].as_str().expect("a text"), &[&["from this machine"], facts].concat());
        check
    }
}

fn deployment(image: &str, secrets: &Value) -> Value {
    let labels = json!({"app": "web"});
    let spec = json!({"containers": [{"name": "web", "image": image}], "imagePullSecrets": secrets});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    object("apps/v1", "Deployment", "web", &json!({"spec": spec}))
}

fn pull_secret(name: &str, config: &str) -> Value {
    let data = json!({".dockerconfigjson": config});
    object("v1", "Secret", name, &json!({"type": "kubernetes.io/dockerconfigjson", "stringData": data}))
}

async fn deploy(pair: &Pair, image: &str, secrets: &Value) {
    let spec = json!({"containers": [{"name": "web", "image": image}], "imagePullSecrets": secrets});
    let path = object_path(&deployment("x", &json!([])));
    pair.source.api.merge(&path, &json!({"spec": {"template": {"spec": spec}}})).await;
}

#[tokio::test]
async fn registries_are_asked_for_the_images_of_the_copies() {
    let storage = Workspace::create("images");
    let open = Registry::start(storage.path(), Access::Open).await;
    let basic = Registry::start(storage.path(), Access::Basic).await;
    let token = Registry::start(storage.path(), Access::Token).await;
    open.push("shop/web", "1");
    open.push_index("shop/arm", "1", ("linux", "arm64"));
    let pair = Pair::start(true).await;
    pair.source.api.create_namespace(NAMESPACE).await;
    let account = account_exists(&pair.source.api, NAMESPACE).await;
    let service = json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    pair.create(&[object("v1", "Service", "web", &service)]).await;

    let image = format!("{}/shop/web:1", open.host);
    pair.create(&[deployment(&image, &json!([]))]).await;
    pair.images_are("", "pass", &["have 1 image"]);
    deploy(&pair, &format!("{}/shop/web:2", open.host), &json!([])).await;
    pair.images_are(
        "",
        "fail",
        &["shop/web:2", "not found", "404", "MANIFEST_UNKNOWN", "Deployment `shop/web`"],
    );
    deploy(&pair, &format!("{}/shop/none", open.host), &json!([])).await;
    pair.images_are("", "fail", &["shop/none:latest", "not found", "404"]);

    with_credentials(&pair, [&basic, &token], &account).await;
    with_rules(&pair, &open, &token).await;
    with_platforms(&pair, &open).await;

    let silent = format!("127.0.0.1:{}", free_port());
    deploy(&pair, &format!("{silent}/shop/web:1"), &json!([])).await;
    let check = pair.images_are("", "unknown", &[&silent, "1 image", "refused"]);
    says(check["remedy"].as_str().expect("a text"), &["`--skip images`"]);
}

/// Without a Secret, with one for another registry, with a wrong password, and with the right one: of the Pod, or of its account.
async fn with_credentials(pair: &Pair, registries: [&Registry; 2], account: &str) {
    for (index, registry) in registries.into_iter().enumerate() {
        let image = format!("{}/shop/web:1", registry.host);
        let name = |name: &str| format!("{name}-{index}");
        pair.create(&[
            pull_secret(&name("right"), &docker_config(&registry.host, USER)),
            pull_secret(&name("wrong"), &docker_config(&registry.host, (USER.0, "wrong"))),
            pull_secret(&name("other"), &docker_config("registry.example.com", USER)),
        ])
        .await;
        let secrets =
            |names: &[&str]| -> Value { names.iter().map(|one| json!({"name": name(one)})).collect() };
        deploy(pair, &image, &json!([])).await;
        pair.images_are("", "fail", &[&image, "denied without a Secret", "Deployment `shop/web`"]);
        deploy(pair, &image, &secrets(&["other"])).await;
        pair.images_are("", "fail", &[&image, "denied without a Secret"]);
        deploy(pair, &image, &secrets(&["wrong"])).await;
        pair.images_are("", "fail", &[&image, &format!("denied with Secret `shop/{}`", name("wrong"))]);
        deploy(pair, &image, &secrets(&["right"])).await;
        pair.images_are("", "pass", &["have 1 image"]);
        // The kubelet tries one after the other.
        deploy(pair, &image, &secrets(&["wrong", "right"])).await;
        pair.images_are("", "pass", &["have 1 image"]);
        deploy(pair, &image, &json!([])).await;
        pair.source.api.merge(account, &json!({"imagePullSecrets": secrets(&["right"])})).await;
        pair.images_are("", "pass", &["have 1 image"]);
        pair.source.api.merge(account, &json!({"imagePullSecrets": []})).await;
    }
}

/// An image rule names another registry, and a rule for pull secrets gives the credentials for it.
async fn with_rules(pair: &Pair, open: &Registry, token: &Registry) {
    deploy(pair, "registry.invalid/shop/web:1", &json!([])).await;
    let to = |host: &str| {
        format!("namespaces: [{NAMESPACE}]\nimages: [{{from: registry.invalid/, to: {host}/}}]\n")
    };
    let write = |text: &str| format!("--config {}", pair.workspace.write("mirror.yaml", text).display());
    pair.images_are(&write(&to(&open.host)), "pass", &["have 1 image"]);
    let config = to(&token.host);
    pair.images_are(&write(&config), "fail", &[&token.host, "denied without a Secret"]);
    let file = pair.workspace.write("dockerconfig.json", docker_config(&token.host, USER));
    let config = format!(
        "{config}pullSecrets: [{{name: regcred, fromFile: {}, attachTo: podTemplates}}]\n",
        file.display()
    );
    pair.images_are(&write(&config), "pass", &["have 1 image"]);
}

/// The mirror has nodes of another architecture than the source, which has none.
async fn with_platforms(pair: &Pair, open: &Registry) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mirror-1"}});
    pair.mirror.api.create(&node).await;
    let image = format!("{}/shop/arm:1", open.host);
    deploy(pair, &image, &json!([])).await;
    for (architecture, verdict) in [("amd64", "fail"), ("arm64", "pass")] {
        let info = json!({"architecture": architecture, "operatingSystem": "linux", "bootID": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "osImage": "", "systemUUID": ""});
        let path = format!("{}/status", object_path(&node));
        pair.mirror.api.merge(&path, &json!({"status": {"nodeInfo": info}})).await;
        let facts: &[&str] =
            if verdict == "fail" { &["shop/arm:1", "only for linux/arm64", "linux/amd64"] } else { &[] };
        pair.images_are("", verdict, facts);
    }
}
