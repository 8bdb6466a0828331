//! A cluster that encrypts everything at rest, and stores JSON: a renumbering and its rollback under traffic, and the refusals
//! before anything is written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::rig::cluster::{ClusterOptions, Era};
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::rig::workspace::Workspace;
use super::serving_cluster::{NEW_RANGE, Serving, run};

/// An API server's configuration for all resources: keys of AES-GCM, by name and the byte that fills the secret.
fn configuration(keys: &[(&str, u8)]) -> String {
    let keys: Vec<_> = keys
        .iter()
        .map(|(name, fill)| json!({"name": name, "secret": STANDARD.encode([*fill; 32])}))
        .collect();
    let entry = json!({"resources": ["*.*"], "providers": [{"aesgcm": {"keys": keys}}]});
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [entry]})
        .to_string()
}

#[tokio::test]
async fn encrypted_cluster_is_renumbered_and_rolled_back() {
    let files = Workspace::create("keys");
    let file = files.write("encryption.json", configuration(&[("one", 1)]));
    let mut options = ClusterOptions::new(Era::Objects);
    options.api_server_flags = vec![
        format!("--encryption-provider-config={}", file.display()),
        "--storage-media-type=application/json".to_owned(),
    ];
    let mut serving = Serving::start_on(options, ProxyMode::Iptables).await;
    let cluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking:\n  serviceSubnet: 10.96.0.0/16 # ours\n";
    let metadata = json!({"name": "kubeadm-config", "namespace": "kube-system"});
    let data = json!({"ClusterConfiguration": cluster});
    serving
        .cluster
        .api
        .create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
        .await;
    refused(&serving, &files).await;

    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    serving.apply("").await;
    assert_eq!(serving.cluster_ip("web").await, "10.200.0.5");
    let config = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";
    let changed = serving.cluster.api.get(config).await;
    let expected = cluster.replace("10.96.0.0/16", NEW_RANGE);
    assert_eq!(changed["data"]["ClusterConfiguration"], expected.as_str());
    for prefix in ["/registry/services/specs/", "/registry/ipaddresses/", "/registry/configmaps/"] {
        for key in serving.cluster.etcd.keys(prefix).await {
            let value = serving.cluster.etcd.get(&key).await.expect("the key exists");
            assert!(value.starts_with(b"k8s:enc:aesgcm:v1:one:"), "{key}");
        }
    }
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    let report = probe.stop();
    serving.assert_unbroken(&report, &old);
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    assert_eq!(serving.cluster.api.get(config).await["data"]["ClusterConfiguration"], cluster);
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// A wrong or missing configuration file is refused with the reason, and nothing is written.
async fn refused(serving: &Serving, files: &Workspace) {
    let words = serving.apply_words();
    let with = |text: Option<&str>| {
        let mut command = serving.command(&words);
        match text {
            Some(text) => command.env("NETSURGEON_ENCRYPTION_CONFIG", files.write("other.json", text)),
            None => command.env_remove("NETSURGEON_ENCRYPTION_CONFIG"),
        };
        run(&words, command).expect(1).err
    };
    let before = serving.cluster.etcd.keys("/registry/services/specs/").await;
    let other_secret = with(Some(&configuration(&[("one", 2)])));
    says(&other_secret, &["key `one`", "secret"]);
    let without = with(None);
    says(&without, &["`aesgcm`", "`one`"]);
    says(&without, &["--encryption-config"]);
    let too_early = with(Some(&configuration(&[("two", 2), ("one", 1)])));
    says(&too_early, &["key `one` of `aesgcm`", "key `two` of `aesgcm`"]);
    let kms = configuration(&[("one", 1)]).replace(
        "[{\"aesgcm\"",
        "[{\"kms\":{\"name\":\"vault\",\"apiVersion\":\"v2\",\"endpoint\":\"unix:///k\"}},{\"aesgcm\"",
    );
    let plugin = with(Some(&kms));
    says(&plugin, &["KMS", "`vault`"]);
    let audited = serving.netsurgeon("audit --old 10.96.0.0/16 -o json").expect(3).json();
    assert_eq!(audited["unread"], json!([]), "every value is decrypted");
    let words = "audit --old 10.96.0.0/16 -o json";
    let mut command = serving.command(words);
    let other = files.write("other.json", configuration(&[("one", 2)]));
    command.env("NETSURGEON_ENCRYPTION_CONFIG", other);
    let shut = run(words, command).expect(3).json();
    assert_eq!(shut["unread"][0]["reason"], "encrypted", "the audit continues: {shut}");
    assert!(shut["objects"].as_u64() > Some(0), "{shut}");
    let looked = format!("preflight renumber --to {NEW_RANGE} --only encryption");
    let opened = serving.netsurgeon(&looked).expect(0);
    says(&opened.out, &["aesgcm", "`one`"]);
    let mut command = serving.command(&looked);
    command.env_remove("NETSURGEON_ENCRYPTION_CONFIG");
    let shut = run(&looked, command).expect(3);
    assert!(shut.out.contains("--encryption-config FILE"), "{}", shut.out);
    let metadata = json!({"name": "token", "namespace": "default"});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}});
    serving.cluster.api.create(&secret).await;
    let looked = format!("preflight renumber --to {NEW_RANGE} --only secrets-at-rest");
    let encrypted = serving.netsurgeon(&looked).expect(0);
    says(&encrypted.out, &["secrets-at-rest", "pass", "1"]);
    assert_eq!(serving.cluster.etcd.keys("/netsurgeon/").await, Vec::<String>::new());
    assert_eq!(serving.cluster.etcd.keys("/registry/services/specs/").await, before);
}
