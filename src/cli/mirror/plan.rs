//! `netsurgeon mirror plan`: plans which objects the mirror gets.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::diff_output::DiffOutput;
use super::{describe, summary};
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::file::{Readers, write_file};
use crate::cli::{Context, Outcome};
use crate::kube_api::ReadOnly;
use crate::mirror::Mirror;
use crate::mirror::activation::MovedCopies;
use crate::mirror::activation::ledger::in_force;
use crate::mirror::config::Config;
use crate::mirror::config_file::{SCHEMA, read_config};
use crate::mirror::ledger::created;
use crate::mirror::namespace_choice::chosen_namespaces;
use crate::mirror::reader::{EqualOwners, MirrorOptions, MirrorReader};
use crate::session::{ExitKind, Failure};
use crate::words::{and_more, pasted};

/// Plan which objects of the cluster are copied to its mirror
///
/// Reads the declared objects of the namespaces in the cluster (the source) and in the mirror, and compares them. Changes nothing:
/// to check a change, the command sends a dry run to the mirror. A change whose namespace does not exist yet cannot be checked; the
/// plan counts it.
///
/// Each object has one action. `create`: the mirror gets a copy. `update`: an earlier mirror operation created the copy, and the
/// source has changed. `adopt`: the fields that differ are changed in an object of another client (`--existing adopt`, and always in
/// Namespaces and their ServiceAccount `default`). `same`: the mirror has the copy. `conflict`: the mirror has another object of this
/// name, or another client changed the copy; nothing is changed. `left out`: the object is not copied, for the reason that the plan
/// names.
///
/// A copy has no field that belongs to one cluster, such as addresses, node ports, owners, finalizers and status. A CronJob is
/// suspended. Jobs, bare Pods, StatefulSets and PersistentVolumeClaims are not copied. A Deployment or a DaemonSet that no Service
/// selects is copied only with `--run`, because its Pods could do the same work in both clusters.
///
/// The rules of `--config` change copies: images, host names, names of namespaces, replicas, text, and patches. The plan contains the
/// rules, and `mirror apply` uses them. A rule that matches nothing is a warning. An error in the file names its line and column.
///
/// `--diff` shows what each change changes, field by field. `copy`: what the copy changes of the object of the source. `mirror`: what the
/// mirror's API server adds, such as defaults. `change`: what changes in an object of the mirror.
///
/// The plan contains only references to objects, and no content. `--save` writes the plan to a file, and `-o json` prints it. Review
/// it, then run `mirror apply --plan FILE --approve DIGEST`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror plan -n shop --mirror-context green --save plan.json
  netsurgeon mirror plan -n shop,pay --mirror-kubeconfig green.conf \\
      --run shop/worker
  netsurgeon mirror plan --config mirror.yaml --mirror-context green --diff
  netsurgeon mirror plan -n shop --mirror-context green -o json \\
      | jq '.objects[] | select(.action == \"conflict\")'")]
pub struct PlanArgs {
    /// The namespaces to copy; can be repeated, or a list separated by commas. With `--config`, restricts its namespaces
    #[arg(short, long = "namespace", value_name = "NAMESPACE", value_delimiter = ',')]
    #[arg(required_unless_present_any = ["config", "print_schema"])]
    namespaces: Vec<String>,
    /// YAML file with the namespaces, and with rules that change the copies: images, host names, names of namespaces, replicas
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the JSON schema of the configuration file, and exit
    #[arg(long)]
    print_schema: bool,
    /// Copy this Deployment or DaemonSet although no Service selects its Pods; can be repeated, or a list separated by commas
    #[arg(long, value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    run: Vec<String>,
    /// Give the copies of Services the same node ports
    #[arg(long)]
    keep_node_ports: bool,
    /// What happens to an object of the mirror that no mirror operation created, and that differs from the copy
    #[arg(long, value_name = "ACTION", default_value = "conflict")]
    existing: Existing,
    /// What happens if an ExternalDNS or an AWS load balancer controller has the same name in both clusters: each can delete what the
    /// other has made outside of the clusters
    #[arg(long, value_name = "ACTION", default_value = "refuse")]
    equal_owners: OnEqualOwners,
    /// Also show what each change changes, with values; of Secrets, only the names of fields. With `-o json`, prints this instead of the
    /// plan
    #[arg(long)]
    diff: bool,
    /// Also write the plan to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// What happens to an object of another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Existing {
    /// Nothing: the plan names it as a conflict
    Conflict,
    /// Its fields that differ are changed, and a teardown restores them; never of a Secret
    Adopt,
}

/// What happens if controllers of both clusters have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnEqualOwners {
    /// There is no plan
    Refuse,
    /// The plan is made, because they use other DNS zones or other accounts
    Allow,
}

/// Runs the command.
pub async fn run(context: &Context, args: &PlanArgs) -> Result<Outcome, Failure> {
    if args.print_schema {
        return print_schema(context);
    }
    let config = args.config.as_deref().map(configuration).transpose()?.unwrap_or_default();
    let of_mirror = args.mirror.required(&args.kube)?;
    let (source, mirror) = tokio::join!(args.kube.connect(), of_mirror.connect());
    let (source, mirror) = (source?, mirror?);
    let (ours, unread) = created(&mirror).await?;
    for (operation, why) in unread {
        context.output.warn(&format!(
            "the record of the mirror operation `{operation}` cannot be read, so its copies count as objects of other clients: {why}"
        ));
    }
    let source = ReadOnly::new(source);
    let namespaces = chosen_namespaces(&source, &config, &args.namespaces).await?;
    let (keep_node_ports, run) = (args.keep_node_ports, args.run.clone());
    let moved = MovedCopies::new(&in_force(&mirror).await?);
    let options = MirrorOptions {
        namespaces,
        keep_node_ports,
        run,
        ours,
        moved,
        config,
        adopts: args.existing == Existing::Adopt,
        equal_owners: match args.equal_owners {
            OnEqualOwners::Refuse => EqualOwners::Refuse,
            OnEqualOwners::Allow => EqualOwners::Allow,
        },
        with_diffs: args.diff,
    };
    let reader = MirrorReader::new(source, ReadOnly::new(mirror), options);
    let plan = reader.plan().await?;
    warn(context, &plan.work);
    if let Some(path) = &args.save {
        let text = serde_json::to_vec_pretty(&plan).map_err(|error| Failure::new(ExitKind::Bug, error))?;
        write_file(path, &text, Readers::Owner)?;
        context.output.note(&format!("the plan was written to `{}`", path.display()));
    }
    if args.diff {
        let shown = DiffOutput::new(&plan, reader.diffs());
        context.output.data(&shown, |_| format!("{}\n\n{}", describe(&plan), shown.describe()))?;
    } else {
        context.output.data(&plan, |_| describe(&plan))?;
    }
    context.output.progress(&summary(&plan));
    if let Some(path) = &args.save {
        let path = pasted(path);
        context
            .output
            .note(&format!("next: `netsurgeon mirror apply --plan {path}`, with the same clusters"));
    }
    Ok(Outcome::Done)
}

/// Reads a configuration file.
pub fn configuration(path: &Path) -> Result<Config, Failure> {
    read_config(path).map_err(|error| {
        Failure::usage(error).hint("`netsurgeon mirror plan --print-schema` prints the schema of the file")
    })
}

/// Prints what the plan warns of.
fn warn(context: &Context, work: &Mirror) {
    for warning in &work.warnings {
        context.output.warn(warning);
    }
    for kind in &work.kinds_left_out {
        context.output.warn(&format!("not in the plan: {}: {}", kind.resource, kind.reason));
    }
    for (text, objects) in work.warnings() {
        let first = objects.first().map(ToString::to_string).unwrap_or_default();
        let more = and_more(objects.len().saturating_sub(1));
        context.output.warn(&format!("the mirror says of {first}{more}: {text}"));
    }
}

fn print_schema(context: &Context) -> Result<Outcome, Failure> {
    let schema: serde_json::Value =
        serde_json::from_str(SCHEMA).map_err(|error| Failure::new(ExitKind::Bug, error))?;
    let shown = serde_json::json!({"version": 1, "schema": schema});
    context.output.data(&shown, |_| SCHEMA.trim_end().to_string())?;
    Ok(Outcome::Done)
}
