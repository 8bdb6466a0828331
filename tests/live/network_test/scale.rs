//! A matrix of 500 nodes: agents as processes in one network namespace, without a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;

use netsurgeon::network::cell::{Cell, CellKey};
use netsurgeon::network::{Agent, AgentLink, Member, Path, Role, Test, rounds_to_cover, simulate};
use tokio::process::Child;

use super::super::rig::namespace::Namespace;
use super::*;

const PORT: u16 = 17_250;
const TOKEN: &str = "00112233445566778899aabbccddeeff";

fn address(node: usize) -> IpAddr {
    let [high, low] = u16::try_from(node + 1).unwrap().to_be_bytes();
    Ipv4Addr::new(10, 99, high, low).into()
}

/// Starts the server and the prober of an agent; both end on drop.
fn start(namespace: &Namespace, node: usize) -> (Child, Child) {
    let start = |verb: &str, input: Stdio| {
        let mut command = namespace.command(env!("CARGO_BIN_EXE_netsurgeon"));
        command.args(["agent", verb, "--name", &format!("agent-{node}"), "--port", &PORT.to_string()]);
        command.args(["--address", &address(node).to_string()]).env("NETSURGEON_AGENT_TOKEN", TOKEN);
        command.stdin(input).stdout(Stdio::piped());
        tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap()
    };
    (start("serve", Stdio::null()), start("probe", Stdio::piped()))
}

/// Returns the resident memory of this process, in MiB. Only if no other test runs beside it, its growth is that of the collector.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux has it");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Runs rounds with so many nodes, prints what they cost, and asserts that every probe passed. Only datagrams may be lost: all agents
/// share the processors of one machine, on which other tests run, so queues of the kernel overflow.
async fn simulated(nodes: usize, rounds: u32) {
    let namespace = Namespace::create("scale");
    let addresses: Vec<String> =
        (0..nodes).map(|node| format!("address add {}/32 dev lo", address(node))).collect();
    namespace.ip(&addresses);
    // Answers of 24 probes of every agent may arrive at once.
    let (mut servers, mut links, mut members) = (Vec::new(), BTreeMap::new(), Vec::new());
    for node in 0..nodes {
        let (server, mut prober) = start(&namespace, node);
        servers.push(server);
        let (input, output) = (prober.stdin.take().unwrap(), prober.stdout.take().unwrap());
        links.insert((node, Role::Pod), AgentLink::new(input, output, prober));
        let agent = Agent { name: format!("agent-{node}"), addresses: vec![address(node)] };
        members.push(Member {
            node: format!("node-{node:03}"),
            agents: BTreeMap::from([(Role::Pod, agent)]),
            pod_cidrs: Vec::new(),
        });
    }
    for node in 0..nodes {
        let at = (address(node), PORT);
        super::super::rig::process::wait_until("the agent listens", DEADLINE, async || {
            let at = at.into();
            namespace.within(move || {
                std::net::TcpStream::connect::<std::net::SocketAddr>(at)
                    .map(drop)
                    .map_err(|error| error.to_string())
            })
        })
        .await;
    }
    let tested = BTreeSet::from([Path::PodToPod, Path::Loss, Path::FullSize, Path::Transfer]);
    let test = Test {
        nodes: Vec::new(),
        skip: Path::ALL.into_iter().filter(|path| !tested.contains(path)).collect(),
        rounds,
        duration: None,
        interval: Duration::ZERO,
        keep_going: true,
        peers: 20,
        patience: DEADLINE,
        names: Vec::new(),
        name_servers: Vec::new(),
        baseline: None,
    };
    let before = resident();
    let result = simulate(&test, members, links, PORT, &|line| println!("{line}")).await.unwrap();
    let grown = resident().saturating_sub(before);
    println!(
        "{nodes} nodes: {:.1} s per round, {} paths, {grown} MiB of the collector, every pair after {} rounds",
        result.seconds / f64::from(rounds),
        result.paths.len(),
        rounds_to_cover(nodes, 20),
    );
    assert_eq!(result.rounds_to_cover, rounds_to_cover(nodes, 20));
    let is_wrong =
        |key: &CellKey, cell: &Cell| key.path != Path::Loss && (cell.failed > 0 || cell.passed == 0);
    let failed: Vec<_> = result.cells().filter(|(key, cell)| is_wrong(key, cell)).collect();
    assert!(failed.is_empty(), "{:#?}", failed.iter().take(5).collect::<Vec<_>>());
}

#[tokio::test]
async fn matrix_of_60_nodes_is_a_ring_with_random_peers() {
    simulated(60, 1).await;
}

#[tokio::test]
#[ignore = "3 minutes, in `make soak`: needs `make rig` and root"]
async fn matrix_of_500_nodes() {
    simulated(500, 3).await;
}
