//! Runs docs/runbook.md on a real control plane: every command in its order. The output in the runbook is what the commands
//! print, except for ids, times and counts. Its table of problems names the tests that run each line.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::certificates::{self, Hosts};
use super::rig::cluster::{ClusterOptions, Era};
use super::rig::etcd::EtcdOptions as Servers;
use super::rig::network::gateway;
use super::rig::process::{run as run_program, wait_until};
use super::rig::programs::{ETCD_VERSION, built};
use super::rig::proxy::ProxyMode;
use super::rig::relay::Relay;
use super::rig::report::Target;
use super::serving_cluster::{DEADLINE, Run, Serving, Watched, lines_of, run};

/// The runbook's name of the operation.
const OPERATION: &str = "renumber-20261121T155810Z-490a";
/// The plan's digest in the runbook.
const DIGEST: &str = "14266d7f";

/// Problems, as the table starts its lines, and the tests that run the solution.
const TROUBLE: [(&str, &[&str]); 21] = [
    ("The process was killed", &["kill_points::resume_waits_for_the_lease_of_a_killed_process"]),
    ("Stop it now", &["renumber::every_pause_names_the_command_that_continues"]),
    ("`kube-proxy on ... has not applied", &["runbook::batch_stops_at_a_node_that_does_not_answer"]),
    (
        "`NAME: planned again: ...`",
        &["client_changes::services_that_change_before_they_move_are_planned_again"],
    ),
    (
        "`kubectl delete service` or",
        &[
            "address_owners::address_of_a_shadow_is_not_allocated_again",
            "address_owners::service_deleted_during_its_move_is_removed_by_a_rollback",
        ],
    ),
    ("`NAME: skipped, ...`", &["client_changes::service_that_cannot_move_stops_no_other"]),
    ("`step ... failed` for one Service", &["client_changes::service_that_cannot_move_stops_no_other"]),
    (
        "Something does not work with the new addresses",
        &[
            "renumber::rollback_serves_clients_with_cached_new_addresses",
            "certificates::rollback_verifies_the_flags",
        ],
    ),
    ("`operation ... is done`", &["manual_steps::rollback_ends_once_the_old_flags_are_back"]),
    (
        "``the confirmation of `flags` is refused",
        &["manual_steps::confirmation_is_refused_when_an_api_server_contradicts_it"],
    ),
    (
        "``the confirmation of `certificates` is refused",
        &["certificates::renumber_verifies_certificates_and_flags"],
    ),
    ("`operation ... (rewrite-range)", &["rewrite::killed_rewrite_is_resumed"]),
    (
        "`... does not route external IPs`",
        &["ignored_external_ips::apply_stops_before_any_move_when_a_node_ignores_external_ips"],
    ),
    ("``waiting for manual step `other-ranges`", &["client_changes::other_ranges_are_left_to_their_owners"]),
    (
        "`renumber retire` refuses",
        &[
            "client_changes::retire_keeps_fields_that_owners_changed",
            "chaos::client_changes_survive_a_renumbering",
        ],
    ),
    (
        "`... of ServiceCIDR ..., which is being deleted`",
        &["client_changes::old_range_is_closed_after_the_flags_and_opened_by_a_rollback"],
    ),
    ("`lost the Lease ...`", &["lease::renumber_stops_when_another_operation_takes_the_lease"]),
    (
        "An API server is down",
        &[
            "control_plane_faults::api_server_frozen_for_a_minute_deletes_no_address",
            "control_plane_faults::dead_api_server_is_excluded_by_name",
        ],
    ),
    ("No API server comes up again", &["renumber::rollback_works_without_an_api_server"]),
    ("etcd has lost its quorum", &["runbook::operation_resumes_once_etcd_has_its_quorum_again"]),
    ("The rollback fails, too", &["runbook::snapshot_of_an_apply_restores_the_cluster"]),
];

/// A command of the runbook, without the program's name, and the lines that are shown below it.
struct Passage {
    words: String,
    shown: Vec<String>,
}

fn text() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbook.md");
    std::fs::read_to_string(file).expect("the runbook")
}

/// The commands before the table, in their order. Text of a list is indented by three, commands and output by more.
fn passages() -> VecDeque<Passage> {
    let text = text();
    let text = text.split("## When something goes wrong").next().expect("a beginning");
    let mut passages: VecDeque<Passage> = VecDeque::new();
    for line in text.lines().filter(|line| line.starts_with("    ")) {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("$ netsurgeon ") {
            let words = words.split(" #").next().unwrap_or_default().trim().to_owned();
            passages.push_back(Passage { words, shown: Vec::new() });
        } else if let Some(passage) = passages.back_mut().filter(|_| !line.starts_with('$')) {
            passage.shown.push(line.to_owned());
        }
    }
    passages
}

/// Counts that must be as in the runbook.
const COUNTED: [&str; 9] =
    ["Service", "Services", "batch", "batches", "stay", "waiting,", "moved", "retired,", "old"];

/// A line without everything else that differs from run to run.
fn shape(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let next = words.iter().skip(1).copied().chain([""]);
    let of_word = |(word, next): (&&str, &str)| {
        if word.starts_with("http") {
            return "URL".to_owned();
        }
        if COUNTED.contains(&next) && word.chars().all(|character| character.is_ascii_digit()) {
            return (*word).to_owned();
        }
        word.split_inclusive(|character: char| !character.is_ascii_alphanumeric()).map(of_part).collect()
    };
    words.iter().zip(next).map(of_word).collect::<Vec<String>>().join(" ")
}

fn of_part(part: &str) -> String {
    let own = part.trim_end_matches(|character: char| !character.is_ascii_alphanumeric());
    let varies = own.chars().any(|character| character.is_ascii_digit());
    if varies { format!("N{}", &part[own.len()..]) } else { part.to_owned() }
}

/// Runs the commands of the runbook.
struct Player {
    serving: Serving,
    hosts: Hosts,
    relay: Relay,
    folder: PathBuf,
    passages: VecDeque<Passage>,
    operation: String,
}

impl Player {
    async fn start() -> Self {
        let (serving, hosts) = certificates::start(Era::Objects, ProxyMode::Iptables).await;
        let relay =
            Relay::start_at(gateway().into(), serving.cluster.etcd.endpoint().trim_start_matches("http://"));
        let folder = serving.cluster.directory().join("operator");
        std::fs::create_dir(&folder).expect("a folder");
        Self { serving, hosts, relay, folder, passages: passages(), operation: String::new() }
    }

    /// The next command, which must start with this text, with the names of this cluster.
    fn next(&mut self, begins: &str) -> Passage {
        let passage = self.passages.pop_front().unwrap_or_else(|| panic!("`{begins}` is not in the runbook"));
        assert!(
            passage.words.starts_with(begins),
            "the runbook continues with `{}`, not `{begins}`",
            passage.words
        );
        println!("runbook: {}", passage.words);
        let words = passage.words.replace(OPERATION, &self.operation).replace('"', "");
        Passage { words, shown: passage.shown }
    }

    /// Checks that every line of the runbook is printed, in this order.
    fn compare(&self, shown: &[String], run: &Run) {
        let printed = format!("{}\n{}", run.err, run.out);
        let mut printed: VecDeque<String> = printed
            .lines()
            .map(|line| {
                shape(&if self.operation.is_empty() {
                    line.to_owned()
                } else {
                    line.replace(&self.operation, OPERATION)
                })
            })
            .collect();
        for line in shown {
            let wanted = shape(line);
            let found = printed.iter().position(|line| line.contains(&wanted));
            let found = found.unwrap_or_else(|| panic!("`{line}` is not printed:\n{}\n{}", run.err, run.out));
            printed.drain(..=found);
        }
    }

    /// Runs the next command beside the API servers, with more arguments, and compares its output.
    fn play(&mut self, begins: &str, more: &str, code: i32) -> Run {
        let passage = self.next(begins);
        let words = format!("{} {more}", passage.words);
        let mut command = self.serving.command(&words);
        command.current_dir(&self.folder);
        let run = run(&words, command).expect(code);
        self.compare(&passage.shown, &run);
        run
    }

    fn on_a_node(&self, words: &str) -> std::process::Command {
        let mut command = self.serving.cluster.nodes[0].namespace().command(env!("CARGO_BIN_EXE_netsurgeon"));
        command.env_clear().args(words.split_whitespace()).env("ETCDCTL_ENDPOINTS", self.relay.address());
        command
    }
}

/// The maintenance window, from the rehearsal to the end, as in the runbook.
#[tokio::test]
async fn every_command_prints_what_the_runbook_shows() {
    let mut player = Player::start().await;
    player.days_before();
    player.window().await;
    player.soak().await;
    player.end();
    let left: Vec<&str> = player.passages.iter().map(|passage| passage.words.as_str()).collect();
    assert_eq!(left, Vec::<&str>::new(), "commands of the runbook that did not run");
}

impl Player {
    fn days_before(&mut self) {
        self.serving.cluster.etcd.snapshot(&self.folder.join("backup.db"));
        self.play("rehearse", "", 0);
        self.play("preflight renumber", "", 0);
        self.play("audit --old", "", 3);
        self.play("renumber plan", "", 0);
        let reissue = self.next("certs reissue").words.replace("certs reissue", "");
        let verify = self.next("certs verify").words.replace("certs verify", "");
        // The hosts wait themselves.
        let verify = verify.split(" --wait").next().expect("a beginning").to_owned();
        self.hosts.reissue(&self.serving, &reissue, &verify);
    }

    async fn window(&mut self) {
        self.play("lock", "", 0);
        let plan = std::fs::read_to_string(self.folder.join("plan.json")).expect("the plan");
        let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
        let digest = plan["digest"].as_str().expect("a digest")[..8].to_owned();
        let first = self.passages.front_mut().expect("apply");
        first.words = first.words.replace(DIGEST, &digest);
        let passage = self.next("renumber apply");
        let words = format!("{} --yes", passage.words);
        let mut command = self.serving.command(&words);
        command.current_dir(&self.folder);
        let paused = run(&words, command).expect(6);
        self.operation = self.serving.journals().remove(0);
        self.compare(&passage.shown, &paused);
        let (set, host) = (self.next("controlplane set-range").words, self.next("controlplane wait").words);
        assert!(host.ends_with("--host"), "{host}");
        self.hosts.set_range(&mut self.serving, set.rsplit(' ').next().expect("a range")).await;
        self.play("controlplane wait", "", 0);
        self.play("operation resume", "", 0);
        self.play("renumber verify", "", 0);
        let passage = self.next("renumber verify --probe");
        let probed = run(&passage.words, self.on_a_node(&passage.words)).expect(0);
        self.compare(&passage.shown, &probed);
    }

    async fn soak(&mut self) {
        let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nclusterDNS:\n- 10.96.0.10\nkind: KubeletConfiguration\n";
        let config = self.serving.cluster.write("kubelet.yaml", kubelet);
        self.play("controlplane set-dns", &format!("--yes --config {}", config.display()), 0);
        assert!(std::fs::read_to_string(config).expect("it").contains("- 10.200.0.10\n"));
        self.listen("renumber guard").await;
        let target = [Target::udp("10.96.0.5", 80), Target::tcp("10.96.0.5", 80)];
        let probe = self.serving.client.probe(&target);
        probe.wait_for_attempts(target[1], 50, DEADLINE).await;
        let passage = self.next("renumber status --flows");
        let seen = run(&passage.words, self.on_a_node(&passage.words)).expect(0);
        self.compare(&passage.shown, &seen);
        let report = probe.stop();
        assert!(report.failures().is_empty(), "{report}");
        // No Pod of deploy/evidence.yaml runs here.
        self.play("audit --old", "", 3);
        self.play("audit --old", "", 0);
        let host = self.next("audit --old").words;
        let looked = run(&host, self.serving.command(&host));
        assert!([0, 3].contains(&looked.code), "{}", looked.err);
    }

    /// Starts the next command, interrupts it once it has printed the lines of the runbook, and expects no error.
    async fn listen(&mut self, begins: &str) {
        let passage = self.next(begins);
        let mut running = Watched::start(self.serving.command(&passage.words));
        let wanted: Vec<String> = passage.shown.iter().map(|line| shape(line)).collect();
        wait_until(&format!("`{begins}` prints {wanted:?}"), DEADLINE, async || {
            let said = lines_of(&running.out).into_iter().chain(lines_of(&running.err));
            let said: Vec<String> = said.map(|line| shape(&line)).collect();
            let is_there = |line: &String| said.iter().any(|said| said.contains(line.as_str()));
            if !said.is_empty() && wanted.iter().all(is_there) { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
        running.signal(Signal::INT);
        assert_eq!(running.end().await, 0, "{begins}");
    }

    fn end(&mut self) {
        let waived = "--without-evidence --yes --confirm soak";
        self.play("renumber retire", waived, 6);
        let reissue = self.next("certs reissue").words.replace("certs reissue", "");
        self.hosts.reissue(&self.serving, &reissue, "--without-cidr 10.96.0.0/16");
        self.play("renumber retire", waived, 0);
        self.play("preflight renumber", "", 0);
        self.play("audit --old", "", 0);
        self.serving.assert_clean();
        self.serving.netsurgeon("unlock").expect(0);
    }
}

/// Tests that exist run each line of the table, in `make test` or `make soak`.
#[test]
fn every_line_of_the_table_has_a_test() {
    let text = text();
    let table = text.split("## When something goes wrong").nth(1).expect("the table");
    let rows: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| ")).skip(1).collect();
    assert_eq!(rows.len(), TROUBLE.len(), "{rows:#?}");
    for (row, (begins, tests)) in rows.iter().zip(TROUBLE) {
        assert!(row.starts_with(begins), "`{row}` is not `{begins}`");
        for test in tests {
            let (file, name) = test.split_once("::").expect("a module and a test");
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/live/{file}.rs"));
            let source =
                std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(source.contains(&format!("async fn {name}()")), "{begins}: `{test}` does not exist");
        }
    }
}

/// A stopped kube-proxy: the batch waits, then stops with the node's name; once kube-proxy runs again, the operation is resumed.
#[tokio::test]
async fn batch_stops_at_a_node_that_does_not_answer() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    serving.proxies[1].pause();
    let stopped = serving.netsurgeon(&serving.apply_words()).expect(5);
    assert!(stopped.err.contains("node-2") && stopped.err.contains("operation resume"), "{}", stopped.err);
    serving.proxies[1].resume();
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation} --confirm certificates")).expect(6);
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
}

/// Two of three members are stopped: nothing can be written, Services continue to answer, and the operation is resumed once the
/// members are back.
#[tokio::test]
async fn operation_resumes_once_etcd_has_its_quorum_again() {
    let etcd = Servers { members: 3, ..Servers::default() };
    let options = ClusterOptions { etcd, ..ClusterOptions::new(Era::Objects) };
    let mut serving = Serving::start_on(options, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let mut apply = serving.start_slow_apply();
    serving.wait_for_records(&mut apply, "flip", 5).await;
    for member in 0..2 {
        serving.cluster.etcd.pause_member(member);
    }
    assert_eq!(apply.end().await, 5, "{:?}", lines_of(&apply.err));
    let said = lines_of(&apply.err).join("\n");
    assert!(said.contains("operation resume"), "{said}");
    for member in 0..2 {
        serving.cluster.etcd.resume_member(member);
    }
    // It is ready before its caches have their objects again: until then it answers 429 to a list.
    for path in ["/readyz", "/api/v1/services"] {
        wait_until("the API answers again", DEADLINE, async || {
            let answer = serving.cluster.ask(path).await;
            answer.and_then(|(code, text)| if code == 200 { Ok(()) } else { Err(text) })
        })
        .await;
    }
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation} --confirm certificates")).expect(6);
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
}

/// The snapshot that `apply` saves before its first write has the whole cluster: after a restore by etcdutl, every Service has
/// its old address.
#[tokio::test]
async fn snapshot_of_an_apply_restores_the_cluster() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.netsurgeon(&serving.apply_words()).expect(6);
    assert!(serving.cluster_ip("web").await.starts_with("10.200."));
    let folder = serving.cluster.directory();
    let (snapshot, restored) = (folder.join("before.db"), folder.join("restored"));
    let arguments = [
        "snapshot",
        "restore",
        &snapshot.display().to_string(),
        "--data-dir",
        &restored.display().to_string(),
    ];
    run_program(&built(&format!("etcd-{ETCD_VERSION}/etcdutl")), &arguments, &[]);
    let database = restored.join("member/snap/db").display().to_string();
    let shown = serving
        .netsurgeon(&format!("inspect get service default/web --snapshot {database} -o json"))
        .expect(0);
    assert!(shown.out.contains("10.96.0.5") && !shown.out.contains("10.200.0.5"), "{}", shown.out);
    serving.netsurgeon(&format!("ranges check --snapshot {database}")).expect(0);
}
