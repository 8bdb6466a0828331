//! A cluster of three members that loses its leader while it is read and written.

use std::sync::Arc;
use std::time::Duration;

use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::{CommitError, KeyRange, ReadStore, WriteStore};

use crate::contract::{create, scan, transaction};
use crate::rig::etcd::{Etcd, EtcdOptions as Servers};

/// Writes keys one by one, deciding by reading when an answer is lost.
async fn write(store: &EtcdStore, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let key = format!("/members/{number:03}");
        loop {
            match store.commit(&transaction([create(&key, "1")])).await {
                // A conflict: the lost write was carried out after it had been looked for.
                Ok(_) | Err(CommitError::Conflict { found: Some(_), .. }) => break,
                Err(CommitError::OutcomeUnknown { .. }) => {
                    if store.get(&key.as_str().into()).await.expect("reads are repeated").is_some() {
                        break;
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_the_leader_is_sat_out() {
    let mut etcd = Etcd::start(Servers { members: 3, ..Servers::default() }).await;
    let options =
        EtcdOptions { request_timeout: Duration::from_secs(5), ..EtcdOptions::new(etcd.endpoints()) };
    let store = Arc::new(EtcdStore::connect(options).await.expect("a connection"));
    write(&store, 0..20).await;

    let leader = etcd.leader().await;
    let (reader, writer) = (store.clone(), store.clone());
    let writing = tokio::spawn(async move { write(&writer, 20..200).await });
    let reading = tokio::spawn(async move {
        let mut last = 0;
        while last < 200 {
            let range = [KeyRange::prefix("/members/")];
            let (_, found) = scan(reader.as_ref(), &range, None).await.expect("reads are repeated");
            assert!(found.len() >= last, "keys do not vanish");
            last = found.len();
        }
    });
    etcd.kill_member(leader);
    writing.await.expect("the writer");
    reading.await.expect("the reader");
    let (_, found) = scan(store.as_ref(), &[KeyRange::prefix("/members/")], None).await.expect("a scan");
    assert!(found.len() == 200 && found.iter().all(|entry| entry.version == 1), "each was written once");
}
