//! Faults that are found before any change.

use super::ownership::deploy;
use super::{KEY, PATIENCE, PRIMARY, World, ZONE, server};
use crate::rig::bind::key_file;
use crate::rig::process::wait_until;
use crate::rig::run::{has_line, says};

#[tokio::test]
async fn fault_is_found_before_any_change() {
    let mut world = World::start(&["www"], &[]).await;
    let before = world.records().await;
    let plan = world.plan("");
    let forged = world.workspace.write("forged.key", key_file((KEY.0, "Zm9yZ2Vk"))).display().to_string();
    let other = world.workspace.write("other.key", key_file(("other", "Zm9yZ2Vk"))).display().to_string();
    let cutover = format!("dns cutover --plan {plan} --all --yes");
    let refused =
        |words: &str, code: i32, facts: &[&str]| says(&world.netsurgeon(words).expect(code).err, facts);
    refused(&format!("{cutover} --tsig-key-file {forged}"), 1, &["NOTAUTH BADSIG"]);
    refused(&format!("{cutover} --tsig-key-file {other}"), 1, &["`mover`", "`other`"]);
    refused(&format!("{cutover} --tsig-key-file /nowhere.key"), 1, &["`/nowhere.key`"]);
    refused(&format!("{cutover} --approve 00000000"), 1, &["digest", "`00000000`"]);
    refused(&format!("dns cutover --plan {plan} --stage 3"), 2, &["stage 3"]);
    for words in ["dns cutover --all", "dns rollback"] {
        refused(words, 1, &["`netsurgeon operation list`"]);
    }
    let planning = world.planning();
    refused(&format!("{planning} --ttl 60 --soak 3"), 1, &["3 s", "4 s"]);
    refused(&format!("{planning} --shares 50,10"), 1, &["between 1 and 100 %"]);
    let omitted = format!("{planning} --ttl 2 --soak 3 --shares 10,50,100");
    refused(&omitted, 0, &["no stage for 10 %"]);
    refused(&omitted, 0, &["in 2 stages (50, 100 %)"]);
    refused(&format!("{planning} --force nonsense"), 2, &["`nonsense`"]);
    refused(&format!("{planning},targets"), 2, &["`targets`"]);
    refused(&planning.replace(ZONE, "absent.test"), 1, &["3 checks"]);
    let itself = planning.replace(
        &world.mirror.kubeconfig().display().to_string(),
        &world.cluster.kubeconfig().display().to_string(),
    );
    refused(&itself, 1, &["`--mirror-kubeconfig`", "`--mirror-context`"]);
    let unreachable = planning.replace(&format!("--resolver {}", super::RESOLVER), "--resolver 127.0.0.99");
    refused(&unreachable, 1, &["`--resolver`", "127.0.0.99:53"]);
    let named = planning.replace(&format!("--resolver {}", super::RESOLVER), "--resolver ns1");
    refused(&named, 1, &["`--resolver ns1`"]);
    foreign_owner(&world).await;
    assert_eq!(world.records().await, before, "nothing was changed");
    assert_eq!(world.recorded().await, "", "nothing was recorded");

    // The secondary has an older version of the zone than the primary.
    world.secondary.stop();
    let ran = world.netsurgeon(&cutover).expect(1);
    says(&ran.err, &[&format!("{}:53", super::SECONDARY)]);
    world.secondary.start_again().await;
    world.primary.stop();
    let ran = world.netsurgeon(&cutover).expect(1);
    says(&ran.err, &[&format!("{PRIMARY}:53")]);
    assert_eq!(world.recorded().await, "", "nothing was recorded");
}

/// ExternalDNS of another cluster owns the name.
async fn foreign_owner(world: &World) {
    use netsurgeon::nameserver::{RecordKind, RecordSet, SetChange};
    let text =
        r#""heritage=external-dns,external-dns/owner=red,external-dns/resource=ingress/x/y""#.to_owned();
    let owner = RecordSet::new(format!("a-www.{ZONE}"), RecordKind::Txt, 60, vec![text]);
    let change = SetChange { from: None, to: Some(owner) };
    server().replace(ZONE, std::slice::from_ref(&change)).await.expect("an update");
    let planning = world.planning();
    wait_until("the foreign owner is found", PATIENCE, async || {
        let ran = world.netsurgeon(&planning);
        let is_found =
            has_line(&ran.err, &["owners: ", "(owner `red`)"]) && has_line(&ran.err, &["`--force owners`"]);
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
    says(&ran.err, &["external-dns: ", "TXT"]);
    world.cluster.api.delete(&crate::rig::api::object_path(&deployment)).await;
}
