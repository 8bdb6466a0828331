//! Faults that are found before any change.

use super::owned::deploy;
use super::{KEY, PATIENCE, PRIMARY, World, ZONE, server};
use crate::rig::named::key_file;
use crate::rig::process::wait_until;

#[tokio::test]
async fn fault_is_found_before_any_change() {
    let mut world = World::start(&["www"], &[]).await;
    let before = world.records().await;
    let plan = world.plan("");
    let forged = world.workspace.write("forged.key", key_file((KEY.0, "Zm9yZ2Vk"))).display().to_string();
    let other = world.workspace.write("other.key", key_file(("other", "Zm9yZ2Vk"))).display().to_string();
    let cutover = format!("dns cutover --plan {plan} --all --yes");
    let refused = |words: &str, code: i32, reason: &str| {
        let ran = world.netsurgeon(words).expect(code);
        assert!(ran.err.contains(reason), "{words}: wanted {reason}: {}", ran.err);
    };
    refused(&format!("{cutover} --tsig-key-file {forged}"), 1, "NOTAUTH BADSIG");
    refused(
        &format!("{cutover} --tsig-key-file {other}"),
        1,
        "the plan names the key `mover`, the file has `other`",
    );
    refused(&format!("{cutover} --tsig-key-file /nowhere.key"), 1, "cannot use the key in `/nowhere.key`");
    refused(&format!("{cutover} --approve 00000000"), 1, "not the approved digest");
    refused(&format!("dns cutover --plan {plan} --stage 3"), 2, "the plan has no stage 3");
    refused("dns cutover --all", 1, "no cutover of this cluster is under way");
    refused("dns rollback", 1, "no cutover of this cluster is under way");
    let planning = world.planning();
    refused(&format!("{planning} --ttl 60 --soak 3"), 1, "less than the TTL of 4 s");
    refused(&format!("{planning} --shares 50,10"), 1, "the shares must increase");
    refused(
        &format!("{planning} --force nonsense"),
        2,
        "no check that can be forced has the name `nonsense`",
    );
    refused(&format!("{planning},targets"), 2, "has the name `targets`");
    refused(&planning.replace(ZONE, "absent.test"), 1, "3 checks do not allow this cutover");
    let itself = planning.replace(
        &world.mirror.kubeconfig().display().to_string(),
        &world.cluster.kubeconfig().display().to_string(),
    );
    refused(&itself, 1, "the given mirror is this cluster itself");
    foreign_owner(&world).await;
    assert_eq!(world.records().await, before, "nothing was changed");
    assert_eq!(world.recorded().await, "", "nothing was recorded");

    // The secondary has an older version of the zone than the primary.
    world.secondary.stop();
    let lost = format!("the name server {}:53", super::SECONDARY);
    let ran = world.netsurgeon(&cutover).expect(1);
    assert!(ran.err.contains(&lost), "{}", ran.err);
    world.secondary.start_again().await;
    world.primary.stop();
    let ran = world.netsurgeon(&cutover).expect(1);
    assert!(ran.err.contains(&format!("the name server {PRIMARY}:53 cannot be reached")), "{}", ran.err);
    assert_eq!(world.recorded().await, "", "nothing was recorded");
}

/// ExternalDNS of another cluster owns the name.
async fn foreign_owner(world: &World) {
    use netsurgeon::nameserver::{Kind, RecordSet, SetChange};
    let text = "heritage=external-dns,external-dns/owner=red,external-dns/resource=ingress/x/y".to_owned();
    let owner = RecordSet::new(format!("a-www.{ZONE}"), Kind::Txt, 60, vec![text]);
    let change = SetChange { from: None, to: Some(owner) };
    server().replace(ZONE, std::slice::from_ref(&change)).await.expect("an update");
    let planning = world.planning();
    wait_until("the foreign owner is found", PATIENCE, async || {
        let ran = world.netsurgeon(&planning);
        let is_found =
            ran.err.contains("another cluster's ExternalDNS owns") && ran.err.contains("`--force owners`");
        if ran.code == 1 && is_found { Ok(()) } else { Err(ran.err) }
    })
    .await;
    world.netsurgeon(&format!("{planning},owners")).expect(0);
    server().replace(ZONE, &[change.reversed()]).await.expect("an update");
    running_controller(world).await;
}

/// The cluster's own ExternalDNS runs, and records no owners: it would revert the change.
async fn running_controller(world: &World) {
    let deployment = deploy(&world.cluster, "blue", &["--registry=noop"]).await;
    let ran = world.netsurgeon(&world.planning()).expect(1);
    assert!(
        ran.err.contains(
            "external-dns: manages records by the objects of this cluster, without readable TXT records"
        ),
        "{}",
        ran.err
    );
    world.cluster.api.delete(&crate::rig::api::object_path(&deployment)).await;
}
