//! What netsurgeon prints when the command line or a file is wrong.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use crate::program::{run, run_in, tell, told};

#[test]
fn wrong_usage_exits_with_status_2() {
    assert_snapshot!(tell("ranges check"), @r"
    --- stderr
    error: there is nothing to read: neither `--snapshot` nor `--etcd-endpoints` is given
    hint: for a file: `--snapshot FILE`; for a live etcd: `--etcd-endpoints URL`, or ETCDCTL_ENDPOINTS
    hint: on a kubeadm control-plane host, netsurgeon finds etcd automatically: run this command on such a host, as root
    --- exit status 2
    ");
    // It reads no snapshot.
    assert_snapshot!(tell("renumber verify"), @r"
    --- stderr
    error: no etcd endpoint is given, and this host is not a kubeadm control-plane host with etcd
    hint: give its address: `--etcd-endpoints URL`, or set ETCDCTL_ENDPOINTS
    hint: on a kubeadm control-plane host, netsurgeon finds etcd automatically: run this command on such a host, as root
    --- exit status 2
    ");
    assert_snapshot!(tell("ranges chekc"), @r"
    --- stderr
    error: unrecognized subcommand 'chekc'

      tip: a similar subcommand exists: 'ranges check'

    Usage: netsurgeon ranges [OPTIONS] <COMMAND>

    For more information, try '--help'.
    --- exit status 2
    ");
    assert_snapshot!(tell("plan --to 10.200.0.0/16"), @r"
    --- stderr
    error: unrecognized subcommand 'plan'

      tip: some similar subcommands exist: 'renumber plan', 'dns plan', 'mirror plan', 'mirror sans plan', 'cni plan'

    Usage: netsurgeon [OPTIONS] <COMMAND>

    For more information, try '--help'.
    --- exit status 2
    ");
    assert_snapshot!(tell("renumber apply --plan plan.json"), @r"
    --- stderr
    error: name the file for a snapshot of etcd: `--snapshot-to FILE`
    hint: without a snapshot: `--no-snapshot`
    --- exit status 2
    ");
    assert_snapshot!(tell("ip first 10.96.0.7/16"), @r"
    --- stderr
    error: invalid value '10.96.0.7/16' for '<CIDR>': `10.96.0.7/16` is not a network address: the network of that prefix length is `10.96.0.0/16`

    For more information, try '--help'.
    --- exit status 2
    ");
    assert_snapshot!(tell("inspect diff"), @r"
    --- stderr
    error: there is only one side to compare: the live etcd as it is now
    hint: name a snapshot file, or the revision to compare with: `--from-revision N`
    --- exit status 2
    ");
    assert_snapshot!(tell("preflight mirror -n shop"), @r"
    --- stderr
    error: no mirror is given
    hint: give `--mirror-kubeconfig FILE`; or, if one kubeconfig has both clusters, `--mirror-context NAME`
    --- exit status 2
    ");
    assert_snapshot!(tell("ranges check --etcd-endpoints http://127.0.0.1:1 --etcd-user root"), @r"
    --- stderr
    error: there is no password for etcd's user `root`
    hint: set ETCDCTL_PASSWORD, or set ETCDCTL_USER to `NAME:PASSWORD`
    --- exit status 2
    ");
}

#[test]
fn missing_etcd_is_reported() {
    let output = run("ranges check --etcd-endpoints http://127.0.0.1:1 --etcd-timeout 1");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.starts_with("error: no etcd endpoint of `http://127.0.0.1:1`") && text.contains("hint: "),
        "{text}"
    );
}

#[test]
fn unreadable_files_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/objects.snapshot.db"))
        .expect("a fixture");
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let files: [(&str, &[u8]); 3] =
        [("text.db", b"hello"), ("short.db", &whole[..50_000]), ("flipped.db", &flipped)];
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).expect("a file");
    }
    let check = |name: &str| told(&run_in(folder.path(), &format!("ranges check --snapshot {name}"), b""));
    assert_snapshot!(check("missing.db"), @r"
    --- stderr
    error: cannot read `missing.db`: No such file or directory (os error 2)
    hint: check the path
    --- exit status 1
    ");
    assert_snapshot!(check("text.db"), @r"
    --- stderr
    error: `text.db` is not an etcd snapshot: it does not start with a bbolt meta page
    hint: create one with `etcdctl snapshot save FILE`, or give the file `member/snap/db` of a stopped member
    --- exit status 1
    ");
    assert_snapshot!(check("short.db"), @r"
    --- stderr
    error: snapshot `short.db` is truncated: its size is 50000 bytes; a database is a multiple of 512 bytes, and a snapshot is 32 bytes larger because of its checksum
    hint: copy the file again, and compare its size with the original
    --- exit status 1
    ");
    assert_snapshot!(check("flipped.db"), @r"
    --- stderr
    error: snapshot `flipped.db` is damaged: its SHA-256 is HASH, but the file has HASH
    hint: do not restore from this file: copy it again from its source, or take a new snapshot
    --- exit status 1
    ");
}

#[test]
fn file_without_checksum_is_read_with_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/objects.snapshot.db"))
        .expect("a fixture");
    std::fs::write(folder.path().join("db"), &whole[..whole.len() - 32]).expect("a file");
    assert_snapshot!(told(&run_in(folder.path(), "ranges check --snapshot db", b"")), @r"
    --- stderr
    note: `db` has no checksum (it is a raw database): a changed byte inside a value cannot be detected
    snapshot db, revision N, era objects: 29 Services checked, 0 errors, 0 warnings
    --- exit status 0
    ");
}

#[test]
fn wrong_prefix_and_wrong_revision_are_reported() {
    let objects = "--snapshot testdata/objects.snapshot.db";
    assert_snapshot!(tell(&format!("ranges check --etcd-prefix /kubernetes {objects}")), @r"
    --- stderr
    error: no Kubernetes Services under the prefix `/kubernetes`; found Services under `/registry`: give `--etcd-prefix /registry`
    --- exit status 1
    ");
    assert_snapshot!(tell(&format!("ranges check --at-revision 1 {objects}")), @r"
    --- stderr
    error: revision N has been compacted; the oldest available revision is N
    hint: use revision N or later, or read an older snapshot
    --- exit status 1
    ");
    assert_snapshot!(tell(&format!("ranges check --at-revision 999999 {objects}")), @r"
    --- stderr
    error: revision N does not exist; the newest revision is N
    hint: give the number of an existing revision, or omit the option to read the newest revision
    --- exit status 1
    ");
}

#[test]
fn ip_commands_print_addresses_and_errors() {
    assert_snapshot!(tell("ip first 10.96.0.0/16"), @r"
    --- stdout
    10.96.0.1
    --- exit status 0
    ");
    assert_snapshot!(tell("ip nth fd00:10:96::/112 10 -o json"), @r#"
    --- stdout
    {
      "version": 1,
      "range": "fd00:10:96::/112",
      "address": "fd00:10:96::a"
    }
    --- exit status 0
    "#);
    assert_snapshot!(tell("ip nth 10.0.0.0/30 9"), @r"
    --- stderr
    error: range `10.0.0.0/30` has no address at offset 9 from `10.0.0.0`
    hint: the highest offset is 3
    --- exit status 1
    ");
    assert_snapshot!(tell("ip map --from 10.96.0.0/16 --to 10.200.0.0/20 10.96.0.10 10.96.77.3"), @r"
    --- stdout
    OLD          NEW
    10.96.0.10   10.200.0.10
    10.96.77.3   10.200.1.1
    --- exit status 0
    ");
    assert_snapshot!(tell("ip map --from 10.96.0.0/16 --to 10.200.0.0/30 10.96.0.1 10.96.0.2 10.96.0.3"), @r"
    --- stderr
    error: range `10.200.0.0/30` has too few addresses: 2 free, 3 needed
    hint: choose a larger range: a shorter prefix, such as /16
    --- exit status 1
    ");
    assert_snapshot!(tell("ip map --from 10.96.0.0/16 --to 10.200.0.0/20 10.97.0.1"), @r"
    --- stderr
    error: address `10.97.0.1` is not in `10.96.0.0/16`
    hint: give the range of this address with `--from`
    --- exit status 1
    ");
}

#[test]
fn help_names_every_command() {
    assert_snapshot!(tell("--help"), @r"
    --- stdout
    Change the network of a Kubernetes cluster that is serving traffic.

    netsurgeon works on the objects that the API server stores in etcd. It reads a live etcd or a
    snapshot file, shows and checks every Service address, and moves all Services to another range. It
    also points DNS names to a mirror of the cluster, through the Kubernetes API and the name servers.

    Usage: netsurgeon [OPTIONS] <COMMAND>

    Commands:
      rehearse      Rehearse a renumbering and its rollback on a copy of a snapshot, in memory
      preflight     Check whether a cluster is ready for a change, and print what to repair
      renumber      Move every Service to another Service range
      dns           Point DNS names to a mirror of the cluster in stages, or back to the cluster
      mirror        Copy the declared objects of namespaces to a mirror of the cluster, or remove the
                    copies
      network       Test the network of a cluster with agents on every node
      cni           Plan a change of the CNI
      operation     List, show, report, resume, roll back and forget operations
      lock          Set the deploy lock: the API server rejects changes by deploy pipelines
      unlock        Remove the deploy lock, and wait until no API server enforces it
      audit         Find references to an old Service range: its addresses, or the range itself
      ranges        Show and check the Service ranges, and rewrite allocation bitmaps
      inspect       Show, list, decode and compare stored objects
      certs         Show, reissue and verify the certificates of a control plane
      controlplane  Show and change the Service range of API servers and the DNS address of kubelets
      ip            Calculate addresses of Service ranges, for scripts
      completions   Print a completion script for a shell
      man           Print the manual, or write its pages to a folder
      version       Print the version
      help          Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Global options:
      -o, --output <FORMAT>
              Format of the data on stdout

              Possible values:
              - table: For people
              - json:  For programs; described in docs/json.md
              - yaml:  The same data as YAML
              
              [default: table]

          --color <WHEN>
              When to use colour. `auto`: if the output is a terminal and NO_COLOR is not set

              Possible values:
              - auto:   On a terminal
              - always: Always
              - never:  Never
              
              [default: auto]

          --log-format <FORMAT>
              Format of messages on stderr: text, or one JSON object per line, described in docs/json.md

              Possible values:
              - text: For people
              - json: For programs: one JSON object per line
              
              [default: text]

      -v, --verbose...
              Print more messages on stderr; `-vv` prints even more

    Exit status:
      0   done
      1   refused, or failed before any change
      2   wrong usage
      3   done, but there are findings: see the output
      4   failed, and rolled back completely
      5   stuck, or only partly rolled back: see the hints on stderr
      6   paused by a manual step, a closed gate or a signal: resume the operation
      70  a bug in netsurgeon

    Data goes to stdout. All messages go to stderr.
    --- exit status 0
    ");
    assert_snapshot!(tell("version"), @r"
    --- stdout
    netsurgeon 0.2.0
    --- exit status 0
    ");
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            String::from_utf8_lossy(&run(&format!("completions {shell}")).stdout)
                .contains("NETSURGEON_COMPLETE"),
            "{shell}"
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    assert!(run_in(folder.path(), "man --directory .", b"").status.success());
    assert!(folder.path().join("netsurgeon-ranges-check.1").exists());
    assert!(run("man").stdout.starts_with(b".ie"));
}

#[test]
fn closed_stdout_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_netsurgeon"))
        .args(["completions", "bash"])
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Each check that depends on the API is one line, and does not repeat why the API is not available.
#[test]
fn preflight_reports_bad_kubeconfig_once() {
    let words = "preflight renumber --to 10.200.0.0/16 --kubeconfig /nowhere.conf --etcd-endpoints http://127.0.0.1:1";
    let output = run(&format!("{words} --etcd-timeout 1"));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{out}");
    let mut lines = out.lines().skip(1);
    let first = lines.next().unwrap_or_default();
    assert!(first.starts_with("api ") && first.contains("fail") && first.contains("/nowhere.conf"), "{out}");
    assert_eq!(out.lines().filter(|line| line.contains("/nowhere.conf")).count(), 1, "{out}");
    let not_run: Vec<&str> =
        out.lines().filter(|line| line.starts_with("checks that depend on `api` were not run: ")).collect();
    assert!(matches!(not_run[..], [line] if line.split(", ").count() > 10), "{out}");
    assert!(!out.contains("unknown zones:"), "no paragraph for dependent checks: {out}");
    assert!(!out.contains("\nkube-proxy "), "no row for dependent checks: {out}");
    assert!(out.lines().count() < 40, "it fits on a screen: {out}");
}

/// Memory with data of a cluster is never written to disk, however the process ends.
#[test]
fn process_leaves_no_core_file() {
    let etcd = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", etcd.local_addr().expect("an address"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_netsurgeon"))
        .args(["ranges", "check", "--etcd-endpoints", &endpoint])
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary");
    etcd.set_nonblocking(true).expect("a socket");
    let started = Instant::now();
    // It is connected, and waits for an answer.
    let _silent = loop {
        match etcd.accept() {
            Ok(connection) => break connection,
            Err(error) => assert!(started.elapsed() < Duration::from_mins(1), "no connection: {error}"),
        }
        assert_eq!(child.try_wait().expect("a child"), None, "it still runs");
        std::thread::yield_now();
    };
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("its limits");
    child.kill().expect("it runs");
    child.wait().expect("an end");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    assert_eq!(core.split_whitespace().nth(5), Some("0"), "{core}");
}
