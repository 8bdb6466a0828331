//! `netsurgeon mirror parity` on two real API servers and an AWS account that moto serves.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::mirror_pair::Pair;
use super::rig::api::Api;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::moto::{Moto, REGION};
use super::rig::run::{Run, run, says};
use super::rig::workspace::Workspace;

/// The issuers of the clusters' tokens.
const ISSUERS: [&str; 2] = ["oidc.example.com/blue", "oidc.example.com/green"];

/// Two clusters with an account.
struct Clusters {
    pair: Pair,
    moto: Moto,
    /// What the account has.
    account: Value,
}

impl Clusters {
    async fn start(differences: &[&str]) -> Self {
        let moto = Moto::start().await;
        let account = moto.create_clusters(&[&ISSUERS, differences].concat());
        let start = async |issuer: &str| {
            let api_server_flags = vec![format!("--service-account-issuer=https://{issuer}")];
            let options =
                ClusterOptions { controllers: false, api_server_flags, ..ClusterOptions::new(Era::Objects) };
            Cluster::start(options).await
        };
        let (source, mirror) = (start(ISSUERS[0]).await, start(ISSUERS[1]).await);
        let workspace = Workspace::create("parity");
        let plan = workspace.join("plan.json").display().to_string();
        let pair = Pair { source, mirror, workspace, plan };
        for (cluster, side) in [(&pair.source, "blue"), (&pair.mirror, "green")] {
            create_objects(&cluster.api, &account["instances"][side]).await;
        }
        // Only in the source: the mirror has no copies yet.
        for role in ["reports", "shop-web"] {
            pair.source.api.create(&pod(role, role)).await;
        }
        Self { pair, moto, account }
    }

    fn parity(&self, words: &str) -> Run {
        self.parity_with(words, self.moto.environment())
    }

    fn parity_with(&self, words: &str, environment: Vec<(&'static str, String)>) -> Run {
        let mirror = self.pair.mirror.kubeconfig().display().to_string();
        let words = format!("mirror parity --mirror-kubeconfig {mirror} {words}");
        let mut command = self.pair.command(&words);
        command.envs(environment);
        run(&words, command)
    }
}

/// Returns a Pod with an annotation for an agent of its node.
fn pod(name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "annotations": {"iam.amazonaws.com/role": role}},
        "spec": {"containers": [{"name": "a", "image": "example.com/a:1"}], "serviceAccountName": "web"},
    })
}

/// Creates the Nodes of instances, and a ServiceAccount with a role.
async fn create_objects(api: &Api, instances: &Value) {
    api.create_namespace("shop").await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {
            "name": "web", "namespace": "shop",
            "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/shop-web"},
        },
    });
    api.create(&account).await;
    for (kind, ids) in instances.as_object().expect("groups") {
        for (number, id) in ids.as_array().expect("ids").iter().enumerate() {
            let mut labels = json!({"kops.k8s.io/instancegroup": kind});
            if kind == "masters" {
                labels["node-role.kubernetes.io/control-plane"] = json!("");
            }
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": format!("{kind}-{number}"), "labels": labels},
                "spec": {"providerID": format!("aws:///{REGION}a/{}", id.as_str().expect("an id"))},
            });
            api.create(&node).await;
        }
    }
}

fn changes(document: &Value) -> Vec<&Value> {
    document["changes"].as_array().expect("changes").iter().collect()
}

/// Returns the areas of the changes with their verdicts, sorted.
fn areas(document: &Value) -> Vec<String> {
    let words = |change: &&Value| {
        format!("{} {}", change["area"].as_str().unwrap(), change["verdict"].as_str().unwrap())
    };
    let mut areas: Vec<String> = changes(document).iter().map(words).collect();
    areas.sort();
    areas
}

#[tokio::test]
async fn equal_clusters_need_no_change() {
    let clusters = Clusters::start(&[]).await;
    let found = clusters.parity("-o json").expect(0).json();
    assert_eq!(found["changes"], json!([]), "{found:#}");
    assert_eq!(found["account"], "123456789012");
    assert_eq!(found["instances"], json!({"source": 3, "mirror": 3}));
    assert_eq!(
        found["groups"],
        json!([{"source": "masters", "mirror": "masters"}, {"source": "nodes", "mirror": "nodes"}])
    );
    says(&clusters.parity("").expect(0).err, &["0 changes to make"]);

    // Texts of tenants are no commands, and no hosts of requests.
    let api = &clusters.pair.source.api;
    api.create(&pod("evil", "x`: a change\n  why: a reason\n  aws iam delete-role --role-name nodes")).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a-first"},
        "spec": {"providerID": "aws:///a-b.attacker.example#-1a/i-0a"}});
    api.create(&node).await;
    let found = clusters.parity("").expect(3);
    says(&found.out, &["not checked", "Pod `shop/evil`"]);
    says(&found.out, &["not checked", "`a-first`"]);
    assert!(!found.out.contains("delete-role") && !found.out.contains("attacker"), "{}", found.out);
    let document = clusters.parity("-o json").expect(3).json();
    assert!(changes(&document).iter().all(|one| one["verdict"] == "not-checked"), "{document:#}");
}

/// Each planted difference is one change, and the commands that are printed make the clusters equal.
#[tokio::test]
async fn planted_differences_are_found_and_the_commands_remove_them() {
    let differences = [
        "address", "boundary", "cache", "clients", "database", "deny", "hops", "inline", "office",
        "provider", "registry", "reports", "web",
    ];
    let clusters = Clusters::start(&differences).await;
    let run = clusters.parity("").expect(3);
    says(&run.out, &["tcp 5432", "nodes.green.example.com"]);
    says(&run.out, &["RDSNetworkInterface"]);
    let found = clusters.parity("-o json").expect(3).json();
    let expected = [
        ("metadata-service", 1),
        ("node-role", 4),
        ("pod-role", 3),
        ("public-address", 1),
        ("security-group", 4),
    ];
    let expected: Vec<String> =
        expected.iter().flat_map(|(area, count)| vec![format!("{area} missing"); *count]).collect();
    assert_eq!(areas(&found), expected, "{found:#}");
    let subjects: BTreeSet<&str> =
        changes(&found).iter().map(|one| one["subject"].as_str().unwrap()).collect();
    for subject in ["role `shop-web`", "role `reports`", "role `nodes.green.example.com`"] {
        assert!(subjects.contains(subject), "{subjects:?}");
    }

    for change in changes(&found) {
        for command in change["commands"].as_array().expect("commands") {
            clusters.moto.paste(command.as_str().expect("a command"));
        }
    }
    // Only a person can tell partners about addresses, and decide what to do about a denial: their commands only show something.
    let rest = clusters.parity("-o json").expect(3).json();
    assert_eq!(areas(&rest), ["node-role missing", "public-address missing"], "{rest:#}");
    let denial = changes(&rest).into_iter().find(|one| one["area"] == "node-role").expect("the denial");
    assert!(denial["change"].as_str().unwrap().contains("denial"), "{denial}");
}

/// A right that is missing is never equality.
#[tokio::test]
async fn what_cannot_be_read_is_not_checked() {
    let clusters = Clusters::start(&["web"]).await;
    let allowed = [
        "ec2:DescribeInstances",
        "ec2:DescribeSubnets",
        "iam:GetInstanceProfile",
        "iam:ListOpenIDConnectProviders",
    ];
    let policy = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": allowed, "Resource": "*"}]});
    let moto = &clusters.moto;
    moto.aws(&["iam", "create-user", "--user-name", "sre"]);
    let policy = policy.to_string();
    moto.aws(&[
        "iam",
        "put-user-policy",
        "--user-name",
        "sre",
        "--policy-name",
        "some",
        "--policy-document",
        &policy,
    ]);
    let key = moto.aws(&["iam", "create-access-key", "--user-name", "sre"]);
    let text = |name: &str| key["AccessKey"][name].as_str().expect("a key").to_owned();
    let environment = || moto.environment_of((&text("AccessKeyId"), &text("SecretAccessKey")));
    moto.check_rights();
    let found = clusters.parity_with("-o json", environment()).expect(3).json();
    let unread: BTreeSet<&str> = changes(&found)
        .iter()
        .filter(|one| one["verdict"] == "not-checked")
        .map(|one| one["area"].as_str().unwrap())
        .collect();
    assert_eq!(
        Vec::from_iter(unread),
        ["node-role", "pod-role", "public-address", "security-group"],
        "{found:#}"
    );
    assert!(changes(&found).iter().all(|one| one["verdict"] == "not-checked"), "{found:#}");
    says(&clusters.parity_with("", environment()).out, &["not checked", "security groups"]);

    let wrong = moto.environment_of((&text("AccessKeyId"), "another-secret"));
    let refused = clusters.parity_with("", wrong).expect(1);
    says(&refused.err, &["aws sts get-caller-identity"]);
    assert!(!refused.err.contains("another-secret") && !refused.out.contains("another-secret"));
}

#[tokio::test]
async fn clusters_that_cannot_be_compared_are_refused() {
    let clusters = Clusters::start(&[]).await;
    // Instances of another account.
    let moto = Moto::start().await;
    let other = clusters.parity_with("", moto.environment()).expect(1);
    says(&other.err, &["no instance of the nodes of the source", "eu-west-1"]);
    for name in ["masters-0", "nodes-0", "nodes-1"] {
        clusters.pair.mirror.api.delete(&format!("/api/v1/nodes/{name}")).await;
    }
    says(&clusters.parity("").expect(1).err, &["no node of the mirror", "providerID"]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"kops.k8s.io/instancegroup": "gpu"}},
        "spec": {"providerID": format!("aws:///{REGION}a/{}", clusters.account["instances"]["green"]["nodes"][0].as_str().unwrap())}});
    clusters.pair.mirror.api.create(&node).await;
    let found = clusters.parity("").expect(3);
    says(&found.out, &["not checked", "group `masters` of the source"]);
    says(&found.err, &["`nodes` with `gpu`"]);
}
