//! One operation on a cluster at a time, wherever it is recorded: the Lease `kube-system/netsurgeon`, and the commands that show
//! and remove operations of both ledgers.

use std::process::Command;
use std::time::Duration;

use etcd_client::GetOptions;
use netsurgeon::kube_api::Cluster as Api;
use netsurgeon::operation::{
    ClusterLedger, ClusterLock, Held, Journal, LeaseHolder, LedgerKind, Mark, OperationError, Silence,
    Status, Summary, Terms,
};
use serde_json::Value;

use super::commands::{self, BITMAP, drifted, with_services};
use super::ledger::connect;
use super::rig::api_gate::{ApiGate, Trouble, Troubles};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::run::{Run, run};
use super::rig::run::{has_line, says};

const DEADLINE: Duration = Duration::from_mins(1);
/// The shortest possible.
const TTL: Duration = Duration::from_secs(2);

async fn start() -> Cluster {
    Cluster::start(ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) }).await
}

/// Short, so that a silent server is noticed soon.
const TIMEOUT: Duration = Duration::from_millis(500);

async fn free(cluster: &Cluster) -> Api {
    let text = std::fs::read_to_string(cluster.kubeconfig()).expect("a kubeconfig");
    connect(cluster, &text, "free.conf", TIMEOUT).await
}

fn claim(operation: &str, pid: u32) -> LeaseHolder {
    let (holder, operation) = (format!("ops@host-{pid}"), operation.to_string());
    LeaseHolder { holder, pid, operation, purpose: "a test".into(), since: 1_800_000_000 }
}

fn terms(take_over: bool) -> Terms {
    Terms { ttl: TTL, silence: Silence::Loses, take_over }
}

/// Acquires the lease; counts the waits.
async fn acquire(
    api: &Api,
    claim: &LeaseHolder,
    terms: Terms,
) -> Result<(ClusterLock, usize), OperationError> {
    let mut waited = 0;
    let mut waiting = |_: &Held| waited += 1;
    let lock = ClusterLock::acquire(api, claim, terms, &mut waiting).await?;
    Ok((lock, waited))
}

fn refused(outcome: Result<(ClusterLock, usize), OperationError>) -> String {
    match outcome {
        Err(error @ OperationError::Locked(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the lease was acquired"),
    }
}

async fn runs_out(api: &Api) {
    wait_until("the Lease has expired", DEADLINE, async || match ClusterLock::holder(api).await.unwrap() {
        None => Ok(()),
        Some(held) => Err(held.to_string()),
    })
    .await;
}

/// These parts share a cluster.
#[tokio::test]
async fn lease_has_one_holder() {
    let cluster = start().await;
    let api = free(&cluster).await;
    only_one_operation_runs_at_a_time(&api).await;
    lease_of_killed_process_is_acquired_after_expiry(&api).await;
    former_holder_notices_takeover(&api).await;
}

async fn only_one_operation_runs_at_a_time(api: &Api) {
    let (first, waited) = acquire(api, &claim("dns-1", 1), terms(false)).await.expect("it is free");
    assert_eq!(waited, 0);
    let words = refused(acquire(api, &claim("cni-2", 2), terms(true)).await);
    says(&words, &["`ops@host-1` (pid 1)", "`dns-1`"]);
    // The same operation: it waits, and is rejected because the holder renews the lease.
    refused(acquire(api, &claim("dns-1", 2), terms(false)).await);
    assert_eq!(first.lost(), None);
    first.release().await.expect("it is released");
    assert!(ClusterLock::holder(api).await.unwrap().is_none());

    let (second, waited) = acquire(api, &claim("cni-2", 2), terms(false)).await.expect("it is free");
    assert_eq!(waited, 0);
    // Killed: it does not renew the lease any more.
    drop(second);
    let (third, waited) =
        acquire(api, &claim("cni-2", 3), terms(false)).await.expect("it is acquired after a wait");
    assert!(waited > 0);
    third.release().await.expect("it is released");
}

async fn lease_of_killed_process_is_acquired_after_expiry(api: &Api) {
    drop(acquire(api, &claim("dns-1", 1), terms(false)).await.expect("it is free"));
    runs_out(api).await;
    let (second, waited) = acquire(api, &claim("cni-2", 2), terms(false)).await.expect("it has expired");
    assert!(waited > 0, "no remote clock is trusted: the Lease is observed for one TTL");
    second.release().await.expect("it is released");
}

async fn former_holder_notices_takeover(api: &Api) {
    let (first, _) = acquire(api, &claim("dns-1", 1), terms(false)).await.expect("it is free");
    let (second, waited) = acquire(api, &claim("dns-1", 2), terms(true)).await.expect("it is taken over");
    assert_eq!(waited, 0);
    let lost = tokio::time::timeout(DEADLINE, first.until_lost()).await.expect("the former holder notices");
    assert!(lost.contains("`ops@host-2` (pid 2)"), "{lost}");
    first.release().await.expect("the lease of the other process is not released");
    assert_eq!(second.lost(), None);
    assert!(ClusterLock::holder(api).await.unwrap().is_some_and(|held| held.claim.pid == 2));
}

#[tokio::test]
async fn silent_api_loses_or_keeps_lease_as_requested() {
    let cluster = start().await;
    let troubles = Troubles::none();
    let gate = ApiGate::open(cluster.api.client(), &troubles).await;
    let api = connect(&cluster, &gate.kubeconfig(), "gate.conf", TIMEOUT).await;
    let (loses, _) = acquire(&api, &claim("dns-1", 1), terms(false)).await.expect("it is free");
    troubles.arm(Trouble::KilledBefore(1));
    let lost = tokio::time::timeout(DEADLINE, loses.until_lost()).await.expect("it is lost");
    says(&lost, &["2 s: "]);

    troubles.arm(Trouble::None);
    let keeping = Terms { silence: Silence::Keeps, ..terms(true) };
    let (keeps, _) = acquire(&api, &claim("dns-1", 2), keeping).await.expect("it is taken over");
    troubles.arm(Trouble::KilledBefore(1));
    runs_out(&free(&cluster).await).await;
    assert_eq!(keeps.lost(), None, "etcd fences it");
    troubles.arm(Trouble::None);
    wait_until("it is renewed", DEADLINE, async || {
        ClusterLock::holder(&api).await.unwrap().map(drop).ok_or_else(|| "no process holds it".to_string())
    })
    .await;
}

/// Runs the program with or without etcd.
fn netsurgeon(cluster: &Cluster, words: &str, with_etcd: bool) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().current_dir("/").args(words.split_whitespace());
    command.env("KUBECONFIG", cluster.kubeconfig()).env("USER", "ops");
    if with_etcd {
        command.env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoints().join(","));
    }
    run(words, command)
}

/// The lease is renewed while the program runs.
#[tokio::test(flavor = "multi_thread")]
async fn renumbering_is_refused_while_operation_without_etcd_runs() {
    let cluster = start().await;
    let api = free(&cluster).await;
    let (_lock, _) = acquire(&api, &claim("dns-1", 1), terms(false)).await.expect("it is free");
    let snapshot = cluster.directory().join("before.db");
    let words = format!(
        "renumber apply --to 10.200.0.0/16 --accept-gap --yes --snapshot-to {} --confirm certificates",
        snapshot.display()
    );
    let refused = netsurgeon(&cluster, &words, true);
    assert_eq!(refused.code, 1);
    says(&refused.err, &["error: ", "`ops@host-1` (pid 1)", "`dns-1`"]);
    let left = cluster.etcd.keys("/netsurgeon/").await;
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn operations_of_both_ledgers_are_listed_shown_and_forgotten() {
    let cluster = start().await;
    let api = free(&cluster).await;
    let claim = claim("maps-1", 1);
    let id = api.identity().await.expect("an identity");
    let ledger = ClusterLedger::begin(&api, &id, &claim, 4).await.expect("it starts");
    let summary = Summary::begun("maps", "digest", &claim);
    let journal = Journal::begin_in(&ledger, b"{}", summary).await.expect("it is stored");
    for with_etcd in [false, true] {
        let listed: Value =
            serde_json::from_str(&netsurgeon(&cluster, "operation list -o json", with_etcd).out).unwrap();
        let one = &listed["operations"][0];
        assert_eq!(listed["operations"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(
            (&one["operation"], &one["ledger"], &one["status"]),
            (&"maps-1".into(), &"cluster".into(), &"interrupted".into())
        );
    }
    let shown = netsurgeon(&cluster, "operation show maps-1", false);
    assert_eq!(shown.code, 0, "{}", shown.err);
    says(&shown.err, &["maps-1", "interrupted", "0 steps"]);
    let unknown = netsurgeon(&cluster, "operation resume maps-1 --yes", false);
    assert_eq!(unknown.code, 1, "{}", unknown.err);
    says(&unknown.err, &["error: ", "`maps-1`", "`maps`"]);
    let open = netsurgeon(&cluster, "operation forget maps-1", false);
    assert_eq!(open.code, 1, "{}", open.err);
    says(&open.err, &["error: ", "`maps-1`", "interrupted"]);
    journal.set_status(&ledger, Status::RolledBack, 7).await.expect("it is written");
    let forgotten = netsurgeon(&cluster, "operation forget maps-1", true);
    assert_eq!(forgotten.code, 0, "{}", forgotten.err);
    says(&forgotten.err, &["3 ConfigMaps"]);
    let gone = netsurgeon(&cluster, "operation show maps-1", true);
    assert_eq!(gone.code, 1, "{}", gone.err);
    says(&gone.err, &["error: ", "`maps-1`"]);
}

async fn ledger(api: &Api) -> ClusterLedger {
    let id = api.identity().await.expect("an identity");
    ClusterLedger::begin(api, &id, &claim("maps-1", 1), 4).await.expect("it starts")
}

/// Records an operation in the cluster that no process runs, with its mark.
async fn soaking(api: &Api) -> Journal {
    let ledger = ledger(api).await;
    let summary = Summary::begun("maps", "digest", &claim("maps-1", 1));
    let journal = Journal::begin_in(&ledger, b"{}", summary).await.expect("it is stored");
    let (operation, kind) = ("maps-1".to_string(), "maps".to_string());
    Mark { operation, kind, ledger: LedgerKind::Cluster }.put(api).await.expect("it is marked");
    journal
}

/// Returns every former value of the Lease.
async fn lease_history(cluster: &Cluster) -> Vec<String> {
    let (mut client, mut found, mut options) = (cluster.etcd.client().await, Vec::new(), None);
    loop {
        let answer =
            client.get("/registry/leases/kube-system/netsurgeon", options).await.expect("etcd answers");
        let Some(pair) = answer.kvs().first() else { return found };
        found.push(String::from_utf8_lossy(pair.value()).into_owned());
        options = Some(GetOptions::new().with_revision(pair.mod_revision() - 1));
    }
}

/// A rewrite needs only etcd. If the API answers, an operation that changes no etcd excludes it too.
#[tokio::test(flavor = "multi_thread")]
async fn rewrite_is_refused_while_operation_without_etcd_runs() {
    let cluster = with_services(ClusterOptions::new(Era::DualWrite)).await;
    let drifted = drifted(&cluster.etcd.get(BITMAP).await.expect("a bitmap"));
    cluster.etcd.put(BITMAP, drifted.clone()).await;
    let rewrite = || netsurgeon(&cluster, "ranges rewrite --yes -o json", true);
    let api = free(&cluster).await;
    let (lock, _) = acquire(&api, &claim("dns-1", 1), terms(false)).await.expect("it is free");
    let refused = rewrite().expect(1);
    says(&refused.err, &["`ops@host-1` (pid 1)", "`dns-1`"]);
    assert_eq!(cluster.etcd.get(BITMAP).await, Some(drifted.clone()));
    assert_eq!(
        cluster.etcd.keys("/netsurgeon/").await,
        Vec::<String>::new(),
        "the lease in etcd is released"
    );
    lock.release().await.expect("it is released");
    let unfinished = soaking(&api).await;
    says(&rewrite().expect(1).err, &["operation `maps-1` (maps) of this cluster has not ended"]);
    assert_eq!(cluster.etcd.get(BITMAP).await, Some(drifted));
    unfinished.set_status(&ledger(&api).await, Status::RolledBack, 7).await.expect("it is written");
    let done = rewrite().expect(0);
    let unlocked = ["warning: ", "Lease `kube-system/netsurgeon`"];
    assert!(!has_line(&done.err, &unlocked), "{}", done.err);
    assert!(ClusterLock::holder(&api).await.unwrap().is_none(), "the Lease is released");
    let done = done.json();
    let operation = done["operation"].as_str().expect("an id");
    assert_eq!(Mark::list(&api).await.expect("marks"), [], "the rewrite has ended, and `maps-1` as well");
    let mark = format!("operations.netsurgeon.io/{operation}");
    assert!(
        lease_history(&cluster).await.iter().any(|lease| lease.contains(&mark)),
        "it was marked while it ran"
    );
    // Without a kubeconfig.
    let undo = ["ranges", "rewrite", "--yes", "--undo", operation];
    let undone = commands::netsurgeon(&cluster, &undo).expect(0);
    says(&undone.err, &unlocked);
}
