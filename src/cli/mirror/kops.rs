//! `netsurgeon mirror kops`: creates the kOps specification of a mirror from the specification of its source.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::file::{Readers, read, write_file};
use crate::cli::output::{Output, Tone};
use crate::cli::{Context, Outcome};
use crate::kops::{
    Change, Decision, Finding, KopsError, Refusal, Remnant, Request, SourceFile, Specification, specification,
};
use crate::session::Failure;
use crate::words::{counted, pasted};

/// Create the kOps specification of a mirror from that of its source
///
/// Reads the cluster and its instance groups, as `kops get NAME -o yaml` prints them (kops.k8s.io/v1alpha2 or v1alpha3), and prints the
/// specification of the mirror in the same spelling. Comments, order, quotes and unknown fields stay as they are. The command connects
/// to nothing.
///
/// A table has a row for each field that identifies a cluster, with the reason. The name of the source becomes the name of the mirror.
/// What belongs to the source alone is removed: fixed addresses, load balancers, ids of its network. What only you can know must be
/// given with `--set`; the command lists all missing values at once, each with an example.
///
/// The new text is then searched for the name of the source, its ids and its stores, also in scripts and comments. If one is left that
/// the table does not keep on purpose, the command prints its place and writes nothing. Change it with `--replace`, or accept it with
/// `--allow-old`.
///
/// Messages list what stays, and what only a person can decide: secrets, the OIDC issuer, load balancers, tags, permissions.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  kops get blue.example.com -o yaml > blue.yaml
  netsurgeon mirror kops blue.yaml --name green.example.com
  netsurgeon mirror kops blue.yaml --name green.example.com --diff \\
      --set networkCIDR=10.1.0.0/16 --set subnets.us-east-1a.cidr=10.1.32.0/19
  netsurgeon mirror kops blue.yaml --name green.example.com \\
      --set networking=cilium --set networkCIDR=10.1.0.0/16 \\
      --set subnets.us-east-1a.cidr=10.1.32.0/19 \\
      --replace blue.example.com=green.example.com --out green.yaml")]
pub struct KopsArgs {
    /// The files with the Cluster and its InstanceGroups; `-` reads stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Name of the mirror's cluster
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Set a field of the mirror; `none` removes it. Also `networking=PLUGIN` and `dns=none|public|private`; can be repeated
    #[arg(long, value_name = "FIELD=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Keep the VPC of the source; the mirror gets other subnets in it, or shares them by id
    #[arg(long)]
    same_vpc: bool,
    /// Replace a text in all values and comments, for example the name of the source in scripts; can be repeated
    #[arg(long, value_name = "TEXT=TEXT", value_parser = pair)]
    replace: Vec<(String, String)>,
    /// Accept this text, which contains a name, id or store of the source; can be repeated
    #[arg(long, value_name = "TEXT")]
    allow_old: Vec<String>,
    /// Write to this file, or to files with the same names in this folder; `-` is stdout
    #[arg(long, value_name = "PATH", default_value = "-", hide_default_value = true)]
    out: PathBuf,
    /// Print what changes, field by field, with reasons, instead of the specification
    #[arg(long)]
    diff: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((left, right)) if !left.is_empty() => Ok((left.to_string(), right.to_string())),
        _ => Err("expected two texts with `=` between them".to_string()),
    }
}

/// The document of `mirror kops -o json`.
#[derive(Serialize)]
struct KopsOutput<'s> {
    version: u8,
    source: &'s str,
    name: &'s str,
    changes: &'s [Change],
    kept: &'s [Remnant],
    warnings: &'s [Finding],
    decisions: &'s [Decision],
    /// The specification; `null` if it was written to files, and with `--diff`.
    yaml: Option<String>,
    /// The files that were written.
    files: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(context: &Context, args: &KopsArgs) -> Result<Outcome, Failure> {
    let files: Vec<SourceFile> = args.files.iter().map(|path| source(path)).collect::<Result<_, _>>()?;
    let request = Request {
        name: args.name.clone(),
        set: args.set.clone(),
        same_vpc: args.same_vpc,
        allow: args.allow_old.clone(),
        replace: args.replace.clone(),
    };
    let found = specification(&files, &request).map_err(|error| match error {
        KopsError::Input(error) => Failure::usage(error.to_string())
            .hint("give the Cluster and its InstanceGroups, as `kops get NAME -o yaml` prints them"),
        KopsError::Refused(refusal) => refused(&refusal),
    })?;
    let is_stdout = args.out == Path::new("-");
    let written = if is_stdout { Vec::new() } else { write(args, &found)? };
    let shown = KopsOutput {
        version: 1,
        source: &found.source,
        name: &found.name,
        changes: &found.changes,
        kept: &found.kept,
        warnings: &found.warnings,
        decisions: &found.decisions,
        yaml: (is_stdout && !args.diff).then(|| found.yaml()),
        files: written,
    };
    if context.output.is_structured() {
        context.output.data(&shown, |_| String::new())?;
    } else if args.diff {
        context.output.text(&difference(&context.output, &found))?;
    } else if let Some(yaml) = &shown.yaml {
        context.output.document(yaml)?;
    }
    report(context, &found, &shown.files);
    Ok(Outcome::Done)
}

fn source(path: &Path) -> Result<SourceFile, Failure> {
    if path != Path::new("-") {
        return Ok(SourceFile { name: path.display().to_string(), text: read(path)? });
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::from(error).context("cannot read stdin"))?;
    Ok(SourceFile { name: "stdin".to_string(), text })
}

/// Writes the specification to a file, or to a file in a folder for each file of the source.
fn write(args: &KopsArgs, found: &Specification) -> Result<Vec<PathBuf>, Failure> {
    let mut targets: Vec<(PathBuf, String)> = Vec::new();
    if args.out.is_dir() {
        for (name, text) in &found.files {
            let file = Path::new(name).file_name().unwrap_or_default();
            targets.push((args.out.join(file), text.clone()));
        }
    } else {
        targets.push((args.out.clone(), found.yaml()));
    }
    for (number, (path, _)) in targets.iter().enumerate() {
        let is_source = path.canonicalize().is_ok_and(|path| {
            args.files.iter().any(|file| file.canonicalize().is_ok_and(|file| file == path))
        });
        if is_source {
            return Err(Failure::usage(format!("`{}` is a file of the source", path.display()))
                .hint("give another file or folder with `--out`"));
        }
        if targets.iter().take(number).any(|(other, _)| other == path) {
            return Err(Failure::usage(format!("two files would have the name `{}`", path.display()))
                .hint("give one file with `--out`: it gets all documents"));
        }
    }
    for (path, text) in &targets {
        write_file(path, text.as_bytes(), Readers::Owner)?;
    }
    Ok(targets.into_iter().map(|(path, _)| path).collect())
}

/// Returns why there is no specification: all reasons at once.
fn refused(refusal: &Refusal) -> Failure {
    let mut lines = Vec::new();
    lines.extend(refusal.arguments.iter().cloned());
    for missing in &refusal.missing {
        let at = missing.at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default();
        let (field, example) = (&missing.field, &missing.example);
        lines.push(format!(
            "{at}missing: {}, for example `--set {field}={example}`: {}",
            missing.what, missing.reason
        ));
    }
    for finding in &refusal.refused {
        lines.push(format!("{}: {}: {}", finding.at, finding.field, finding.reason));
    }
    for left in &refusal.remnants {
        let how = left.reason.as_ref().map(|how| format!(" ({how})")).unwrap_or_default();
        lines.push(format!("{}: {}: it contains `{}`, {}{how}", left.at, left.field, left.text, left.what));
    }
    let count = counted(lines.len(), "reason", "reasons");
    let text = format!(
        "there is no specification of the mirror yet, for {count}; nothing was written\n{}",
        lines.join("\n")
    );
    let mut failure = Failure::refused(text);
    if !refusal.remnants.is_empty() {
        failure = failure
            .hint("to change a text everywhere: `--replace TEXT=TEXT`; or change it in the file")
            .hint("to accept a text that is right for the mirror: `--allow-old TEXT`");
    }
    failure
}

/// Returns the changes, field by field, in the form of a unified difference.
fn difference(output: &Output, found: &Specification) -> String {
    let mut lines = vec![
        output.paint(Tone::Strong, &format!("--- {}", found.source)),
        output.paint(Tone::Strong, &format!("+++ {}", found.name)),
    ];
    for change in &found.changes {
        lines.push(format!("@@ {} {}: {}", change.at, change.field, change.reason));
        if change.from.is_some() || change.to.is_none() {
            let from = change.from.as_deref().unwrap_or("(all of it)");
            lines.push(output.paint(Tone::Bad, &format!("- {from}")));
        }
        if let Some(to) = &change.to {
            lines.push(output.paint(Tone::Good, &format!("+ {to}")));
        }
    }
    lines.join("\n")
}

/// Prints what stays, what to check, and what only a person can decide.
fn report(context: &Context, found: &Specification, written: &[PathBuf]) {
    for warning in &found.warnings {
        context.output.warn(&format!("{}: {}: {}", warning.at, warning.field, warning.reason));
    }
    for kept in &found.kept {
        let reason = kept.reason.as_deref().unwrap_or_default();
        context.output.note(&format!("{}: {}: `{}` stays: {reason}", kept.at, kept.field, kept.text));
    }
    for decision in &found.decisions {
        let commands: Vec<String> =
            decision.commands.iter().map(|command| format!("\n`{command}`")).collect();
        context.output.note(&format!(
            "decide: {}: {}{}",
            decision.subject,
            decision.reason,
            commands.concat()
        ));
    }
    let changes = counted(found.changes.len(), "change", "changes");
    context.output.progress(&format!("{} -> {}: {changes}", found.source, found.name));
    let files: Vec<String> = written.iter().map(|path| pasted(path)).collect();
    if !files.is_empty() {
        context.output.note(&format!("next: `kops create -f {}`", files.join(" -f ")));
    }
}
