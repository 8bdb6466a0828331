//! Clusters that encrypt at rest, with every provider whose keys are in a file: netsurgeon reads what the API server encrypted,
//! and the API server reads what netsurgeon encrypted.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::edits::{Until, edited};
use super::rig::cluster::{Cluster, ClusterOptions, Era};

/// The resources of a cluster that netsurgeon writes, besides ConfigMaps.
const WRITTEN: &[&str] = &["services", "ipaddresses.networking.k8s.io", "servicecidrs.networking.k8s.io"];

/// Keys of a provider, each with another secret of that many bytes. The secrets have a line break at their end, as in YAML with
/// `secret: |`, which the API server ignores.
fn keys(provider: &str, length: usize, names: &[&str]) -> Value {
    let secret = |name: &str| STANDARD.encode(name.bytes().cycle().take(length).collect::<Vec<_>>()) + "\n";
    let keys: Vec<Value> = names.iter().map(|name| json!({"name": name, "secret": secret(name)})).collect();
    json!({provider: {"keys": keys}})
}

fn identity() -> Value {
    json!({"identity": {}})
}

/// An API server's configuration.
fn configuration(resources: &[&str], providers: &[Value]) -> String {
    let entry = json!({"resources": resources, "providers": providers});
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [entry]})
        .to_string()
}

fn encrypting(era: Era, file: &Path) -> ClusterOptions {
    let mut options = ClusterOptions::new(era);
    options.api_server_flags = vec![format!("--encryption-provider-config={}", file.display())];
    options
}

/// A folder with a configuration in it.
fn folder(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("encryption.json");
    std::fs::write(&file, text).expect("a file");
    (folder, file)
}

/// Starts with one configuration and is renumbered with another, as after a rotation; what is written starts with `seal`.
async fn renumbered(era: Era, before: &str, now: &str, until: Until, seal: &str) {
    let (_folder, file) = folder(before);
    let rotate = || std::fs::write(&file, now).expect("a file");
    let (cluster, plan) = Box::pin(edited(encrypting(era, &file), until, rotate)).await;
    let mut addresses = 0;
    for moved in &plan.work.moves {
        let key = format!("/registry/services/specs/{}/{}", moved.namespace, moved.name);
        begins(&cluster, &key, seal).await;
        let key = format!("/registry/ipaddresses/{}", moved.new_address);
        if era != Era::Bitmap {
            begins(&cluster, &key, seal).await;
            addresses += 1;
        }
    }
    println!("{era:?}: {} Services and {addresses} addresses start with `{seal}`", plan.work.moves.len());
}

async fn begins(cluster: &Cluster, key: &str, seal: &str) {
    let value = cluster.etcd.get(key).await.unwrap_or_else(|| panic!("`{key}` is stored"));
    let found = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
    assert!(found.starts_with(seal), "`{key}` starts with {found:?}");
}

#[tokio::test]
async fn renumbering_works_with_rotated_aescbc_key() {
    let of = |names: &[&str]| configuration(WRITTEN, &[keys("aescbc", 32, names), identity()]);
    renumbered(Era::Objects, &of(&["old"]), &of(&["new", "old"]), Until::Retired, "k8s:enc:aescbc:v1:new:")
        .await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn renumbering_works_with_aesgcm_for_all_resources() {
    let everything = configuration(&["*.*"], &[keys("aesgcm", 24, &["one"])]);
    renumbered(Era::Objects, &everything, &everything, Until::Held, "k8s:enc:aesgcm:v1:one:").await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn renumbering_works_with_secretbox_for_two_groups() {
    let groups =
        configuration(&["*.", "*.networking.k8s.io"], &[keys("secretbox", 32, &["box"]), identity()]);
    renumbered(Era::Objects, &groups, &groups, Until::Retired, "k8s:enc:secretbox:v1:box:").await;
}

#[tokio::test]
async fn renumbering_works_after_change_of_provider() {
    let [cbc, gcm] = [keys("aescbc", 16, &["a"]), keys("aesgcm", 32, &["a"])];
    let before = configuration(WRITTEN, &[cbc.clone(), identity()]);
    let now = configuration(WRITTEN, &[gcm, cbc, identity()]);
    renumbered(Era::DualWrite, &before, &now, Until::Retired, "k8s:enc:aesgcm:v1:a:").await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn renumbering_works_after_encryption_is_removed() {
    let key = keys("secretbox", 32, &["gone"]);
    let before = configuration(&["services"], std::slice::from_ref(&key));
    let now = configuration(&["services"], &[identity(), key]);
    renumbered(Era::Bitmap, &before, &now, Until::Retired, "k8s\0").await;
}

#[tokio::test]
async fn renumbering_works_with_every_provider_in_bitmap_era() {
    for (provider, length) in [("aescbc", 32), ("aesgcm", 16), ("secretbox", 32)] {
        let text = configuration(&["*."], &[keys(provider, length, &["k"])]);
        let seal = format!("k8s:enc:{provider}:v1:k:");
        renumbered(Era::Bitmap, &text, &text, Until::Held, &seal).await;
    }
}
