//! Five hundred names of a zone with ten thousand records, in one cutover.

use std::time::Instant;

use super::route53::{API, Hosted, PROXY, ran};
use super::{NEW, TTL, World};
use crate::rig::memory::{take_peak, under_time};
use crate::rig::route53_proxy::Proxy;
use crate::rig::run::says;

const NAMES: usize = 500;
const OTHERS: usize = 9_500;

fn names() -> Vec<String> {
    (0..NAMES).map(|number| format!("n{number}")).collect()
}

#[tokio::test]
#[ignore = "two minutes, in `make soak`: needs `make rig` and root"]
async fn five_hundred_names_move_in_one_cutover() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::start_beside(&names, &[], OTHERS).await;
    let before = world.records().await;
    let started = Instant::now();
    let plan = world.plan("");
    println!("plan: {:?}", started.elapsed());
    let started = Instant::now();
    let done = world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes --parallel 32")).expect(0);
    println!("cutover of {NAMES} names in two stages of 3 s: {:?}", started.elapsed());
    says(&done.err, &["500 names", "100 %"]);
    assert_eq!(world.addresses("n499").await, (vec![NEW.to_owned()], TTL));
    let listed = world.netsurgeon("operation list -o json").expect(0).json();
    let operation = listed["operations"][0]["operation"].as_str().expect("an id").to_owned();
    let started = Instant::now();
    world.netsurgeon(&format!("dns rollback {operation} --yes --parallel 32")).expect(0);
    println!("rollback: {:?}", started.elapsed());
    assert_eq!(world.records().await, before);
}

/// Route 53 allows five requests a second for an account, so the number of requests matters.
#[tokio::test]
#[ignore = "five minutes, in `make soak`: needs `make rig` and root"]
async fn five_hundred_names_in_route53_share_requests() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = Hosted::start_beside(&names, OTHERS).await;
    let before = world.api.sets(&world.zone).await;
    let at = |address: &str| address.parse().expect("an address");
    let proxy = Proxy::counting(at(PROXY), at(API));
    let counted = |words: &str| {
        let (requests, started) = (proxy.all(), Instant::now());
        let mut command = world.command(words);
        command.env("AWS_ENDPOINT_URL_ROUTE_53", &proxy.url);
        let mut run = ran(words, under_time(&command)).expect(0);
        let (peak, requests) = (take_peak(&mut run.err), proxy.all() - requests);
        println!("{requests} requests, {peak} KiB, {:?}", started.elapsed());
        (run, requests)
    };
    // Beside other tests, MiniStack can need more than 30 s to list the zone.
    let plan = world.plan("--shares 50 --within 300");
    let (done, requests) = counted(&format!("dns cutover --plan {plan} --all --yes --parallel 64"));
    says(&done.err, &["500 names", "100 %"]);
    // Each name changes four times: without batches, 2,000 requests. On an idle machine there are 479; beside other tests, fewer
    // changes wait for the same request.
    assert!(requests < 1000, "{requests} requests");
    let listed = world.netsurgeon("operation list -o json").expect(0).json();
    let operation = listed["operations"][0]["operation"].as_str().expect("an id");
    counted(&format!("dns rollback {operation} --yes --parallel 64"));
    assert_eq!(world.api.sets(&world.zone).await, before);
}
