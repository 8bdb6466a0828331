//! Tests for gates and their options, with real programs and a real server on loopback.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;

use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::sleep;

use super::*;
use crate::operation::{Checkpoint as _, Closed, Silent, Stage};
use crate::session::Ui;
use crate::session::gates::{Gatekeeper, Gates};

#[derive(Debug, Parser)]
struct Typed {
    #[command(flatten)]
    gates: GateArgs,
}

fn parse(words: &[&str]) -> Result<GateSettings, String> {
    let typed = Typed::try_parse_from(std::iter::once(&"test").chain(words));
    typed.map(|typed| typed.gates.settings()).map_err(|error| error.to_string())
}

fn resolve(words: &[&str]) -> Result<Gates, String> {
    parse(words)?.resolve().map_err(|failure| {
        assert_eq!(failure.kind.code(), 2, "{failure:?}");
        failure.error.to_string()
    })
}

fn stage(batch: Option<usize>) -> Stage {
    Stage { index: 0, name: "prewarm".into(), batch, title: String::new() }
}

/// Checks the gates as an operation does before its second batch.
async fn pass(gates: &Gates) -> Result<(), (String, String)> {
    let ui = Ui::new(Silent);
    let keeper = Gatekeeper::new(gates, &ui, "renumber-1");
    keeper.pass(&stage(Some(1))).await.map_err(|Closed { gate, reason }| (gate, reason))
}

async fn answer(words: &[&str]) -> Result<(), (String, String)> {
    pass(&resolve(words).unwrap()).await
}

/// An HTTP server that runs until the test ends. It has one answer for each path. If this answer is empty, the server sends
/// nothing. The server records the requested paths.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answers: &'static [(&'static str, &'static str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let noted = asked.clone();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let Some(first) = lines.next() else { continue };
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let path = first.split(' ').nth(1).unwrap_or_default().to_string();
                let found = answers.iter().find(|(start, _)| path.starts_with(start));
                noted.lock().unwrap().push(path);
                let (status, body) = found
                    .map_or("404 Not Found", |(_, answer)| answer)
                    .split_once('\n')
                    .unwrap_or((found.map_or("404 Not Found", |(_, answer)| answer), ""));
                if status.is_empty() {
                    silent.push(stream);
                    continue;
                }
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nConnection: close\r\nLocation: /good\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[tokio::test]
async fn dependent_options_are_required_together() {
    for words in [
        &["--gate-prometheus", "http://p:9090"][..],
        &["--gate-prometheus", "http://p:9090", "--gate-query", "up"],
        &["--gate-prometheus", "http://p:9090", "--gate-max", "1"],
        &["--gate-query", "up", "--gate-max", "1"],
        &["--gate-arg", "x"],
        &["--gate-max", "NaN"],
        &["--pause", "0"],
        &["--until", "noon"],
        &["--on-gate-failure", "shout"],
    ] {
        parse(words).expect_err(&format!("{words:?}"));
    }
    let prometheus = ["--gate-prometheus", "http://p:9090", "--gate-query", "up"];
    for limits in [&["--gate-min", "1"][..], &["--gate-max", "-0.5"], &["--gate-min", "1", "--gate-max", "2"]]
    {
        let words: Vec<&str> = prometheus.iter().chain(limits).copied().collect();
        assert_eq!(resolve(&words).unwrap().asked(), 1, "{words:?}");
    }
    assert!(!resolve(&[]).unwrap().are_there());
    assert!(resolve(&["--pause", "5"]).unwrap().are_there());
    assert!(!resolve(&["--on-gate-failure", "rollback"]).unwrap().are_there());
}

#[tokio::test]
async fn invalid_gates_are_refused_before_the_start() {
    for (words, says) in [
        (&["--gate-http", "localhost:80"][..], "http"),
        (&["--gate-http", "ftp://host/"], "expected `http://` or `https://`"),
        (&["--gate-http", "http://name:secret@host/"], "no credentials are sent"),
        (&["--gate-command", "/nowhere/at/all"], "no such program"),
        (&["--gate-command", "true --verbose"], "give arguments with `--gate-arg`"),
        (&["--until", "2020-01-01T00:00:00Z"], "is in the past"),
    ] {
        let error = resolve(words).err().unwrap_or_else(|| panic!("{words:?}"));
        assert!(error.contains(says), "{words:?}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let query = ["--gate-query", "up", "--gate-max", "1", "--gate-prometheus", "http://p:9090/?x=1"];
    assert!(resolve(&query).err().unwrap().contains("without a query"));
}

#[tokio::test]
async fn until_gate_pauses_whatever_on_gate_failure_says() {
    let ui = Ui::new(Silent);
    for (word, otherwise) in [
        ("pause", OnFailure::Pause),
        ("rollback", OnFailure::Rollback),
        ("rollback-all", OnFailure::RollbackAll),
    ] {
        let gates = resolve(&["--until", "+1h", "--on-gate-failure", word]).unwrap();
        let keeper = Gatekeeper::new(&gates, &ui, "renumber-1");
        assert_eq!((keeper.on_failure("until"), keeper.on_failure("http")), (OnFailure::Pause, otherwise));
    }
}

#[tokio::test]
async fn until_gate_closes_when_the_next_batch_would_be_late() {
    assert_eq!(answer(&["--until", "+1h"]).await, Ok(()));
    // The gate closes immediately, without the pause of two minutes.
    let (gate, reason) = answer(&["--until", "+1m", "--pause", "120"]).await.unwrap_err();
    assert_eq!(gate, "until");
    assert!(reason.contains("the pause would end after that time"), "{reason}");
    let past = OffsetDateTime::now_utc() - time::Duration::SECOND;
    let mut gates = resolve(&["--until", "+1h"]).unwrap();
    gates.until = Some(past);
    let (gate, reason) = pass(&gates).await.unwrap_err();
    assert_eq!(gate, "until");
    assert!(reason.contains("no batch starts after"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn pause_precedes_the_gates() {
    let started = tokio::time::Instant::now();
    assert_eq!(answer(&["--pause", "300"]).await, Ok(()));
    assert_eq!(started.elapsed().as_secs(), 300);
}

#[tokio::test]
async fn http_gate_opens_for_any_2xx_status() {
    let server = Server::start(&[
        ("/good", "204 No Content"),
        ("/busy", "503 Service Unavailable"),
        ("/elsewhere", "302 Found"),
        ("/silent", ""),
    ]);
    assert_eq!(answer(&["--gate-http", &server.url("/good?deep=1")]).await, Ok(()));
    assert_eq!(server.asked(), ["/good?deep=1"]);
    for (path, says) in
        [("/busy", "HTTP status 503"), ("/elsewhere", "HTTP status 302"), ("/none", "HTTP status 404")]
    {
        let (gate, reason) = answer(&["--gate-http", &server.url(path)]).await.unwrap_err();
        assert_eq!((gate.as_str(), reason.as_str()), ("http", says));
    }
    assert_eq!(server.asked(), ["/busy", "/elsewhere", "/none"], "a redirect is not followed");
    let (gate, reason) =
        answer(&["--gate-http", &server.url("/silent"), "--gate-timeout", "1"]).await.unwrap_err();
    assert_eq!(gate, "http");
    assert!(!reason.is_empty());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (gate, reason) = answer(&["--gate-http", &format!("http://{closed}/")]).await.unwrap_err();
    assert_eq!(gate, "http");
    assert!(!reason.is_empty());
}

#[tokio::test]
async fn prometheus_gate_sends_its_query() {
    let server = Server::start(&[(
        "/sub/api/v1/query",
        "200 OK\n{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[\
         {\"metric\":{\"job\":\"web\"},\"value\":[1800000000.1,\"0.02\"]}]}}",
    )]);
    let base = server.url("/sub/");
    let words =
        ["--gate-prometheus", &base, "--gate-query", "rate(errors{job=\"web\"}[1m]) / 2", "--gate-max"];
    let with = |max: &'static str| words.iter().copied().chain([max]).collect::<Vec<_>>();
    assert_eq!(answer(&with("0.02")).await, Ok(()));
    let asked = server.asked();
    let wanted = "/sub/api/v1/query?query=rate%28errors%7Bjob%3D%22web%22%7D%5B1m%5D%29%20%2F%202";
    assert_eq!(asked, [wanted]);
    let (gate, reason) = answer(&with("0.01")).await.unwrap_err();
    assert_eq!(
        (gate.as_str(), reason.as_str()),
        ("prometheus", "{job=\"web\"} is 0.02, allowed: at most 0.01")
    );
}

/// Writes a script, which tests run with `sh`. A test cannot execute the script itself, because a file that was just written
/// cannot be executed while another thread forks.
fn script(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("gate");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn command_gate_opens_on_exit_status_0() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told").display().to_string();
    let program = script(
        &folder,
        "echo \"$NETSURGEON_OPERATION $NETSURGEON_BATCH $2\" > \"$1\"; echo looking >&2; \
         [ \"$2\" = 'a b' ] || { echo 'too many errors' >&2; exit 3; }",
    );
    let words = ["--gate-command", "sh", "--gate-arg", &program, "--gate-arg", &told, "--gate-arg"];
    let with = |last: &'static str| words.iter().copied().chain([last]).collect::<Vec<_>>();
    assert_eq!(answer(&with("a b")).await, Ok(()));
    assert_eq!(std::fs::read_to_string(&told).unwrap(), "renumber-1 2 a b\n");
    let (gate, reason) = answer(&with("--not-a-flag-of-ours")).await.unwrap_err();
    assert_eq!((gate.as_str(), reason.as_str()), ("command", "too many errors (exit status: 3)"));
    // The program is found in PATH, because its name has no slash.
    let (_, reason) = answer(&["--gate-command", "false"]).await.unwrap_err();
    assert_eq!(reason, "exit status: 1");
}

#[tokio::test]
async fn command_gate_that_times_out_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let program = script(&folder, &format!("sleep 1000 & echo $! > {}; wait", pid.display()));
    let (_, reason) = answer(&["--gate-command", "/bin/sh", "--gate-arg", &program, "--gate-timeout", "5"])
        .await
        .unwrap_err();
    assert_eq!(reason, "the program did not end within 5 s");
    let child = std::fs::read_to_string(pid).unwrap();
    // The child of the program is also killed. Afterwards it does not exist, or it is a zombie.
    let path = format!("/proc/{}/stat", child.trim());
    let is_gone = || std::fs::read_to_string(&path).map_or(true, |stat| stat.contains(") Z "));
    let started = std::time::Instant::now();
    while !is_gone() {
        assert!(started.elapsed() < Duration::from_mins(1), "it still runs");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn recorded_gates_equal_the_given_ones() {
    let words = "--pause 60 --until +90m --gate-command /bin/sh --gate-arg=-c --gate-arg=exit --gate-http \
                 http://127.0.0.1:1/x --gate-prometheus http://p:9090 --gate-query up --gate-max 0.5 --gate-timeout 5 \
                 --on-gate-failure rollback";
    let given = parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
    let record = given.record().unwrap();
    let until = record["until"].as_str().unwrap();
    assert_eq!(
        until.len(),
        "2027-01-15T09:30:00Z".len(),
        "a moment in UTC, not a time from the resume on: {until}"
    );
    let read: GateSettings = serde_json::from_value(record.clone()).unwrap();
    assert_eq!(read, given);
    // If the gates are recorded again, the record stays the same.
    assert_eq!(read.record().unwrap(), record);
}

#[test]
fn recorded_program_or_url_must_be_given_again() {
    for words in [
        "--gate-command /bin/sh --gate-arg=-c --gate-arg=exit --pause 60 --on-gate-failure rollback",
        "--gate-http http://127.0.0.1:1/x --gate-timeout 5",
        "--gate-prometheus http://p:9090 --gate-query sum(up) --gate-max 0.5 --gate-min -1",
    ] {
        let given = parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
        let failure = GateSettings::default().or_recorded(&given.record().unwrap(), false).unwrap_err();
        assert!(failure.hints.iter().any(|hint| hint.contains("`--no-gates`")), "{failure:?}");
        // The options in the hint give the same gates.
        let hint = failure.hints.iter().find_map(|hint| hint.split('`').nth(1)).expect("options");
        let options = shlex::split(hint).expect("words of a shell");
        let again = parse(&options.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert_eq!(again, given, "{hint}");
    }
}

#[test]
fn given_gates_replace_recorded_ones_and_no_gates_drops_them() {
    let recorded = parse(&["--pause", "60", "--on-gate-failure", "rollback"]).unwrap().record().unwrap();
    let given = parse(&["--gate-http", "http://127.0.0.1:1/x"]).unwrap();
    assert_eq!(given.or_recorded(&recorded, false).unwrap(), given);
    assert_eq!(GateSettings::default().or_recorded(&recorded, true).unwrap(), GateSettings::default());
    assert_eq!(GateSettings::default().or_recorded(&recorded, false).unwrap().pause, Some(60));
    assert_eq!(GateSettings::default().record().unwrap(), Value::Null);
}

#[test]
fn recorded_time_in_the_past_is_dropped() {
    let recorded = serde_json::json!({"until": "2026-01-01T18:00:00Z", "pause": 60});
    let read = GateSettings::default().or_recorded(&recorded, false).unwrap();
    assert_eq!((read.until, read.pause), (None, Some(60)));
}

#[test]
fn unusable_recorded_gates_hint_at_no_gates() {
    for recorded in [serde_json::json!({"gate_command": "/no/such/program"}), serde_json::json!({"later": 1})]
    {
        let failure = GateSettings::default().or_recorded(&recorded, false).unwrap_err();
        assert!(failure.hints.iter().any(|hint| hint.contains("--no-gates")), "{failure:?}");
    }
}
