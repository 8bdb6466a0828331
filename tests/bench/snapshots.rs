//! Snapshots of large clusters, created at run time by the real etcd and kept in `.rig/bench/`.
//!
//! Every value is one that a real API server wrote (`testdata/objects.snapshot.db`). The product's own code edits its name, uid
//! and addresses, so that sizes and fields are those of real objects, `managedFields` included. The other objects that a plan
//! needs (the namespace `kube-system`, Nodes, kubeadm's record) are copied unchanged; the ServiceCIDR is widened to contain all
//! Services.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use etcd_client::{Client, Txn, TxnOp};
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{Entry, ReadStore};
use netsurgeon::survey::Layout;
use netsurgeon::wire::FieldEdit;
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::field::{Field, FieldKind, Segment, Value};

use crate::rig::etcd::{Etcd, EtcdOptions};
use crate::rig::programs::folder;

/// The range of all Services.
const RANGE: &str = "10.96.0.0/12";
/// The first address of a Service that is created here; those of the fixture are below it.
const FIRST_ADDRESS: u32 = 0x0a61_0000;
/// Part of a file's name: a change of it makes a new file.
const RECIPE: u32 = 1;
/// Operations in a transaction; etcd's own limit is 128.
const BATCH: usize = 100;
/// Sizes of a Service's value, in bytes: from the smallest, spread over so many.
const SMALLEST_SERVICE: usize = 2_000;
const SPREAD: usize = 700;
/// Namespaces that the Services are spread over.
const NAMESPACES: u32 = 40;

/// Returns the snapshot with so many Services, and creates it if it does not exist.
pub async fn with_services(count: usize) -> PathBuf {
    let directory = folder().join("bench");
    let file = directory.join(format!("services-{count}.recipe-{RECIPE}.db"));
    if !file.is_file() {
        std::fs::create_dir_all(&directory).expect("`.rig/bench` can be created");
        eprintln!("creating {}", file.display());
        make(count, &file).await;
    }
    file
}

async fn make(count: usize, file: &Path) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/objects.snapshot.db");
    let layout = Layout::default();
    let mut pairs = copied(&fixture, &layout).await;
    let under = |pairs: &[Entry], prefix: &str| {
        pairs.iter().filter(|entry| entry.key.as_bytes().starts_with(prefix.as_bytes())).count()
    };
    let template = |pairs: &[Entry], key: &str| {
        pairs.iter().find(|e| e.key.to_string() == key).expect("the fixture has it").value.clone()
    };
    let service = template(&pairs, "/registry/services/specs/shop/cart");
    let address = pairs.iter().find(|e| e.key.as_bytes().starts_with(layout.ip_addresses().as_bytes()));
    let address = address.expect("the fixture has an IPAddress").value.clone();
    widen(&mut pairs, &layout);
    let missing = count.saturating_sub(under(&pairs, &layout.services()));
    let etcd = Etcd::start(EtcdOptions::default()).await;
    let mut client = etcd.client().await;
    let mut batch: Vec<(String, Vec<u8>)> =
        pairs.into_iter().map(|entry| (entry.key.to_string(), entry.value)).collect();
    for number in 0..u32::try_from(missing).expect("a count of Services") {
        batch.extend(pair(number, &service, &address, &layout));
        if batch.len() >= BATCH {
            put(&mut client, &mut batch).await;
        }
    }
    put(&mut client, &mut batch).await;
    etcd.compact_and_defragment().await;
    let beside = file.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    etcd.snapshot(&beside);
    std::fs::rename(&beside, file).expect("the snapshot can be put in place");
}

/// Returns what a survey reads from the fixture.
async fn copied(fixture: &Path, layout: &Layout) -> Vec<Entry> {
    let store = SnapshotStore::open(fixture, &layout.surveyed()).expect("the fixture");
    store.entries(&layout.surveyed(), None).await.expect("the fixture").1
}

fn widen(pairs: &mut [Entry], layout: &Layout) {
    let key = layout.service_cidr("kubernetes");
    let cidr = pairs.iter_mut().find(|entry| entry.key == key).expect("the fixture has a ServiceCIDR");
    let ranges = field(&[(2, "spec"), (1, "cidrs")], FieldKind::Texts);
    cidr.value = edited(&cidr.value, vec![(ranges, Value::Texts(vec![RANGE.into()]))]);
}

/// Returns a Service and its IPAddress.
fn pair(number: u32, service: &[u8], address: &[u8], layout: &Layout) -> [(String, Vec<u8>); 2] {
    let namespace = format!("team-{:02}", number % NAMESPACES);
    let name = format!("service-{number:05}");
    let ip = Ipv4Addr::from(FIRST_ADDRESS.saturating_add(number)).to_string();
    let uid = |kind: u32| format!("{number:08x}-{kind:04x}-4000-8000-0123456789ab");
    let named = |name: &str, namespace: &str, uid: String| {
        vec![
            (field(&[(1, "metadata"), (1, "name")], FieldKind::Text), Value::Text(name.into())),
            (field(&[(1, "metadata"), (3, "namespace")], FieldKind::Text), Value::Text(namespace.into())),
            (Field::uid(), Value::Text(uid)),
        ]
    };
    let mut edits = named(&name, &namespace, uid(1));
    edits.push((Field::cluster_ip(), Value::Text(ip.clone())));
    edits.push((Field::cluster_ips(), Value::Texts(vec![ip.clone()])));
    let plain = edited(service, edits);
    let size = SMALLEST_SERVICE.saturating_add((number as usize).wrapping_mul(37) % SPREAD);
    let mut note = field(&[(1, "metadata"), (12, "annotations")], FieldKind::Text);
    note.path.push(Segment::Entry("example.com/description".into()));
    let filling = "what this Service is for. ".repeat(SPREAD);
    let filling = filling.get(..size.saturating_sub(plain.len())).expect("the filling is long enough");
    let service = edited(&plain, vec![(note, Value::Text(filling.into()))]);
    let mut edits = named(&ip, "", uid(2));
    edits.push((Field::parent_namespace(), Value::Text(namespace.clone())));
    edits.push((Field::parent_name(), Value::Text(name.clone())));
    let address = edited(address, edits);
    let ip: std::net::IpAddr = ip.parse().expect("an address");
    [(layout.service(&namespace, &name).to_string(), service), (layout.ip_address(ip).to_string(), address)]
}

fn field(path: &[(u32, &'static str)], kind: FieldKind) -> Field {
    Field { path: path.iter().map(|(number, name)| Segment::Member(*number, (*name).into())).collect(), kind }
}

fn edited(value: &[u8], changes: Vec<(Field, Value)>) -> Vec<u8> {
    let edits: Vec<FieldEdit> = changes
        .into_iter()
        .map(|(field, value)| FieldEdit { field, change: FieldChange::Set(value) })
        .collect();
    edit::apply(value, &edits).expect("a real value can be edited")
}

/// Stores values, many in one transaction, and empties the list.
pub async fn put(client: &mut Client, batch: &mut Vec<(String, Vec<u8>)>) {
    while !batch.is_empty() {
        let part = batch.drain(..batch.len().min(BATCH));
        let puts: Vec<TxnOp> = part.map(|(key, value)| TxnOp::put(key, value, None)).collect();
        client.txn(Txn::new().and_then(puts)).await.expect("etcd accepts a transaction");
    }
}
