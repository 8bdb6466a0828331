//! Records in the layout of the first version are read and continued, and records in an unknown layout are refused. In the first
//! layout, the hash of its name chooses the ConfigMap of a record, and all ConfigMaps are in `kube-system`.

use std::collections::BTreeMap;
use std::time::Duration;

use netsurgeon::kube_api::Cluster as Api;
use netsurgeon::operation::{
    ClusterLedger, ClusterRecord, Journal, LeaseHolder, Ledger as _, Noted, OperationError, Part,
    ReadLedger as _, State, StepId,
};
use netsurgeon::store::{Revision, Transaction};
use serde_json::{Value, json};

use super::ledger::connect;
use super::rig::cluster::{Cluster, ClusterOptions, Era};

const OPERATION: &str = "dns-cutover-old";
/// The records, and the ConfigMap in which the first version stored each of them: the FNV-1a hash of the name, modulo 3.
const RECORDS: [(&str, usize); 4] =
    [("steps/own/shop", 0), ("steps/own/api", 1), ("steps/own/www", 2), ("amended/00001", 2)];
/// A step without a record, and its ConfigMap.
const NEW: (&str, usize) = ("move/www", 2);

fn holder(pid: u32) -> LeaseHolder {
    let (holder, operation) = (format!("ops@host-{pid}"), OPERATION.to_string());
    LeaseHolder { holder, pid, operation, purpose: "x".into(), since: 7 }
}

fn step(id: &str) -> StepId {
    StepId(id.into())
}

/// Creates a ConfigMap of the operation.
async fn create(cluster: &Cluster, suffix: &str, part: &str, content: (&str, Value)) {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "namespace": "kube-system", "name": format!("netsurgeon-{OPERATION}{suffix}"),
            "labels": {"netsurgeon.io/part": part, "netsurgeon.io/operation": OPERATION},
        },
    });
    object[content.0] = content.1;
    cluster.api.create(&object).await;
}

/// Creates the record of an operation with three steps, as the first version did. `placement` is a field that it did not have.
async fn plant(cluster: &Cluster, placement: Option<&str>) {
    let summary =
        json!({"kind": "dns-cutover", "digest": "d", "plan_parts": 1, "started": 7, "status": "paused"});
    let mut head = json!({
        "cluster": "c", "operation": OPERATION, "holder": json!(holder(1)).to_string(), "shards": "3", "epoch": "4",
        "records": json!({"summary": {"r": 9, "v": summary}}).to_string(),
    });
    if let Some(placement) = placement {
        head["placement"] = placement.into();
    }
    create(cluster, "", "head", ("data", head)).await;
    // The word `plan` in Base64.
    create(cluster, "-plan-00000", "plan", ("binaryData", json!({"part": "cGxhbg=="}))).await;
    for number in 0..3 {
        let in_this = RECORDS.iter().enumerate().filter(|(_, (_, shard))| *shard == number);
        let value = |name: &str| match name {
            "amended/00001" => json!("amendment"),
            _ => json!({"state": "started", "history": [["started", 8]], "before": {"was": name}}),
        };
        let records: BTreeMap<_, _> =
            in_this.map(|(index, (name, _))| (*name, json!({"r": index + 1, "v": value(name)}))).collect();
        let data = json!({"epoch": "4", "records": json!(records).to_string()});
        create(cluster, &format!("-records-{number:02}"), "records", ("data", data)).await;
    }
}

/// The `data` of a ConfigMap of the operation.
async fn data(cluster: &Cluster, suffix: &str) -> Value {
    let path = format!("/api/v1/namespaces/kube-system/configmaps/netsurgeon-{OPERATION}{suffix}");
    cluster.api.get(&path).await["data"].clone()
}

/// The records in each ConfigMap, by name.
async fn stored(cluster: &Cluster) -> Vec<BTreeMap<String, Value>> {
    let mut all = Vec::new();
    for number in 0..3 {
        let data = data(cluster, &format!("-records-{number:02}")).await;
        assert_eq!(data["epoch"], "5", "ConfigMap {number}: a previous holder can write no longer");
        all.push(serde_json::from_str(data["records"].as_str().expect("records")).expect("records"));
    }
    all
}

async fn start() -> (Cluster, Api) {
    let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
    let cluster = Cluster::start(options).await;
    // Later versions also look into their own namespace.
    cluster
        .api
        .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "netsurgeon"}}))
        .await;
    let text = std::fs::read_to_string(cluster.kubeconfig()).expect("a kubeconfig");
    let api = connect(&cluster, &text, "free.conf", Duration::from_secs(5)).await;
    (cluster, api)
}

#[tokio::test]
async fn records_in_the_first_layout_are_read_and_continued_in_their_config_maps() {
    let (cluster, api) = start().await;
    plant(&cluster, None).await;
    let record = ClusterRecord::find(&api, OPERATION).await.unwrap().expect("a record");
    let (journal, summary, plan) = Journal::open_in(&record).await.expect("it is read");
    assert_eq!((plan.as_slice(), summary.started, journal.records().len()), (b"plan".as_slice(), 7, 3));
    assert_eq!(Journal::amendments(&record).await.unwrap(), [b"\"amendment\""]);
    for (revision, (name, number)) in (1..).zip(RECORDS).take(3) {
        let part = Part::Step(step(&name["steps/".len()..]));
        let (value, found) = record.read(&part).await.unwrap().expect("a record");
        let value: Value = serde_json::from_slice(&value).unwrap();
        assert_eq!((&value["before"]["was"], found), (&json!(name), Revision(revision)));
        let place = record.place(&part);
        assert!(
            place.contains(&format!("`kube-system/netsurgeon-{OPERATION}-records-{number:02}`")),
            "{place}"
        );
    }

    let ledger = ClusterLedger::take(&api, &holder(2)).await.expect("it is taken over");
    let (mut journal, ..) = Journal::open_in(&ledger).await.expect("it is read");
    for (id, to) in [("own/shop", State::Done), ("own/api", State::Failed), (NEW.0, State::Started)] {
        let (change, record) = journal.record(&step(id), to, 9, Noted::default()).expect("a legal change");
        let revision = ledger.write(vec![change], Transaction::default()).await.expect("it is written");
        assert!(revision > Revision(9), "{revision:?} is newer than every revision of the previous holder");
        journal.recorded(&step(id), record, revision);
    }
    let stored = stored(&cluster).await;
    let new = format!("steps/{}", NEW.0);
    for (name, number) in RECORDS.iter().map(|(name, number)| (*name, *number)).chain([(new.as_str(), NEW.1)])
    {
        let found: Vec<_> = (0..3).filter(|number| stored[*number].contains_key(name)).collect();
        assert_eq!(found, [number], "{name}");
    }
    assert_eq!(stored[0]["steps/own/shop"]["v"]["before"]["was"], "steps/own/shop", "the rollback needs it");
    let (journal, ..) = Journal::open_in(&record).await.expect("it is read");
    let states = ["own/shop", "own/api", "own/www", NEW.0].map(|id| journal.state(&step(id)));
    assert_eq!(states, [State::Done, State::Failed, State::Started, State::Started].map(Some));
    assert_eq!(data(&cluster, "").await.get("placement"), None, "the layout stays");
}

/// A later version can introduce a layout. This version would find none of its records.
#[tokio::test]
async fn records_in_an_unknown_layout_are_refused_by_name_and_stay() {
    let (cluster, api) = start().await;
    plant(&cluster, Some("tree")).await;
    let before = data(&cluster, "").await;
    let refusals: [Option<OperationError>; 3] = [
        ClusterRecord::find(&api, OPERATION).await.err(),
        ClusterLedger::take(&api, &holder(2)).await.err(),
        ClusterLedger::remove(&api, OPERATION).await.err(),
    ];
    for refused in refusals {
        let text = refused.expect("it is refused").to_string();
        let head = format!("`kube-system/netsurgeon-{OPERATION}`");
        assert!(text.contains(&head) && text.contains("its `placement` is `tree`"), "{text}");
    }
    assert_eq!(data(&cluster, "").await, before, "its holder can still write");
    let listing = ClusterRecord::listing(&api).await.expect("a listing");
    assert_eq!(listing.operations.len(), 0);
    assert!(listing.unreadable[0].contains("its `placement` is `tree`"), "{:?}", listing.unreadable);
}
