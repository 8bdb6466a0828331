//! Gates between the batches of a live renumbering, closed by a real server and a real program: the operation pauses, rolls a
//! batch back under traffic, or rolls everything back.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, NEW_RANGE, Run, SERVICES, Serving, lines_of};

/// `web`, the Services beside it, and `kubernetes`.
const ALL: u64 = SERVICES as u64 + 2;
/// Services of the first batch (`Serving::apply_words`).
const BATCH: u64 = 10;

/// A health check outside the cluster; unhealthy at first.
struct Health {
    address: String,
    is_well: Arc<AtomicBool>,
}

impl Health {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let is_well = Arc::new(AtomicBool::new(false));
        let well = is_well.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                let status = if well.load(Ordering::SeqCst) { "200 OK" } else { "503 Service Unavailable" };
                let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        Self { address, is_well }
    }

    fn words(&self) -> String {
        format!("--gate-http http://{}/healthy", self.address)
    }

    fn heal(&self) {
        self.is_well.store(true, Ordering::SeqCst);
    }
}

fn standing(serving: &Serving) -> (String, u64, u64) {
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    let count = |name: &str| status[name].as_u64().unwrap_or_default();
    (status["status"].as_str().unwrap_or_default().to_string(), count("waiting"), count("held"))
}

fn assert_says(run: &Run, lines: &[&[&str]]) {
    for facts in lines {
        says(&run.err, facts);
    }
}

/// From an open gate to the state in which all old addresses are held.
async fn through(serving: &mut Serving, operation: &str, gate: &str) {
    let words = format!("operation resume {operation} {gate}");
    if serving.cluster.era() == Era::Bitmap {
        assert_says(&serving.netsurgeon(&words).expect(0), &[&["`http`", "open"]]);
    } else {
        let paused = serving.netsurgeon(&words).expect(6);
        assert_says(&paused, &[&["`http`", "open"], &["--confirm flags"]]);
        serving.restart_with(NEW_RANGE).await;
        serving.netsurgeon(&format!("operation resume {operation} --confirm flags {gate}")).expect(0);
    }
    serving.netsurgeon("renumber verify").expect(0);
}

#[tokio::test]
async fn closed_gate_pauses_the_operation() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let (health, old) = (Health::start(), Serving::targets());
    let probe = serving.probe(&old).await;
    let refused = serving.netsurgeon(&format!("{} --gate-http ftp://here", serving.apply_words())).expect(2);
    assert_says(&refused, &[&["`http://`"]]);
    assert!(serving.journals().is_empty(), "nothing was started");

    let late = format!("{} --until +2s --pause 2", serving.apply_words());
    assert_says(&serving.netsurgeon(&late).expect(6), &[&["paused: ", "`until`"], &["`until`", "batch 2"]]);
    assert_eq!(standing(&serving), ("paused".into(), ALL - BATCH, BATCH));
    let operation = serving.journals().remove(0);
    let closed = serving.netsurgeon(&format!("operation resume {operation} {}", health.words())).expect(6);
    let next = format!("`netsurgeon operation resume {operation} {}`", health.words());
    assert_says(&closed, &[&["`http`", "closed", "batch 2", "503"], &["paused: ", "`http`", &next]]);
    assert_eq!(standing(&serving), ("paused".into(), ALL - BATCH, BATCH), "no step was run");

    planted_program_never_runs(&serving, &operation).await;
    let refused =
        serving.netsurgeon(&format!("operation resume {operation} --gate-command /no/such")).expect(2);
    assert_says(&refused, &[&["`--gate-command /no/such`"]]);
    health.heal();
    let again = format!("operation resume {operation} {}", health.words());
    assert_says(&serving.netsurgeon(&again).expect(6), &[&["`http`", "open"], &["--confirm flags"]]);
    serving.restart_with(NEW_RANGE).await;
    let last =
        serving.netsurgeon(&format!("operation resume {operation} --no-gates --confirm flags")).expect(0);
    assert_says(&last, &[&["note: ", "gates"]]);
    assert!(!last.err.contains(&health.address), "no gate is checked: {}", last.err);
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
}

/// The gates are recorded, and a client that can write only the journal puts a program there.
async fn planted_program_never_runs(serving: &Serving, operation: &str) {
    let trace = serving.cluster.directory().join("planted");
    let keys = serving.cluster.etcd.keys("/netsurgeon/").await;
    let key = keys.iter().find(|key| key.ends_with(&format!("/{operation}/operation"))).expect("a summary");
    let before = serving.cluster.etcd.get(key).await.expect("a summary");
    let mut summary: Value = serde_json::from_slice(&before).expect("JSON");
    assert!(summary["gates"]["gate_http"].is_string(), "{summary}");
    summary["gates"] =
        json!({"gate_command": "/usr/bin/touch", "gate_arg": [trace], "on_gate_failure": "rollback-all"});
    serving.cluster.etcd.put(key, summary.to_string().into_bytes()).await;
    let options = format!(
        "--gate-command /usr/bin/touch --on-gate-failure rollback-all --gate-arg={}",
        trace.display()
    );
    let resumed = serving.netsurgeon(&format!("operation resume {operation}")).expect(2);
    assert_says(&resumed, &[&["error: ", "journal"], &[&format!("`{options}`")], &["`--no-gates`"]]);
    for words in ["operation list", "operation show", "renumber status"] {
        serving.netsurgeon(words).expect(0);
    }
    let page = serving.cluster.directory().join("planted.html");
    serving.netsurgeon(&format!("operation report {operation} --html {}", page.display())).expect(0);
    assert!(!trace.exists(), "the program ran");
    assert_eq!(standing(serving), ("paused".into(), ALL - BATCH, BATCH), "no step was run");
    serving.cluster.etcd.put(key, before).await;
}

macro_rules! cells {
    ($($(#[$attribute:meta])* $name:ident: $era:ident $mode:ident $hold:literal;)*) => {
        $(
            #[tokio::test]
            $(#[$attribute])*
            async fn $name() {
                a_batch_is_rolled_back(Era::$era, ProxyMode::$mode, $hold).await;
            }
        )*
    };
}

cells! {
    #[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
    batch_of_external_ips_is_rolled_back: Objects Nftables "external-ip";
    batch_of_shadows_is_rolled_back: Objects Iptables "shadow";
    #[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
    batch_under_dual_write_is_rolled_back: DualWrite Iptables "external-ip";
    #[ignore = "a minute each, in `make soak`: needs `make rig` and root"]
    batch_of_the_bitmap_era_is_rolled_back: Bitmap Iptables "shadow";
}

/// Starts with a gate; where the flag comes first, after the change of the flag.
async fn begin(serving: &mut Serving, words: &str, gate: &str) -> Run {
    if serving.cluster.era() != Era::Bitmap {
        return serving.netsurgeon(&format!("{words} {gate}"));
    }
    serving.netsurgeon(words).expect(6);
    serving.restart_with(NEW_RANGE).await;
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags {gate}"))
}

async fn a_batch_is_rolled_back(era: Era, mode: ProxyMode, hold: &str) {
    let mut serving = Serving::start(era, mode).await;
    let (health, old) = (Health::start(), Serving::targets());
    let new = [Target::tcp("10.200.0.5", 80), Target::udp("10.200.0.5", 80)];
    let gate = format!("{} --on-gate-failure rollback --linger 0", health.words());
    let probe = serving.probe(&old).await;
    let words = format!("{} --hold {hold}", serving.apply_words());
    let rolled_back = begin(&mut serving, &words, &gate).await.expect(6);
    let operation = serving.journals().remove(0);
    let resume = format!("`netsurgeon operation resume {operation}");
    assert_says(&rolled_back, &[&["paused: ", "`http`", "503", "batch 1", &resume]]);
    assert_eq!(standing(&serving), ("paused".into(), ALL, 0));
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    serving.netsurgeon("renumber verify").expect(0);
    let closed = serving.netsurgeon(&format!("operation resume {operation} {gate}")).expect(6);
    assert_says(&closed, &[&["`http`", "closed", "batch 1"]]);
    assert_eq!(standing(&serving), ("paused".into(), ALL, 0));

    // Runs the batch again without a gate check first, and the rollback of the batch is killed and repeated.
    let at_the_gate = format!("operation resume {operation} --gate-command /bin/false");
    serving.netsurgeon(&at_the_gate).expect(6);
    let rerun = format!(
        "operation resume {operation} --on-gate-failure rollback --linger 0 --gate-command /bin/sh --gate-arg=-c \
         --gate-arg=exit${{IFS}}$((NETSURGEON_BATCH!=1))"
    );
    let mut dying = serving.start_netsurgeon(&rerun);
    serving.wait_for_undone(&mut dying, 3).await;
    println!("killed after {:?}", lines_of(&dying.err).last());
    drop(dying);
    let finished = serving.netsurgeon(&format!("operation resume {operation} --take-over {gate}")).expect(6);
    assert_says(&finished, &[&["paused: ", "`command`", "batch 1"]]);
    assert_eq!(standing(&serving), ("paused".into(), ALL, 0));
    serving.netsurgeon("renumber verify").expect(0);

    health.heal();
    through(&mut serving, &operation, &gate).await;
    for target in new {
        probe.wait_for_attempts(old[0], 100, DEADLINE).await;
        let trial = serving.client.probe(&[target]);
        trial.wait_for_success(target, DEADLINE).await;
    }
    serving.assert_unbroken(&probe.stop(), &old);
    serving.retire();
    serving.assert_clean();
}

/// A Service that has moved, and to which no client connects.
async fn moved_and_not_probed(serving: &Serving) -> String {
    let services = serving.cluster.api.list("/api/v1/namespaces/default/services").await;
    let is_one = |service: &&Value| {
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
        address.starts_with("10.200.1.") && address != "10.200.1.7"
    };
    let found = services.iter().find(is_one).expect("a Service has moved");
    found["metadata"]["name"].as_str().expect("a name").to_owned()
}

/// Its batch includes a Service that was deleted meanwhile: its address is released.
#[tokio::test]
async fn closed_gate_rolls_everything_back() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let words = format!(
        "{} --gate-command /bin/sh --gate-arg=-c --gate-arg=exit${{IFS}}$((NETSURGEON_BATCH==3))",
        serving.apply_words()
    );
    let paused = serving.netsurgeon(&words).expect(6);
    assert_says(&paused, &[&["`command`", "open", "batch 2"], &["`command`", "closed", "batch 3"]]);
    let gone = moved_and_not_probed(&serving).await;
    serving.cluster.api.delete(&format!("/api/v1/namespaces/default/services/{gone}")).await;
    let operation = serving.journals().remove(0);
    let words = format!(
        "operation resume {operation} --on-gate-failure rollback-all --linger 0 --gate-command /bin/false"
    );
    let rolled_back = serving.netsurgeon(&words).expect(4);
    let given_up = format!("default/{gone} ");
    assert_says(&rolled_back, &[&[&given_up, "deleted"], &["error: ", "`command`"]]);
    serving.assert_unbroken(&probe.stop(), &old);
    serving.wait_for_one_range().await;
    serving.assert_clean();
    let listed = serving.netsurgeon("operation list -o json").expect(0).json();
    assert_eq!(listed["operations"][0]["status"], "rolled-back", "{listed}");
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
}
