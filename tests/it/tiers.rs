//! Tiers of a plan: every source of tiers, rejected tiers, and the built-in tier of Services behind webhooks and aggregated
//! APIs.

use std::collections::BTreeMap;

use netsurgeon::renumber::tier::API_BACKENDS;
use netsurgeon::renumber::{PlanError, PlanOptions, Renumbering, TierSource, Tiers, plan};
use netsurgeon::store::Entry;
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::{Key, Revision};
use netsurgeon::survey::{Layout, Survey};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::harness::entries;

/// Services and their tiers: `(name, label or annotation)`.
const SERVICES: [(&str, &str); 5] =
    [("a-core", "core"), ("b-dev", "dev"), ("c-web", "web"), ("d-dev", "dev"), ("e-core", "core")];

fn entry(key: &str, value: Vec<u8>) -> Entry {
    Entry {
        key: Key::from(key),
        value,
        create_revision: Revision(1),
        mod_revision: Revision(1),
        version: 1,
        lease: 0,
    }
}

fn stored(key: &str, object: &Value) -> Entry {
    entry(key, format!("{object}\n").into_bytes())
}

/// A Service with its tier in a label and an annotation, and its IPAddress.
fn service(name: &str, tier: &str, host: usize) -> [Entry; 2] {
    let address = format!("10.96.9.{host}");
    let object = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "namespace": "tiers", "name": name, "uid": format!("uid-of-{name}"),
            "labels": {"example.org/tier": tier}, "annotations": {"other": "dev", "example.org/tier": tier},
        },
        "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "selector": {"app": name}},
    });
    let own = json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": address, "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"resource": "services", "namespace": "tiers", "name": name}},
    });
    [
        stored(&format!("/registry/services/specs/tiers/{name}"), &object),
        stored(&format!("/registry/ipaddresses/{address}"), &own),
    ]
}

/// The fixture's cluster with Services of three tiers, and more.
async fn cluster(more: Vec<Entry>) -> MemoryStore {
    let ours = SERVICES.iter().enumerate().flat_map(|(index, (name, tier))| service(name, tier, index + 10));
    MemoryStore::from_entries(entries("objects").await.into_iter().chain(ours).chain(more))
}

fn tiers(source: TierSource, default: Option<&str>) -> Tiers {
    let names = ["dev", "web", "core"].map(String::from).to_vec();
    Tiers { names, source, default: default.map(String::from) }
}

async fn plan_with(
    store: &MemoryStore,
    tiers: impl Into<Option<Tiers>>,
    batch: usize,
) -> Result<Renumbering, PlanError> {
    let to = "10.200.0.0/16".parse().unwrap();
    let options = PlanOptions { tiers: tiers.into(), batch_size: batch, ..PlanOptions::new(to) };
    let survey = Survey::read_annotated(store, &Layout::default(), None, options.annotation()).await.unwrap();
    plan(&survey, &options).map(|plan| plan.work)
}

/// The Services of this test with their tiers, in the order of their moves.
fn ours(work: &Renumbering) -> Vec<(&str, &str)> {
    let ours = work.moves.iter().filter(|m| m.namespace == "tiers");
    ours.map(|m| (m.name.as_str(), m.tier.as_str())).collect()
}

/// Every move is in exactly one batch, in order; no batch is too large or has two tiers.
fn assert_batches(work: &Renumbering) {
    let mut next = 0;
    for batch in work.batches() {
        assert_eq!(batch.start, next, "{:?}", work.batches());
        assert!((1..=work.batch_size).contains(&batch.len()), "{batch:?}");
        let moves = &work.moves[batch.clone()];
        let kind = |m: &netsurgeon::renumber::Move| (m.tier.clone(), m.turn, m.sweep);
        assert!(moves.iter().all(|m| kind(m) == kind(&moves[0])), "{moves:?}");
        next = batch.end;
    }
    assert_eq!(next, work.moves.len());
}

const IN_ORDER: [(&str, &str); 5] =
    [("b-dev", "dev"), ("d-dev", "dev"), ("c-web", "web"), ("a-core", "core"), ("e-core", "core")];

#[tokio::test]
async fn every_source_orders_services() {
    let store = cluster(Vec::new()).await;
    let key = || "example.org/tier".to_string();
    let listed = SERVICES.map(|(name, tier)| (format!("tiers/{name}"), tier.to_string()));
    for source in [
        TierSource::Label(key()),
        TierSource::Annotation(key()),
        TierSource::Listed(BTreeMap::from(listed.clone())),
    ] {
        for batch in [1, 2, 50] {
            let work = plan_with(&store, tiers(source.clone(), Some("web")), batch).await.unwrap();
            assert_eq!(ours(&work), IN_ORDER, "{source:?}");
            assert_eq!(work.tiers, ["dev", "web", "core"]);
            assert_batches(&work);
            let sizes: usize = work.tier_moves().iter().map(|(_, moves)| moves.len()).sum();
            assert_eq!(sizes + 2, work.moves.len(), "all but the cluster's DNS and `default/kubernetes`");
            let last: Vec<&str> = work.moves.iter().rev().take(2).map(|m| m.name.as_str()).collect();
            assert_eq!(last, ["kubernetes", "kube-dns"]);
        }
    }
}

/// Objects of the fixtures are in protobuf, those above in JSON.
#[tokio::test]
async fn annotations_are_read_from_protobuf() {
    let text = "example.org/tier";
    let spec = [b"\x1a\x0a10.96.9.99".as_slice(), b"\x92\x01\x0a10.96.9.99", b"\x22\x09ClusterIP"].concat();
    let part = |number: u8, content: &[u8]| {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        out.extend_from_slice(content);
        out
    };
    let pair = [part(1, text.as_bytes()), part(2, b"core")].concat();
    let other = [part(1, b"other"), part(2, b"dev")].concat();
    let metadata =
        [part(1, b"proto"), part(3, b"tiers"), part(5, b"uid"), part(12, &pair), part(12, &other)].concat();
    let object = [part(1, &metadata), part(2, &spec)].concat();
    let known = [part(1, &[part(1, b"v1"), part(2, b"Service")].concat()), {
        let mut raw = vec![0x12, u8::try_from(object.len() & 0x7f).unwrap() | 0x80];
        raw.push(u8::try_from(object.len() >> 7).unwrap());
        raw.extend_from_slice(&object);
        raw
    }]
    .concat();
    let value = [b"k8s\0".as_slice(), &known].concat();
    let store = cluster(vec![entry("/registry/services/specs/tiers/proto", value)]).await;
    let source = TierSource::Annotation(text.to_string());
    let work = plan_with(&store, tiers(source, Some("dev")), 50).await.unwrap();
    assert!(ours(&work).contains(&("proto", "core")), "{:?}", ours(&work));
}

#[tokio::test]
async fn service_with_missing_or_unknown_tier_prevents_plan() {
    let store = cluster(service("f-gold", "gold", 30).to_vec()).await;
    let source = || TierSource::Label("example.org/tier".to_string());
    let unknown = plan_with(&store, tiers(source(), Some("web")), 50).await.unwrap_err();
    let words = "Service `tiers/f-gold` is of tier `gold`; the tiers are dev, web, core";
    assert_eq!(unknown.to_string(), words);
    let store = cluster(Vec::new()).await;
    let Err(PlanError::NoTier { count, .. }) = plan_with(&store, tiers(source(), None), 50).await else {
        panic!("Services of the fixture have no such label");
    };
    let all = plan_with(&store, tiers(source(), Some("web")), 50).await.unwrap();
    assert_eq!(count + SERVICES.len() + 2, all.moves.len());
}

#[tokio::test]
async fn exact_name_wins_over_namespace() {
    let store = cluster(Vec::new()).await;
    let lines = [("tiers/*", "core"), ("tiers/c-web", "dev")];
    let listed = lines.map(|(subject, tier)| (subject.to_string(), tier.to_string()));
    let work = plan_with(&store, tiers(TierSource::Listed(listed.into()), Some("web")), 50).await.unwrap();
    assert_eq!(ours(&work)[0], ("c-web", "dev"));
    assert!(ours(&work)[1..].iter().all(|(_, tier)| *tier == "core"));
}

fn reference(name: &str) -> Value {
    json!({"namespace": "tiers", "name": name, "port": 443})
}

/// Objects that refer to Services of this test, as an API server stores them, and some that refer to none.
fn extensions() -> Vec<Entry> {
    let webhooks = |kind: &str, name: &str| {
        json!({"kind": kind, "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "x"}, "webhooks": [
            {"name": "url.example", "clientConfig": {"url": "https://192.0.2.1/"}},
            {"name": "service.example", "clientConfig": {"service": reference(name), "caBundle": "QQ=="}},
        ]})
    };
    let custom = |version: &str, conversion: Value| {
        json!({"kind": "CustomResourceDefinition", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "metadata": {"name": "x"}, "spec": {"group": "example.org", "conversion": conversion}})
    };
    // The form that API servers store, and the form in which clients send them.
    let old_form = |strategy: &str, name: &str| {
        let config = json!({"service": reference(name)});
        custom(
            "v1beta1",
            json!({"strategy": strategy, "webhookClientConfig": config, "conversionReviewVersions": ["v1"]}),
        )
    };
    let new_form = |strategy: &str, name: &str| {
        let webhook =
            json!({"clientConfig": {"service": reference(name)}, "conversionReviewVersions": ["v1"]});
        custom("v1", json!({"strategy": strategy, "webhook": webhook}))
    };
    let aggregated = json!({"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": "v1.metrics.example"},
        "spec": {"service": reference("c-web"), "group": "metrics.example", "version": "v1", "groupPriorityMinimum": 1}});
    let at = |resource: &str, object: &Value| stored(&format!("/registry/{resource}/x"), object);
    vec![
        at("mutatingwebhookconfigurations", &webhooks("MutatingWebhookConfiguration", "a-core")),
        at("apiregistration.k8s.io/apiservices", &aggregated),
        at("apiextensions.k8s.io/customresourcedefinitions", &old_form("Webhook", "d-dev")),
        stored("/registry/apiextensions.k8s.io/customresourcedefinitions/y", &old_form("None", "e-core")),
        stored("/registry/apiextensions.k8s.io/customresourcedefinitions/z", &new_form("None", "e-core")),
        stored("/registry/apiextensions.k8s.io/customresourcedefinitions/zz", &new_form("Webhook", "f-new")),
        entry("/registry/validatingwebhookconfigurations/x", validating_in_protobuf()),
        stored("/registry/validatingwebhookconfigurations/broken", &json!({"kind": "Other"})),
    ]
}

/// A ValidatingWebhookConfiguration for `tiers/b-dev`, byte by byte as `generated.proto` numbers its fields.
fn validating_in_protobuf() -> Vec<u8> {
    let part = |number: u8, content: &[u8]| {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        out.extend_from_slice(content);
        out
    };
    let service =
        [part(1, b"tiers"), part(2, b"b-dev"), part(3, b"/validate"), vec![0x20, 0xbb, 0x03]].concat();
    let webhook = [part(1, b"x.example"), part(2, &[part(1, &service), part(2, b"CA")].concat())].concat();
    let object = [part(1, &part(1, b"x")), part(2, &webhook)].concat();
    let version = b"admissionregistration.k8s.io/v1";
    let type_meta = [part(1, version), part(2, b"ValidatingWebhookConfiguration")].concat();
    [b"k8s\0".to_vec(), part(1, &type_meta), part(2, &object)].concat()
}

#[tokio::test]
async fn api_backends_move_after_all_tiers() {
    let more = extensions().into_iter().chain(service("f-new", "dev", 40));
    let store = cluster(more.collect()).await;
    let behind = ["a-core", "b-dev", "c-web", "d-dev", "f-new"].map(|name| (name, API_BACKENDS));
    let work = plan_with(&store, None, 50).await.unwrap();
    assert_eq!(ours(&work), [vec![("e-core", "")], behind.to_vec()].concat());
    assert_eq!(work.tiers_in_words().as_deref(), Some("api-backends (5)"));
    assert_batches(&work);
    let place = |name: &str| work.moves.iter().position(|m| m.name == name).unwrap();
    assert_eq!((place("a-core") + 5, place("kube-dns") + 1), (place("kube-dns"), place("kubernetes")));
    // They need no tier, and ignore the one of their label.
    let source = TierSource::Label("example.org/tier".to_string());
    let work = plan_with(&store, tiers(source, Some("web")), 3).await.unwrap();
    assert_eq!(ours(&work), [vec![("e-core", "core")], behind.to_vec()].concat());
    assert_eq!(work.tiers, ["dev", "web", "core", API_BACKENDS]);
    assert_batches(&work);
    let survey = Survey::read(&store, &Layout::default(), None).await.unwrap();
    let unread: Vec<String> = survey.unreadable.iter().map(|one| one.key.to_string()).collect();
    assert_eq!(unread, ["/registry/validatingwebhookconfigurations/broken"]);
}

#[tokio::test]
async fn plan_without_source_has_no_tiers() {
    let work = plan_with(&cluster(Vec::new()).await, None, 10).await.unwrap();
    let value = serde_json::to_value(&work).unwrap();
    assert!(value.get("tiers").is_none() && value["moves"][0].get("tier").is_none());
    assert_eq!((work.tier_moves(), work.tiers_in_words()), (Vec::new(), None));
    assert_batches(&work);
}

proptest! {
    /// With any sizes of tiers and batches, a lookup of a batch agrees with a count from the start.
    #[test]
    fn batches_of_any_sizes_cover_all_moves(
        sizes in prop::collection::vec(0_usize..9, 4), batch in 1_usize..7, alone in 0_usize..3,
        swept in 0_usize..9,
    ) {
        let one = serde_json::from_value(json!({
            "namespace": "n", "name": "s", "uid": "u", "old": [], "new": [], "hold": "external-ip", "hold_reason": "",
            "old_address": "10.0.0.1", "new_address": "10.1.0.1",
        }));
        let one: netsurgeon::renumber::Move = one.unwrap();
        let mut work: Renumbering = serde_json::from_value(json!({
            "prefix": "/registry", "era": "objects", "family": "IPv4", "from": [], "to": "10.1.0.0/16", "flag_before": [],
            "flag": [], "batch_size": batch, "tiers": ["x", "y", "z"], "encoding": "json", "api_version": "",
            "moves": [], "skipped": [],
        })).unwrap();
        for (tier, size) in ["", "x", "y", "z"].iter().zip(&sizes) {
            work.moves.extend((0..*size).map(|_| netsurgeon::renumber::Move { tier: (*tier).into(), ..one.clone() }));
        }
        let turn = netsurgeon::renumber::Turn::ClusterDns;
        work.moves.extend((0..alone).map(|_| netsurgeon::renumber::Move { turn, ..one.clone() }));
        let expected: usize = sizes.iter().map(|size| size.div_ceil(batch)).sum();
        work.moves.extend((0..swept).map(|_| netsurgeon::renumber::Move { sweep: 1, ..one.clone() }));
        prop_assert_eq!(work.batches().len(), expected + alone + swept.div_ceil(batch));
        assert_batches(&work);
    }
}

#[tokio::test]
async fn listed_services_that_do_not_exist_are_reported() {
    let store = cluster(extensions()).await;
    let survey = Survey::read(&store, &Layout::default(), None).await.unwrap();
    let lines =
        ["tiers/a-core", "tiers/*", "tiers/gone", "nowhere/*"].map(|line| (line.to_string(), "web".into()));
    let listed = tiers(TierSource::Listed(lines.into()), None);
    assert_eq!(listed.strangers(&survey), ["nowhere/*", "tiers/gone"]);
    assert_eq!(tiers(TierSource::Label("x".into()), None).strangers(&survey), Vec::<&str>::new());
    let unreadable: Vec<String> =
        survey.unreadable_extensions().iter().map(|one| one.key.to_string()).collect();
    assert_eq!(unreadable, ["/registry/validatingwebhookconfigurations/broken"]);
}
