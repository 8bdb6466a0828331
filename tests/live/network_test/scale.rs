//! A matrix of 500 nodes, without a cluster. All agents are tasks of one process in one network namespace, each with an address of its
//! own, so that the collector is measured and not the start of a thousand processes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use netsurgeon::agent::{Identity, Listening, probe, serve};
use netsurgeon::network::cell::{Cell, CellKey};
use netsurgeon::network::{
    Agent, AgentLink, Member, Path, Role, Test, TestResult, rounds_to_cover, simulate,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::super::rig::namespace::Namespace;
use super::super::rig::process::wait_until;

const DEADLINE: Duration = Duration::from_mins(1);
const PORT: u16 = 17_250;
const TOKEN: &str = "00112233445566778899aabbccddeeff";
/// The variables of the process with the agents: the folder of its sockets, and the number of agents.
const FOLDER: &str = "NETSURGEON_AGENTS_FOLDER";
const COUNT: &str = "NETSURGEON_AGENTS_COUNT";
/// The number of questions that all agents together work on.
const PLACES: usize = 200;

fn address(node: usize) -> IpAddr {
    let [high, low] = u16::try_from(node + 1).unwrap().to_be_bytes();
    Ipv4Addr::new(10, 99, high, low).into()
}

fn socket(folder: &FilePath, node: usize) -> PathBuf {
    folder.join(node.to_string())
}

/// No test: the process with the agents. Each listens at its address, and reads questions from a socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process with the agents of the other tests: needs them to start it, with `NETSURGEON_AGENTS_FOLDER`"]
async fn agents_of_a_simulation() {
    let (Ok(folder), Ok(count)) = (std::env::var(FOLDER), std::env::var(COUNT)) else { return };
    let (mut agents, places) = (tokio::task::JoinSet::new(), Arc::new(Semaphore::new(PLACES)));
    for node in 0..count.parse().unwrap() {
        let identity = Identity::new(&format!("agent-{node}"), TOKEN, Some(address(node))).unwrap();
        let listening = Listening::open(identity.clone(), PORT).await.unwrap();
        agents.spawn(async move { serve(listening).await.unwrap() });
        let questions = UnixListener::bind(socket(FilePath::new(&folder), node)).unwrap();
        let stream = async move { questions.accept().await.unwrap().0 };
        let places = places.clone();
        agents.spawn(async move { answer(identity, stream.await, places).await });
    }
    agents.join_all().await;
}

/// Answers the questions of a collector. Each waits for a place, because the agents share the processors that real agents have for
/// themselves: without places, most answers are late.
async fn answer(identity: Identity, stream: UnixStream, places: Arc<Semaphore>) {
    let (questions, mut replies) = stream.into_split();
    let (mut asked, input) = tokio::io::duplex(1 << 16);
    let (output, answered) = tokio::io::duplex(1 << 16);
    let ask = async {
        let mut lines = BufReader::new(questions).lines();
        while let Some(line) = lines.next_line().await? {
            places.acquire().await.expect("it is never closed").forget();
            asked.write_all(format!("{line}\n").as_bytes()).await?;
        }
        Ok(())
    };
    let reply = async {
        let mut lines = BufReader::new(answered).lines();
        while let Some(line) = lines.next_line().await? {
            places.add_permits(1);
            replies.write_all(format!("{line}\n").as_bytes()).await?;
        }
        Ok(())
    };
    let _ = tokio::try_join!(ask, reply, probe(identity, PORT, input, output));
}

/// A process with agents, and what the collector needs to ask them.
struct Agents {
    process: Child,
    members: Vec<Member>,
    links: BTreeMap<(usize, Role), AgentLink>,
}

impl Drop for Agents {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Agents {
    async fn start(namespace: &Namespace, folder: &FilePath, count: usize) -> Self {
        let addresses: Vec<String> =
            (0..count).map(|node| format!("address add {}/32 dev lo", address(node))).collect();
        namespace.ip(&addresses);
        let own = std::env::current_exe().unwrap();
        let mut command = namespace.command(own.to_str().unwrap());
        command.args(["--ignored", "--exact", "network_test::scale::agents_of_a_simulation"]);
        command.env(FOLDER, folder).env(COUNT, count.to_string()).stdout(Stdio::null());
        let mut agents =
            Self { process: command.spawn().unwrap(), members: Vec::new(), links: BTreeMap::new() };
        for node in 0..count {
            let stream = wait_until("the agent listens", DEADLINE, async || {
                UnixStream::connect(socket(folder, node)).await.map_err(|error| error.to_string())
            });
            let (output, input) = stream.await.into_split();
            agents.links.insert((node, Role::Pod), AgentLink::new(input, output, ()));
            let agent = Agent {
                name: format!("agent-{node}"),
                addresses: vec![address(node)],
                uid: node.to_string(),
                generation: 0,
            };
            agents.members.push(Member {
                node: format!("node-{node:03}"),
                agents: BTreeMap::from([(Role::Pod, agent)]),
                pod_cidrs: Vec::new(),
            });
        }
        agents
    }
}

/// Returns a value of this process in MiB: `VmRSS`, or its maximum `VmHWM`. Only if no other test runs beside it, its growth is that of
/// the collector.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux has it");
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Returns the time of the processors that this process has used, in seconds: `utime` and `stime`, in hundredths (proc_pid_stat(5)).
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in brackets");
    let ticks: Vec<f64> = fields.split(' ').skip(11).take(2).map(|field| field.parse().unwrap()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

/// Runs rounds with so many nodes, prints what they cost, and asserts that every probe passed. Only datagrams may be lost: all agents
/// share the processors of one machine, on which other tests run, so queues of the kernel overflow.
async fn simulated(nodes: usize, rounds: u32, tested: &[Path]) -> TestResult {
    let (namespace, folder) = (Namespace::create("scale"), tempfile::tempdir().unwrap());
    let mut agents = Agents::start(&namespace, folder.path(), nodes).await;
    let (members, links) = (std::mem::take(&mut agents.members), std::mem::take(&mut agents.links));
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
    let (before, used) = (memory("VmRSS"), processor());
    let result = simulate(&test, members, links, PORT, &|line| println!("{line}")).await.unwrap().unwrap();
    let grown = memory("VmHWM").saturating_sub(before);
    println!(
        "{nodes} nodes, {rounds} rounds: {:.1} s per round, of which the collector computes {:.2} s; {} paths; at most {grown} MiB",
        result.seconds / f64::from(rounds),
        (processor() - used) / f64::from(rounds),
        result.paths.len(),
    );
    assert_eq!(result.rounds_to_cover, rounds_to_cover(nodes, 20));
    let is_wrong =
        |key: &CellKey, cell: &Cell| key.path != Path::Loss && (cell.failed > 0 || cell.passed == 0);
    let failed: Vec<_> = result.cells().filter(|(key, cell)| is_wrong(key, cell)).collect();
    assert!(failed.is_empty(), "{}: {:#?}", failed.len(), failed.iter().take(5).collect::<Vec<_>>());
    result
}

#[tokio::test]
async fn matrix_of_60_nodes_is_a_ring_with_random_peers() {
    simulated(60, 1, &[Path::PodToPod, Path::Loss, Path::FullSize, Path::Transfer]).await;
}

/// One round with all paths between Pods, then rounds until every pair was asked. In these, datagrams are not counted: 1,000 of them for
/// each node and round would measure the agents.
#[tokio::test]
#[ignore = "in `make soak`: needs `make rig` and root"]
async fn matrix_of_500_nodes() {
    simulated(500, 1, &[Path::PodToPod, Path::Loss, Path::FullSize, Path::Transfer]).await;
    let rounds = u32::try_from(rounds_to_cover(500, 20)).unwrap();
    let result = simulated(500, rounds, &[Path::PodToPod, Path::FullSize, Path::Transfer]).await;
    let pairs: BTreeSet<_> = result
        .cells()
        .filter(|(key, _)| key.path == Path::PodToPod)
        .map(|(key, _)| (&key.from, &key.to))
        .collect();
    assert_eq!(pairs.len(), 500 * 499, "every pair was asked");
}
