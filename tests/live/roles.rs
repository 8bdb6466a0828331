//! Every group of commands does with the rights of its role in `deploy/rbac.yaml`, and a role gives no others.

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::serving::{NEW_RANGE, Run, Serving, run};

/// Makes the roles, and binds each to a user of its own name, the one for operators to their group.
pub async fn install(serving: &Serving) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac.yaml");
    let text = std::fs::read_to_string(file).expect("the roles");
    for part in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(part).expect("an object");
        serving.cluster.api.create(&object).await;
    }
    let group = "rbac.authorization.k8s.io";
    for role in ["netsurgeon-lock", "netsurgeon-look", "netsurgeon-cni"] {
        let subject = json!({"apiGroup": group, "kind": "User", "name": role});
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": role}, "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        });
        serving.cluster.api.create(&binding).await;
    }
}

/// Runs the program as somebody.
pub fn by(serving: &Serving, user: &str, group: Option<&str>, words: &str) -> Run {
    let mut command = serving.command(words);
    command.env("KUBECONFIG", serving.cluster.kubeconfig_as(0, user, group));
    run(words, command)
}

/// Whether everything was seen that a preflight looks at, and the rights are there for what comes next.
fn had_its_rights(looked: &Run, rights: &str) {
    for check in looked.json()["checks"].as_array().expect("checks") {
        let text = check["seen"].as_str().expect("what was seen");
        assert!(!text.contains("forbidden") && !text.contains("may not"), "{check}");
        assert!(check["name"] != rights || check["verdict"] == "pass", "{check}");
    }
}

#[tokio::test]
async fn each_does_for_its_commands_and_for_no_others() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    install(&serving).await;
    let operator = |serving: &Serving, words: &str| by(serving, "olga", Some("netsurgeon-operators"), words);

    // The rig's API server has no Pod that tells its flags, and its certificate is as it was.
    let looked = operator(&serving, &format!("preflight renumber --to {NEW_RANGE} -o json"));
    had_its_rights(&looked, "rights");
    had_its_rights(&by(&serving, "netsurgeon-cni", None, "preflight cni -o json"), "drain-rights");
    let probe = serving.probe(&Serving::targets()).await;
    operator(&serving, &serving.apply_words()).expect(6);
    serving.restart_with(NEW_RANGE).await;
    let operation = serving.journals().remove(0);
    operator(&serving, &format!("operation resume {operation} --confirm flags")).expect(0);
    assert_eq!(serving.cluster_ip("web").await, "10.200.0.5");
    serving.restart_with("10.96.0.0/16").await;
    operator(&serving, "renumber rollback --yes --linger 1 --confirm flags").expect(0);
    serving.assert_unbroken(&probe.stop(), &Serving::targets());
    serving.wait_for_one_range().await;
    serving.assert_clean();

    let lock = "lock --reason window";
    by(&serving, "netsurgeon-lock", None, lock).expect(0);
    by(&serving, "netsurgeon-lock", None, "unlock").expect(0);
    let refused = operator(&serving, lock).expect(1);
    assert!(refused.err.contains("validatingadmissionpolic"), "{}", refused.err);
    // It sees the API servers of other tests beside it, which have other ranges: status 3.
    let shown = by(&serving, "netsurgeon-look", None, "controlplane show");
    assert!([0, 3].contains(&shown.code) && !shown.err.contains("may not"), "{}", shown.err);
    by(&serving, "netsurgeon-look", None, "certs verify --cidr 10.96.0.0/16").expect(0);
    let refused = by(
        &serving,
        "netsurgeon-look",
        None,
        &format!("{} --metrics-listen 127.0.0.1:0", serving.apply_words()),
    );
    assert_eq!(refused.code, 1, "{}", refused.err);
}
