//! Completion, as bash and kubectl ask for it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_netsurgeon");

/// The completions of the last of these words in bash, with the script that the program prints.
fn bash(words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(netsurgeon completions bash)
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _clap_complete_netsurgeon netsurgeon "${@: -1}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let folder = Path::new(PROGRAM).parent().expect("a folder").display().to_string();
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .env_clear()
        .env("PATH", format!("{folder}:/usr/bin:/bin"))
        .output()
        .expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(|line| line.trim().to_owned()).collect()
}

/// The completions of the last of these words that kubectl receives.
fn kubectl(words: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let plugin = folder.path().join("kubectl_complete-netsurgeon");
    symlink(PROGRAM, &plugin).expect("a link");
    let output = Command::new(plugin).args(words).env_clear().output().expect("the program runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_checks_and_manual_steps() {
    assert_eq!(bash(&["netsurgeon", "prefl"]), ["preflight"]);
    assert_eq!(
        bash(&["netsurgeon", "preflight", "renumber", "--skip", "etcd-"]),
        ["etcd-members", "etcd-alarms", "etcd-space", "etcd-versions", "etcd-leader", "etcd-overrides"]
    );
    assert_eq!(bash(&["netsurgeon", "preflight", "cni", "--only", "drain-"]), ["drain-room", "drain-rights"]);
    assert_eq!(
        bash(&["netsurgeon", "operation", "resume", "--confirm", "c"]),
        ["certificates", "cluster-dns", "certificates-after"]
    );
}

#[test]
fn kubectl_completes_the_same_and_no_file_names() {
    let mut lines = kubectl(&["preflight", "renumber", "--skip", "etcd-a"]);
    assert_eq!(lines.pop().as_deref(), Some(":4"));
    assert_eq!(lines, ["etcd-alarms"]);
    let commands = kubectl(&["operation", "re"]);
    assert!(commands[0].starts_with("report\t"), "a description follows: {commands:?}");
    assert_eq!(kubectl(&["renumber", "apply", "--plan", ""]).pop().as_deref(), Some(":0"));
}

/// Without an etcd and a cluster there are no ids, no message, and no delay.
#[test]
fn operation_ids_need_a_store() {
    assert_eq!(kubectl(&["operation", "show", "renum"]), [":0"]);
}
