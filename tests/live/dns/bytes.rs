//! A zone is the same after a cutover and its rollback, byte for byte. Its records have texts of several strings, texts that are no
//! UTF-8, and names with letters in upper case; BIND signs the zone (DNSSEC).

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;

use super::ownership::deploy;
use super::{KEY, NEW, OLD, PATIENCE, PRIMARY, Sides, TTL, World, ZONE, name_servers_of, serve};
use crate::rig::bind::NameServer;
use crate::rig::process::wait_until;
use crate::rig::transfer::{Signs, relay, signatures, user_records};

/// Other names of the zone. The transfer of so many has more than 200 messages of 512 bytes.
const OTHERS: usize = 500;

fn primary() -> SocketAddr {
    format!("{PRIMARY}:53").parse().expect("an address")
}

fn records() -> String {
    let others: String =
        (0..OTHERS).map(|number| ["Other-", &number.to_string(), " IN A 192.0.2.1\n"].concat()).collect();
    let owner = "heritage=external-dns,external-dns/owner=blue,external-dns/resource=ingress/default";
    format!(
        "Shop {TTL} IN A {OLD}\nShop IN TXT \"Part One \" \"part two\"\nShop IN TXT \"{owner}/shop\"\n\
         Shop IN TXT \"\\255\\000 caf\\195\\169 \\\"\" \"\"\n\
         A-Shop IN TXT \"{owner}/shop\"\n\
         docs {TTL} IN CNAME LB-Blue.Example.TEST.\nLB-Blue IN A {OLD}\nlb-green IN A {NEW}\n{others}"
    )
}

async fn servers() -> (NameServer, NameServer, NameServer) {
    name_servers_of(&records(), "dnssec-policy default; inline-signing no;", "transfer-message-size 512;")
        .await
}

#[tokio::test]
async fn zone_is_the_same_afterwards_byte_for_byte() {
    let sides = Sides::start(&[PRIMARY, super::SECONDARY, super::RESOLVER]).await;
    let world = World::of(sides, &["shop"], &[], servers().await).await;
    serve(&world.cluster, "docs", json!({"hostname": format!("lb-blue.{ZONE}")})).await;
    serve(&world.mirror, "docs", json!({"hostname": format!("lb-green.{ZONE}")})).await;
    deploy(&world.cluster, "blue", &[]).await;
    wait_until("BIND has signed the zone", PATIENCE, async || {
        let count = signatures(primary(), ZONE, KEY);
        // Every name has a signed address, and a signed NSEC record.
        if count > 2 * OTHERS { Ok(()) } else { Err(format!("{count} signatures")) }
    })
    .await;
    messages_without_a_signature_are_accepted(&world);

    let before = user_records(primary(), ZONE, KEY);
    assert!(before.iter().any(|record| record.starts_with("Shop.")), "{:?}", before.first());
    let plan = world.plan("");
    let shown = world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes -o json")).expect(0).json();
    let after = user_records(primary(), ZONE, KEY);
    let changed = |text: &str| after.iter().any(|record| record.contains(text));
    let address: Ipv4Addr = NEW.parse().expect("an address");
    let address = format!("Shop.{ZONE}. {TTL} A {}", address.octets().escape_ascii());
    for there in [address, format!("docs.{ZONE}. {TTL} CNAME \\x08lb-green")] {
        assert!(changed(&there), "no {there} in {:?}", &after[..20]);
    }
    let texts = |records: &[String]| -> Vec<String> {
        let of = |record: &&String| record.contains(" TXT ") && !record.contains("heritage");
        records.iter().filter(of).cloned().collect()
    };
    assert_eq!(texts(&after), texts(&before), "other texts beside an ownership record stay the same");
    let operation = shown["operation"].as_str().expect("an id");
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    let back = user_records(primary(), ZONE, KEY);
    let differing = |one: &[String], other: &[String]| -> Vec<String> {
        one.iter().filter(|record| !other.contains(record)).cloned().collect()
    };
    assert_eq!(differing(&back, &before), differing(&before, &back), "only then only now");
    assert_eq!(back.len(), before.len());
}

/// Transfers whose messages are not all signed: they are complete, or are refused with the reason.
fn messages_without_a_signature_are_accepted(world: &World) {
    let check = |signs: Signs| {
        let server = relay(primary(), KEY, signs);
        let words = format!(
            "preflight dns --zone {ZONE} --server {server} --resolver {} --tsig-key-file {} --only zone-transfer -o json",
            super::RESOLVER,
            world.key_file()
        );
        let shown = world.netsurgeon(&words).json();
        let checks = shown["checks"].as_array().expect("checks");
        let check = checks.iter().find(|check| check["name"] == "zone-transfer").expect("the check");
        format!("{}: {}", check["verdict"].as_str().unwrap_or_default(), check["observed"])
    };
    for (signs, expected) in [
        (Signs::OneOf(1), "pass: "),
        (Signs::OneOf(100), "pass: "),
        (Signs::OneOf(101), "it has no signature"),
        (Signs::First, "it has no signature"),
        (Signs::Forged, "the signature is wrong"),
    ] {
        let found = check(signs);
        assert!(found.contains(expected), "{signs:?}: {found}");
    }
}
