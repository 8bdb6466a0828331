//! The live store on real servers: the contract, credentials, paging, failures.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::overlay::Overlay;
use netsurgeon::store::{CommitError, KeyRange, ReadStore, Revision, StoreError, WriteStore};

use crate::contract::{self, create, scan, transaction, update};
use crate::rig::etcd::{Etcd, EtcdOptions as Server, EtcdVersion};
use crate::rig::process::{free_port, wait_until};
use crate::rig::relay::Relay;

pub const VERSIONS: [EtcdVersion; 2] = [EtcdVersion::Current, EtcdVersion::Debian];

pub async fn plain(version: EtcdVersion) -> Etcd {
    Etcd::start(Server { version, ..Server::default() }).await
}

/// Options for this server, without a user.
pub fn options(etcd: &Etcd) -> EtcdOptions {
    let mut options = EtcdOptions::new([etcd.endpoint()]);
    if let Some(tls) = etcd.tls() {
        options.ca_cert = Some(tls.authority.clone());
        options.cert = Some(tls.client.certificate.clone());
        options.key = Some(tls.client.key.clone());
    }
    options
}

fn impatient(options: EtcdOptions) -> EtcdOptions {
    EtcdOptions { connect_timeout: Duration::from_secs(2), retry_for: Duration::from_secs(2), ..options }
}

pub async fn connect(options: EtcdOptions) -> EtcdStore {
    EtcdStore::connect(options).await.expect("a connection")
}

/// Connecting must fail soon; returns the error.
async fn refused(options: EtcdOptions) -> StoreError {
    let started = Instant::now();
    let outcome = EtcdStore::connect(impatient(options)).await;
    assert!(started.elapsed() < Duration::from_secs(10), "refused after {:?}", started.elapsed());
    outcome.err().expect("a refusal")
}

#[tokio::test]
async fn etcd_store_fulfils_contract() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let store = connect(EtcdOptions { page_size: 2, ..options(&etcd) }).await;
        contract::check_writes(&store).await;
        let before = contract::everything(&store, None).await;
        let base = Arc::new(connect(options(&etcd)).await);
        let overlay = Overlay::new(base).await.expect("an overlay");
        contract::check_reads(&overlay).await;
        let own = overlay.commit(&transaction([create("/own", "1")])).await.expect("a commit");
        assert_eq!(own.0, store.revision().await.expect("a revision").0 + 1);
        assert_eq!(contract::everything(&store, None).await, before, "a rehearsal writes nothing");
    }
}

#[tokio::test]
async fn history_equals_that_of_memory_store() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let store = connect(EtcdOptions { page_size: 5, ..options(&etcd) }).await;
        let model = MemoryStore::new();
        assert_eq!(store.revision().await.expect("a revision"), Revision(1), "a new server");
        let revisions = contract::write_history(&model).await;
        assert_eq!(contract::write_history(&store).await, revisions);
        contract::assert_same(&model, &store, &revisions).await;
    }
}

#[tokio::test]
async fn mutual_tls_works_by_address_and_by_name() {
    for version in VERSIONS {
        let etcd = Etcd::start(Server { version, mutual_tls: true, ..Server::default() }).await;
        contract::check_writes(&connect(options(&etcd)).await).await;
        let by_name = etcd.endpoint().replace("127.0.0.1", "localhost");
        contract::check_reads(&connect(EtcdOptions { endpoints: vec![by_name], ..options(&etcd) }).await)
            .await;
        let without_scheme = etcd.endpoint().replace("https://", "");
        connect(EtcdOptions { endpoints: vec![without_scheme], ..options(&etcd) }).await;

        let anonymous = refused(EtcdOptions { cert: None, key: None, ..options(&etcd) }).await;
        assert!(matches!(anonymous, StoreError::Unauthenticated { .. }), "{anonymous:?}");
        let other = Etcd::start(Server { version, mutual_tls: true, ..Server::default() }).await;
        let authority = other.tls().expect("it has TLS").authority.clone();
        let distrusted = refused(EtcdOptions { ca_cert: Some(authority), ..options(&etcd) }).await;
        assert!(matches!(distrusted, StoreError::Configuration { .. }), "{distrusted:?}");
        let in_the_clear = etcd.endpoint().replace("https://", "http://");
        let in_the_clear = refused(EtcdOptions::new([in_the_clear])).await;
        assert!(matches!(in_the_clear, StoreError::Unreachable { .. }), "{in_the_clear:?}");
    }
}

#[tokio::test]
async fn tls_to_plain_server_is_configuration_error() {
    let (etcd, other) = (plain(EtcdVersion::Current).await, {
        Etcd::start(Server { mutual_tls: true, ..Server::default() }).await
    });
    let secure = etcd.endpoint().replace("http://", "https://");
    let outcome = refused(EtcdOptions { endpoints: vec![secure], ..options(&other) }).await;
    assert!(matches!(outcome, StoreError::Configuration { .. }), "{outcome:?}");
}

#[tokio::test]
async fn unusable_certificates_are_reported_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = directory.path().join("text.pem");
    std::fs::write(&text, "nothing of the kind").expect("a file");
    let absent: PathBuf = directory.path().join("absent.pem");
    for (path, words) in [(&text, "no PEM block"), (&absent, "No such file")] {
        let mut options = EtcdOptions::new(["https://127.0.0.1:1"]);
        options.ca_cert = Some(path.clone());
        let error = refused(options).await.to_string();
        assert!(error.contains(words) && error.contains(&path.display().to_string()), "{error}");
    }
    let no_authority = refused(EtcdOptions::new(["https://127.0.0.1:1"])).await;
    assert!(matches!(no_authority, StoreError::Configuration { .. }), "{no_authority:?}");
    let nothing = refused(EtcdOptions::new(Vec::<String>::new())).await;
    assert!(matches!(nothing, StoreError::Configuration { .. }), "{nothing:?}");
}

#[tokio::test]
async fn wrong_password_is_rejected_and_lost_token_renewed() {
    for version in VERSIONS {
        let password = "correct horse";
        let mut etcd =
            Etcd::start(Server { version, root_password: Some(password.into()), ..Server::default() }).await;
        let root = EtcdOptions { user: Some(("root".into(), password.into())), ..options(&etcd) };
        let store = connect(root.clone()).await;
        contract::check_writes(&store).await;

        let wrong =
            refused(EtcdOptions { user: Some(("root".into(), "battery".into())), ..options(&etcd) }).await;
        assert!(matches!(wrong, StoreError::Unauthenticated { .. }), "{wrong:?}");
        assert!(!format!("{wrong} {wrong:?} {root:?}").contains(password));
        assert!(!wrong.to_string().contains("battery"));
        let anonymous = refused(options(&etcd)).await;
        assert!(matches!(anonymous, StoreError::Unauthenticated { .. }), "{anonymous:?}");

        // A restarted server has forgotten its tokens.
        let before = contract::everything(&store, None).await;
        etcd.stop();
        etcd.start_again().await;
        assert_eq!(contract::everything(&store, None).await, before);
        store.commit(&transaction([create("/after", "1")])).await.expect("a commit with a new token");
    }
}

#[tokio::test]
async fn user_with_few_permissions_is_restricted() {
    let etcd = Etcd::start(Server { root_password: Some("secret".into()), ..Server::default() }).await;
    etcd.etcdctl(&["user", "add", "reader:pass"]);
    etcd.etcdctl(&["role", "add", "reading"]);
    etcd.etcdctl(&["role", "grant-permission", "--prefix=true", "reading", "read", "/mine/"]);
    etcd.etcdctl(&["user", "grant-role", "reader", "reading"]);
    etcd.put("/mine/a", "1").await;
    let store = connect(EtcdOptions { user: Some(("reader".into(), "pass".into())), ..options(&etcd) }).await;
    let newest = store.revision().await.expect("a revision");
    let (read_at, found) =
        scan(&store, &[KeyRange::prefix("/mine/")], None).await.expect("a scan of the permitted range");
    assert_eq!((read_at, found.len()), (newest, 1));
    let others = scan(&store, &[KeyRange::everything()], None).await;
    assert!(matches!(others, Err(StoreError::PermissionDenied { .. })), "{others:?}");
    let write = store.commit(&transaction([create("/mine/b", "1")])).await;
    assert!(matches!(write, Err(CommitError::Store(StoreError::PermissionDenied { .. }))), "{write:?}");
}

#[tokio::test]
async fn unreachable_server_is_reported_in_bounded_time() {
    let closed = format!("http://127.0.0.1:{}", free_port());
    let outcome = refused(EtcdOptions::new([closed])).await;
    assert!(matches!(outcome, StoreError::Unreachable { .. }), "{outcome:?}");
    // A server that accepts the connection and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = mute.local_addr().expect("an address").to_string();
    let outcome = refused(EtcdOptions::new([address])).await;
    assert!(matches!(outcome, StoreError::Unreachable { .. }), "{outcome:?}");
}

#[tokio::test]
async fn dead_endpoint_among_live_ones_is_harmless() {
    let etcd = plain(EtcdVersion::Current).await;
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = connect(EtcdOptions::new([dead, etcd.endpoint()])).await;
    contract::check_writes(&store).await;
}

#[tokio::test]
async fn scan_over_many_pages_has_one_revision() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let store = connect(EtcdOptions { page_size: 20, ..options(&etcd) }).await;
        for first in (0..400).step_by(100) {
            let changes: Vec<_> =
                (first..first + 100).map(|n| create(&format!("/pair/{n:03}"), "0")).collect();
            store.commit(&transaction(changes)).await.expect("a commit");
        }
        let writer = connect(options(&etcd)).await;
        // Each transaction changes a key and its partner, half the range away, to the same value.
        let writing = tokio::spawn(async move {
            for round in 1..500_usize {
                let (left, right) = (round % 200, round % 200 + 200);
                let mut changes = Vec::new();
                for number in [left, right] {
                    let key = format!("/pair/{number:03}");
                    let entry = writer.get(&key.as_str().into()).await.expect("a get").expect("it exists");
                    changes.push(update(&key, entry.mod_revision, &round.to_string()));
                }
                writer.commit(&transaction(changes)).await.expect("a commit");
            }
        });
        let mut moved = 0;
        while !writing.is_finished() {
            let (revision, found) = scan(&store, &[KeyRange::prefix("/pair/")], None).await.expect("a scan");
            assert_eq!(found.len(), 400);
            let (left, right) = found.split_at(200);
            assert!(
                left.iter().zip(right).all(|(left, right)| left.value == right.value),
                "half a transaction"
            );
            moved += usize::from(store.revision().await.expect("a revision") > revision);
        }
        writing.await.expect("the writer");
        assert!(moved > 0, "no write during a scan");
    }
}

#[tokio::test]
async fn lost_answer_is_reported_as_unknown_outcome() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let direct = connect(options(&etcd)).await;
        let relay = Relay::start(&etcd.endpoint().replace("http://", ""));
        let store = Arc::new(connect(EtcdOptions::new([relay.address()])).await);

        relay.be_silent(true);
        let behind = store.clone();
        let commit = tokio::spawn(async move { behind.commit(&transaction([create("/lost", "1")])).await });
        wait_until("the write arrives", Duration::from_secs(20), async || {
            let found = direct.get(&"/lost".into()).await.map_err(|error| error.to_string())?;
            found.map(drop).ok_or_else(|| "no such key".to_string())
        })
        .await;
        relay.be_silent(false);
        relay.cut();
        let outcome = commit.await.expect("the task");
        assert!(matches!(outcome, Err(CommitError::OutcomeUnknown { .. })), "{outcome:?}");
        let entry = store.get(&"/lost".into()).await.expect("reads continue").expect("it was applied");
        assert_eq!(entry.version, 1, "it was not sent twice");
    }
}

#[tokio::test]
async fn silent_server_ends_commit_with_unknown_outcome() {
    let etcd = plain(EtcdVersion::Current).await;
    let relay = Relay::start(&etcd.endpoint().replace("http://", ""));
    let options =
        EtcdOptions { request_timeout: Duration::from_secs(1), ..EtcdOptions::new([relay.address()]) };
    let store = connect(options).await;
    relay.be_silent(true);
    let outcome = store.commit(&transaction([create("/lost", "1")])).await;
    assert!(matches!(outcome, Err(CommitError::OutcomeUnknown { .. })), "{outcome:?}");
}

#[tokio::test]
async fn reads_and_unsent_writes_are_retried_over_restart() {
    let mut etcd = plain(EtcdVersion::Current).await;
    let store = Arc::new(connect(options(&etcd)).await);
    store.commit(&transaction([create("/a", "1")])).await.expect("a commit");
    etcd.kill();
    let patient = store.clone();
    let read = tokio::spawn(async move { patient.get(&"/a".into()).await });
    etcd.start_again().await;
    assert!(read.await.expect("the task").expect("a get").is_some());

    etcd.kill();
    let down = refused(options(&etcd)).await;
    assert!(matches!(down, StoreError::Unreachable { .. }), "{down:?}");
    // By now the store knows that its connection is closed: a write that cannot be sent may be sent later.
    let patient = store.clone();
    let write = tokio::spawn(async move { patient.commit(&transaction([create("/b", "1")])).await });
    etcd.start_again().await;
    write.await.expect("the task").expect("a commit");
    assert_eq!(store.get(&"/b".into()).await.expect("a get").expect("it exists").version, 1);

    etcd.kill();
    let down = refused(options(&etcd)).await;
    assert!(matches!(down, StoreError::Unreachable { .. }), "{down:?}");
}

#[tokio::test]
async fn oversized_transactions_are_rejected() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let store = connect(options(&etcd)).await;
        let large = "x".repeat(1_700_000);
        let many: Vec<_> = (0..129).map(|number| create(&format!("/many/{number}"), "1")).collect();
        let larger = large.repeat(2);
        for changes in [vec![create("/large", &large)], vec![create("/larger", &larger)], many] {
            let outcome = store.commit(&transaction(changes)).await;
            assert!(matches!(outcome, Err(CommitError::Refused { .. })), "{outcome:?}");
        }
        assert_eq!(store.revision().await.expect("a revision"), Revision(1));
    }
}

#[tokio::test]
async fn compacted_revision_error_has_oldest_revision() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let store = connect(options(&etcd)).await;
        let revisions = contract::write_history(&store).await;
        let oldest = revisions[20];
        etcd.etcdctl(&["compact", &oldest.to_string()]);
        let outcome = scan(&store, &[KeyRange::everything()], Some(revisions[19])).await;
        match outcome {
            Err(StoreError::Compacted { asked, oldest: told }) => {
                assert_eq!((asked, told), (revisions[19], oldest));
            }
            other => panic!("{other:?}"),
        }
        scan(&store, &[KeyRange::everything()], Some(oldest)).await.expect("the oldest one can be read");
    }
}

#[tokio::test]
async fn endpoints_of_two_clusters_are_rejected_by_name() {
    for version in VERSIONS {
        let (one, other) = (plain(version).await, plain(version).await);
        let both = [one.endpoint(), other.endpoint()];
        let error = refused(EtcdOptions::new(both.clone())).await;
        assert!(matches!(error, StoreError::Configuration { .. }), "{error:?}");
        let says = error.to_string();
        for endpoint in both {
            assert!(says.contains(&format!("`{endpoint}` ")), "{says}");
        }
        // An endpoint that does not answer is ignored; the same one twice is one cluster.
        let gone = format!("http://127.0.0.1:{}", free_port());
        connect(impatient(EtcdOptions::new([one.endpoint(), gone, one.endpoint()]))).await;
    }
}

#[tokio::test]
async fn update_keeps_the_lease() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let lease: String = etcd.etcdctl(&["lease", "grant", "600"]);
        let lease = lease.split_whitespace().nth(1).expect("`lease ID granted …`");
        etcd.etcdctl(&["put", &format!("--lease={lease}"), "/leased", "1"]);
        let store = connect(options(&etcd)).await;
        let before = store.get(&"/leased".into()).await.expect("a get").expect("it exists");
        assert_ne!(before.lease, 0);
        store.commit(&transaction([update("/leased", before.mod_revision, "2")])).await.expect("a commit");
        let after = store.get(&"/leased".into()).await.expect("a get").expect("it exists");
        assert_eq!((after.lease, after.value.as_slice()), (before.lease, &b"2"[..]));
    }
}

/// A page of large values is requested again with fewer keys: the size of the values does not limit a scan.
#[tokio::test]
async fn oversized_page_is_requested_in_parts() {
    let etcd = plain(EtcdVersion::Current).await;
    let store = connect(options(&etcd)).await;
    let large = "x".repeat(1_300_000);
    for number in 0..40 {
        let value = if (10..35).contains(&number) { large.as_str() } else { "small" };
        let change = create(&format!("/large/{number:02}"), value);
        store.commit(&transaction(vec![change])).await.expect("a commit");
    }
    let (_, found) = scan(&store, &[KeyRange::prefix("/large/")], None).await.expect("a scan");
    let sizes: Vec<usize> = found.iter().map(|entry| entry.value.len()).collect();
    let expected: Vec<usize> = (0..40).map(|n| if (10..35).contains(&n) { large.len() } else { 5 }).collect();
    assert_eq!(sizes, expected);
}
