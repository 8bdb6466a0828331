//! A zone that BIND serves in two views, as split-horizon DNS: clients inside get other records than clients outside. The key of the
//! cutover selects the outside view, whose secondary and resolver are those of the other tests.

use netsurgeon::nameserver::{Record, RecordKind};

use super::{
    KEY, NEW, OLD, PRIMARY, RESOLVER, SECONDARY, Sides, TTL, World, ZONE, hosts, records_of, server_for,
};
use crate::rig::bind::{NameServer, key_file, zone_file};
use crate::rig::run::says;

/// A resolver of clients inside.
const INSIDE: &str = "127.0.0.56";
/// The address of the old cluster for clients inside.
const PRIVATE: &str = "127.0.0.71";
/// The key that selects the inside view.
const INSIDE_KEY: (&str, &str) = ("inside", "c2VjcmV0LW9mLWluc2lkZS1jYW5hcnk=");
const NAMES: [&str; 2] = ["www", "api"];

/// A world whose zone has two views.
struct Split {
    world: World,
    _inside: NameServer,
}

impl Split {
    /// Starts it. `insiders`: addresses of clients inside, beside that of their resolver; `inside`: the records of their view;
    /// `second`: the second name server of both views.
    async fn start(insiders: &str, [outside, inside]: [&str; 2], second: &str) -> Self {
        let sides = Sides::start(&[PRIMARY, SECONDARY, RESOLVER, INSIDE]).await;
        let at = |address: &str| address.parse().expect("an address");
        let of = |address: &str| {
            format!("query-source address {address}; transfer-source {address}; notify-source {address};")
        };
        let files = [outside, inside].map(|records| zone_file(ZONE, "ns1", [PRIMARY, second], records));
        let files = [("outside", files[0].as_str()), ("inside", files[1].as_str())];
        let options = format!("recursion no; {}", of(PRIMARY));
        let primary = NameServer::start(at(PRIMARY), &options, &views(insiders), &files).await;
        let secondary = format!(
            "{}zone \"{ZONE}\" {{ type secondary; primaries {{ {PRIMARY} key {}; }}; file \"zone\"; }};",
            key_file(KEY),
            KEY.0
        );
        let options = format!("recursion no; {}", of(SECONDARY));
        let secondary = NameServer::start(at(SECONDARY), &options, &secondary, &[]).await;
        let resolver = async |address: &str, servers: &str| {
            let forward =
                format!("zone \"{ZONE}\" {{ type forward; forward only; forwarders {{ {servers} }}; }};");
            let options = format!("recursion yes; {}", of(address));
            NameServer::start(at(address), &options, &forward, &[]).await
        };
        let outside = resolver(RESOLVER, &format!("{PRIMARY}; {second};")).await;
        let inside = resolver(INSIDE, &format!("{PRIMARY};")).await;
        let world = World::of(sides, &NAMES, &[], (primary, secondary, outside)).await;
        Self { world, _inside: inside }
    }

    /// All records of the inside view but its SOA, sorted.
    async fn inside(&self) -> Vec<Record> {
        records_of(&server_for(INSIDE_KEY)).await
    }

    /// The result of the check `twin-zones` for clients of a resolver.
    fn twin_zones(&self, resolver: &str) -> (String, String) {
        let words = self.planning(resolver).replace("dns plan", "preflight dns -o json --only twin-zones");
        let words = words.split(" --probe-ca").next().expect("its beginning");
        let shown = self.world.netsurgeon(words).json();
        let checks = shown["checks"].as_array().expect("checks");
        let check = checks.iter().find(|check| check["name"] == "twin-zones").expect("the check");
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        (text("verdict"), text("observed"))
    }

    /// The arguments of a plan for clients of a resolver.
    fn planning(&self, resolver: &str) -> String {
        let (from, to) = (format!("--resolver {RESOLVER}"), format!("--resolver {resolver}"));
        self.world.planning().replace(&from, &to)
    }

    /// The id of the operation.
    fn operation(&self) -> String {
        let listed = self.world.netsurgeon("operation list -o json").expect(0).json();
        listed["operations"][0]["operation"].as_str().expect("an id").to_owned()
    }
}

/// The zone in two views, each of which its own key may change and transfer. The keys select before the addresses.
fn views(insiders: &str) -> String {
    let zone = |file: &str, key: &str, notified: &str| {
        format!(
            "zone \"{ZONE}\" {{ type primary; file \"{file}\"; update-policy {{ grant {key} zonesub ANY; }}; \
             allow-transfer {{ key {key}; }}; notify explicit; also-notify {{ {notified} }}; }};"
        )
    };
    format!(
        "{}{}view \"inside\" {{ match-clients {{ !key {}; key {}; {INSIDE}; {insiders} }}; {} }};\n\
         view \"outside\" {{ match-clients {{ any; }}; {} }};",
        key_file(KEY),
        key_file(INSIDE_KEY),
        KEY.0,
        INSIDE_KEY.0,
        zone("inside", INSIDE_KEY.0, ""),
        zone("outside", KEY.0, &format!("{SECONDARY};")),
    )
}

/// The addresses of a host.
fn addresses(records: &[Record], host: &str) -> Vec<String> {
    let name = format!("{host}.{ZONE}");
    let of_host = records.iter().filter(|record| record.name == name && record.kind == RecordKind::A);
    of_host.map(|record| record.data.clone()).collect()
}

/// The check `twin-zones` finds the other view through a resolver inside. A cutover and its rollback change only the view that the
/// key selects.
#[tokio::test]
async fn cutover_changes_only_the_view_of_its_key() {
    let private = hosts(&NAMES, TTL).replace(OLD, PRIVATE);
    let split = Split::start("", [&hosts(&NAMES, TTL), &private], SECONDARY).await;
    let (verdict, observed) = split.twin_zones(INSIDE);
    assert_eq!(verdict, "fail", "{observed}");
    for name in NAMES {
        let differs = format!("A of `{name}.{ZONE}`");
        assert!(observed.contains("different answers") && observed.contains(&differs), "{observed}");
    }
    assert_eq!(split.twin_zones(RESOLVER).0, "pass");

    let (before, inside) = (split.world.records().await, split.inside().await);
    // The clients of the resolver inside never see a change of the outside view.
    let other = split.world.workspace.join("other.json").display().to_string();
    let planning = format!("{} --soak 3 --ttl 2 --save {other}", split.planning(INSIDE));
    split.world.netsurgeon(&planning).expect(1);
    split
        .world
        .netsurgeon(&planning.replace("--force zone-share", "--force zone-share,twin-zones"))
        .expect(0);
    let refused = split.world.netsurgeon(&format!("dns cutover --plan {other} --all --yes")).expect(1);
    says(&refused.err, &["the view of the key `mover`", PRIVATE, OLD]);
    assert_eq!((split.world.records().await, split.world.recorded().await), (before.clone(), String::new()));

    let plan = split.world.plan("");
    split.world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes")).expect(0);
    assert_eq!(addresses(&split.world.records().await, "www"), [OLD, NEW]);
    assert_eq!(split.inside().await, inside);
    split.world.netsurgeon("dns cutover --all --yes").expect(0);
    assert_eq!(addresses(&split.world.records().await, "api"), [NEW]);
    assert_eq!(split.inside().await, inside);
    split.world.netsurgeon(&format!("dns rollback {} --yes", split.operation())).expect(0);
    assert_eq!(split.world.records().await, before);
    assert_eq!(split.inside().await, inside);
}

/// A cutover and its rollback from a host whose address selects the inside view, while the key selects the outside one. Both views
/// have the same records of the names. `second`: the second name server; `resolver`: the resolver of the plan. Returns the exit
/// status of the cutover.
async fn from_a_host_inside(second: &str, resolver: &str, shares: &str) -> i32 {
    let records = hosts(&NAMES, 2);
    let inside = format!("{records}db IN A {PRIVATE}\n");
    let split = Split::start(&format!("{PRIMARY};"), [&records, &inside], second).await;
    let (before, inside) = (split.world.records().await, split.inside().await);
    let plan = split.world.workspace.join("plan.json").display().to_string();
    let planning = split.planning(resolver);
    split.world.netsurgeon(&format!("{planning} --shares {shares} --ttl 2 --soak 2 --save {plan}")).expect(0);
    let moved = split.world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes"));
    println!("after the cutover: {:?}", addresses(&split.world.records().await, "www"));
    let back = split.world.netsurgeon(&format!("dns rollback {} --yes", split.operation()));
    assert_eq!(split.inside().await, inside);
    let after = split.world.records().await;
    println!("after the rollback: {:?}, exit status {}", addresses(&after, "www"), back.code);
    assert_eq!((back.code, addresses(&after, "www")), (0, vec![OLD.to_owned()]));
    assert_eq!(after, before);
    moved.code
}

/// A rollback that succeeds has restored the view of the key, also if the host and its resolver are in another view.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn rollback_from_a_host_in_another_view_restores_the_view_of_the_key() {
    from_a_host_inside(PRIMARY, INSIDE, "100").await;
}

/// The key selects the view that is read, as it selects the one that is changed.
#[tokio::test]
async fn cutover_from_a_host_in_another_view_continues_after_its_first_stage() {
    assert_eq!(from_a_host_inside(PRIMARY, RESOLVER, "50,100").await, 0);
}

/// The same with a secondary, which serves only the outside view.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn cutover_from_a_host_in_another_view_compares_the_servers_of_its_view() {
    assert_eq!(from_a_host_inside(SECONDARY, RESOLVER, "50,100").await, 0);
}
