//! The audit of this machine: its files, and what its processes were started with.

use serde::Serialize;

use super::{AuditArgs, counts, text};
use crate::audit::objects::finding;
use crate::audit::{Finding, Old, Place, Subject, lines, places, plain};
use crate::cli::failure::Failure;
use crate::cli::output::counted;
use crate::cli::{Context, Outcome};
use crate::host::configuration::{Item, Looked, Running, look};
use crate::ip::ServiceCidr;

/// What `audit --host -o json` prints.
#[derive(Serialize)]
struct Told<'a> {
    version: u8,
    old: &'a [ServiceCidr],
    root: String,
    files: usize,
    processes: usize,
    unreadable: Vec<Unreadable<'a>>,
    findings: &'a [Finding],
}

/// What could not be read.
#[derive(Serialize)]
struct Unreadable<'a> {
    path: &'a str,
    reason: &'a str,
}

pub(super) async fn run(context: &Context, args: &AuditArgs, old: Old) -> Result<Outcome, Failure> {
    let root = args.root.clone();
    if !root.is_dir() {
        return Err(Failure::refused(format!("`{}` is no folder", root.display())).hint("check `--root`"));
    }
    let looked = tokio::task::spawn_blocking(move || {
        let mut findings = Vec::new();
        let looked = look(&root, &mut |item| findings.extend(judge(&old, item)));
        findings.sort_by_key(|finding: &Finding| finding.severity);
        (looked, findings)
    });
    let (looked, findings) =
        looked.await.map_err(|error| Failure::refused(format!("cannot look: {error}")))?;
    let told = Told {
        version: 1,
        old: &args.old,
        root: args.root.display().to_string(),
        files: looked.files,
        processes: looked.processes,
        unreadable: looked.unreadable.iter().map(|(path, reason)| Unreadable { path, reason }).collect(),
        findings: &findings,
    };
    context.output.data(&told, |output| Ok(text(output, &findings)))?;
    say(context, &looked, &findings);
    let is_clean = findings.is_empty() && looked.unreadable.is_empty();
    Ok(if is_clean { Outcome::Done } else { Outcome::Findings })
}

fn say(context: &Context, looked: &Looked, findings: &[Finding]) {
    if let Some((path, reason)) = looked.unreadable.first() {
        context.output.warn(&format!(
            "the audit is not complete: {} not be read; the first is `{path}`: {reason}",
            counted(looked.unreadable.len(), "file could", "files could")
        ));
    }
    context.output.progress(&format!(
        "{} and the environments of {} read; {}",
        counted(looked.files, "file", "files"),
        counted(looked.processes, "process", "processes"),
        counts(findings)
    ));
}

/// Returns what something says; of what stands around it nothing.
fn judge(old: &Old, item: Item<'_>) -> Vec<Finding> {
    let by_pid = |process: &Running| Subject::Process { pid: process.pid, process: plain(&process.name) };
    match item {
        Item::File { path, content } => {
            let subject = Subject::File { file: plain(path) };
            found(old, content, &subject, "", |line| places::of_file(path, line))
        }
        Item::Resolver { process, content } => {
            found(old, content, &by_pid(process), "/etc/resolv.conf", |_| places::of_sandbox())
        }
        Item::Variable { process, name, value } => {
            let is_proxy = name.eq_ignore_ascii_case("no_proxy");
            found(old, value, &by_pid(process), name, |_| places::of_process(is_proxy))
        }
    }
}

fn found(
    old: &Old,
    content: &[u8],
    subject: &Subject,
    path: &str,
    place: impl Fn(&[u8]) -> &'static Place,
) -> Vec<Finding> {
    if !old.may_say(content) {
        return Vec::new();
    }
    let hits = lines(old, content).into_iter().map(|located| {
        let (place, at) = (place(located.near), (plain(path), located.line));
        finding(place, subject.clone(), at, (located.hit.form, Some(located.hit.found)))
    });
    hits.collect()
}
