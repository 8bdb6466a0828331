//! An address that a Service and its shadow have. Whoever deletes the Service, or the shadow, releases it; nobody else is given it
//! while the other one routes it.

use serde_json::{Value, json};

use super::corners::{killed_before_the_first_flip, path, shadow_of};
use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::serving::{DEADLINE, Serving, Watched};

/// Deleted before and after they move, in this order.
const DOORS: [(&str, &str); 2] = [("a-door", "10.96.2.1"), ("b-door", "10.96.2.2")];

impl Serving {
    /// What the API server says to somebody who asks for an address: nothing if it is given.
    async fn ask_for(&self, address: &str) -> Result<(), String> {
        let name = format!("tenant-{}", address.replace('.', "-"));
        let tenant = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": address, "ports": [{"port": 80}]},
        });
        self.cluster.api.try_create(&tenant).await.map(drop).map_err(|error| error.to_string())
    }

    async fn ip_address(&self, address: &str) -> Option<Value> {
        self.cluster.api.find(&format!("/apis/networking.k8s.io/v1/ipaddresses/{address}")).await
    }

    /// Deletes a Service, and asks for an address that a shadow of it has.
    async fn delete_and_ask(&self, name: &str, kind: &str, address: &str) {
        let shadow = shadow_of(self, name, kind).await.expect("it has a shadow");
        assert_eq!(shadow["spec"]["clusterIP"], address, "the shadow has the address by now");
        self.cluster.api.delete(&path(name)).await;
        let refused = self.ask_for(address).await.expect_err("a shadow has it");
        assert!(refused.contains("already allocated"), "{refused}");
        let kept = self.ip_address(address).await.expect("it is kept");
        assert_eq!(kept["metadata"]["finalizers"], json!(["netsurgeon.io/shared"]), "{kept}");
    }
}

/// Killed as soon as a Service has moved, while its shadow that warmed the new address up has that, too.
async fn killed_after_a_flip(serving: &Serving, mut running: Watched, name: &str) {
    let record = format!("/steps/flip/default/{name}");
    wait_until(&record, DEADLINE, async || {
        assert_eq!(running.ended(), None, "it is still running");
        let keys = serving.cluster.etcd.keys("/netsurgeon/").await;
        if keys.iter().any(|key| key.ends_with(&record)) { Ok(()) } else { Err("no record".to_owned()) }
    })
    .await;
    drop(running);
}

async fn nobody_is_given_it(era: Era) {
    let mut serving = Serving::start(era, ProxyMode::Nftables).await;
    for (name, address) in DOORS {
        let door = json!({"type": "NodePort", "clusterIP": address});
        serving.cluster.create_echo_service(name, &json!({"app": "web"}), &door).await;
    }
    let words = format!("{} --lock-ttl 2", serving.apply_words());
    killed_before_the_first_flip(&mut serving, &words, 8).await;
    serving.delete_and_ask("a-door", "hold", "10.96.2.1").await;

    let operation = serving.journals().remove(0);
    let resume = format!("operation resume {operation} --lock-ttl 2 --take-over");
    killed_after_a_flip(&serving, serving.start_netsurgeon(&resume), "b-door").await;
    let moved = serving.cluster_ip("b-door").await;
    assert!(moved.starts_with("10.200."), "{moved}");
    serving.delete_and_ask("b-door", "warm", &moved).await;

    serving.netsurgeon(&resume).expect(6);
    serving.netsurgeon("renumber guard --once").expect(0);
    for (name, _) in DOORS {
        for kind in ["hold", "warm"] {
            assert!(shadow_of(&serving, name, kind).await.is_none(), "{name} has no {kind}");
        }
    }
    for address in ["10.96.2.1", "10.96.2.2", &moved] {
        serving.ask_for(address).await.expect("it is free");
    }
}

#[tokio::test]
async fn nobody_is_given_an_address_that_a_shadow_has() {
    Box::pin(nobody_is_given_it(Era::Objects)).await;
}

#[tokio::test]
async fn nobody_is_given_an_address_that_a_shadow_has_under_dual_write() {
    Box::pin(nobody_is_given_it(Era::DualWrite)).await;
}

/// Whoever deletes a shadow through the API releases the address that it holds: it stays that of its Service's until the guard has
/// put the shadow back, and no trace of it is left by a rollback.
#[tokio::test]
async fn a_shadow_that_is_deleted_leaves_its_address_reserved() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let (name, address) = DOORS[0];
    let door = json!({"type": "NodePort", "clusterIP": address});
    serving.cluster.create_echo_service(name, &json!({"app": "web"}), &door).await;
    let before = serving.ip_address(address).await.expect("its IPAddress");
    serving.netsurgeon(&serving.apply_words()).expect(6);
    let shadow = shadow_of(&serving, name, "hold").await.expect("it is held");
    serving.cluster.api.delete(&path(shadow["metadata"]["name"].as_str().expect("a name"))).await;
    let refused = serving.ask_for(address).await.expect_err("it is held");
    assert!(refused.contains("already allocated"), "{refused}");
    serving.netsurgeon("renumber guard --once").expect(0);
    assert!(shadow_of(&serving, name, "hold").await.is_some(), "it is held again");
    serving.netsurgeon("renumber rollback --yes --linger 1").expect(0);
    let after = serving.ip_address(address).await.expect("its IPAddress");
    for part in ["uid", "creationTimestamp", "labels", "finalizers", "deletionTimestamp"] {
        assert_eq!(after["metadata"][part], before["metadata"][part], "{part}");
    }
    serving.wait_for_one_range().await;
    serving.assert_clean();
}
