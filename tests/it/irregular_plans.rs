//! Plans for clusters that are less regular than the fixtures: objects of old versions, unusual pins, second families.

use std::collections::BTreeMap;
use std::sync::Arc;

use netsurgeon::ip::{Item, Items};
use netsurgeon::operation::Work;
use netsurgeon::renumber::hold::Hold;
use netsurgeon::renumber::sweep::sweep;
use netsurgeon::renumber::{Action, Move, PlanError, PlanOptions, Renumbering, plan};
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::{Action as StoreAction, Change, Expected, Key, ReadStore, Transaction, WriteStore};
use netsurgeon::survey::audit::audit;
use netsurgeon::survey::{Layout, Survey};
use serde_json::{Value, json};

use crate::harness::entries;

/// A fixture's cluster, to be changed.
async fn cluster(fixture: &str) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::from_entries(entries(fixture).await))
}

async fn put(store: &MemoryStore, key: &str, object: &Value) {
    let key = Key::from(key);
    let there = store.get(&key).await.unwrap();
    let change = Change {
        key,
        expected: there.map_or(Expected::Absent, |entry| Expected::At(entry.mod_revision)),
        action: StoreAction::Put(format!("{object}\n").into_bytes()),
    };
    store.commit(&Transaction { guards: Vec::new(), changes: vec![change] }).await.unwrap();
}

async fn put_service(store: &MemoryStore, name: &str, spec: Value) {
    let object = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-of-{name}")}, "spec": spec,
    });
    put(store, &format!("/registry/services/specs/default/{name}"), &object).await;
    let has_object = object["spec"]["type"] != "ExternalName";
    let address = object["spec"]["clusterIP"].as_str().filter(|ip| ip.starts_with("10.96."));
    if let Some(address) = address.filter(|_| has_object) {
        let object = json!({
            "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": address, "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
            "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": name}},
        });
        put(store, &format!("/registry/ipaddresses/{address}"), &object).await;
    }
}

async fn plan_of(store: &MemoryStore, to: &str, pins: &[(&str, &str)]) -> Result<Renumbering, PlanError> {
    let survey = Survey::read(store, &Layout::default(), None).await.unwrap();
    let pins: BTreeMap<_, _> = pins.iter().map(|(s, a)| ((*s).to_string(), a.parse().unwrap())).collect();
    let options = PlanOptions { pins, batch_size: 10, ..PlanOptions::new(to.parse().unwrap()) };
    plan(&survey, &options).map(|plan| plan.work)
}

fn find<'w>(work: &'w Renumbering, subject: &str) -> &'w Move {
    work.moves.iter().find(|m| m.subject() == subject).unwrap_or_else(|| panic!("{subject} moves"))
}

/// The texts of the manual steps.
fn manual_steps(work: &Renumbering) -> Vec<String> {
    let steps = work.stages().into_iter().flat_map(|stage| work.steps(&stage));
    steps
        .filter_map(|step| match step.action {
            Action::Manual(manual) => Some(manual.what),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn instructions_of_one_family_keep_the_other() {
    let store = cluster("dualstack").await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    let told = manual_steps(&work).join("\n");
    assert!(told.contains("`--service-cluster-ip-range` to `10.200.0.0/16,fd00:10:96::/112`"), "{told}");
    assert!(told.contains("covers both `10.200.0.1` and `10.96.0.1`"), "{told}");
    let created =
        work.stages().into_iter().flat_map(|stage| work.steps(&stage)).find_map(|step| match step.action {
            Action::Do(effect) => Some(format!("{effect:?}")),
            _ => None,
        });
    assert!(created.unwrap().contains("fd00:10:96::/112"), "the temporary range keeps the other family");

    let work = plan_of(&store, "fd00:200::/112", &[]).await.unwrap();
    let told = manual_steps(&work).join("\n");
    assert!(told.contains("`10.96.0.0/16,fd00:200::/112`"), "{told}");
    assert!(!told.contains("certificate that covers both"), "`default/kubernetes` does not move: {told}");
}

#[tokio::test]
async fn kubernetes_service_cannot_be_pinned() {
    let store = cluster("objects").await;
    let elsewhere = plan_of(&store, "10.200.0.0/16", &[("default/kubernetes", "10.200.0.7")]).await;
    assert!(matches!(elsewhere, Err(PlanError::KubernetesPin { .. })));
    let first = plan_of(&store, "10.200.0.0/16", &[("default/kubernetes", "10.200.0.1")]).await.unwrap();
    assert_eq!(find(&first, "default/kubernetes").new, ["10.200.0.1"]);
}

#[tokio::test]
async fn service_without_cluster_ips_moves_and_is_rolled_back() {
    let store = cluster("objects").await;
    put_service(
        &store,
        "ancient",
        json!({"type": "ClusterIP", "clusterIP": "10.96.9.9", "ports": [{"port": 80}]}),
    )
    .await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    let ancient = find(&work, "default/ancient");
    assert_eq!((&ancient.old[..], &ancient.new[..]), (&["10.96.9.9".into()][..], &["10.200.9.9".into()][..]));
    let options = PlanOptions { batch_size: 100, ..PlanOptions::new(work.to) };
    let ambient = netsurgeon::operation::SystemAmbient;
    let silent = &mut netsurgeon::operation::Silent;
    let (_, rehearsal) =
        netsurgeon::renumber::rehearse(store, &Layout::default(), &options, &ambient, silent).await.unwrap();
    assert!(rehearsal.succeeded(), "{rehearsal:#?}");
}

#[tokio::test]
async fn stale_address_of_external_name_is_ignored() {
    let store = cluster("objects").await;
    let spec = json!({"type": "ExternalName", "externalName": "example.org", "clusterIP": "10.96.9.10", "clusterIPs": ["10.96.9.10"]});
    put_service(&store, "elsewhere", spec).await;
    let survey = Survey::read(store.as_ref(), &Layout::default(), None).await.unwrap();
    assert_eq!(audit(&survey), Vec::new());
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    assert!(work.skipped.iter().any(|skipped| skipped.name == "elsewhere"));
}

#[tokio::test]
async fn external_ip_is_not_allocated_to_another_service() {
    let store = cluster("objects").await;
    let spec = json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "externalIPs": ["10.200.255.254"]});
    put_service(&store, "taken", spec).await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    assert!(work.moves.iter().all(|m| m.new_address.to_string() != "10.200.255.254"));
}

/// A bitmap of IPv6 addresses has 65,535 bits, however large the range is.
#[tokio::test]
async fn planned_addresses_are_within_the_bitmap() {
    let store = cluster("bitmap").await;
    put_service(
        &store,
        "six",
        json!({
            "type": "NodePort", "selector": {"app": "six"}, "ports": [{"port": 80, "nodePort": 32001}],
            "clusterIP": "fd00:10:96::7", "clusterIPs": ["fd00:10:96::7"], "ipFamilies": ["IPv6"],
        }),
    )
    .await;
    let bitmap =
        json!({"kind": "RangeAllocation", "apiVersion": "v1", "range": "fd00:10:96::/112", "data": "QA=="});
    put(&store, "/registry/ranges/secondaryserviceips", &bitmap).await;
    let work = plan_of(&store, "fd00:200::/108", &[]).await.unwrap();
    let items = Items::Addresses(work.to);
    let shadow = find(&work, "default/six").shadow.clone().unwrap();
    assert!(
        shadow.temporary.iter().all(|address| items.bit(Item::Address(*address)).is_some()),
        "{shadow:?}"
    );
    let beyond = plan_of(&store, "fd00:200::/108", &[("default/six", "fd00:200::f:1")]).await;
    assert!(matches!(beyond, Err(PlanError::Remap(_))), "{beyond:?}");
}

#[tokio::test]
async fn cluster_dns_with_any_name_moves_alone_before_the_last() {
    let store = cluster("objects").await;
    let object = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"namespace": "kube-system", "name": "a-dns", "uid": "u", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": "10.96.9.53", "clusterIPs": ["10.96.9.53"], "selector": {"a": "b"}},
    });
    put(&store, "/registry/services/specs/kube-system/a-dns", &object).await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    let last: Vec<String> = work.moves.iter().rev().take(3).map(Move::subject).collect();
    assert_eq!(last, ["default/kubernetes", "kube-system/kube-dns", "kube-system/a-dns"]);
    assert_eq!(work.batches().last().map(std::ops::Range::len), Some(1));
}

async fn delete(store: &MemoryStore, key: &str) {
    let entry = store.get(&Key::from(key)).await.unwrap().unwrap();
    let expected = Expected::At(entry.mod_revision);
    let changes = vec![Change { key: entry.key, expected, action: StoreAction::Delete }];
    store.commit(&Transaction { guards: Vec::new(), changes }).await.unwrap();
}

async fn put_dns(store: &MemoryStore, name: &str, address: &str, labels: Value) {
    let object = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"namespace": "kube-system", "name": name, "uid": format!("uid-of-{name}"), "labels": labels},
        "spec": {"clusterIP": address, "clusterIPs": [address], "selector": {"a": "b"}},
    });
    put(store, &format!("/registry/services/specs/kube-system/{name}"), &object).await;
}

/// RKE2 names the Service after its chart; with a NodeLocal DNSCache another Service has the label, too.
#[tokio::test]
async fn kubelet_step_follows_dns_of_another_name() {
    let store = cluster("objects").await;
    delete(&store, "/registry/services/specs/kube-system/kube-dns").await;
    let label = json!({"k8s-app": "kube-dns"});
    put_dns(&store, "rke2-coredns-rke2-coredns", "10.96.9.53", label.clone()).await;
    put_dns(&store, "kube-dns-upstream", "10.96.9.54", label).await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    assert_eq!(work.dns().map(Move::subject).collect::<Vec<_>>(), ["kube-system/rke2-coredns-rke2-coredns"]);
    let told = manual_steps(&work).join("\n");
    assert!(told.contains("`netsurgeon controlplane set-dns --from 10.96.9.53 --to 10.200.9.53`"), "{told}");
    assert!(!told.contains("10.96.9.54"), "{told}");
}

#[tokio::test]
async fn cluster_dns_is_recognised_by_kubelet_configuration() {
    let store = cluster("objects").await;
    delete(&store, "/registry/services/specs/kube-system/kube-dns").await;
    put_dns(&store, "resolver", "10.96.9.53", json!({})).await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    assert_eq!(work.dns().count(), 0, "no Service is recognised");
    let config = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"namespace": "kube-system", "name": "kubelet-config"},
        "data": {"kubelet": "clusterDNS:\n- 10.96.9.53\nkind: KubeletConfiguration\n"},
    });
    put(&store, "/registry/configmaps/kube-system/kubelet-config", &config).await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    assert_eq!(work.dns().map(Move::subject).collect::<Vec<_>>(), ["kube-system/resolver"]);
}

/// Swept Services get the hold that the operator chose for all.
#[tokio::test]
async fn sweep_keeps_the_requested_hold() {
    let held = async |asked: Option<Hold>, newcomers: &[Value]| {
        let store = cluster("objects").await;
        let survey = async || Survey::read(store.as_ref(), &Layout::default(), None).await.unwrap();
        let only = |survey: &mut Survey| {
            survey.services.retain(|service| {
                service.kind() == "ClusterIP"
                    && service.spec.external_ips.is_empty()
                    && service.spec.internal_traffic_policy.as_deref() != Some("Local")
            });
        };
        let mut before = survey().await;
        only(&mut before);
        let options = PlanOptions {
            hold: asked,
            accept_gap: true,
            ..PlanOptions::new("10.200.0.0/16".parse().unwrap())
        };
        let text = serde_json::to_string(&plan(&before, &options).unwrap().work).unwrap();
        let mut work: Renumbering = serde_json::from_str(&text).unwrap();
        for (number, spec) in newcomers.iter().enumerate() {
            put_service(&store, &format!("late-{number}"), spec.clone()).await;
        }
        let mut now = survey().await;
        now.services.retain(|service| {
            service.name.starts_with("late-") || before.services.iter().any(|known| known.uid == service.uid)
        });
        let found = sweep(&work, &now).unwrap().expect("some are found");
        let holds: Vec<Hold> = found.found.iter().map(|found| found.hold).collect();
        work.amend(found);
        let rest = sweep(&work, &now).unwrap().map(|rest| rest.found).unwrap_or_default();
        (holds, rest.iter().map(|found| found.hold).collect::<Vec<Hold>>())
    };
    let plain = json!({"clusterIP": "10.96.9.60", "clusterIPs": ["10.96.9.60"], "selector": {"a": "b"}, "ports": [{"port": 80}]});
    let open = json!({"type": "NodePort", "clusterIP": "10.96.9.61", "clusterIPs": ["10.96.9.61"], "selector": {"a": "b"}, "ports": [{"port": 80, "nodePort": 32001}]});
    assert_eq!(held(None, std::slice::from_ref(&plain)).await, (vec![Hold::ExternalIp], vec![]));
    assert_eq!(held(Some(Hold::Shadow), std::slice::from_ref(&plain)).await, (vec![Hold::Shadow], vec![]));
    // A Service that cannot be held in that way does not keep the others in the old range, and gets a shadow afterwards.
    let held = held(Some(Hold::ExternalIp), &[open, plain]).await;
    assert_eq!(held, (vec![Hold::ExternalIp], vec![Hold::Shadow]));
}

/// Makes the plan, changes the cluster, and returns how the plan differs from it.
async fn fit_after(change: impl AsyncFnOnce(&MemoryStore, &Renumbering)) -> Vec<String> {
    let store = cluster("objects").await;
    let service = json!({"type": "ClusterIP", "clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"], "selector": {"app": "x"}});
    put_service(&store, "moving", service).await;
    let work = plan_of(&store, "10.200.0.0/16", &[]).await.unwrap();
    change(&store, &work).await;
    let survey = Survey::read(store.as_ref(), &Layout::default(), None).await.unwrap();
    let fit = netsurgeon::renumber::drift::compare(&work, &survey);
    let newcomers = fit.newcomers.iter().map(|subject| format!("newcomer {subject}"));
    fit.drifts.iter().map(ToString::to_string).chain(newcomers).collect()
}

#[tokio::test]
async fn plan_is_compared_with_cluster_before_it_runs() {
    let key = "/registry/services/specs/default/moving";
    let with = |spec: serde_json::Value, uid: &str| {
        json!({"kind": "Service", "apiVersion": "v1", "spec": spec,
            "metadata": {"name": "moving", "namespace": "default", "uid": uid}})
    };
    assert_eq!(fit_after(async |_, _| {}).await, Vec::<String>::new());
    let gone = fit_after(async |store, _| {
        let entry = store.get(&Key::from(key)).await.unwrap().unwrap();
        let action = StoreAction::Delete;
        let expected = Expected::At(entry.mod_revision);
        let changes = vec![Change { key: entry.key, expected, action }];
        store.commit(&Transaction { guards: Vec::new(), changes }).await.unwrap();
    });
    assert_eq!(gone.await, ["Service `default/moving` was deleted"]);
    let again = json!({"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"], "selector": {"app": "x"}});
    let recreated = fit_after(async |store, _| put(store, key, &with(again, "another")).await);
    let told = ["Service `default/moving` was deleted and recreated", "newcomer default/moving"];
    assert_eq!(recreated.await, told);
    let changed = [
        (
            json!({"clusterIP": "10.96.9.8", "clusterIPs": ["10.96.9.8"], "selector": {"app": "x"}}),
            "Service `default/moving` now has other addresses: 10.96.9.8",
        ),
        (
            json!({"type": "NodePort", "clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"], "selector": {"app": "x"}}),
            "Service `default/moving` has changed: the planned hold of its old address no longer fits",
        ),
    ];
    for (spec, says) in changed {
        let told = fit_after(async |store, work| {
            put(store, key, &with(spec, &find(work, "default/moving").uid)).await;
        });
        assert_eq!(told.await, [says]);
    }
    let others = fit_after(async |store, _| {
        let taker = json!({"clusterIP": "10.200.9.9", "clusterIPs": ["10.200.9.9"]});
        put_service(store, "taker", taker).await;
        let newcomer = json!({"clusterIP": "10.96.9.10", "clusterIPs": ["10.96.9.10"]});
        put_service(store, "newcomer", newcomer).await;
    });
    let expected = [
        "Service `default/moving` cannot get `10.200.9.9`: the address is already in use",
        "newcomer default/newcomer",
    ];
    assert_eq!(others.await, expected);
}
