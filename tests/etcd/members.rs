//! A cluster of three members that loses its leader while it is read and written.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::{CommitError, KeyRange, ReadStore, WriteStore};

use crate::contract::{create, scan, transaction};
use crate::rig::process::{PORT_ATTEMPTS, Process, free_port, wait_until};
use crate::rig::programs::{ETCD_VERSION, built};
use crate::rig::workspace::Workspace;

const STARTUP: Duration = Duration::from_mins(1);

/// Three members. Fields drop in this order: processes first.
struct Members {
    processes: Vec<Process>,
    urls: Vec<String>,
    _workspace: Workspace,
}

async fn three() -> Members {
    for _ in 0..PORT_ATTEMPTS {
        let members = launch();
        let store = EtcdStore::connect(EtcdOptions {
            connect_timeout: STARTUP / 3,
            ..EtcdOptions::new(members.urls.clone())
        })
        .await;
        if !members.processes.iter().any(Process::port_was_taken) {
            store.expect("three members answer");
            return members;
        }
    }
    panic!("no free ports in {PORT_ATTEMPTS} attempts")
}

fn launch() -> Members {
    let workspace = Workspace::create("members");
    let names = ["a", "b", "c"];
    let urls: Vec<_> = names.iter().map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
    let peers: Vec<_> = names.iter().map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
    let cluster: Vec<_> = names.iter().zip(&peers).map(|(name, peer)| format!("{name}={peer}")).collect();
    let processes = names.iter().zip(urls.iter().zip(&peers)).map(|(name, (url, peer))| {
        let arguments = [
            format!("--name={name}"),
            format!("--data-dir={}", workspace.join(name).display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", cluster.join(",")),
            "--unsafe-no-fsync".to_string(),
        ];
        let log = workspace.join(&format!("{name}.log"));
        Process::start(name, &built(&format!("etcd-{ETCD_VERSION}/etcd")), &arguments, &log)
    });
    Members { processes: processes.collect(), urls, _workspace: workspace }
}

impl Members {
    /// Returns which member leads.
    async fn leader(&self) -> usize {
        wait_until("a member leads", STARTUP, async || {
            for (number, url) in self.urls.iter().enumerate() {
                let mut client = Client::connect([url], None).await.map_err(|error| error.to_string())?;
                let status = client.status().await.map_err(|error| error.to_string())?;
                if status.header().is_some_and(|header| header.member_id() == status.leader()) {
                    return Ok(number);
                }
            }
            Err("nobody does".to_string())
        })
        .await
    }
}

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
    let mut members = three().await;
    let options =
        EtcdOptions { request_timeout: Duration::from_secs(5), ..EtcdOptions::new(members.urls.clone()) };
    let store = Arc::new(EtcdStore::connect(options).await.expect("a connection"));
    write(&store, 0..20).await;

    let leader = members.leader().await;
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
    members.processes.remove(leader).kill();
    writing.await.expect("the writer");
    reading.await.expect("the reader");
    let (_, found) = scan(store.as_ref(), &[KeyRange::prefix("/members/")], None).await.expect("a scan");
    assert!(found.len() == 200 && found.iter().all(|entry| entry.version == 1), "each was written once");
}
