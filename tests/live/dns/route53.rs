//! A cutover of a zone in Route 53: MiniStack, a name server that answers from its record sets, and a resolver.

use std::process::Command;

use aws_sdk_route53::types::{AliasTarget, ChangeAction, ResourceRecordSet, RrType};
use serde_json::{Value, json};

use super::kill_points::{is_killed, kills};
use super::{NEW, OLD, PATIENCE, RESOLVER, Sides, ZONE, serve};
use crate::rig::bind::NameServer;
use crate::rig::process::wait_until;
use crate::rig::route53::{CREDENTIALS, MiniStack, Names, simple};
use crate::rig::route53_proxy::Proxy;
use crate::rig::run::says;
use crate::rig::visitor::Visitor;
use crate::serving_cluster::{Run, Watched, command, run};

/// The name server that answers from its record sets.
const NAMES: &str = "127.0.0.56";
pub const API: &str = "127.0.0.57:4566";
/// A proxy in front of it.
pub const PROXY: &str = "127.0.0.57:4567";
/// The load balancers of both clusters, as AWS names them.
pub const OLD_HOST: &str = "old-1.eu-west-1.elb.amazonaws.com";
pub const NEW_HOST: &str = "new-1.eu-west-1.elb.amazonaws.com";
/// The hosted zone of these load balancers.
const BALANCERS: &str = "Z32O12XQLNTSW2";

/// Requests by which a share is judged. The standard error of a share of one half is 2.5 %, and of one tenth 1.5 %.
const ENOUGH: usize = 400;
/// Four standard errors.
const TOLERANCE: f64 = 0.1;

/// Two clusters, and the zone of their names in Route 53.
pub struct Hosted {
    _resolver: NameServer,
    pub api: MiniStack,
    pub zone: String,
    pub sides: Sides,
}

impl Hosted {
    /// Starts them with these names: `shop` is an alias of a load balancer, `docs` a CNAME of one, and each other name an address.
    pub async fn start(hosts: &[&str]) -> Self {
        Self::start_beside(hosts, 0).await
    }

    /// Starts them with so many further record sets in the zone.
    pub async fn start_beside(hosts: &[&str], others: usize) -> Self {
        let sides = Sides::start(&[NAMES, RESOLVER]).await;
        let api = MiniStack::start(API.parse().expect("an address")).await;
        let zone = api.create_zone(ZONE, false).await;
        let name = |host: &str| format!("{host}.{ZONE}.");
        let mut sets = vec![simple(&name("other"), RrType::Txt, 300, &["\"v=spf1 -all\""])];
        sets.extend(hosts.iter().map(|host| match *host {
            "shop" => alias(&name(host)),
            "docs" => simple(&name(host), RrType::Cname, 4, &[OLD_HOST]),
            _ => simple(&name(host), RrType::A, 4, &[OLD]),
        }));
        sets.extend(
            (0..others).map(|number| simple(&name(&format!("other-{number}")), RrType::A, 300, &[OLD])),
        );
        for page in sets.chunks(1000) {
            api.change(&zone, ChangeAction::Create, page).await;
        }
        for host in hosts {
            let at = |ip: &str, name: &str| {
                if ["shop", "docs"].contains(host) { json!({"hostname": name}) } else { json!({"ip": ip}) }
            };
            serve(&sides.cluster, host, at(OLD, OLD_HOST)).await;
            serve(&sides.mirror, host, at(NEW, NEW_HOST)).await;
        }
        let balancers = [(OLD_HOST, OLD), (NEW_HOST, NEW)];
        Names::start(
            format!("{NAMES}:53").parse().expect("an address"),
            &api.url,
            &[(ZONE, &zone)],
            &balancers,
        );
        let forward = |zone: &str| {
            format!("zone \"{zone}\" {{ type forward; forward only; forwarders {{ {NAMES}; }}; }};")
        };
        // Without a cache, one resolver sends as many queries as the resolvers of many clients.
        let options = "recursion yes; max-cache-ttl 0; max-ncache-ttl 0;";
        let at = RESOLVER.parse().expect("an address");
        let zones = [forward(ZONE), forward("amazonaws.com")].concat();
        let resolver = NameServer::start(at, options, &zones, &[]).await;
        Self { _resolver: resolver, api, zone, sides }
    }

    pub fn command(&self, words: &str) -> Command {
        let mut command = command(&self.sides.cluster, words);
        command.env("AWS_ENDPOINT_URL_ROUTE_53", &self.api.url).env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_ACCESS_KEY_ID", CREDENTIALS.0).env("AWS_SECRET_ACCESS_KEY", CREDENTIALS.1);
        command
    }

    pub fn netsurgeon(&self, words: &str) -> Run {
        ran(words, self.command(words))
    }

    fn planning(&self) -> String {
        format!(
            "dns plan --provider route53 --zone {ZONE} --resolver {RESOLVER} --mirror-kubeconfig {} --probe-ca {} \
             --force zone-share",
            self.sides.mirror.kubeconfig().display(),
            self.sides.authority.certificate.display(),
        )
    }

    pub fn plan(&self, more: &str) -> String {
        let file = self.sides.workspace.join("plan.json").display().to_string();
        self.netsurgeon(&format!("{} --ttl 2 --soak 3 --save {file} {more}", self.planning())).expect(0);
        assert!(!std::fs::read_to_string(&file).expect("a plan").contains(CREDENTIALS.1));
        file
    }

    pub fn visitor(&self, host: &str) -> Visitor {
        let resolver = format!("{RESOLVER}:53").parse().expect("an address");
        Visitor::start(&format!("{host}.{ZONE}"), resolver, &self.sides.authority.certificate)
    }

    /// The weights of the mirror's sets, by the type of the record.
    pub async fn weights(&self, host: &str) -> Vec<(String, i64)> {
        let name = format!("{host}.{ZONE}.");
        let sets = self.api.sets(&self.zone).await.into_iter();
        let of = |set: ResourceRecordSet| {
            let id = set.set_identifier?;
            (set.name == name && id == "netsurgeon-mirror-1")
                .then(|| (set.r#type.to_string(), set.weight.unwrap()))
        };
        sets.filter_map(of).collect()
    }
}

pub fn ran(words: &str, command: Command) -> Run {
    let ran = run(words, command);
    assert!(!format!("{}{}", ran.out, ran.err).contains(CREDENTIALS.1), "a secret is never shown");
    ran
}

/// An alias of the old load balancer.
fn alias(name: &str) -> ResourceRecordSet {
    let target = AliasTarget::builder().hosted_zone_id(BALANCERS).dns_name(format!("{OLD_HOST}."));
    let target = target.evaluate_target_health(false).build().expect("a target");
    ResourceRecordSet::builder().name(name).r#type(RrType::A).alias_target(target).build().expect("a set")
}

/// Waits until a client has visited often enough, and checks the share of the mirror.
async fn share(visitor: &Visitor, wanted: f64) {
    visitor.take();
    wait_until("the client has visited often enough", PATIENCE, async || {
        if visitor.count() >= ENOUGH { Ok(()) } else { Err(format!("{} times", visitor.count())) }
    })
    .await;
    let seen = visitor.take();
    println!("wanted {wanted}: {:?}", seen.bodies);
    assert!((seen.share("new") - wanted).abs() <= TOLERANCE, "wanted {wanted}: {seen:?}");
    assert!(seen.failures.is_empty(), "{:?}", seen.failures);
}

#[tokio::test]
async fn weights_move_names_in_stages_and_back_without_a_failed_request() {
    let world = Hosted::start(&["www", "shop", "docs"]).await;
    let before = world.api.sets(&world.zone).await;
    let plan = world.plan("--shares 10,50 --force short-soak");
    let visitors = ["www", "shop", "docs"].map(|host| world.visitor(host));
    share(&visitors[1], 0.0).await;
    let first =
        world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0).json();
    for host in ["www", "shop", "docs"] {
        let kind = if host == "docs" { "CNAME" } else { "A" };
        assert_eq!(world.weights(host).await, [(kind.to_owned(), 10)], "{host}");
    }
    for visitor in &visitors {
        share(visitor, 0.1).await;
    }
    let operation = first["operation"].as_str().expect("an id").to_owned();
    let status = world.netsurgeon("dns status -o json").expect(0).json();
    let shop = status["names"].as_array().unwrap().iter().find(|one| one["name"] == format!("shop.{ZONE}"));
    let observed = &shop.expect("the name")["observed"];
    let both = format!("A alias of {NEW_HOST} (weight 10) and A alias of {OLD_HOST} (weight 90)");
    assert_eq!(observed["server"], both);
    assert_eq!(observed["difference"], Value::Null);
    world.netsurgeon("dns cutover --stage 2 --yes").expect(0);
    share(&visitors[2], 0.5).await;
    let done = world.netsurgeon("dns cutover --all --yes").expect(0);
    says(&done.err, &["done", "3 names", "100 %"]);
    for visitor in &visitors {
        share(visitor, 1.0).await;
    }
    assert!(world.api.sets(&world.zone).await.iter().all(|set| set.set_identifier.is_none()));
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    assert_eq!(world.api.sets(&world.zone).await, before, "every record set is as before");
    share(&visitors[0], 0.0).await;
}

/// Another client changes a record between the plan and the cutover, and between two stages.
#[tokio::test]
async fn change_of_another_client_in_route53_is_never_overwritten() {
    let world = Hosted::start(&["www", "docs"]).await;
    let plan = world.plan("--shares 50");
    let edited = simple(&format!("www.{ZONE}."), RrType::A, 4, &["192.0.2.99"]);
    world.api.change(&world.zone, ChangeAction::Upsert, std::slice::from_ref(&edited)).await;
    let ran = world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes")).expect(3);
    says(&ran.err, &[&format!("www.{ZONE}"), "A 192.0.2.99"]);
    assert!(world.api.sets(&world.zone).await.contains(&edited));
    assert_eq!(world.weights("docs").await, [("CNAME".to_owned(), 50)], "the others go on");
}

#[tokio::test]
async fn unusable_account_is_refused_before_any_change() {
    let world = Hosted::start(&["www", "docs"]).await;
    let plan = world.plan("--shares 50");
    let before = world.api.sets(&world.zone).await;
    // No credentials.
    let words = format!("dns cutover --plan {plan} --all --yes");
    let mut bare = command(&world.sides.cluster, &words);
    bare.env("AWS_ENDPOINT_URL_ROUTE_53", &world.api.url).env("AWS_EC2_METADATA_DISABLED", "true");
    let refused = ran(&words, bare).expect(1);
    assert!(refused.err.contains("aws sts get-caller-identity"), "{}", refused.err);
    // No such zone, and a second one with the same name.
    let words = world.planning().replace(&format!("--zone {ZONE}"), "--zone nowhere.test");
    let refused = world.netsurgeon(&words).expect(1);
    says(&refused.err, &["hosted zone", "`nowhere.test`"]);
    let private = world.api.create_zone(ZONE, true).await;
    let refused = world.netsurgeon(&world.planning()).expect(1);
    assert!(
        refused.err.contains(&format!("{private} (private)")) && refused.err.contains("--hosted-zone ID"),
        "{}",
        refused.err
    );
    let words = format!("{} --hosted-zone {}", world.planning(), world.zone);
    let refused = world.netsurgeon(&words).expect(1);
    assert!(refused.err.contains(&private) && refused.err.contains("--force twin-zones"), "{}", refused.err);
    world.netsurgeon(&words.replace("zone-share", "zone-share,twin-zones")).expect(0);
    // A routing policy.
    let policy = simple(&format!("docs.{ZONE}."), RrType::Cname, 4, &[OLD_HOST]);
    world.api.change(&world.zone, ChangeAction::Delete, std::slice::from_ref(&policy)).await;
    let weighted = ResourceRecordSet::builder().name(&policy.name).r#type(RrType::Cname).ttl(4).weight(3);
    let weighted = weighted.set_identifier("blue").set_resource_records(policy.resource_records.clone());
    let weighted = weighted.build().expect("a set");
    world.api.change(&world.zone, ChangeAction::Create, std::slice::from_ref(&weighted)).await;
    let refused = world.netsurgeon(&words).expect(1);
    says(&refused.err, &[&format!("docs.{ZONE}"), "weighted"]);
    world.api.change(&world.zone, ChangeAction::Delete, &[weighted]).await;
    world.api.change(&world.zone, ChangeAction::Create, &[policy]).await;
    assert_eq!(world.api.sets(&world.zone).await, before);
}

/// The API answers two of three requests with `Throttling`.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn throttled_requests_are_sent_again() {
    let world = Hosted::start(&["www", "docs"]).await;
    let server = API.parse().expect("an address");
    let proxy = Proxy::throttling(PROXY.parse().expect("an address"), server);
    let plan = world.plan("--shares 50");
    let words = format!("dns cutover --plan {plan} --all --yes");
    let mut slow = world.command(&words);
    slow.env("AWS_ENDPOINT_URL_ROUTE_53", &proxy.url);
    ran(&words, slow).expect(0);
    println!("{} requests were throttled", proxy.refused());
    assert!(proxy.refused() > 10, "{} requests were throttled", proxy.refused());
    let www = simple(&format!("www.{ZONE}."), RrType::A, 4, &[NEW]);
    assert!(world.api.sets(&world.zone).await.contains(&www));
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn killed_cutover_in_route53_is_continued_by_the_same_command() {
    let world = Hosted::start(&["www", "docs"]).await;
    let before = world.api.sets(&world.zone).await;
    let visitor = world.visitor("docs");
    let plan = world.plan("--shares 10,50");
    let words = format!("dns cutover --plan {plan} --all --yes --lock-ttl 2 --take-over");
    let mut left = kills();
    loop {
        let mut program = Watched::start(world.command(&words));
        if left > 0 && is_killed(&mut program).await {
            left -= 1;
            continue;
        }
        let ended = wait_until("it has ended", PATIENCE, async || {
            program.ended().map(drop).ok_or("it runs".to_owned())
        });
        ended.await;
        assert_eq!(program.ended(), Some(0), "{:?}", program.err.lock().unwrap());
        break;
    }
    let listed = world.netsurgeon("operation list -o json").expect(0).json();
    let operation = listed["operations"][0]["operation"].as_str().expect("an id").to_owned();
    assert_eq!(listed["operations"].as_array().map(Vec::len), Some(1), "it was continued: {listed}");
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    assert_eq!(world.api.sets(&world.zone).await, before);
    let seen = visitor.take();
    assert!(seen.failures.is_empty(), "{:?} of {}", seen.failures, seen.all());
}

/// A policy denies changes of one name. The requests with this name and others are sent again without it.
#[tokio::test]
async fn denied_name_in_route53_does_not_stop_the_others() {
    let world = Hosted::start(&["www", "docs", "shop"]).await;
    let before = world.api.sets(&world.zone).await;
    let plan = world.plan("--shares 50 --force short-soak");
    let operation = world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0);
    let operation = operation.json()["operation"].as_str().expect("an id").to_owned();
    let docs = format!("docs.{ZONE}");
    let proxy = Proxy::denying(PROXY.parse().expect("an address"), API.parse().expect("an address"), &docs);
    let denied = |words: &str| {
        let mut command = world.command(words);
        command.env("AWS_ENDPOINT_URL_ROUTE_53", &proxy.url);
        let ran = ran(words, command).expect(3);
        says(&ran.err, &[&format!("/{docs}: "), "AccessDenied"]);
    };
    denied("dns cutover --stage 2 --yes");
    assert_eq!(world.weights("docs").await, [("CNAME".to_owned(), 50)]);
    let www = simple(&format!("www.{ZONE}."), RrType::A, 4, &[NEW]);
    assert!(world.api.sets(&world.zone).await.contains(&www), "the others go on");
    let back = format!("dns rollback {operation} --yes");
    denied(&back);
    let old = simple(&www.name, RrType::A, 4, &[OLD]);
    assert!(world.api.sets(&world.zone).await.contains(&old), "the others go back");
    assert_eq!(world.weights("docs").await, [("CNAME".to_owned(), 50)]);
    world.netsurgeon(&back).expect(0);
    assert_eq!(world.api.sets(&world.zone).await, before);
}
