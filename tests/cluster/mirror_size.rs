//! `netsurgeon mirror` with many objects of many kinds: everything is copied and verified, a second plan changes nothing, and random
//! edits on both sides are found and repaired.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::mirror_pair::{PATIENCE, Pair, actions};
use super::rig::api::{Api, object_path};
use super::rig::cluster::Cluster;
use super::rig::process::wait_until;
use super::rig::sample::{LABEL, application, custom_paths, definitions, of_cluster, of_namespace};

const NAMESPACES: [&str; 4] = ["bank", "news", "shop", "site"];
/// Applications of a namespace; each has 17 objects.
const APPLICATIONS: usize = 32;
/// Requests of the test at the same time.
const AT_ONCE: usize = 16;

#[tokio::test]
async fn thousands_of_objects_are_copied_and_drift_is_repaired() {
    copies_and_repairs(1).await;
}

#[tokio::test]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn random_drift_of_thousands_of_objects_is_repaired() {
    for _ in 0..3 {
        copies_and_repairs(rand::rng().random()).await;
    }
}

/// `seed`: of the edits.
async fn copies_and_repairs(seed: u64) {
    println!("seed {seed}");
    let pair = Pair::start(false).await;
    let created = create_all(&pair.source.api).await;

    let planned = plan(&pair);
    let counts = actions(&planned);
    let kinds: BTreeSet<&str> = entries(&planned).map(|entry| text(&entry["kind"])).collect();
    println!("{} objects of {} kinds: {counts:?}", created.len(), kinds.len());
    assert!(kinds.len() >= 40, "{} kinds: {kinds:?}", kinds.len());
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["create", "left-out"], "{counts:?}");
    let first = apply(&pair);
    let verified = quietly(&pair, &format!("verify --skip-readiness {first} -o json"));
    assert_eq!(verified["equal"].as_u64(), Some(counts["create"] as u64));

    nothing_is_written_again(&pair).await;
    let drift = Drift::make(&pair, &created, StdRng::seed_from_u64(seed)).await;
    drift_is_found_and_repaired(&pair, &drift).await;
}

fn plan(pair: &Pair) -> Value {
    let words = format!("plan -n {} --save {} -o json", NAMESPACES.join(","), pair.plan);
    quietly(pair, &words)
}

/// Runs a command whose output is long, and returns it.
fn quietly(pair: &Pair, words: &str) -> Value {
    let mut command =
        pair.command(&format!("mirror {words} --mirror-kubeconfig {}", pair.mirror.kubeconfig().display()));
    let output = command.output().expect("netsurgeon runs");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}: {err}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words}: {error}: {err}"))
}

fn apply(pair: &Pair) -> String {
    let applied = quietly(pair, &format!("apply --plan {} --yes -o json", pair.plan));
    text(&applied["operation"]).to_owned()
}

fn entries(plan: &Value) -> impl Iterator<Item = &Value> {
    plan["objects"].as_array().expect("objects").iter()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Creates everything in the source. Returns the objects of the applications.
async fn create_all(api: &Api) -> Vec<Value> {
    let mut needed = definitions();
    for namespace in NAMESPACES {
        api.create_namespace(namespace).await;
        needed.extend(of_cluster(namespace));
    }
    create(api, needed).await;
    for path in custom_paths(NAMESPACES[0]) {
        wait_until("the kind is served", PATIENCE, async || {
            api.find(&path).await.map(drop).ok_or_else(|| path.clone())
        })
        .await;
    }
    let of =
        |namespace: &'static str| (0..APPLICATIONS).flat_map(move |number| application(namespace, number));
    let created = create(api, NAMESPACES.into_iter().flat_map(of).collect()).await;
    create(api, NAMESPACES.into_iter().flat_map(of_namespace).collect()).await;
    created
}

async fn create(api: &Api, objects: Vec<Value>) -> Vec<Value> {
    stream::iter(objects).map(async |object| api.create(&object).await).buffered(AT_ONCE).collect().await
}

/// The revisions of all keys, without events, Leases, and the records of netsurgeon.
async fn revisions(cluster: &Cluster) -> BTreeMap<String, i64> {
    let mut found = cluster.etcd.revisions("/registry/").await;
    let skipped = ["events/", "leases/", "masterleases/", "peerserverleases/", "configmaps/netsurgeon/"];
    found.retain(|key, _| !skipped.iter().any(|skipped| key["/registry/".len()..].starts_with(skipped)));
    found
}

async fn nothing_is_written_again(pair: &Pair) {
    let before = revisions(&pair.mirror).await;
    let again = plan(pair);
    assert_eq!(actions(&again).keys().collect::<Vec<_>>(), ["left-out", "same"], "{}", changed(&again));
    let applied = quietly(pair, &format!("apply --plan {} --yes -o json", pair.plan));
    assert_eq!(applied["operation"], Value::Null);
    let after = revisions(&pair.mirror).await;
    let written: Vec<&String> = after
        .iter()
        .filter(|(key, revision)| before.get(*key) != Some(revision))
        .map(|(key, _)| key)
        .collect();
    assert_eq!((written.as_slice(), before.len()), (&[] as &[&String], after.len()));
}

/// The entries of a plan that are neither `same` nor `left-out`.
fn changed(plan: &Value) -> String {
    let is_changed = |entry: &&Value| entry["action"] != "same" && entry["action"] != "left-out";
    let found: Vec<String> = entries(plan).filter(is_changed).map(ToString::to_string).collect();
    found.join("\n")
}

/// A change in one of the clusters, or in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit {
    SourceChanged,
    SourceDeleted,
    CopyChanged,
    CopyDeleted,
    /// A field of the copy is removed, so nobody owns it any more.
    FieldRemoved,
    /// Another client adds a label of its own to the copy.
    LabelAdded,
    /// Another client replaces the copy by an object of its own.
    CopyReplaced,
    BothChangedAlike,
    BothChanged,
    BothDeleted,
    DeletedAndCopyChanged,
}

impl Edit {
    const ALL: [Self; 11] = [
        Self::SourceChanged,
        Self::SourceDeleted,
        Self::CopyChanged,
        Self::CopyDeleted,
        Self::FieldRemoved,
        Self::LabelAdded,
        Self::CopyReplaced,
        Self::BothChangedAlike,
        Self::BothChanged,
        Self::BothDeleted,
        Self::DeletedAndCopyChanged,
    ];

    /// The action of the object in the next plan, and the code of its reason; `None` if the object is not in the plan.
    fn expected(self) -> Option<(&'static str, Option<&'static str>)> {
        match self {
            Self::SourceChanged | Self::FieldRemoved => Some(("update", None)),
            Self::SourceDeleted | Self::DeletedAndCopyChanged => Some(("delete", None)),
            Self::CopyChanged | Self::BothChanged => Some(("conflict", Some("other-manager"))),
            Self::CopyDeleted => Some(("create", None)),
            Self::LabelAdded | Self::BothChangedAlike => Some(("same", None)),
            Self::CopyReplaced => Some(("conflict", Some("exists"))),
            Self::BothDeleted => None,
        }
    }

    async fn make(self, pair: &Pair, object: &Value, value: &str) {
        let (source, mirror, path) = (&pair.source.api, &pair.mirror.api, object_path(object));
        match self {
            Self::SourceChanged => drop(source.merge(&path, &change(object, value)).await),
            Self::SourceDeleted => source.delete(&path).await,
            Self::CopyChanged => drop(mirror.merge(&path, &change(object, value)).await),
            Self::CopyDeleted => mirror.delete(&path).await,
            Self::FieldRemoved => {
                drop(mirror.merge(&path, &json!({"metadata": {"labels": {LABEL.0: null}}})).await);
            }
            Self::LabelAdded => {
                drop(mirror.merge(&path, &json!({"metadata": {"labels": {"other": value}}})).await);
            }
            Self::CopyReplaced => {
                mirror.delete(&path).await;
                mirror.create(&own(object, value)).await;
            }
            Self::BothChangedAlike => {
                source.merge(&path, &change(object, value)).await;
                mirror.merge(&path, &change(object, value)).await;
            }
            Self::BothChanged => {
                source.merge(&path, &change(object, value)).await;
                mirror.merge(&path, &change(object, &format!("{value}-other"))).await;
            }
            Self::BothDeleted => {
                source.delete(&path).await;
                mirror.delete(&path).await;
            }
            Self::DeletedAndCopyChanged => {
                source.delete(&path).await;
                mirror.merge(&path, &change(object, value)).await;
            }
        }
    }
}

/// An object of another client with the same name.
fn own(object: &Value, value: &str) -> Value {
    let mut own = object.clone();
    let metadata = &object["metadata"];
    own["metadata"] =
        json!({"name": metadata["name"], "namespace": metadata["namespace"], "labels": {LABEL.0: value}});
    if let Some(fields) = own.as_object_mut() {
        fields.remove("status");
    }
    if object["kind"] == "Service" && object["spec"]["clusterIP"] != "None" {
        for field in ["clusterIP", "clusterIPs"] {
            own["spec"].as_object_mut().expect("a map").remove(field);
        }
    }
    own
}

/// A change of a field that the copy has, by kind. `value` is a label.
fn change(object: &Value, value: &str) -> Value {
    let number = value.bytes().fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 50) + 110;
    let spec = &object["spec"];
    match text(&object["kind"]) {
        "ConfigMap" if object["data"].get("LOG_LEVEL").is_some() => json!({"data": {"LOG_LEVEL": value}}),
        "Secret" if object["immutable"].is_null() => json!({"stringData": {"user": value}}),
        "Deployment" => {
            let mut containers = spec["template"]["spec"]["containers"].clone();
            containers[0]["image"] = json!(format!("registry.example.com/shop/{value}:2"));
            json!({"spec": {"template": {"spec": {"containers": containers}}}})
        }
        "CronJob" => json!({"spec": {"schedule": format!("{} 4 * * *", number % 60)}}),
        "HorizontalPodAutoscaler" => json!({"spec": {"maxReplicas": number}}),
        "Ingress" => json!({"spec": {"ingressClassName": value}}),
        "Service" => {
            let mut ports = spec["ports"].clone();
            ports[0]["port"] = json!(number);
            json!({"spec": {"ports": ports}})
        }
        "PodDisruptionBudget" => json!({"spec": {"minAvailable": number}}),
        "NetworkPolicy" => json!({"spec": {"egress": [{"ports": [{"port": number, "protocol": "TCP"}]}]}}),
        "Role" => {
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [value]}]})
        }
        _ if spec["backends"].is_array() => json!({"spec": {"size": number}}),
        _ => json!({"metadata": {"labels": {LABEL.0: value}}}),
    }
}

/// Edits of both clusters: each object with its edit, and the objects that were added.
struct Drift {
    edits: Vec<(Value, Edit)>,
    added: Vec<Value>,
    /// Objects of other clients, whose names the source uses now.
    foreign: Vec<Value>,
    only_in_mirror: Vec<Value>,
}

impl Drift {
    async fn make(pair: &Pair, created: &[Value], mut random: StdRng) -> Self {
        // Other objects depend on these: a Deployment without its Service is left out, and without its autoscaler it has replicas.
        let is_free =
            |object: &&Value| object["kind"] != "Service" && object["kind"] != "HorizontalPodAutoscaler";
        let mut free: Vec<&Value> = created.iter().filter(is_free).collect();
        free.shuffle(&mut random);
        let each = (free.len() / 4 / Edit::ALL.len()).max(2);
        let chosen = Edit::ALL.iter().flat_map(|edit| std::iter::repeat_n(*edit, each));
        let edits: Vec<(Value, Edit)> =
            free.into_iter().zip(chosen).map(|(object, edit)| (object.clone(), edit)).collect();
        let made = edits.iter().map(|(object, edit)| {
            let value = format!("v{}", random.random_range(0..1_000_000));
            async move { edit.make(pair, object, &value).await }
        });
        stream::iter(made.collect::<Vec<_>>()).buffered(AT_ONCE).collect::<()>().await;

        let mut added = application(NAMESPACES[1], created.len());
        create(&pair.source.api, added.clone()).await;
        let foreign = added.split_off(added.len() / 2).iter().map(|one| own(one, "theirs")).collect();
        let foreign = create(&pair.mirror.api, foreign).await;
        let only_in_mirror = create(&pair.mirror.api, application(NAMESPACES[2], created.len())).await;
        Self { edits, added, foreign, only_in_mirror }
    }

    /// The expected action of each object, by kind, namespace and name, with the code of its reason.
    fn expected(&self) -> BTreeMap<String, (&'static str, Option<&'static str>)> {
        let edits = self.edits.iter().filter_map(|(object, edit)| Some((key(object), edit.expected()?)));
        let added = self.added.iter().map(|object| (key(object), ("create", None)));
        let foreign = self.foreign.iter().map(|object| (key(object), ("conflict", Some("exists"))));
        edits.chain(added).chain(foreign).collect()
    }
}

fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

/// The entries of a plan by kind, namespace and name, except those that are left out.
fn by_key(plan: &Value) -> BTreeMap<String, &Value> {
    let copied = entries(plan).filter(|entry| entry["action"] != "left-out");
    let name = |entry: &Value| {
        format!(
            "{} {}/{}",
            text(&entry["kind"]),
            entry["namespace"].as_str().unwrap_or("-"),
            text(&entry["name"])
        )
    };
    copied.map(|entry| (name(entry), entry)).collect()
}

async fn drift_is_found_and_repaired(pair: &Pair, drift: &Drift) {
    let expected = drift.expected();
    let planned = plan(pair);
    let found = by_key(&planned);
    let (mut wrong, mut conflicts) = (Vec::new(), BTreeSet::new());
    for (key, entry) in &found {
        let (action, reason) = expected.get(key).copied().unwrap_or(("same", None));
        if entry["action"] != action || entry.get("reason").and_then(Value::as_str) != reason {
            wrong.push(format!("{key}: not {action} {reason:?}: {entry}"));
        }
        if action == "conflict" {
            conflicts.insert(key.clone());
        }
    }
    wrong.extend(
        expected.keys().filter(|key| !found.contains_key(*key)).map(|key| format!("{key}: not in the plan")),
    );
    let gone =
        drift.edits.iter().filter(|(_, edit)| *edit == Edit::BothDeleted).map(|(object, _)| key(object));
    wrong.extend(
        gone.filter(|key| found.contains_key(key)).map(|key| format!("{key}: deleted in both clusters")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let second = apply(pair);
    quietly(pair, &format!("verify --skip-readiness {second} -o json"));
    let again = plan(pair);
    let is_conflict = |(_, entry): &(&String, &&Value)| entry["action"] == "conflict";
    let left: BTreeSet<String> =
        by_key(&again).iter().filter(is_conflict).map(|(key, _)| key.clone()).collect();
    assert_eq!(left, conflicts);
    let counts = actions(&again);
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["conflict", "left-out", "same"], "{}", changed(&again));
    for object in &drift.only_in_mirror {
        assert!(pair.mirror.api.find(&object_path(object)).await.is_some(), "{object} of another client");
    }
}
