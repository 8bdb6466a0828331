//! `netsurgeon controlplane set-range`: another Service range in the static Pods' manifests of this host.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::seen::manifests;
use super::{API_SERVER, FLAG, ManifestArgs, Ranges};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Tone};
use crate::cli::{Context, Outcome, file_suffix};
use crate::host::replace::{Keep, Replacement, replace};
use crate::wire::manifest::{flag, with_flag};

/// Distributions that keep the range elsewhere: a sign of them on a host, and what to change.
const ELSEWHERE: [(&str, &str); 4] = [
    (
        "/etc/rancher/k3s",
        "K3s: `service-cidr: RANGE` in /etc/rancher/k3s/config.yaml of every server, then restart k3s",
    ),
    (
        "/etc/rancher/rke2",
        "RKE2: `service-cidr: RANGE` in /etc/rancher/rke2/config.yaml of every server, then restart rke2-server",
    ),
    (
        "/opt/kops",
        "kOps: `spec.serviceClusterIPRange: RANGE` by `kops edit cluster`, then `kops update cluster --yes` and a rolling update of the control plane",
    ),
    (
        "/etc/systemd/system/kube-apiserver.service",
        "systemd: `--service-cluster-ip-range=RANGE` in kube-apiserver.service, then `systemctl daemon-reload` and a restart",
    ),
];

/// Change the Service range in the static Pods' manifests of this host
///
/// The flag `--service-cluster-ip-range` of the API server, and of the controller manager if it has one; every other byte of
/// the files stays. The old files are kept in a folder beside that of the manifests, which no kubelet reads. The kubelet
/// then restarts the API server: change one host at a time, and wait for it (`controlplane wait`). Where the range is
/// configured elsewhere (K3s, RKE2, kOps, systemd), says what to change there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon controlplane set-range --to 10.200.0.0/16 --dry-run
  netsurgeon controlplane set-range --to 10.200.0.0/16 --yes && netsurgeon controlplane wait --range 10.200.0.0/16
  netsurgeon controlplane set-range --to 10.200.0.0/16,fd00:200::/112          # dual-stack")]
pub(super) struct SetRangeArgs {
    /// The new range, or one of each family with a comma between them
    #[arg(long, value_name = "CIDR")]
    to: Ranges,
    #[command(flatten)]
    manifests: ManifestArgs,
    /// Only show the difference
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// What `controlplane set-range -o json` prints.
#[derive(Serialize)]
struct Changed {
    version: u8,
    /// `unchanged`, `planned` or `changed`.
    status: &'static str,
    files: Vec<ChangedFile>,
}

#[derive(Serialize)]
struct ChangedFile {
    file: PathBuf,
    component: &'static str,
    before: String,
    after: String,
    /// The file that keeps the old content.
    kept: Option<PathBuf>,
    #[serde(skip)]
    old: String,
    #[serde(skip)]
    new: String,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &SetRangeArgs) -> Result<Outcome, Failure> {
    let to = args.to.to_string();
    let folder = args.manifests.folder().ok_or_else(|| nowhere(&to))?;
    let mut changed = Changed { version: 1, status: "planned", files: changes(context, &folder, &to)? };
    if changed.files.is_empty() {
        changed.status = "unchanged";
        context.output.data(&changed, |_| Ok(String::new()))?;
        context.output.progress(&format!("the manifests in {} have `{to}` already", folder.display()));
        return Ok(Outcome::Done);
    }
    if args.dry_run {
        context.output.data(&changed, |output| Ok(changed.text(output)))?;
        context.output.note("nothing was written (`--dry-run`)");
        return Ok(Outcome::Done);
    }
    context.output.progress(&changed.text(&context.output));
    context.output.ask("Replace these files? The kubelet restarts what they describe.", args.yes)?;
    changed.write(&folder)?;
    if context.output.is_structured() {
        context.output.data(&changed, |_| Ok(String::new()))?;
    }
    context.output.progress(&changed.what_next(&to));
    Ok(Outcome::Done)
}

/// Returns the manifests that are to be changed; refuses if there is no API server's.
fn changes(context: &Context, folder: &Path, to: &str) -> Result<Vec<ChangedFile>, Failure> {
    let found = manifests(folder)?;
    if !found.iter().any(|(_, component, _)| *component == API_SERVER) {
        let text = format!("no manifest in `{}` runs `{API_SERVER}`", folder.display());
        return Err(with_elsewhere(Failure::refused(text), to));
    }
    let mut all: Vec<ChangedFile> = Vec::new();
    for (file, component, text) in found {
        let cannot = |error| Failure::refused(format!("`{}`: {error}", file.display()));
        match flag(&text, component, FLAG).map_err(cannot)? {
            Some(before) if before == to => {}
            None if component != API_SERVER => {
                context
                    .output
                    .note(&format!("`{component}` is not told the Service range: {} stays", file.display()));
            }
            before => {
                let new = with_flag(&text, component, FLAG, to).map_err(cannot)?;
                let (before, after) = (before.unwrap_or_default(), to.to_string());
                all.push(ChangedFile { file, component, before, after, kept: None, old: text, new });
            }
        }
    }
    Ok(all)
}

fn nowhere(to: &str) -> Failure {
    with_elsewhere(Failure::usage("there is no folder of static Pods' manifests on this host"), to)
        .hint("if there is one elsewhere: `--manifests`")
}

fn with_elsewhere(failure: Failure, to: &str) -> Failure {
    let here = ELSEWHERE.iter().filter(|(sign, _)| Path::new(sign).exists());
    here.fold(failure, |failure, (_, what)| failure.hint(what.replace("RANGE", to)))
}

impl Changed {
    fn text(&self, output: &Output) -> String {
        let mut lines = Vec::new();
        for file in &self.files {
            lines.push(output.paint(Tone::Strong, &file.file.display().to_string()));
            for (number, (old, new)) in (1..).zip(file.old.lines().zip(file.new.lines())) {
                if old != new {
                    lines.push(output.paint(Tone::Bad, &format!("- {number}: {}", old.trim())));
                    lines.push(output.paint(Tone::Good, &format!("+ {number}: {}", new.trim())));
                }
            }
        }
        lines.join("\n")
    }

    /// Replaces one file after the other, the API server's last: each is good by itself.
    fn write(&mut self, folder: &Path) -> Result<(), Failure> {
        let refused = |error: String| Failure::refused(error);
        let kept = folder.with_file_name("netsurgeon-manifests");
        std::fs::create_dir_all(&kept).map_err(|error| refused(format!("`{}`: {error}", kept.display())))?;
        let suffix = file_suffix();
        self.files.sort_by_key(|file| file.component == API_SERVER);
        for file in &mut self.files {
            let new = Replacement { path: file.file.clone(), content: file.new.clone().into_bytes() };
            let old = replace(&[new], Some(Keep::In(&kept, &suffix)))
                .map_err(|error| refused(error.to_string()))?;
            file.kept = old.into_iter().next();
        }
        self.status = "changed";
        Ok(())
    }

    fn what_next(&self, to: &str) -> String {
        let kept: Vec<String> =
            self.files.iter().filter_map(|file| Some(file.kept.as_ref()?.display().to_string())).collect();
        let before =
            self.files.iter().find(|file| file.component == API_SERVER).map(|file| file.before.clone());
        let back =
            before.map(|before| format!("\nto go back: `netsurgeon controlplane set-range --to {before}`"));
        format!(
            "changed; the old files are kept: {}\nthe kubelet restarts the API server: `netsurgeon controlplane wait --range {to}`{}",
            kept.join(", "),
            back.unwrap_or_default()
        )
    }
}
