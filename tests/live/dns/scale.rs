//! Five hundred names of a zone with ten thousand records, in one cutover.

use std::time::Instant;

use super::{NEW, TTL, World};
use crate::rig::run::says;

const NAMES: usize = 500;
const OTHERS: usize = 9_500;

#[tokio::test]
#[ignore = "two minutes, in `make soak`: needs `make rig` and root"]
async fn five_hundred_names_move_in_one_cutover() {
    let names: Vec<String> = (0..NAMES).map(|number| format!("n{number}")).collect();
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
