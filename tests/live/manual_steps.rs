//! Manual steps on a real control plane: a confirmation is compared with the observed state, a rollback asks for the old state
//! again, and an operation that has ended is not resumed.

use std::process::Command;

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::rig::run::{run, says};
use super::serving_cluster::{NEW_RANGE, Serving};

const OLD_RANGE: &str = "10.96.0.0/16";

impl Serving {
    /// The state of a step in the journal.
    async fn state(&self, step: &str) -> Option<String> {
        let keys = self.cluster.etcd.keys("/netsurgeon/").await;
        let key = keys.into_iter().find(|key| key.ends_with(&format!("/steps/{step}")))?;
        let record: Value = serde_json::from_slice(&self.cluster.etcd.get(&key).await?).expect("JSON");
        record["state"].as_str().map(str::to_owned)
    }

    /// Removes the API server from the endpoints of `default/kubernetes`; it is not there at once after it is ready again,
    /// either.
    async fn take_out_endpoints(&self) {
        let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        self.cluster.api.merge(path, &json!({"endpoints": []})).await;
    }

    /// Everything that netsurgeon has stored.
    async fn stored(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let mut stored = Vec::new();
        for key in self.cluster.etcd.keys("/netsurgeon/").await {
            let value = self.cluster.etcd.get(&key).await;
            stored.push((key, value));
        }
        stored
    }
}

#[tokio::test]
async fn confirmation_is_refused_when_an_api_server_contradicts_it() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.netsurgeon(&serving.apply_words()).expect(6);
    let operation = serving.journals().remove(0);
    let resume = format!("operation resume {operation} --confirm flags");
    let refused = serving.netsurgeon(&resume).expect(6);
    says(&refused.err, &["`flags`", "process ", &format!("`{OLD_RANGE}`")]);
    assert_ne!(serving.state("manual/flags").await.as_deref(), Some("done"));
    let typed = serving.netsurgeon(&format!("{resume} --confirm soka")).expect(2);
    says(&typed.err, &["`flags`", "`soak`"]);

    // The Pod of an API server on another host has the old flag, too.
    let command = ["kube-apiserver".to_owned(), format!("--service-cluster-ip-range={OLD_RANGE}")];
    serving.cluster.mirror("kube-apiserver", 1, &command).await;
    serving.restart_with(NEW_RANGE).await;
    serving.take_out_endpoints().await;
    let refused = serving.netsurgeon(&resume).expect(6);
    says(&refused.err, &["`flags`", "kube-apiserver-cp-1", "cp-1", "`10.96.0.0/16`"]);
    let command = ["kube-apiserver".to_owned(), format!("--service-cluster-ip-range={NEW_RANGE}")];
    serving.cluster.mirror("kube-apiserver", 1, &command).await;
    serving.netsurgeon(&resume).expect(0);

    // An operator sets the old flag again: `retire` refuses, and starts nothing.
    serving.restart_with(OLD_RANGE).await;
    serving.take_out_endpoints().await;
    let before = serving.stored().await;
    let confirmed = "--confirm cluster-dns --confirm soak --confirm certificates-after";
    let retire = format!("renumber retire --without-evidence --yes {confirmed}");
    let refused = serving.netsurgeon(&retire).expect(1);
    assert!(
        refused.err.contains("process ") && refused.err.contains("controlplane set-range"),
        "{}",
        refused.err
    );
    assert_eq!(serving.stored().await, before);
    serving.restart_with(NEW_RANGE).await;
    // An option of older versions, which changes nothing.
    serving.netsurgeon("renumber retire --without-evidence --yes --keep-journal").expect(6);
    serving.netsurgeon(&retire).expect(0);

    // The operation is done and its journal stays: `resume` does not remove it.
    let before = serving.stored().await;
    for words in [resume.as_str(), &format!("{retire} --operation {operation}")] {
        let refused = serving.netsurgeon(words).expect(1);
        says(&refused.err, &[&format!("`{operation}`"), "done"]);
        says(&refused.err, &[&format!("`netsurgeon operation forget {operation}`")]);
        assert_eq!(serving.stored().await, before, "{words}");
    }
    let refused = serving.netsurgeon(&format!("operation rollback {operation} --yes")).expect(1);
    says(&refused.err, &[&format!("`{operation}`"), "done"]);
    assert_eq!(serving.stored().await, before);
}

/// A confirmation of flags that nobody can read is accepted, but the first old address is only retired once every flag is known, or
/// with an option of its own.
#[tokio::test]
async fn unread_flags_hold_back_the_retirement() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    // In a PID namespace of its own, the program does not see the API server's process.
    let blindly = |serving: &Serving, words: &str| {
        let plain = serving.command(words);
        let mut blind = Command::new("unshare");
        blind.env_clear().current_dir("/").args(["--pid", "--fork", "--mount-proc"]);
        blind.arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            blind.env(name, value.unwrap_or_default());
        }
        run(words, blind)
    };
    let apply = serving.apply_words();
    let paused = blindly(&serving, &apply).expect(6);
    says(&paused.err, &["flags: ", "0 of 1 API server"]);
    let operation = serving.journals().remove(0);
    // The operator has not changed the flag.
    let resumed = blindly(&serving, &format!("operation resume {operation} --confirm flags")).expect(0);
    says(&resumed.err, &["`flags`", "not verified", "1 of 1 API server", "--accept-unverified-flags"]);

    let held = serving.stored().await;
    let confirmed = "--confirm cluster-dns --confirm soak --confirm certificates-after";
    let retire = format!("renumber retire --without-evidence --yes {confirmed}");
    let refused = blindly(&serving, &retire).expect(1);
    says(&refused.err, &["1 of 1 API server", &format!("`{NEW_RANGE}`")]);
    says(&refused.err, &["hint: ", "`--accept-unverified-flags`"]);
    let refused = serving.netsurgeon(&format!("{retire} --accept-unverified-flags")).expect(1);
    says(&refused.err, &["process ", &format!("`{OLD_RANGE}`")]);
    assert_eq!(serving.stored().await, held, "no step was started");
    let verified = serving.netsurgeon("renumber verify -o json").expect(0).json();
    assert_eq!((&verified["retired"], &verified["findings"]), (&json!(0), &json!([])));

    serving.restart_with(NEW_RANGE).await;
    let retired = blindly(&serving, &format!("{retire} --accept-unverified-flags")).expect(0);
    says(&retired.err, &["warning: ", "`--accept-unverified-flags`"]);
    // The journal stays, and with it the report.
    let page = serving.cluster.directory().join("report.html");
    serving.netsurgeon(&format!("operation report {operation} --html {}", page.display())).expect(0);
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("id=\"runs\"") && page.contains("waiting for manual step"), "{page}");
    serving.netsurgeon(&format!("operation forget {operation}")).expect(0);
    serving.assert_clean();
}

#[tokio::test]
async fn rollback_ends_once_the_old_flags_are_back() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.netsurgeon(&serving.apply_words()).expect(6);
    let operation = serving.journals().remove(0);
    // The operator has changed the flag without a confirmation.
    serving.restart_with(NEW_RANGE).await;
    let rollback = format!("operation rollback {operation} --yes --linger 0");
    let paused = serving.netsurgeon(&rollback).expect(6);
    assert!(paused.err.contains(&format!("set-range --to {OLD_RANGE}")), "{}", paused.err);
    assert_eq!(serving.state("manual/flags").await.as_deref(), Some("undo-started"));
    let refused = serving.netsurgeon(&format!("{rollback} --confirm flags")).expect(6);
    says(&refused.err, &["`flags`", "process ", &format!("`{NEW_RANGE}`")]);
    serving.restart_with(OLD_RANGE).await;
    serving.take_out_endpoints().await;
    let back = serving.netsurgeon(&rollback).expect(0);
    says(&back.err, &["flags: ", "verified"]);
    assert!(serving.cluster_ip("web").await.starts_with("10.96."));
    serving.wait_for_one_range().await;

    // After the rollback a resume is refused, and a second rollback has nothing to do.
    let before = serving.stored().await;
    let refused = serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(1);
    says(&refused.err, &[&format!("`{operation}`"), "rolled back"]);
    says(&refused.err, &[&format!("`netsurgeon operation forget {operation}`")]);
    serving.netsurgeon(&rollback).expect(0);
    assert_eq!(serving.stored().await, before);
    serving.netsurgeon(&format!("operation forget {operation}")).expect(0);
    serving.assert_clean();
}
