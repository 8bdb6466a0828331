//! `ranges rewrite` beside a real API server: killed in the middle and resumed; and a renumbering and a rewrite exclude each
//! other.

use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit};

use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::relay::Relay;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, Serving, Watched};

const BITMAP: &str = "/registry/ranges/serviceips";

impl Serving {
    /// Clears the bit of `web`, which has 10.96.0.5, and sets one that no Service has.
    async fn drift(&self) {
        let value = self.cluster.etcd.get(BITMAP).await.expect("a bitmap");
        let change = FieldChange::Bits { capacity: (1 << 16) - 2, set: vec![4000], clear: vec![4] };
        let drifted = edit::apply(&value, &[FieldEdit { field: Field::data(), change }]).expect("an edit");
        self.cluster.etcd.put(BITMAP, drifted).await;
    }

    /// Starts a rewrite that blocks at the first write with these words: etcd gets the write, and its answer is lost.
    async fn rewrite_that_stops_at(&self, words: &str) -> (Relay, Watched) {
        let relay = Relay::start(&self.cluster.etcd.endpoint().replace("http://", ""));
        relay.be_silent_from(words);
        let mut command = self.command("ranges rewrite --yes --lock-ttl 30");
        command.env("ETCDCTL_ENDPOINTS", relay.address());
        let mut running = Watched::start(command);
        wait_until("etcd is silent", DEADLINE, async || {
            assert_eq!(running.ended(), None, "it is still running");
            let keys = self.cluster.etcd.keys("/netsurgeon/").await;
            let exists = keys.iter().any(|key| key.ends_with("/operation"));
            if relay.is_silent() && exists { Ok(()) } else { Err(format!("{keys:?}")) }
        })
        .await;
        (relay, running)
    }
}

#[tokio::test]
async fn killed_rewrite_is_resumed() {
    let serving = Serving::start(Era::DualWrite, ProxyMode::Nftables).await;
    for words in ["\"status\":\"running\"", "\"state\":\"done\""] {
        serving.drift().await;
        let (relay, running) = serving.rewrite_that_stops_at(words).await;
        drop(running);
        relay.cut();
        let operation = serving.journals().remove(0);
        let apply = "renumber apply --to 10.200.0.0/16 --no-snapshot --yes";
        let refused = serving.netsurgeon(apply).expect(1);
        assert!(refused.err.contains(&format!("`{operation}` (rewrite-range)")), "{}", refused.err);
        serving.netsurgeon(&format!("operation resume {operation} --take-over")).expect(0);
        serving.assert_clean();
        let listed = serving.netsurgeon("operation list -o json").expect(0).json();
        assert_eq!(listed["operations"][0]["status"], "done");
        serving.netsurgeon(&format!("operation forget {operation}")).expect(0);
        // The API server allocates from the rewritten bitmap: the address of `web` is allocated, any other is not.
        let spec = |address: &str| serde_json::json!({"clusterIP": address, "ports": [{"port": 80}]});
        serving.cluster.api.create_service("default", "more", spec("10.96.3.3")).await;
        serving.cluster.api.delete("/api/v1/namespaces/default/services/more").await;
    }
}

#[tokio::test]
async fn renumber_and_rewrite_exclude_each_other() {
    let serving = Serving::start(Era::DualWrite, ProxyMode::Nftables).await;
    serving.drift().await;
    let bitmap = serving.cluster.etcd.get(BITMAP).await;
    let (relay, mut rewrite) = serving.rewrite_that_stops_at("\"status\":\"running\"").await;
    let refused = serving.netsurgeon(&serving.apply_words()).expect(1);
    says(&refused.err, &["(rewrite-range)", "(pid "]);
    assert_eq!(serving.cluster.etcd.get(BITMAP).await, bitmap);
    relay.be_silent(false);
    relay.cut();
    // The rewrite reads the result of its write, and continues.
    let code = rewrite.end().await;
    if code != 0 {
        let operation = serving.journals().remove(0);
        serving.netsurgeon(&format!("operation resume {operation} --take-over")).expect(0);
    }
    serving.assert_clean();

    let mut apply = serving.start_netsurgeon(&serving.apply_words());
    serving.wait_for_records(&mut apply, "reserve", 1).await;
    apply.freeze();
    serving.drift().await;
    let refused = serving.netsurgeon("ranges rewrite --yes").expect(1);
    says(&refused.err, &["(pid "]);
    apply.thaw();
    apply.signal(rustix::process::Signal::INT);
    apply.end().await;
    // Interrupted: no process has the lock, and its bits are still its own.
    let refused = serving.netsurgeon("ranges rewrite --yes").expect(1);
    says(&refused.err, &["(renumber)"]);
    assert!(!refused.err.contains("(pid "), "no process runs it: {}", refused.err);
}
