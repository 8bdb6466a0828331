//! What netsurgeon refuses on real servers, with exit status 1, and without a write.

use std::process::Command;
use std::time::Duration;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::etcd::{Etcd, EtcdOptions};
use super::rig::process::free_port;
use super::rig::run::says;
use super::rig::workspace::Workspace;

/// Runs netsurgeon with nothing but these variables in its environment: exit status and stderr.
fn netsurgeon(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().envs(environment.iter().copied()).args(arguments);
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("$ netsurgeon {}\n{err}[{:?}]", arguments.join(" "), output.status.code());
    assert!(output.stdout.is_empty() || output.status.success(), "a refusal prints no data");
    (output.status.code().unwrap_or(-1), err)
}

#[tokio::test]
async fn wrong_password_is_rejected_and_never_printed() {
    let options = EtcdOptions { root_password: Some("right-horse".into()), ..EtcdOptions::default() };
    let etcd = Etcd::start(options).await;
    let endpoint = etcd.endpoint();
    let with = |user: &str| {
        let environment = [("ETCDCTL_ENDPOINTS", endpoint.as_str()), ("ETCDCTL_USER", user)];
        netsurgeon(&["ranges", "check"], &environment)
    };
    let (code, err) = with("root:wrong-horse");
    assert_eq!(code, 1, "{err}");
    says(&err, &["credentials", &format!("`{endpoint}`")]);
    assert!(!err.contains("horse"), "{err}");
    let (code, err) = with("root:right-horse");
    assert_eq!(code, 1, "this etcd has no cluster: {err}");
    says(&err, &["Services", "/registry"]);
}

#[test]
fn missing_etcd_times_out() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let (code, err) =
        netsurgeon(&["ranges", "show", "--etcd-endpoints", &endpoint, "--etcd-timeout", "1"], &[]);
    assert_eq!(code, 1);
    assert!(err.contains(&endpoint) && err.contains("hint:"), "{err}");
}

/// Services under encryption at rest, as the API server itself encrypts them.
#[tokio::test]
async fn encrypted_services_error_names_provider_and_key() {
    let files = Workspace::create("encryption");
    let config = files.write(
        "encryption.yaml",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - resources: [services]\n  providers:\n  - aescbc:\n      keys:\n      - name: key-2026\n        \
         secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n  - identity: {}\n",
    );
    let mut options = ClusterOptions::new(Era::Objects);
    options.api_server_flags = vec![format!("--encryption-provider-config={}", config.display())];
    let cluster = Cluster::start(options).await;
    super::rig::process::wait_until("default/kubernetes in etcd", Duration::from_secs(30), async || {
        let stored = cluster.etcd.get("/registry/services/specs/default/kubernetes").await;
        stored.map(drop).ok_or_else(|| "no such key".to_string())
    })
    .await;
    let file = cluster.directory().join("encrypted.snapshot.db");
    cluster.etcd.snapshot(&file);
    let file = file.to_str().unwrap();
    let endpoint = cluster.etcd.endpoint();
    for arguments in [
        vec!["rehearse", file, "--to", "10.200.0.0/16"],
        vec!["ranges", "check", "--snapshot", file],
        vec!["renumber", "plan", "--to", "10.200.0.0/16", "--etcd-endpoints", &endpoint],
        vec!["inspect", "get", "service", "default/kubernetes", "--etcd-endpoints", &endpoint],
    ] {
        let (code, err) = netsurgeon(&arguments, &[]);
        assert_eq!(code, 1, "{err}");
        for word in ["aescbc", "key-2026", "hint:"] {
            assert!(err.contains(word), "`{word}` is printed: {err}");
        }
    }
    let ours = cluster.etcd.keys("/netsurgeon/").await;
    assert_eq!(ours, Vec::<String>::new(), "nothing was written");
}

/// Nothing verifies which server receives the credentials: every command that sends them warns once.
#[tokio::test]
async fn kubeconfig_without_verification_causes_one_warning() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let own = std::fs::read_to_string(cluster.kubeconfig()).expect("a kubeconfig");
    let authority = own.find("certificate-authority:").expect("it has an authority");
    let end = authority + own[authority..].find('}').expect("the cluster ends");
    let insecure = format!("{}insecure-skip-tls-verify: true{}", &own[..authority], &own[end..]);
    let insecure = cluster.write("insecure.conf", &insecure);
    for words in ["lock status", "controlplane show --no-host"] {
        for (kubeconfig, warnings) in [(insecure.as_path(), 1), (cluster.kubeconfig(), 0)] {
            let kubeconfig = kubeconfig.to_str().expect("a path");
            let words: Vec<&str> = words.split(' ').chain(["--kubeconfig", kubeconfig]).collect();
            let (_, err) = netsurgeon(&words, &[]);
            assert_eq!(err.matches("insecure-skip-tls-verify").count(), warnings, "{err}");
        }
    }
}
