//! What network plug-ins leave on a node, planted with the real tools in a network namespace, beside decoys that other programs and
//! users create. `netsurgeon agent node-state` reads it, and the judge finds everything that was planted and nothing else. The
//! state of the namespace is the same before and after.
//!
//! This kernel has no OVS, IPIP, SIT, WireGuard, geneve, netkit, VLAN and ESP. So the links of these kinds are planted as bridges
//! where only the name matters, and `datapath`, `tunl0`, `vlan.eth.N`, IPsec states, and the names of BPF programs are not planted.

mod decoys;
mod plants;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use netsurgeon::leftovers::{Context, Kind, Leftover, NodeFacts, Plugin, judge};
use netsurgeon::node_state::NodeState;

use super::rig::namespace::Namespace;
use plants::{Expected, Planted};

/// The programs of iptables, with the family and the place in which the judge reports them.
pub const TOOLS: [(&str, &str, &str); 4] = [
    ("iptables-nft", "ip", "iptables-nft"),
    ("ip6tables-nft", "ip6", "iptables-nft"),
    ("iptables-legacy", "ip", "iptables-legacy"),
    ("ip6tables-legacy", "ip6", "iptables-legacy"),
];
/// Folders of the machine in which the programs of iptables and their libraries are.
const FOLDERS: [&str; 6] = ["bin", "sbin", "lib", "lib64", "usr", "proc"];

/// A namespace, and a folder that is the root of the node.
struct Node {
    namespace: Namespace,
    root: tempfile::TempDir,
}

impl Node {
    fn create() -> Self {
        Self { namespace: Namespace::create("leftovers"), root: tempfile::tempdir().unwrap() }
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Runs a program with a text as its standard input.
    fn feed(&self, program: &str, arguments: &[&str], text: &str) {
        let mut command = self.namespace.command(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {error}\n{text}");
    }

    fn nft(&self, text: &str) {
        self.feed("nft", &["-f", "-"], text);
    }

    fn restore(&self, tool: &str, tables: &[(String, Vec<String>)]) {
        let tables = tables.iter().map(|(table, lines)| format!("*{table}\n{}\nCOMMIT\n", lines.join("\n")));
        let text = tables.collect::<Vec<_>>().concat();
        self.feed(&format!("{tool}-restore"), &["--noflush"], &text);
    }

    /// Reads the state with the program, in a mount namespace in which the root also has the programs of this machine.
    fn read(&self) -> NodeState {
        let root = self.root.path().to_str().unwrap();
        let mut script = vec!["set -e".to_string()];
        for folder in FOLDERS {
            let own = Path::new("/").join(folder);
            match std::fs::read_link(&own) {
                Ok(target) => script.push(format!("ln -sfn {} {root}/{folder}", target.display())),
                Err(_) if own.is_dir() => {
                    script.push(format!("mkdir -p {root}/{folder}; mount --rbind /{folder} {root}/{folder}"));
                }
                Err(_) => {}
            }
        }
        script.push(format!("exec {} agent node-state --root {root}", env!("CARGO_BIN_EXE_netsurgeon")));
        let script = script.join("\n");
        let output = self.namespace.run("unshare", &["--mount", "sh", "-c", &script]);
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
    }

    /// Returns everything that the real tools show.
    fn dump(&self) -> Vec<(String, String)> {
        let mut dump = Vec::new();
        let commands: &[(&str, &[&str])] = &[
            ("ip", &["-details", "link"]),
            ("ip", &["address"]),
            ("ip", &["-4", "route", "show", "table", "all"]),
            ("ip", &["-6", "route", "show", "table", "all"]),
            ("ip", &["-4", "rule"]),
            ("ip", &["-6", "rule"]),
            ("ip", &["xfrm", "policy"]),
            ("ip", &["xfrm", "state"]),
            ("nft", &["list", "ruleset"]),
            ("iptables-nft-save", &[]),
            ("ip6tables-nft-save", &[]),
            ("iptables-legacy-save", &[]),
            ("ip6tables-legacy-save", &[]),
            ("ipset", &["save"]),
        ];
        for (program, arguments) in commands {
            let text = self.namespace.run(program, arguments);
            // The programs print the time of the call in comments.
            let lines = text.lines().filter(|line| !line.starts_with('#')).map(without_timers);
            dump.push((format!("{program} {}", arguments.join(" ")), lines.collect::<Vec<_>>().join("\n")));
        }
        dump.push(("files".to_string(), files(self.root.path())));
        dump
    }
}

/// Omits the timers of bridges, which run.
fn without_timers(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_timer = |at: usize| at.checked_sub(1).is_some_and(|before| words[before].ends_with("_timer"));
    let kept = (0..words.len()).filter(|at| !is_timer(*at)).map(|at| words[at]);
    kept.collect::<Vec<_>>().join(" ")
}

/// Returns the paths and contents of all files that the test has written.
fn files(root: &Path) -> String {
    let (mut lines, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_string();
            // Where the programs of this machine are mounted.
            if FOLDERS.contains(&name.as_str()) {
                continue;
            }
            let is_folder = path.is_dir() && !path.is_symlink();
            let content =
                if is_folder { String::new() } else { std::fs::read_to_string(&path).unwrap_or_default() };
            lines.push(format!("{name} {content:?}"));
            if is_folder {
                folders.push(path);
            }
        }
    }
    lines.sort();
    lines.join("\n")
}

fn context() -> Context {
    let node = |name: &str, address: &str, range: &str, annotations: &[(&str, &str)]| NodeFacts {
        name: name.to_string(),
        addresses: vec![address.parse().unwrap()],
        pod_cidrs: vec![range.parse().unwrap()],
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_string(), (*value).to_string()))
            .collect(),
        ..NodeFacts::default()
    };
    Context {
        pod_addresses: Some(BTreeSet::from([decoys::LIVE_POD.parse().unwrap()])),
        nodes: vec![
            node("node-1", "192.168.50.1", "10.244.1.0/24", &[]),
            node(
                "node-2",
                "192.168.50.2",
                "10.244.2.0/24",
                &[("flannel.alpha.coreos.com/backend-type", "host-gw")],
            ),
            node("node-3", "192.168.50.3", "10.244.3.0/24", &[]),
        ],
        pod_ranges: vec!["10.244.0.0/16".parse().unwrap()],
        ..Context::default()
    }
}

/// Removes the first leftover that is expected, and returns whether there is one.
fn take(found: &mut Vec<Leftover>, expected: &Expected) -> bool {
    let is_it = |leftover: &Leftover| {
        let has_name = if expected.kind == Kind::FilterRule {
            expected.fragments.iter().all(|fragment| leftover.name.contains(fragment.as_str()))
        } else {
            expected.fragments == [leftover.name.clone()]
        };
        (leftover.plugin, leftover.kind) == (expected.plugin, expected.kind)
            && has_name
            && leftover.place.contains(&expected.place)
    };
    found.iter().position(is_it).map(|at| found.remove(at)).is_some()
}

#[test]
fn planted_leftovers_are_found_and_decoys_are_not() {
    let node = Node::create();
    let planted = Planted::plant(&node);
    let decoys = decoys::plant(&node);
    let before = node.dump();
    let state = node.read();
    let after = node.dump();
    for ((command, before), (_, after)) in before.iter().zip(&after) {
        let changed = before.lines().zip(after.lines()).find(|(before, after)| before != after);
        assert_eq!(changed, None, "`{command}` shows a change");
        assert_eq!(before.len(), after.len(), "`{command}` shows a change");
    }

    let judgement = judge(&state, &context());
    assert_eq!(judgement.unchecked, [], "everything is read");
    let text = serde_json::to_string(&state).unwrap();
    for decoy in &decoys {
        let is_there = text.contains(&serde_json::to_string(decoy).unwrap().trim_matches('"').to_string());
        assert!(is_there, "the decoy `{decoy}` is not planted");
    }
    let mut found = judgement.leftovers.clone();
    let missing: Vec<_> = planted.expected.iter().filter(|expected| !take(&mut found, expected)).collect();
    assert!(missing.is_empty(), "not found: {missing:#?}\nothers: {found:#?}");
    assert!(found.is_empty(), "not planted: {found:#?}");

    let plugins: BTreeSet<Plugin> = planted.expected.iter().map(|expected| expected.plugin).collect();
    println!("{} leftovers of {} plug-ins, {} decoys", planted.expected.len(), plugins.len(), decoys.len());
    assert!(planted.expected.len() >= 200, "{}", planted.expected.len());
    assert!(plugins.len() >= 8, "{plugins:?}");
    assert!(decoys.len() >= 60, "{}", decoys.len());

    // Each command shows the item.
    for leftover in &judgement.leftovers {
        let is_file = matches!(
            leftover.kind,
            Kind::File | Kind::BpfPin | Kind::Lease | Kind::CachedResult | Kind::TableName
        );
        if !is_file {
            let shown = node.namespace.run("sh", &["-c", &leftover.command]);
            assert!(!shown.trim().is_empty(), "{leftover:?}");
        }
    }
    // A plug-in that runs has no leftovers.
    for plugin in plugins.iter().copied().filter(|plugin| *plugin != Plugin::Reference) {
        let running = Context { in_place: BTreeSet::from([plugin]), ..context() };
        let left = judge(&state, &running).leftovers;
        assert!(left.iter().all(|leftover| leftover.plugin != plugin), "{plugin}: {left:#?}");
    }
    // Without the addresses of Pods, nothing is said about single Pods.
    let unknown = judge(&state, &Context { pod_addresses: None, ..context() });
    assert!(unknown.leftovers.iter().all(|leftover| leftover.kind != Kind::Lease), "{unknown:#?}");
    assert_eq!(unknown.unchecked.len(), 1, "{unknown:#?}");
}

#[test]
fn unused_plugins_of_the_cni_project_are_found() {
    let node = Node::create();
    node.write("/etc/cni/net.d/00-new.conflist", r#"{"name": "new", "plugins": [{"type": "newnet"}]}"#);
    node.restore(
        "iptables-nft",
        &[(
            "nat".to_string(),
            vec![
                ":CNI-HOSTPORT-DNAT - [0:0]".to_string(),
                "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT".to_string(),
            ],
        )],
    );
    node.nft("add table inet cni_hostport");
    node.namespace.ip(&[
        "link add cni0 type bridge",
        "link add veth1 type veth peer name veth2",
        "link set veth1 master cni0",
    ]);
    let names = |state: &NodeState| -> Vec<String> {
        judge(state, &context()).leftovers.into_iter().map(|leftover| leftover.name).collect()
    };
    let state = node.read();
    let rule = "-A PREROUTING -m addrtype -j CNI-HOSTPORT-DNAT".to_string();
    assert_eq!(
        names(&state),
        ["cni0".to_string(), "CNI-HOSTPORT-DNAT".to_string(), rule, "cni_hostport".to_string()]
    );
    // With a configuration that calls them, they are in use.
    node.write(
        "/etc/cni/net.d/00-new.conflist",
        r#"{"name": "new", "plugins": [{"type": "bridge", "bridge": "cni0"}, {"type": "portmap"}]}"#,
    );
    assert_eq!(names(&node.read()), Vec::<String>::new());
}

#[test]
fn unprivileged_reader_reports_what_it_cannot_read() {
    let node = Node::create();
    node.restore("iptables-legacy", &[("filter".to_string(), vec![":WEAVE-NPC - [0:0]".to_string()])]);
    let program = env!("CARGO_BIN_EXE_netsurgeon");
    // As another user, without capabilities, in the same namespace.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("netsurgeon");
    std::fs::copy(program, &copy).unwrap();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everyone).unwrap();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&copy, everyone).unwrap();
    let output = node.namespace.run(
        "setpriv",
        &["--reuid=65534", "--regid=65534", "--clear-groups", copy.to_str().unwrap(), "agent", "node-state"],
    );
    let state: NodeState = serde_json::from_str(&output).unwrap();
    let subjects: Vec<String> =
        judge(&state, &context()).unchecked.into_iter().map(|unchecked| unchecked.subject).collect();
    for subject in ["nftables", "iptables-legacy", "IP sets", "IPsec states", "IPsec policies"] {
        assert!(subjects.iter().any(|other| other == subject), "{subject}: {subjects:?}");
    }

    // As root, but with a root folder that has no `iptables-legacy-save`.
    let output =
        node.namespace.run(program, &["agent", "node-state", "--root", node.root.path().to_str().unwrap()]);
    let state: NodeState = serde_json::from_str(&output).unwrap();
    let unchecked = judge(&state, &context()).unchecked;
    assert!(unchecked.len() == 1 && unchecked[0].reason.contains("filter"), "{unchecked:?}");
}
