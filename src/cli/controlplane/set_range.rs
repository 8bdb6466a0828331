//! `netsurgeon controlplane set-range`: changes the Service range in this host's static Pod manifests.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;

use super::file_change::{ChangedFile, ConsentArgs, Words, change};
use super::{ManifestArgs, distribution, ranges};
use crate::cli::file::at;
use crate::cli::{Context, Outcome};
use crate::controlplane::{API_SERVER, FLAG, Manifest, duplicates, manifests};
use crate::session::Failure;
use crate::wire::manifest::{flag, with_flag};

/// Change the Service range in this host's static Pod manifests
///
/// Changes the flag `--service-cluster-ip-range` of the API server, and of the controller manager if the controller manager has
/// this flag. All other bytes of the files stay the same. The command keeps the old files in a separate folder, which the kubelet
/// does not read. After the change, the kubelet restarts the API server. Therefore, change one host at a time, and then wait for
/// the API server (`controlplane wait`). If the range is configured elsewhere (K3s, RKE2, k0s, MicroK8s, Talos, kOps, systemd), the
/// command changes nothing, and prints what to change there. It also changes nothing if two files in the folder run the same
/// component, such as a manifest and its backup copy: the kubelet reads both.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon controlplane set-range --to 10.200.0.0/16 --dry-run
  netsurgeon controlplane set-range --to 10.200.0.0/16 --yes \\
      && netsurgeon controlplane wait --range 10.200.0.0/16
  # dual-stack
  netsurgeon controlplane set-range --to 10.200.0.0/16,fd00:200::/112")]
pub struct SetRangeArgs {
    /// The new range, or one per address family, separated by a comma
    #[arg(long, value_name = "CIDR", value_parser = ranges)]
    to: String,
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    consent: ConsentArgs,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &SetRangeArgs) -> Result<Outcome, Failure> {
    let to = &args.to;
    let folder = args.manifests.folder().ok_or_else(|| nowhere(to))?;
    distribution::refuse_generated_manifests(&folder, to)?;
    let mut files = changes(context, &folder, to)?;
    // The API server's manifest is changed last, because other components do not work while the API server restarts.
    files.sort_by_key(|file| file.component == API_SERVER);
    let restarts = files.last().map_or(API_SERVER, |file| file.component);
    let undo = undo(&files, restarts, &args.manifests).unwrap_or_default();
    let words = Words {
        already: format!("the manifests in {} already have `{to}`", folder.display()),
        question: "Replace these files? The kubelet restarts their Pods.",
        next: format!(
            "the kubelet restarts `{restarts}`; before the next host, run `netsurgeon controlplane wait --range {to} \
             --host`; after the last host, run it without `--host`{undo}"
        ),
    };
    let kept = folder.with_file_name("netsurgeon-manifests");
    change(context, &args.consent, files, Some(&kept), &words)
}

/// Returns the line with the command that restores the old range. `None` if this command would change more than this run did,
/// because the command sets all manifests to one value.
fn undo(files: &[ChangedFile], restarts: &str, manifests: &ManifestArgs) -> Option<String> {
    let before: BTreeSet<&str> = files.iter().map(|file| file.before.as_str()).collect();
    let before =
        before.first().filter(|text| before.len() == 1 && restarts == API_SERVER && !text.is_empty())?;
    Some(format!("\nto undo: `netsurgeon controlplane set-range --to {before}{}`", manifests.option()))
}

/// Returns the manifests to change. Fails if none of the manifests runs the API server.
fn changes(context: &Context, folder: &Path, to: &str) -> Result<Vec<ChangedFile>, Failure> {
    let found = manifests(folder)?;
    if !found.iter().any(|one| one.component == API_SERVER) {
        let text = format!("no manifest in `{}` runs `{API_SERVER}`", folder.display());
        return Err(distribution::range(Failure::refused(text), to));
    }
    if let Some(first) = duplicates(&found).into_iter().next() {
        return Err(Failure::refused(format!("`{}`: {}", first.subject, first.message)).hint(
            "move the copies out of this folder: the kubelet reads every file whose name does not start with a dot",
        ));
    }
    let mut all: Vec<ChangedFile> = Vec::new();
    for Manifest { path: file, component, text } in found {
        match flag(&text, component, FLAG).map_err(at(&file))? {
            Some(before) if before == to => {}
            None if component != API_SERVER => {
                context.output.note(&format!(
                    "`{component}` has no Service range flag: {} stays unchanged",
                    file.display()
                ));
            }
            before => {
                let new = with_flag(&text, component, FLAG, to).map_err(at(&file))?;
                let (before, after) = (before.unwrap_or_default(), to.to_string());
                all.push(ChangedFile { file, component, before, after, kept: None, old: text, new });
            }
        }
    }
    Ok(all)
}

fn nowhere(to: &str) -> Failure {
    distribution::range(Failure::usage("no folder of static Pod manifests on this host"), to)
        .hint("if it is elsewhere, give it with `--manifests`")
}
