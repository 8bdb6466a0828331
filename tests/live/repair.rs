//! The next full pass of the API servers' repair loops, after one renumbering has ended and while another one holds its old
//! addresses: the loops report and change nothing.
//!
//! The loops check everything every three minutes (`pkg/controlplane/instance.go`, v1.32.2 and v1.36.3). The test first breaks
//! objects that only a full pass repairs, to detect that pass.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use netsurgeon::store::{Key, ReadStore, Revision};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::kill_points::Lab;
use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::serving_cluster::{ENDING, NEW_RANGE, command};

/// The range of the Services in between.
const MIDDLE_RANGE: &str = "10.150.0.0/16";
/// Longer than the time from one full pass to the next.
const DEADLINE: Duration = Duration::from_mins(6);
/// IPAddresses that are younger and have no Service are checked again outside the full pass (`repairip.go`, v1.36.3).
const GRACE: Duration = Duration::from_secs(62);
/// The Service that loses the record of its address, and the one that leaves its own behind.
const SIGNS: [&str; 2] = ["lost", "orphan"];

/// Runs the program to its end.
fn netsurgeon(lab: &Lab, words: &str, code: i32) -> String {
    let output = command(&lab.cluster, words).output().expect("netsurgeon runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words}: {out}{err}");
    out.into_owned()
}

/// Moves everything, until the old addresses are held.
async fn move_to(lab: &mut Lab, range: &str) {
    let words = format!("renumber apply --to {range} --no-snapshot --yes --confirm certificates");
    netsurgeon(lab, &words, 6);
    lab.flag(range).await;
    let operation = lab.operation().await.expect("an operation");
    netsurgeon(lab, &format!("operation resume {operation} --confirm flags"), 0);
}

fn is_sign(name: &str) -> bool {
    SIGNS.contains(&name) || ADDRESSES.contains(&name)
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Every Service and IPAddress except the signs: uid, labels, and the revision of its creation.
async fn stands(lab: &Lab) -> BTreeMap<String, (Value, Value, Revision)> {
    let mut kinds = vec![("/api/v1/services", "/registry/services/specs")];
    if lab.era != Era::Bitmap {
        kinds.push(("/apis/networking.k8s.io/v1/ipaddresses", "/registry/ipaddresses"));
    }
    let mut stands = BTreeMap::new();
    for (path, prefix) in kinds {
        for object in lab.cluster.api.list(path).await {
            let (metadata, name) = (&object["metadata"], name_of(&object));
            if is_sign(&name) {
                continue;
            }
            let namespace = metadata["namespace"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
            let key = format!("{prefix}{namespace}/{name}");
            let entry =
                lab.store.get(&Key::from(key.as_str())).await.expect("etcd answers").expect("the key exists");
            stands.insert(key, (metadata["uid"].clone(), metadata["labels"].clone(), entry.create_revision));
        }
    }
    stands
}

/// The events of the repair loops and their counts, except those about the signs.
async fn said(lab: &Lab) -> BTreeMap<String, u64> {
    let mut events = lab.cluster.api.list("/apis/events.k8s.io/v1/events").await;
    events.retain(|event| {
        event["reportingController"] == "ipallocator-repair-controller"
            && !is_sign(event["regarding"]["name"].as_str().unwrap_or_default())
    });
    let words = |event: &Value| {
        let count = event["series"]["count"].as_u64().unwrap_or(1);
        (format!("{} {} {}", event["regarding"]["name"], event["reason"], event["note"]), count)
    };
    events.iter().map(words).collect()
}

/// Errors and warnings of `ranges check`, except those about the signs; holds are only informational.
fn findings(lab: &Lab, but: &[&str]) -> Vec<String> {
    let checked = command(&lab.cluster, "ranges check -o json").output().expect("netsurgeon runs");
    let checked: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let mut findings = checked["findings"].as_array().expect("a list").clone();
    findings.retain(|finding| finding["severity"] != "info");
    let findings = findings.iter().map(ToString::to_string);
    findings.filter(|finding| !but.iter().any(|name| finding.contains(name))).collect()
}

/// The addresses of the signs: no other Service gets them.
const ADDRESSES: [&str; 2] = ["10.200.77.1", "10.200.77.2"];

fn service_key(name: &str) -> String {
    format!("/registry/services/specs/default/{name}")
}

/// Breaks what a full pass repairs: in the bitmap era a Service whose bit is not set; in the others a Service without an
/// IPAddress, and an IPAddress whose Service is deleted.
async fn break_signs(lab: &Lab) {
    let etcd = &lab.cluster.etcd;
    if lab.era == Era::Bitmap {
        let stored = etcd.get(&service_key(SIGNS[0])).await.expect("the key exists");
        lab.cluster.api.delete(&format!("/api/v1/namespaces/default/services/{}", SIGNS[0])).await;
        etcd.put(&service_key(SIGNS[0]), stored).await;
        return;
    }
    let path = format!("/apis/networking.k8s.io/v1/ipaddresses/{}", ADDRESSES[1]);
    wait_until("the IPAddress is old", DEADLINE, async || {
        let made = lab.cluster.api.get(&path).await["metadata"]["creationTimestamp"].clone();
        let made = OffsetDateTime::parse(made.as_str().expect("a time"), &Rfc3339).expect("a time");
        let age = SystemTime::now().duration_since(made.into()).unwrap_or_default();
        if age > GRACE { Ok(()) } else { Err(format!("{age:?}")) }
    })
    .await;
    etcd.delete(&service_key(SIGNS[1])).await;
    etcd.delete(&format!("/registry/ipaddresses/{}", ADDRESSES[0])).await;
}

/// Waits until all of it is repaired.
async fn full_pass(lab: &Lab) {
    wait_until("the repair loops have checked everything", DEADLINE, async || {
        let events = lab.cluster.api.list("/apis/events.k8s.io/v1/events").await;
        let about = |name: &str, reason: &str| {
            events.iter().any(|event| event["regarding"]["name"] == name && event["reason"] == reason)
        };
        let repaired = about(SIGNS[0], "ClusterIPNotAllocated");
        let cleaned = about(ADDRESSES[1], "IPAddressNotAllocated");
        let keys = lab.cluster.etcd.keys("/registry/ipaddresses/").await;
        let there = |address: &str| keys.iter().any(|key| key.ends_with(&format!("/{address}")));
        let recorded = match lab.era {
            Era::Bitmap => findings(lab, &[]).is_empty(),
            _ => there(ADDRESSES[0]) && !there(ADDRESSES[1]) && cleaned,
        };
        if repaired && recorded { Ok(()) } else { Err(format!("{repaired} {recorded} {cleaned}")) }
    })
    .await;
}

/// No Service gets an address that is held, or one that was released with its range.
async fn nobody_gets_an_old_address(lab: &Lab, middle: &[Value]) {
    for (number, address) in middle.iter().enumerate() {
        for address in
            [address.clone(), json!(address.as_str().unwrap_or_default().replace("10.150.", "10.96."))]
        {
            let metadata = json!({"name": format!("thief-{number}"), "namespace": "default"});
            let spec = json!({"clusterIP": address, "ports": [{"port": 80}]});
            let thief = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
            let outcome = lab.cluster.api.try_create(&thief).await;
            let error = outcome.expect_err("an old address was allocated").to_string();
            let words = ["already allocated", "not in the valid range", "does not match"];
            assert!(words.iter().any(|words| error.contains(words)), "{address}: {error}");
        }
    }
}

async fn nothing_falls(era: Era) {
    let mut lab = Lab::start(era).await;
    move_to(&mut lab, MIDDLE_RANGE).await;
    netsurgeon(&lab, &format!("renumber retire --without-evidence --yes {ENDING}"), 0);
    let services = lab.cluster.api.list("/api/v1/services").await;
    let middle: Vec<Value> = services.iter().map(|service| service["spec"]["clusterIP"].clone()).collect();
    move_to(&mut lab, NEW_RANGE).await;
    assert_eq!(findings(&lab, &[]), Vec::<String>::new(), "{era:?}");

    for (name, address) in SIGNS.iter().zip(ADDRESSES) {
        let spec = json!({"clusterIP": address, "ports": [{"port": 80}]});
        lab.cluster.api.create_service("default", name, spec).await;
    }
    let (before, baseline) = (stands(&lab).await, said(&lab).await);
    println!("{era:?}: {} objects, baseline {baseline:#?}", before.len());
    break_signs(&lab).await;
    let broken = std::time::Instant::now();
    full_pass(&lab).await;
    println!("{era:?}: a full pass came {:?} later", broken.elapsed());

    let mut more = said(&lab).await;
    more.retain(|words, count| baseline.get(words) != Some(count));
    println!("{era:?}: events of it: {more:#?}");
    // With a bitmap only, no loop knows an old range: the shadows that hold its addresses are reported.
    more.retain(|words, _| {
        era != Era::Bitmap || !(words.contains("netsurgeon-hold-") && words.contains("ClusterIPOutOfRange"))
    });
    assert!(more.is_empty(), "{era:?}: {more:#?}");
    assert_eq!(stands(&lab).await, before, "{era:?}");
    assert_eq!(findings(&lab, &[SIGNS, ADDRESSES].concat()), Vec::<String>::new(), "{era:?}");
    netsurgeon(&lab, "renumber verify", 0);
    nobody_gets_an_old_address(&lab, &middle).await;
}

/// Each era runs in its own thread, and so in its own network: they wait for their loops at the same time.
#[test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
fn next_full_pass_of_the_repair_loops_changes_nothing() {
    let begin = |era| -> JoinHandle<()> {
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(Box::pin(nothing_falls(era)));
        })
    };
    let outcomes: Vec<_> = Era::ALL.map(begin).into_iter().map(JoinHandle::join).collect();
    for outcome in outcomes {
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
