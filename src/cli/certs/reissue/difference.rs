//! The difference between the old certificate and the new certificate.

use std::path::PathBuf;

use serde::Serialize;

use super::files::Loaded;
use crate::certs::Certificate;
use crate::cli::certs::words::{date, described};
use crate::cli::output::{Output, Tone};
use crate::session::Failure;
use crate::words::pasted;

/// The output of `certs reissue -o json`.
#[derive(Serialize)]
pub(super) struct Difference {
    version: u8,
    /// `unchanged`, `planned` or `replaced`.
    status: &'static str,
    file: PathBuf,
    key_file: PathBuf,
    /// Names and addresses that are added.
    added: Vec<String>,
    dropped: Vec<String>,
    new_key: bool,
    before: Certificate,
    after: Certificate,
    /// Files with the old content.
    kept: Vec<PathBuf>,
}

impl Difference {
    /// Returns a difference that contains no change.
    pub(super) fn none(loaded: &Loaded) -> Self {
        let (before, after) = (loaded.certificate.clone(), loaded.certificate.clone());
        Self::between(loaded, before, after, "unchanged")
    }

    /// Compares the current certificate with a new certificate.
    pub(super) fn of(loaded: &Loaded, new: &[u8], new_key: bool) -> Result<Self, Failure> {
        let after = Certificate::from_der(new.to_vec()).map_err(Failure::refused)?;
        Ok(Self { new_key, ..Self::between(loaded, loaded.certificate.clone(), after, "planned") })
    }

    fn between(loaded: &Loaded, before: Certificate, after: Certificate, status: &'static str) -> Self {
        let (old, new) = (names(&before), names(&after));
        let without = |all: &[String], others: &[String]| {
            all.iter().filter(|name| !others.contains(name)).cloned().collect()
        };
        Self {
            version: 1,
            status,
            file: loaded.files.certificate.clone(),
            key_file: loaded.files.key.clone(),
            added: without(&new, &old),
            dropped: without(&old, &new),
            new_key: false,
            before,
            after,
            kept: Vec::new(),
        }
    }

    /// Records that the files were replaced.
    pub(super) fn replaced(&mut self, kept: Vec<PathBuf>) {
        (self.status, self.kept) = ("replaced", kept);
    }

    /// Returns the difference as text.
    pub(super) fn text(&self, output: &Output) -> String {
        let (before, after) = (&self.before, &self.after);
        let mut lines = vec![
            output.paint(Tone::Strong, &self.file.display().to_string()),
            format!("  {}, signed by {}", after.subject, after.issuer),
        ];
        lines.extend(self.dropped.iter().map(|name| output.paint(Tone::Bad, &format!("- {name}"))));
        lines.extend(self.added.iter().map(|name| output.paint(Tone::Good, &format!("+ {name}"))));
        let validity = |one: &Certificate| format!("{} until {}", date(one.not_before), date(one.not_after));
        let mut stays = names(before);
        stays.retain(|name| !self.dropped.contains(name));
        for (what, old, new) in [
            ("subject", before.subject.clone(), after.subject.clone()),
            ("issuer", before.issuer.clone(), after.issuer.clone()),
            ("serial", before.serial.clone(), after.serial.clone()),
            ("valid", validity(before), validity(after)),
            ("use", described(before), described(after)),
        ] {
            if old == new {
                stays.push(format!("{what} {new}"));
            } else {
                lines.push(output.paint(Tone::Careful, &format!("~ {what}: {old} -> {new}")));
            }
        }
        if self.new_key {
            lines.push(output.paint(Tone::Careful, "~ private key: new"));
        } else {
            stays.push("private key".to_string());
        }
        lines.push(format!("  unchanged: {}", stays.join("; ")));
        lines.join("\n")
    }

    /// Returns the next step, and the command that restores the old certificate. `command` is the `certs reissue` command with
    /// the file options of this run, without other options. `verify` contains the options of `certs verify` that check the
    /// change; without such options, `certs verify --wait` would accept the old certificate, too.
    pub(super) fn what_next(&self, command: String, verify: &str) -> String {
        let mut back = command;
        for (option, file) in ["--cert-in", "--key-in"].iter().zip(&self.kept) {
            back = format!("{back} {option} {}", pasted(file));
        }
        let next = match verify {
            "" => "API servers load it within a minute; `netsurgeon certs verify` shows what they serve"
                .to_string(),
            options => format!(
                "API servers load it within a minute; `netsurgeon certs verify{options} --wait 120` waits until they serve it"
            ),
        };
        format!("replaced {}; {next}\nto restore the old certificate: `{back}`", self.file.display())
    }
}

fn names(certificate: &Certificate) -> Vec<String> {
    let mut all: Vec<String> = certificate.dns_names.iter().map(|name| format!("name {name}")).collect();
    all.extend(certificate.addresses.iter().map(|address| format!("address {address}")));
    all.extend(certificate.other_names.iter().cloned());
    all
}
