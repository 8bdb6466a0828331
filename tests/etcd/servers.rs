//! The rig's own promises about etcd: every way of running it answers, keeps its data over a stop and a
//! kill, and refuses whom it should refuse.

use etcd_client::Client;

use super::rig::etcd::{Etcd, EtcdOptions, EtcdVersion};

const VERSIONS: [EtcdVersion; 2] = [EtcdVersion::Current, EtcdVersion::Debian];

#[tokio::test]
async fn plain() {
    for version in VERSIONS {
        keeps_data_over_a_kill(EtcdOptions { version, ..EtcdOptions::default() }).await;
    }
}

#[tokio::test]
async fn mutual_tls() {
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
async fn password() {
    for version in VERSIONS {
        let root_password = Some("not-a-secret".to_owned());
        let options = EtcdOptions { version, root_password, ..EtcdOptions::default() };
        let etcd = keeps_data_over_a_kill(options).await;
        let mut stranger = Client::connect([etcd.endpoint()], None).await.expect("anyone may connect");
        assert!(stranger.get("key", None).await.is_err(), "nobody may read");
    }
}

#[tokio::test]
async fn a_snapshot_is_small_after_compaction() {
    let etcd = Etcd::start(EtcdOptions::default()).await;
    for number in 0..50 {
        etcd.put("key", vec![number; 10_000]).await;
    }
    etcd.compact_and_defragment().await;
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let file = folder.path().join("snapshot.db");
    etcd.snapshot(&file);
    let size = std::fs::metadata(&file).expect("the snapshot is there").len();
    assert!(size < 100_000, "{size} bytes");
}

#[tokio::test]
async fn stopped_and_started_again() {
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
