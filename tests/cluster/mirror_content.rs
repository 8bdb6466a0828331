//! What `netsurgeon mirror plan --diff` shows on two real clusters: what rules and the mirror's API server change, and of Secrets only
//! the names of keys.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::mirror_pair::{NAMESPACE, Pair, object};
use super::rig::run::says;

/// A value that nothing may show.
const CANARY: &str = "canary-of-the-difference";

const CONFIG: &str = r"
namespaces: [shop]
images:
- {from: registry.example.com/, to: registry-green.example.com/}
text:
- {kinds: [ConfigMap], from: db.blue.internal, to: db.green.internal}
";

fn declared() -> Vec<Value> {
    let container = json!({"name": "main", "image": "registry.example.com/web:1"});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let service = json!({"selector": {"app": "web"}, "ports": [{"port": 80}], "externalIPs": ["192.0.2.7"]});
    vec![
        object("v1", "Service", "web", &json!({"spec": service})),
        object("apps/v1", "Deployment", "web", &json!({"spec": spec})),
        object(
            "v1",
            "ConfigMap",
            "settings",
            &json!({"data": {"conf": "# first\ndb=db.blue.internal\n# last"}}),
        ),
        object("v1", "Secret", "keys", &json!({"stringData": {"token": CANARY, "same": CANARY}})),
    ]
}

/// Returns what `--diff` shows, as text and as lines of the objects in JSON.
fn differences(pair: &Pair, config: &str) -> (String, Vec<String>) {
    let plan = format!("plan --config {config} --save {} --diff", pair.plan);
    let shown = pair.run(&plan).expect(0);
    let document = pair.run(&format!("{plan} -o json")).expect(0).json();
    let everything = format!("{}{}{document}", shown.out, shown.err);
    let encoded = "Y2FuYXJ5LW9mLXRoZS1kaWZmZXJlbmNl";
    assert!(!everything.contains(CANARY) && !everything.contains(encoded), "{everything}");
    let mut lines = Vec::new();
    for object in document["objects"].as_array().expect("objects") {
        for part in ["copy", "mirror", "change"] {
            for field in object[part].as_array().expect("fields") {
                let values = format!("{} {}", field["from"], field["to"]);
                lines.push(format!("{} {part} {} {values}", object["name"], field["path"]).replace('"', ""));
            }
        }
    }
    (shown.out, lines)
}

#[tokio::test]
async fn differences_are_shown_without_secrets() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    pair.create(&declared()).await;
    let other = object("v1", "ConfigMap", "theirs", &json!({"data": {"a": "of the mirror"}}));
    pair.mirror.api.create(&other).await;
    pair.source
        .api
        .create(&object("v1", "ConfigMap", "theirs", &json!({"data": {"a": "of the source"}})))
        .await;
    let config = pair.workspace.write("mirror.yaml", CONFIG).display().to_string();

    let (text, lines) = differences(&pair, &config);
    for line in [
        "Deployment shop/web: create\n",
        "  copy    ~ spec.template.spec.containers[name=main].image: \"registry.example.com/web:1\" -> \"registry-green.example.com/web:1\"\n",
        "  copy    ~ data.conf: \"db=db.blue.internal\" -> \"db=db.green.internal\"\n",
        "  copy    - spec.externalIPs: [\"192.0.2.7\"]\n",
        "ConfigMap shop/theirs: conflict\n  change  ~ data.a: \"of the mirror\" -> \"of the source\"\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(lines.contains(&"theirs change data.a of the mirror of the source".to_string()), "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.starts_with("keys ")),
        "the copy of the Secret is the same: {lines:?}"
    );

    pair.apply().expect(0);
    pods_are_awaited(&pair).await;
    let secret = json!({"stringData": {"token": format!("{CANARY} 2"), "new": CANARY}});
    pair.source.api.merge("/api/v1/namespaces/shop/secrets/keys", &secret).await;
    let (text, lines) = differences(&pair, &config);
    let expected = "Secret shop/keys: update\n  change  ~ data.token: differs\n  change  + data.new\n";
    assert!(text.contains(expected), "{text}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("keys ")).count(), 2, "{lines:?}");
    assert!(!text.contains("Deployment shop/web"), "the copy is the same: {text}");
}

/// No node runs Pods here, so the test writes the status that the controller would write.
async fn pods_are_awaited(pair: &Pair) {
    let found = pair.run("verify -o json").expect(3).json();
    let late: Vec<_> =
        found["objects"].as_array().expect("objects").iter().filter(|one| one["state"] != "equal").collect();
    assert_eq!(found["not_ready"], 1, "{found}");
    assert_eq!((late.len(), &late[0]["state"]), (1, &json!("not-ready")), "{found}");
    says(
        &pair.run("verify").expect(3).out,
        &["Deployment shop/web", "not ready", "its controller has not seen it yet"],
    );
    pair.run("verify --skip-readiness").expect(0);
    let words = format!("mirror verify --wait 60 --mirror-kubeconfig {}", pair.mirror.kubeconfig().display());
    let mut waiting =
        pair.command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(waiting.stderr.take().expect("its messages")).lines();
    let mut said = Vec::new();
    for line in lines {
        said.push(line.expect("a line"));
        if said.len() == 1 {
            let path = "/apis/apps/v1/namespaces/shop/deployments/web";
            let generation = pair.mirror.api.get(path).await["metadata"]["generation"].clone();
            let status = json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1});
            pair.mirror.api.merge(&format!("{path}/status"), &json!({"status": status})).await;
        }
    }
    assert_eq!(waiting.wait().expect("it ends").code(), Some(0), "{said:?}");
    assert_eq!(said, ["1 workload is not ready; waiting", "5 of 5 copies are equal"]);
}
