//! A running renumbering from outside: its log, its metrics, the events of the Services, and a second process that watches.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::network::gateway;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::relay::Relay;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, ENDING, NEW_RANGE, Run, SERVICES, Serving, Watched, lines_of, run};

/// Services that move: those of the cluster, `web` and `kubernetes`.
const MOVED: u64 = SERVICES as u64 + 2;

#[tokio::test]
async fn operation_is_observable_from_outside() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let seen = "--log-format json --metrics-listen 127.0.0.1:0 --rate 40";
    let mut apply = serving.start_netsurgeon(&format!("{} {seen}", serving.apply_words()));
    let url = wait_until("the metrics have an address", DEADLINE, async || {
        let lines = lines_of(&apply.err);
        let url = lines.iter().find_map(|line| json(line)["fields"]["url"].as_str().map(str::to_string));
        url.ok_or_else(|| format!("{lines:?}"))
    })
    .await;
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics").to_string();
    let mut watch = serving.start_netsurgeon("renumber status --watch 1");
    let pages = scrape_until_the_end(&mut apply, &address).await;
    assert_eq!(apply.end().await, 6, "it pauses where the flag must change");
    check_pages(&pages);
    let operation = serving.journals().remove(0);
    check_log(&lines_of(&apply.err), &operation);
    check_events(&serving, &operation).await;

    serving.restart_with("10.96.0.0/16").await;
    refuse_events(&serving, "RenumberingUndone").await;
    let screen = serving.on_a_terminal("renumber rollback --yes --linger 0 --confirm flags").expect(0).out;
    assert!(screen.contains(&format!("{MOVED} Kubernetes events")), "{screen}");
    assert_eq!(events(&serving, "RenumberingUndone").await.len(), 0, "events were rejected");
    says(&screen, &[&format!(" of {MOVED} Services ")]);
    says(&screen, &["back: ", "batch 1 of 4"]);
    assert_eq!(watch.end().await, 0, "the watching process sees the end");
    let said = lines_of(&watch.out);
    assert!(said.iter().any(|line| line.contains("(pid ")), "the lease holder: {said:?}");
    assert!(said.last().is_some_and(|line| line.contains("rolled back")), "{said:?}");
    let screen =
        serving.on_a_terminal(&format!("renumber status --watch --operation {operation}")).expect(0).out;
    assert!(screen.starts_with("\u{1b}[H\u{1b}[2J") && screen.contains("rolled back"), "{screen:?}");
    // The controller manager has not deleted the ServiceCIDR of the first operation yet: the next one waits for it.
    let words = serving.apply_words().replace("before.db", "again.db");
    serving.netsurgeon(&format!("{words} --no-events")).expect(6);
    assert_eq!(events(&serving, "Renumbered").await.len() as u64, MOVED, "no more events with `--no-events`");
}

/// Makes etcd reachable for the nodes.
fn for_nodes(serving: &Serving) -> Relay {
    Relay::start_at(gateway().into(), serving.cluster.etcd.endpoint().trim_start_matches("http://"))
}

/// Runs the program on a node.
fn on(node: &str, relay: &Relay, words: &str) -> Run {
    let mut command = Command::new("nsenter");
    command.env_clear().args([&format!("--net={node}"), "--", env!("CARGO_BIN_EXE_netsurgeon")]);
    command.args(words.split_whitespace()).env("ETCDCTL_ENDPOINTS", relay.address());
    run(words, command)
}

/// The client of an old address is found on the node of its Pod, and on no other node; nothing is retired from there as long as
/// the client uses the address.
#[tokio::test]
async fn client_of_an_old_address_is_found_on_its_node() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Iptables).await;
    let relay = for_nodes(&serving);
    serving.apply("").await;
    let paths = [0, 1].map(|node| serving.cluster.nodes[node].namespace().path());
    let users =
        |path: &str| on(path, &relay, "renumber status --flows -o json").expect(0).json()["users"].clone();
    assert_eq!([users(&paths[0]), users(&paths[1])], [json!([]), json!([])]);
    on(&paths[1], &relay, "renumber verify --probe default/web").expect(0);
    let tracked = serving.cluster.nodes[1].namespace().conntrack("10.96.0.5");
    assert!(tracked.iter().any(|line| line.contains("dst=10.96.0.5")), "the probe is tracked: {tracked:?}");
    assert_eq!(users(&paths[1]), json!([]), "and is no user");
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    probe.wait_for_attempts(old[0], 20, DEADLINE).await;
    let mut seen = [0, 1].map(|node| (users(&paths[node]), node));
    seen.sort_by_key(|(users, _)| users.as_array().map(Vec::len));
    let [(elsewhere, _), (here, node)] = seen;
    assert_eq!(elsewhere, json!([]), "the other node has the servers only");
    assert_users(&here, &serving.client.addresses()[0].to_string());

    let kubeconfig = serving.cluster.kubeconfig().display().to_string();
    let retire =
        format!("renumber retire --yes --accept-unverified-flags {ENDING} --kubeconfig {kubeconfig}");
    let refused = on(&paths[node], &relay, &retire).expect(1);
    says(&refused.err, &["3 ports", "default/web"]);
    says(&refused.err, &["`netsurgeon renumber status --flows`"]);
    serving.assert_unbroken(&probe.stop(), &old);
    serving.cluster.nodes[node].namespace().run("conntrack", &["-F"]);
    let refused = on(&paths[node], &relay, &retire).expect(1);
    says(&refused.err, &["2 of 2 Nodes", "`node-1`"]);
    let retired = on(&paths[node], &relay, &format!("{retire} --without-evidence")).expect(0);
    let end = "`conntrack -D -p udp -f ipv4 -d 10.96.0.0/16` on each node";
    assert!(retired.err.contains(end), "{}", retired.err);
    serving.assert_clean();
}

fn assert_users(users: &Value, client: &str) {
    let users = users.as_array().expect("a list");
    let ports = users.iter().map(|user| {
        assert_eq!(user["clients"][0]["address"], client, "{user}");
        assert!(user["open"].as_u64().is_some_and(|open| open > 0), "at least the long-lived one: {user}");
        let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("service"), text("protocol"))
    });
    let ports: BTreeSet<String> = ports.collect();
    assert_eq!(ports, ["default/web tcp", "default/web udp", "default/web-6 tcp"].map(String::from).into());
}

/// From a node both addresses of a Service are probed, and a silent one that must answer is an error; from a host that routes no
/// Service, both are.
#[tokio::test]
async fn both_addresses_are_probed_from_a_node() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let relay = for_nodes(&serving);
    let node = serving.cluster.nodes[0].namespace().path();
    let on_the_node = |words: &str| on(&node, &relay, words);
    let verify = "renumber verify --probe default/web --probe default/web-6:80 -o json";
    let paused = format!("{} --until +1s --pause 1", serving.apply_words());
    serving.netsurgeon(&paused).expect(6);
    let tried = |run: &Run| -> Vec<Value> {
        let probes = run.json()["probes"].as_array().cloned().unwrap_or_default();
        probes.iter().flat_map(|probe| [&probe["old"], &probe["new"]]).cloned().collect()
    };
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation}")).expect(6);
    let both = on_the_node(verify).expect(0);
    assert_eq!(tried(&both).len(), 4);
    assert!(
        tried(&both).iter().all(|one| one["expected"] == true && one["answered"] == true),
        "{}",
        both.out
    );
    says(&both.err, &["default/web", "10.96.0.5:80", " ms"]);
    let elsewhere = serving.netsurgeon(verify).expect(3);
    assert_eq!(elsewhere.json()["findings"][0]["code"], "address-unanswered", "{}", elsewhere.out);

    serving.restart_with(NEW_RANGE).await;
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    serving
        .netsurgeon(&format!("renumber retire --without-evidence --yes {}", ENDING.replace("--forget", "")))
        .expect(0);
    let verify = format!("{verify} --operation {operation}");
    wait_until("the old address does not answer", DEADLINE, async || {
        let retired = on_the_node(&verify).expect(0);
        let tried = tried(&retired);
        let (old, new) = (&tried[0], &tried[1]);
        assert!(
            new["expected"] == true && new["answered"] == true && old["expected"] == false,
            "{new} {old}"
        );
        if old["answered"] == false { Ok(()) } else { Err(old.to_string()) }
    })
    .await;
    for wrong in ["default/none", "default/web:0", "web"] {
        on_the_node(&format!("renumber verify --operation {operation} --probe {wrong}")).expect(2);
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

pub fn ask(address: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_string(), body.to_string()))
}

async fn scrape_until_the_end(apply: &mut Watched, address: &str) -> Vec<Page> {
    let (mut pages, mut others) = (Vec::new(), 0);
    while apply.ended().is_none() {
        if let Some((head, body)) = ask(address, "/metrics") {
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
            pages.push(Page::parse(&body));
        }
        others += usize::from(ask(address, "/").is_some_and(|(head, _)| head.starts_with("HTTP/1.1 404 ")));
        // A pause between two scrapes leaves the processor to the operation.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(others > 0, "only the metrics are there");
    pages
}

/// A page of metrics: samples by name and labels.
pub struct Page(BTreeMap<String, String>);

impl Page {
    /// Checks the same as `promtool check metrics`: HELP and TYPE before the samples of a family, once, valid names and numbers,
    /// counters that end with `_total`.
    pub fn parse(text: &str) -> Self {
        let (mut types, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let mut helped = None;
        assert!(text.ends_with('\n'), "{text}");
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').expect("a text");
                assert!(!words.is_empty(), "{line}");
                helped = Some(name.to_string());
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type");
                assert_eq!(helped.as_deref(), Some(name), "{line}");
                assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(types.insert(name.to_string(), kind.to_string()).is_none(), "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let name = series.split('{').next().expect("a name");
                let fits = |c: char| c.is_ascii_lowercase() || c == '_';
                assert!(name.starts_with("netsurgeon_") && name.chars().all(fits), "{line}");
                let base = name.strip_suffix("_sum").or(name.strip_suffix("_count")).unwrap_or(name);
                assert!(
                    types.contains_key(name) || types.get(base).is_some_and(|kind| kind == "summary"),
                    "{line}"
                );
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(samples.insert(series.to_string(), value.to_string()).is_none(), "twice: {line}");
            }
        }
        Self(samples)
    }

    /// A required sample.
    pub fn get<T: FromStr>(&self, series: &str) -> T {
        let value = self.0.get(series).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("`{series}` in {:?}", self.0))
    }

    /// Services that wait, are held, are retired; `None` before the operation has started.
    fn services(&self) -> Option<[u64; 3]> {
        let series =
            ["waiting", "held", "retired"].map(|state| format!("netsurgeon_services{{state=\"{state}\"}}"));
        self.0.contains_key(&series[0]).then(|| series.map(|series| self.get(&series)))
    }
}

fn check_pages(pages: &[Page]) {
    let services: Vec<[u64; 3]> = pages.iter().filter_map(Page::services).collect();
    for (one, next) in services.iter().zip(services.iter().skip(1)) {
        assert_eq!(one.iter().sum::<u64>(), MOVED, "{services:?}");
        assert!(next[0] <= one[0] && next[1] >= one[1], "forward: {services:?}");
    }
    assert!(services.iter().any(|[waiting, held, _]| *waiting > 0 && *held > 0), "midway: {services:?}");
    let last = pages.last().expect("a page");
    let count = |series: &str| last.get::<u64>(series);
    let steps = count("netsurgeon_steps_total{outcome=\"done\"}");
    assert!(count("netsurgeon_writes_total") >= steps && steps > MOVED, "{steps}");
    assert_eq!(count("netsurgeon_steps_total{outcome=\"failed\"}"), 0);
    assert!(count("netsurgeon_barrier_seconds_count") >= 2 && count("netsurgeon_batches") >= 4);
    let (sum, longest) =
        (last.get::<f64>("netsurgeon_barrier_seconds_sum"), "netsurgeon_barrier_last_seconds");
    assert!(sum > 0.0 && last.get::<f64>(longest) <= sum, "{sum}");
    let stages = pages.iter().flat_map(|page| page.0.keys()).filter(|name| name.contains("_stage_info{"));
    assert!(stages.into_iter().any(|name| name.contains("stage=\"flip\"")), "{:?}", last.0);
}

fn check_log(lines: &[String], operation: &str) {
    let lines: Vec<Value> = lines.iter().map(|line| json(line)).collect();
    let of_batches: Vec<&Value> =
        lines.iter().map(|line| &line["fields"]).filter(|fields| fields["batch"].is_u64()).collect();
    let there: Vec<u64> = of_batches.iter().filter_map(|fields| fields["services_there"].as_u64()).collect();
    let batches: Vec<u64> = of_batches.iter().filter_map(|fields| fields["batch"].as_u64()).collect();
    assert!(there.is_sorted() && there.last() == Some(&MOVED), "{there:?}");
    assert_eq!(
        batches,
        (1..=of_batches[0]["batches"].as_u64().expect("a number")).collect::<Vec<_>>(),
        "one line a batch"
    );
    assert!(
        of_batches.iter().all(|fields| fields["operation"] == *operation && fields["kind"] == "progress")
    );
    assert!(of_batches.iter().all(|fields| fields["services_per_second"].is_number()), "{of_batches:?}");
    let paused = lines.iter().find(|line| line["fields"]["kind"] == "paused").expect("a line of the pause");
    assert_eq!(paused["fields"]["exit_status"], 6, "{paused}");
    assert_eq!(paused["fields"]["step"], "manual/flags", "{paused}");
    assert!(lines.iter().all(|line| line["level"] != "error"), "a pause is no error: {lines:?}");
}

async fn events(serving: &Serving, reason: &str) -> Vec<Value> {
    let mut events = serving.cluster.api.list("/apis/events.k8s.io/v1/events").await;
    events.retain(|event| event["reason"] == reason);
    events
}

/// Installs a policy with which the API server rejects events of a reason.
async fn refuse_events(serving: &Serving, reason: &str) {
    let rules = json!([{
        "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"],
    }]);
    let deny = json!({"expression": format!("object.reason != '{reason}'"), "message": "not here"});
    let api_version = "admissionregistration.k8s.io/v1";
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [deny]});
    let name = json!({"name": "no-events"});
    for object in [
        json!({"apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": name, "spec": spec}),
        json!({
            "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": name,
            "spec": {"policyName": "no-events", "validationActions": ["Deny"]},
        }),
    ] {
        serving.cluster.api.create(&object).await;
    }
    wait_until("the policy is in force", DEADLINE, async || {
        let trial = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"generateName": "trial-", "namespace": "default"},
            "eventTime": "2026-11-21T00:00:00.000000Z", "type": "Normal", "reason": reason, "action": "Try",
            "reportingController": "test.io/test", "reportingInstance": "test",
            "regarding": {"kind": "Service", "namespace": "default", "name": "web"},
        });
        match serving.cluster.api.try_create(&trial).await {
            Ok(made) => {
                let name = made["metadata"]["name"].as_str().expect("a name");
                let path = format!("/apis/events.k8s.io/v1/namespaces/default/events/{name}");
                serving.cluster.api.delete(&path).await;
                Err("the event was created".to_string())
            }
            Err(error) if error.to_string().contains("not here") => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

/// Each Service that moved has one event, which names both of its addresses.
async fn check_events(serving: &Serving, operation: &str) {
    let events = events(serving, "Renumbered").await;
    assert_eq!(events.len() as u64, MOVED, "{events:?}");
    let services = serving.cluster.api.list("/api/v1/services").await;
    for event in events {
        let regarding = &event["regarding"];
        let service = services.iter().find(|service| service["metadata"]["uid"] == regarding["uid"]);
        let service = service.unwrap_or_else(|| panic!("{event}"));
        assert_eq!(service["metadata"]["name"], regarding["name"], "{event}");
        let (new, old) = (&service["spec"]["clusterIP"], &service["spec"]["externalIPs"][0]);
        let note = event["note"].as_str().expect("a note");
        for address in [new, old] {
            let address = address.as_str().expect("an address");
            assert!(note.contains(address), "{address}: {note}");
        }
        assert_eq!(event["metadata"]["annotations"]["netsurgeon.io/operation"], *operation, "{event}");
    }
}
