//! Audits this machine: its configuration files, and the environments of its processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{AuditArgs, counts, say_not_listed, text};
use crate::audit::finding;
use crate::audit::{
    Counted, Finding, KEPT, LONGEST_WAY, Located, Old, Place, Subject, lines, places, shortened,
};
use crate::cli::output::counted;
use crate::cli::{Context, Outcome};
use crate::host::configuration::{Item, Looked, Running, look};
use crate::ip::ServiceCidr;
use crate::session::Failure;

/// The output of `audit --host -o json`.
#[derive(Serialize)]
struct HostAuditOutput<'a> {
    version: u8,
    old: &'a [ServiceCidr],
    root: String,
    files: usize,
    processes: usize,
    unreadable: Vec<Unreadable<'a>>,
    not_listed: &'a Counted,
    findings: &'a [Finding],
}

/// The findings in the files and processes, and the number of places that are not listed.
#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    not_listed: Counted,
    /// The current subject, and the number of its findings for each kind of place.
    within: Option<(Arc<Subject>, BTreeMap<&'static str, usize>)>,
}

/// A file that could not be read.
#[derive(Serialize)]
struct Unreadable<'a> {
    path: &'a str,
    reason: &'a str,
}

pub(super) async fn run(context: &Context, args: &AuditArgs, old: Old) -> Result<Outcome, Failure> {
    let root = args.root.clone();
    if !root.is_dir() {
        return Err(Failure::refused(format!("`{}` is not a folder", root.display())).hint("check `--root`"));
    }
    let looked = tokio::task::spawn_blocking(move || {
        let mut found = Found::default();
        let looked = look(&root, &mut |item| found.judge(&old, item));
        found.findings.sort_by_key(|finding: &Finding| finding.severity);
        (looked, found)
    });
    let (looked, Found { findings, not_listed, .. }) =
        looked.await.map_err(|error| Failure::refused(format!("cannot check this machine: {error}")))?;
    let told = HostAuditOutput {
        version: 1,
        old: &args.old,
        root: args.root.display().to_string(),
        files: looked.files,
        processes: looked.processes,
        unreadable: looked.unreadable.iter().map(|(path, reason)| Unreadable { path, reason }).collect(),
        not_listed: &not_listed,
        findings: &findings,
    };
    context.output.data(&told, |output| text(output, &findings))?;
    say_not_listed(context, &not_listed);
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
        "{} and {} read; {}",
        counted(looked.files, "file", "files"),
        counted(looked.processes, "process environment", "process environments"),
        counts(findings)
    ));
}

impl Found {
    /// Adds findings for old addresses in an item. The findings do not contain the text around the addresses.
    fn judge(&mut self, old: &Old, item: Item<'_>) {
        let by_pid = |process: &Running| Subject::Process { pid: process.pid, process: process.name.clone() };
        match item {
            Item::File { path, content } => {
                let subject = Subject::File { file: path.to_string() };
                self.add(old, content, (subject, ""), |line| places::of_file(path, line));
            }
            Item::Resolver { process, content } => {
                let within = (by_pid(process), "/etc/resolv.conf");
                self.add(old, content, within, |_| &places::SANDBOX);
            }
            Item::Variable { process, name, value } => {
                let is_proxy = name.eq_ignore_ascii_case("no_proxy");
                let place = if is_proxy { &places::NO_PROXY } else { &places::PROCESS };
                self.add(old, value, (by_pid(process), name), |_| place);
            }
        }
    }

    fn add(
        &mut self,
        old: &Old,
        content: &[u8],
        (subject, path): (Subject, &str),
        place: impl Fn(&[u8]) -> &'static Place,
    ) {
        if !old.may_say(content) {
            return;
        }
        // One process has many variables, so their findings share one subject.
        let (subject, kept) = match self.within.take() {
            Some((last, kept)) if *last == subject => (last, kept),
            _ => (Arc::new(subject), BTreeMap::new()),
        };
        let (_, kept) = self.within.insert((subject.clone(), kept));
        let mut more = 0_usize;
        for Located { hit, line, near } in lines(old, content) {
            let place = place(near);
            let count = kept.entry(place.code).or_default();
            if *count < KEPT {
                *count = count.saturating_add(1);
                let at = (shortened(&path, LONGEST_WAY), line);
                self.findings.push(finding(place, subject.clone(), at, (hit.form, Some(hit.found))));
            } else {
                more = more.saturating_add(1);
            }
        }
        if more > 0 {
            self.not_listed.add(subject.to_string(), more);
        }
    }
}
