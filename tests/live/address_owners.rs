//! An address that belongs to a Service and to its shadow: the deletion of one of them does not free the address for another
//! client. The deleted object is removed once its move is complete, or rolled back.

use serde_json::{Value, json};

use http::Method;

use super::client_changes::{begun_and_killed, external_name, path, refuse, refuse_no_more, shadow_of};
use super::cut_connections::behind;
use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::relay::Relay;
use super::rig::report::Target;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, Serving};

/// Services that shadows hold; the first batch has eight others.
const DOORS: [(&str, &str); 2] = [("a-door", "10.96.2.1"), ("b-door", "10.96.2.2")];
const OTHERS: usize = 8;
const FINALIZER: &str = "netsurgeon.io/moving";

impl Serving {
    async fn with_doors(era: Era) -> Self {
        let mode = if era == Era::Bitmap { ProxyMode::Iptables } else { ProxyMode::Nftables };
        let mut serving = Self::start(era, mode).await;
        for (name, address) in DOORS {
            let door = json!({"type": "NodePort", "clusterIP": address});
            serving.cluster.create_echo_service(name, &json!({"app": "web"}), &door).await;
        }
        begun_and_killed(&mut serving, era, OTHERS).await;
        serving
    }

    /// Asks the API server for an address as another client; the error is its refusal.
    pub async fn ask_for(&self, address: &str) -> Result<(), String> {
        let name = format!("tenant-{}", address.replace('.', "-"));
        let tenant = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": address, "ports": [{"port": 80}]},
        });
        self.cluster.api.try_create(&tenant).await.map(drop).map_err(|error| error.to_string())
    }

    /// Deletes a Service, or a shadow: it stays, and no client gets the address.
    async fn delete_and_ask(&self, name: &str, address: &str) {
        self.delete_so_and_ask(name, "Background", address).await;
    }

    /// The same with one of the propagation policies for dependents.
    async fn delete_so_and_ask(&self, name: &str, propagation: &str, address: &str) {
        self.cluster.api.delete(&format!("{}?propagationPolicy={propagation}", path(name))).await;
        let kept = self.cluster.api.get(&path(name)).await;
        assert!(kept["metadata"]["deletionTimestamp"].is_string(), "{kept}");
        assert_eq!(kept["spec"]["clusterIP"], address, "{kept}");
        let refused = self.ask_for(address).await.expect_err("the address is still allocated");
        // In the bitmap era the old range is no Service range now.
        let is_known = |words: &str| refused.contains(words);
        assert!(is_known("already allocated") || is_known("not in the valid range"), "{refused}");
    }

    async fn shadow_name(&self, name: &str, kind: &str) -> String {
        let shadow = shadow_of(self, name, kind).await.expect("the Service has a shadow");
        shadow["metadata"]["name"].as_str().expect("a name").to_owned()
    }

    /// No object has a finalizer of netsurgeon, and the deleted ones are removed.
    async fn assert_let_go(&self, gone: &[&str]) {
        let services = self.cluster.api.list("/api/v1/services").await;
        let keeps = |service: &&Value| {
            service["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&FINALIZER.into()))
        };
        assert_eq!(services.iter().find(keeps), None);
        for name in gone {
            assert_eq!(self.cluster.api.find(&path(name)).await, None, "{name}");
        }
    }
}

async fn nobody_is_given_it(era: Era) {
    let serving = Serving::with_doors(era).await;
    serving.delete_and_ask("a-door", "10.96.2.1").await;
    serving.delete_and_ask(&serving.shadow_name("a-door", "hold").await, "10.96.2.1").await;
    serving.delete_and_ask(&serving.shadow_name("b-door", "hold").await, "10.96.2.2").await;

    let operation = serving.journals().remove(0);
    let resume = format!("operation resume {operation} --lock-ttl 2 --take-over");
    // Killed while the shadow that warmed up the new address has it, too.
    let mut running = serving.start_netsurgeon(&resume);
    serving.wait_for_records(&mut running, "flip/default/b-door", 1).await;
    drop(running);
    let moved = serving.cluster_ip("b-door").await;
    assert!(moved.starts_with("10.200."), "{moved}");
    serving.delete_so_and_ask("b-door", "Foreground", &moved).await;
    serving.delete_and_ask(&serving.shadow_name("b-door", "warm").await, &moved).await;

    serving.netsurgeon(&resume).expect(if era == Era::Bitmap { 0 } else { 6 });
    serving.assert_let_go(&["a-door", "b-door"]).await;
    serving.netsurgeon("renumber guard --once").expect(0);
    for (name, _) in DOORS {
        for kind in ["hold", "warm"] {
            assert!(shadow_of(&serving, name, kind).await.is_none(), "{name} has no {kind}");
        }
    }
    serving.ask_for(&moved).await.expect("the address is free");
}

#[tokio::test]
async fn address_of_a_shadow_is_not_allocated_again() {
    Box::pin(nobody_is_given_it(Era::Objects)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn address_of_a_shadow_is_not_allocated_again_under_dual_write() {
    Box::pin(nobody_is_given_it(Era::DualWrite)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn address_of_a_shadow_is_not_allocated_again_in_the_bitmap_era() {
    Box::pin(nobody_is_given_it(Era::Bitmap)).await;
}

#[tokio::test]
async fn service_deleted_during_its_move_is_removed_by_a_rollback() {
    let serving = Serving::with_doors(Era::Objects).await;
    serving.delete_and_ask("a-door", "10.96.2.1").await;
    serving.delete_and_ask(&serving.shadow_name("b-door", "hold").await, "10.96.2.2").await;
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation rollback {operation} --yes --linger 1 --take-over")).expect(0);
    serving.assert_let_go(&["a-door"]).await;
    assert_eq!(serving.cluster_ip("b-door").await, "10.96.2.2");
    serving.ask_for("10.96.2.1").await.expect("the address is free");
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// It is skipped, and nothing keeps it: neither a Service that is deleted at that moment, nor one that its owner deletes later.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn service_that_becomes_an_external_name_is_not_kept() {
    let serving = Serving::with_doors(Era::Objects).await;
    for (name, _) in DOORS {
        serving.cluster.api.merge(&path(name), &json!({"spec": external_name()})).await;
    }
    serving.cluster.api.delete(&path("a-door")).await;
    let operation = serving.journals().remove(0);
    let resumed =
        serving.netsurgeon(&format!("operation resume {operation} --lock-ttl 2 --take-over")).expect(6);
    for (name, _) in DOORS {
        says(&resumed.err, &[&format!("default/{name}: "), "skipped"]);
    }
    serving.assert_let_go(&["a-door"]).await;
    serving.cluster.api.delete(&path("b-door")).await;
    serving.assert_let_go(&["b-door"]).await;
    for (_, address) in DOORS {
        serving.ask_for(address).await.expect("the address is free");
    }
}

/// It was skipped and released. Once it has an address again it moves, and is kept again during the move.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn service_with_an_address_again_is_kept_again() {
    let mut serving = Serving::with_doors(Era::Objects).await;
    serving.cluster.api.merge(&path("b-door"), &json!({"spec": external_name()})).await;
    let operation = serving.journals().remove(0);
    let resume = format!("operation resume {operation} --lock-ttl 2 --take-over");
    serving.netsurgeon(&resume).expect(6);
    let again = json!({"type": "NodePort", "externalName": null, "clusterIP": "10.96.2.2"});
    serving.cluster.api.merge(&path("b-door"), &json!({"spec": again})).await;
    serving.proxies[1].pause();
    let mut running = serving.start_netsurgeon(&resume);
    wait_until("the shadow has the old address", DEADLINE, async || {
        assert_eq!(running.ended(), None, "the apply runs");
        let shadow = shadow_of(&serving, "b-door", "hold").await;
        let has = shadow.as_ref().is_some_and(|shadow| shadow["spec"]["clusterIP"] == "10.96.2.2");
        if has { Ok(()) } else { Err(format!("{shadow:?}")) }
    })
    .await;
    drop(running);
    serving.proxies[1].resume();
    serving.delete_and_ask("b-door", "10.96.2.2").await;
    serving.netsurgeon(&resume).expect(6);
    serving.assert_let_go(&["b-door"]).await;
}

/// A namespace that is deleted between `pin` and `give-address` takes the shadows with it: they do not have their finalizer yet.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn namespace_deleted_before_a_move_is_not_kept() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let api = &serving.cluster.api;
    api.create_namespace("shop").await;
    api.create_service("shop", "door", json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
    let relay = Relay::start(&serving.cluster.etcd.endpoint().replace("http://", ""));
    relay.be_silent_from("/pin/shop/door");
    let mut apply = behind(&relay, &serving, &format!("{} --lock-ttl 2", serving.apply_words()));
    wait_until("the Service is pinned, and nothing else", DEADLINE, async || {
        assert_eq!(apply.ended(), None, "the apply runs");
        let door = api.get("/api/v1/namespaces/shop/services/door").await;
        if door["metadata"]["finalizers"] == json!([FINALIZER]) { Ok(()) } else { Err(door.to_string()) }
    })
    .await;
    drop(apply);
    relay.cut();
    api.delete("/api/v1/namespaces/shop").await;
    wait_until("the shadows are deleted with their namespace", DEADLINE, async || {
        let left = api.list("/api/v1/namespaces/shop/services").await;
        if left.len() == 1 { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let operation = serving.journals().remove(0);
    let resumed = serving.netsurgeon(&format!("operation resume {operation} --take-over")).expect(6);
    says(&resumed.err, &["shop/door: ", "skipped"]);
    wait_until("the namespace is deleted", DEADLINE, async || {
        match api.find("/api/v1/namespaces/shop").await {
            None => Ok(()),
            Some(left) => Err(left.to_string()),
        }
    })
    .await;
}

/// A policy rejects its deletion: the Service has moved back all the same, and is reported until a client deletes it.
#[tokio::test]
async fn rejected_deletion_does_not_stop_a_rollback() {
    let serving = Serving::with_doors(Era::Objects).await;
    serving.delete_and_ask("a-door", "10.96.2.1").await;
    refuse(&serving, &["DELETE"], "oldObject.metadata.name != 'a-door'").await;
    let api = &serving.cluster.api;
    let trial = format!("{}?dryRun=All", path("a-door"));
    let tried = async || api.request(Method::DELETE, &trial, "application/json", None).await.map(drop);
    wait_until("the policy is in force", DEADLINE, async || match tried().await {
        Err(error) if error.to_string().contains("not this one") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let operation = serving.journals().remove(0);
    let rollback = format!("operation rollback {operation} --yes --linger 1 --take-over");
    let back = serving.netsurgeon(&rollback).expect(0);
    says(&back.err, &["default/a-door ", "not this one", "`kubectl delete service a-door -n default`"]);
    assert_eq!(serving.cluster_ip("a-door").await, "10.96.2.1");
    let check = serving.netsurgeon("ranges check -o json");
    assert!(check.out.contains("deletion-unfinished"), "{}{}", check.out, check.err);
    refuse_no_more(&serving).await;
    wait_until("the policy is removed", DEADLINE, async || tried().await.map_err(|e| e.to_string())).await;
    api.delete(&path("a-door")).await;
    serving.assert_let_go(&["a-door"]).await;
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// A load balancer's controller keeps it with a finalizer, too, so it answers until the controller releases it: it moves all the
/// same, and is deleted then.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn service_with_another_finalizer_moves_and_is_then_deleted() {
    let serving = Serving::with_doors(Era::Objects).await;
    let api = &serving.cluster.api;
    let both = json!({"metadata": {"finalizers": [FINALIZER, "example.com/balancer"]}});
    api.merge(&path("a-door"), &both).await;
    serving.delete_and_ask("a-door", "10.96.2.1").await;
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation} --lock-ttl 2 --take-over")).expect(6);
    let kept = api.get(&path("a-door")).await;
    assert_eq!(kept["metadata"]["finalizers"], json!(["example.com/balancer"]), "{kept}");
    let moved = kept["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    assert!(moved.starts_with("10.200."), "{kept}");
    for address in [moved.as_str(), "10.96.2.1"] {
        assert!(serving.client.ask(Target::tcp(address, 80)).is_ok(), "{address} answers");
    }
    api.merge(&path("a-door"), &json!({"metadata": {"finalizers": null}})).await;
    serving.assert_let_go(&["a-door"]).await;
    serving.netsurgeon("renumber guard --once").expect(0);
    for address in [moved.as_str(), "10.96.2.1"] {
        serving.ask_for(address).await.expect("the address is free");
    }
}
