//! The rig's own guarantees about etcd: every way to run it answers, keeps its data over a stop and a kill, and rejects wrong
//! credentials.

use etcd_client::Client;

use super::rig::etcd::{Etcd, EtcdOptions, EtcdVersion};

const VERSIONS: [EtcdVersion; 2] = [EtcdVersion::Current, EtcdVersion::Debian];

#[tokio::test]
async fn plain_server_keeps_data_over_a_kill() {
    for version in VERSIONS {
        keeps_data_over_a_kill(EtcdOptions { version, ..EtcdOptions::default() }).await;
    }
}

#[tokio::test]
async fn mutual_tls_server_rejects_client_without_certificate() {
    for version in VERSIONS {
        let options = EtcdOptions { version, mutual_tls: true, ..EtcdOptions::default() };
        let etcd = keeps_data_over_a_kill(options).await;
        let stranger = Client::connect([etcd.endpoint()], None).await;
        let answer = match stranger {
            Ok(mut client) => client.get("key", None).await.map(drop),
            Err(error) => Err(error),
        };
        assert!(answer.is_err(), "a client without a certificate is refused");
    }
}

#[tokio::test]
async fn server_with_password_rejects_anonymous_reads() {
    for version in VERSIONS {
        let root_password = Some("not-a-secret".to_owned());
        let options = EtcdOptions { version, root_password, ..EtcdOptions::default() };
        let etcd = keeps_data_over_a_kill(options).await;
        let mut stranger = Client::connect([etcd.endpoint()], None).await.expect("every client can connect");
        assert!(stranger.get("key", None).await.is_err(), "an anonymous client cannot read");
    }
}

#[tokio::test]
async fn snapshot_is_small_after_compaction() {
    let etcd = Etcd::start(EtcdOptions::default()).await;
    for number in 0..50 {
        etcd.put("key", vec![number; 10_000]).await;
    }
    etcd.compact_and_defragment().await;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("snapshot.db");
    etcd.snapshot(&file);
    let size = std::fs::metadata(&file).expect("a snapshot").len();
    assert!(size < 100_000, "{size} bytes");
}

#[tokio::test]
async fn data_survives_a_stop() {
    let mut etcd = Etcd::start(EtcdOptions::default()).await;
    etcd.put("key", "value").await;
    etcd.stop();
    etcd.start_again().await;
    assert_eq!(etcd.keys("").await, ["key"]);
}

async fn keeps_data_over_a_kill(options: EtcdOptions) -> Etcd {
    let mut etcd = Etcd::start(options).await;
    etcd.put("key", "value").await;
    etcd.put("other", "value").await;
    etcd.kill();
    etcd.start_again().await;
    assert_eq!(etcd.keys("").await, ["key", "other"]);
    assert_eq!(etcd.get("key").await.as_deref(), Some(b"value".as_slice()));
    assert_eq!(etcd.get("missing").await, None);
    etcd.etcdctl(&["get", "key"]);
    etcd
}
