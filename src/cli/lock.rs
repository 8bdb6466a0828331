//! `netsurgeon lock` and `unlock`: the API server itself rejects changes by deploy pipelines.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use super::api::KubeArgs;
use super::output::Output;
use super::{Context, Outcome};
use crate::deploy_lock::api::{DeployLockApi, DeployLockError, DeployLockObjects};
use crate::deploy_lock::{DeployLock, Exempt, Method, Scope, VERSION, What, quota};
use crate::kube_api::{Cluster, ClusterError};
use crate::operation::{Ambient, LeaseHolder, SystemAmbient};
use crate::session::gates::until::duration_of;
use crate::session::{ExitKind, Failure};
use crate::words::first_few;

/// Set the deploy lock: the API server rejects changes by deploy pipelines
///
/// Creates a ValidatingAdmissionPolicy (Kubernetes 1.30 and later), and waits until every API server enforces this policy. If the
/// API server rejects a change, the client gets an error. The error contains the holder, the reason and the start of the deploy
/// lock, and explains how to end the lock.
///
/// The deploy lock does not apply to you, to the users and groups that you exempt, or to the cluster's own components. All
/// clients can still change status, labels, annotations and finalizers, and write EndpointSlices. They can also scale workloads,
/// evict Pods, and delete a whole namespace.
///
/// If the API server does not support such policies, netsurgeon creates a ResourceQuota in each namespace. A ResourceQuota only
/// rejects the creation of more objects. It applies to all users, including you.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Examples:
  netsurgeon lock --reason 'Services are being renumbered'
  netsurgeon lock --reason 'maintenance, ops on call' --for 2h
  netsurgeon lock --reason 'shop moves' -n shop -n cart --what all \\
      --exempt-group sre
  netsurgeon lock --reason trial \\
      --exempt-service-account flux-system/source-controller --dry-run
  netsurgeon lock status
  netsurgeon unlock")]
pub struct DeployLockArgs {
    #[command(subcommand)]
    command: Option<LockCommand>,
    #[command(flatten)]
    make: MakeArgs,
}

#[derive(Debug, Subcommand)]
enum LockCommand {
    Status(StatusArgs),
}

#[derive(Debug, Args)]
struct MakeArgs {
    /// Which objects are locked
    #[arg(long, value_enum, default_value = "services", value_name = "WHAT")]
    what: WhatArg,
    /// Lock only this namespace; can be repeated [default: all namespaces except kube-system]
    #[arg(short, long, value_name = "NAME")]
    namespace: Vec<String>,
    /// Do not lock this namespace; can be repeated
    #[arg(long, value_name = "NAME")]
    exclude_namespace: Vec<String>,
    /// Do not reject changes by this user; can be repeated
    #[arg(long, value_name = "NAME")]
    exempt_user: Vec<String>,
    /// Do not reject changes by this group; can be repeated
    #[arg(long, value_name = "NAME")]
    exempt_group: Vec<String>,
    /// Do not reject changes by this service account; can be repeated
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service_account)]
    exempt_service_account: Vec<String>,
    /// Reason for the deploy lock. Clients see the reason in the error
    #[arg(long, value_name = "TEXT", required = true)]
    reason: Option<String>,
    /// End the deploy lock after this time, for example `2h` or `1h30m`, even if netsurgeon does not run. The policy depends on a
    /// Job with this deadline, and the controller manager ends the Job. Required to change a deploy lock that has an end. Not
    /// possible with a ResourceQuota
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    seconds: Option<u32>,
    /// Id of the operation that needs the deploy lock. Clients see the id in the error
    #[arg(long, value_name = "ID")]
    operation: Option<String>,
    /// How the API server rejects changes
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    with: With,
    /// Print the objects, for example for `kubectl apply`, and do not create them
    #[arg(long)]
    dry_run: bool,
    /// Replace a deploy lock of another holder
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reach: ConnectionArgs,
}

/// Remove the deploy lock, and wait until no API server enforces it
///
/// Deletes all objects that `netsurgeon lock` created, and nothing else. To remove the deploy lock of another holder, use
/// `--force`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon unlock
  # the lock of another holder: `netsurgeon lock status` shows the holder
  netsurgeon unlock --force")]
pub struct UnlockArgs {
    /// Remove a deploy lock of another holder
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reach: ConnectionArgs,
}

/// Show the deploy lock, its holder and its reason
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon lock status
  netsurgeon lock status -o json | jq -r .lock.holder")]
struct StatusArgs {
    #[command(flatten)]
    reach: ConnectionArgs,
}

#[derive(Debug, Args)]
struct ConnectionArgs {
    /// Maximum time until every API server has applied the change, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "90")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline: u64,
    /// Check only the API server of the kubeconfig. By default, netsurgeon checks every API server at its own address
    #[arg(long)]
    through_kubeconfig: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WhatArg {
    /// Services
    Services,
    /// Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs, CronJobs, and Pods created by hand
    Deploys,
    /// Both `services` and `deploys`
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum With {
    /// A policy if the API server supports policies, otherwise a quota
    Auto,
    /// A ValidatingAdmissionPolicy
    Policy,
    /// A ResourceQuota in every namespace
    Quota,
}

/// Minimum of `--for`, in seconds. The controller manager checks the deadline of a Job only at intervals, so a shorter time
/// cannot be guaranteed.
const SHORTEST: u32 = 5;
/// Maximum of `--for`, in seconds: a week.
const LONGEST: u32 = 604_800;

fn parse_duration(text: &str) -> Result<u32, String> {
    let seconds = duration_of(text).and_then(|duration| u32::try_from(duration.as_secs()).ok());
    seconds
        .filter(|seconds| (SHORTEST..=LONGEST).contains(seconds))
        .ok_or_else(|| "give a time from `5s` to `168h`, as in `2h` or `1h30m`".to_string())
}

/// Returns the user name of a service account (`MakeUsername`, `apiserver/pkg/authentication/serviceaccount`).
fn service_account(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(format!("system:serviceaccount:{namespace}:{name}"))
        }
        _ => Err("give it as NAMESPACE/NAME".to_string()),
    }
}

/// The output of `lock -o json`, `lock status -o json` and `unlock -o json`.
#[derive(Serialize)]
struct DeployLockOutput<'a> {
    version: u8,
    /// `locked`, `incomplete`, `ended` or `unlocked`.
    status: &'a str,
    lock: Option<&'a DeployLock>,
    objects: Vec<String>,
    api_servers: Vec<String>,
    not_covered: Vec<String>,
}

impl DeployLockOutput<'_> {
    fn print(&self, context: &Context) -> Result<(), Failure> {
        context.output.data(self, |_| self.text())
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        match self.lock {
            Some(lock) => {
                lines.push(format!("{}: {} in {}", self.status, lock.what, lock.scope));
                lines.push(format!("  reason     {}", lock.says()));
                let exempt = lock.exempt.users.iter().cloned();
                let groups = lock.exempt.groups.iter().map(|group| format!("group {group}"));
                let exempt: Vec<String> = exempt.chain(groups).collect();
                if lock.method == Method::Policy {
                    lines.push(format!(
                        "  exempt     {}, and the cluster's own components",
                        exempt.join(", ")
                    ));
                }
            }
            None => lines.push(self.status.to_string()),
        }
        let mut add = |heading: &str, list: &[String]| {
            for (index, item) in list.iter().enumerate() {
                lines.push(format!("  {:10} {item}", if index == 0 { heading } else { "" }));
            }
        };
        add("objects", &self.objects);
        add("checked on", &self.api_servers);
        add("not locked", &self.not_covered);
        lines.join("\n")
    }
}

fn shown<'a>(
    status: &'a str,
    lock: Option<&'a DeployLock>,
    standing: &DeployLockObjects,
    servers: Vec<String>,
) -> DeployLockOutput<'a> {
    let by_quota = lock.filter(|lock| lock.method == Method::Quota && status != "unlocked");
    DeployLockOutput {
        version: 1,
        status,
        lock,
        objects: standing.objects.iter().map(crate::deploy_lock::api::Object::name).collect(),
        api_servers: servers,
        not_covered: by_quota.map(|lock| quota::not_covered(lock.what)).unwrap_or_default(),
    }
}

impl ConnectionArgs {
    fn freezer<'a>(&self, cluster: &'a Cluster) -> DeployLockApi<'a> {
        DeployLockApi {
            cluster,
            deadline: Duration::from_secs(self.deadline),
            each: !self.through_kubeconfig,
        }
    }
}

/// Runs `lock`.
pub async fn lock(context: &Context, args: &DeployLockArgs) -> Result<Outcome, Failure> {
    match &args.command {
        None => make(context, &args.make).await,
        Some(LockCommand::Status(args)) => status(context, args).await,
    }
}

async fn make(context: &Context, args: &MakeArgs) -> Result<Outcome, Failure> {
    let cluster = args.reach.kube.connect().await?;
    let freezer = args.reach.freezer(&cluster);
    let mut freeze = args.freeze(&freezer).await?;
    if args.dry_run {
        return print_manifests(&context.output, &freezer.manifests(&freeze).await?);
    }
    let standing = freezer.find().await?;
    if let Some(present) = standing.freeze() {
        if !present.is_of_the_holder_of(&freeze) && !standing.has_ended() && !args.force {
            return Err(held_by_another(present));
        }
        if present.seconds.is_some() && freeze.seconds.is_none() && !standing.has_ended() {
            return Err(without_end(present));
        }
        // A deploy lock without `--for` keeps its start time. With `--for`, it starts again now.
        if present.is_of_the_holder_of(&freeze) && freeze.seconds.is_none() {
            freeze.since = present.since;
        }
        if present.does_the_same_as(&freeze) && freeze.seconds.is_none() {
            freeze = present.clone();
        }
    }
    freezer.put(&freeze, &standing).await?;
    context.output.progress("deploy lock created; waiting until every API server enforces it");
    let servers = freezer.wait_until_in_force(&freeze).await?;
    let standing = freezer.find().await?;
    shown("locked", Some(&freeze), &standing, servers).print(context)?;
    if freeze.method == Method::Quota {
        context.output.note("a ResourceQuota only rejects the creation of objects: see `not locked`");
    }
    Ok(Outcome::Done)
}

impl MakeArgs {
    async fn freeze(&self, freezer: &DeployLockApi<'_>) -> Result<DeployLock, Failure> {
        let method = match self.with {
            With::Auto => freezer.method().await?,
            With::Policy => Method::Policy,
            With::Quota => Method::Quota,
        };
        let user = freezer.cluster.user().await?.map(|user| user.name);
        let claim = LeaseHolder::of_this_process("", "", Ambient::now(freezer.cluster.clock()));
        let mut users: BTreeSet<String> =
            self.exempt_user.iter().chain(&self.exempt_service_account).cloned().collect();
        users.extend(user.clone());
        let freeze = DeployLock {
            version: VERSION,
            id: SystemAmbient.uid(),
            holder: claim.holder,
            user: user.unwrap_or_default(),
            // clap requires a reason.
            reason: self.reason.clone().unwrap_or_default(),
            operation: self.operation.clone(),
            since: claim.since,
            seconds: self.seconds,
            method,
            what: match self.what {
                WhatArg::Services => What::Services,
                WhatArg::Deploys => What::Deploys,
                WhatArg::All => What::All,
            },
            scope: Scope::new(&self.namespace, &self.exclude_namespace),
            exempt: Exempt { users, groups: self.exempt_group.iter().cloned().collect() },
        };
        if method == Method::Quota && freeze.seconds.is_some() {
            return Err(Failure::refused(
                "a deploy lock by ResourceQuotas cannot end automatically: a ResourceQuota has no deadline",
            )
            .hint("omit `--for`, and remove the lock with `netsurgeon unlock`"));
        }
        if method == Method::Policy && freeze.user.is_empty() {
            return Err(Failure::refused(
                "the API server does not report your user name, so you would be locked out",
            )
            .hint("`--with quota` does not need the user name"));
        }
        Ok(freeze.in_one_line())
    }
}

fn print_manifests(output: &Output, manifests: &[Value]) -> Result<Outcome, Failure> {
    if output.is_structured() {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": manifests});
        output.data(&list, |_| String::new())?;
        return Ok(Outcome::Done);
    }
    for manifest in manifests {
        output.text("---")?;
        output.yaml(manifest)?;
    }
    Ok(Outcome::Done)
}

fn held_by_another(present: &DeployLock) -> Failure {
    Failure::refused(format!("another holder has set the deploy lock, with the reason: {}", present.says()))
        .hint(format!("ask {}; to override the deploy lock, add `--force` to this command", present.holder))
}

/// Returns the failure for a lock without `--for` while a deploy lock with an end is set: the end must not get lost by accident.
fn without_end(present: &DeployLock) -> Failure {
    Failure::refused(format!(
        "the present deploy lock ends by itself, but without `--for` it would not end: {}",
        present.says()
    ))
    .hint("give the time from now until the new end: `--for 2h`")
    .hint("for a deploy lock without an end, first run `netsurgeon unlock`")
}

async fn status(context: &Context, args: &StatusArgs) -> Result<Outcome, Failure> {
    let cluster = args.reach.kube.connect().await?;
    let freezer = args.reach.freezer(&cluster);
    let standing = freezer.find().await?;
    let uncovered = freezer.uncovered(&standing).await?;
    let status = match (standing.objects.is_empty(), standing.is_complete()) {
        (true, _) => "unlocked",
        _ if standing.has_ended() => "ended",
        (_, true) if uncovered.is_empty() => "locked",
        _ => "incomplete",
    };
    shown(status, standing.freeze(), &standing, Vec::new()).print(context)?;
    if status == "ended" {
        context
            .output
            .note("the deploy lock has ended and rejects nothing: `netsurgeon unlock` removes its objects");
    }
    if status == "incomplete" {
        let rejects = match first_few(&uncovered).as_str() {
            "" => "nothing".to_string(),
            names => format!("nothing in {names}"),
        };
        context.output.note(&format!(
            "the deploy lock is incomplete and rejects {rejects}; to complete it, run its `netsurgeon lock` command again; to remove it: `netsurgeon unlock`"
        ));
    }
    Ok(Outcome::Done)
}

/// Runs `unlock`.
pub async fn unlock(context: &Context, args: &UnlockArgs) -> Result<Outcome, Failure> {
    let cluster = args.reach.kube.connect().await?;
    let freezer = args.reach.freezer(&cluster);
    let standing = freezer.find().await?;
    let Some(present) = standing.freeze().cloned() else {
        freezer.remove(&standing).await?;
        shown("unlocked", None, &standing, Vec::new()).print(context)?;
        return Ok(Outcome::Done);
    };
    if !args.force && !standing.has_ended() {
        let holder = LeaseHolder::of_this_process("", "", 0).holder;
        let user = cluster.user().await?.map(|user| user.name).unwrap_or_default();
        if (&holder, &user) != (&present.holder, &present.user) {
            return Err(held_by_another(&present));
        }
    }
    freezer.remove(&standing).await?;
    context.output.progress("deploy lock deleted; waiting until no API server enforces it");
    let servers = freezer.wait_until_gone(&present).await.map_err(|error| {
        let hint = "the objects of the deploy lock are deleted, and another `unlock` would check nothing; repair the API server \
                    that the message names: until then it can reject changes";
        Failure { hints: vec![hint.to_string()], ..Failure::from(error) }
    })?;
    shown("unlocked", Some(&present), &standing, servers).print(context)?;
    Ok(Outcome::Done)
}

impl From<DeployLockError> for Failure {
    fn from(error: DeployLockError) -> Self {
        match error {
            DeployLockError::Cluster(error @ ClusterError::Forbidden { .. }) if error.to_string().contains(" Job ") => {
                Self::new(ExitKind::Refused, error).hint(
                    "the optional Role `netsurgeon-lock-timer` in deploy/rbac.yaml grants this permission; without `--for`, no Job is created",
                )
            }
            DeployLockError::Cluster(error) => error.into(),
            DeployLockError::Held(_) => {
                Self::new(ExitKind::Refused, error).hint("`netsurgeon lock status` shows its holder")
            }
            DeployLockError::Nothing(_) => {
                Self::new(ExitKind::Refused, error).hint("see `--namespace` and `--exclude-namespace`")
            }
            DeployLockError::Behind { .. } => Self::new(ExitKind::Stuck, error).hint(
                "run the command again to continue; if this machine cannot reach each API server at its own \
                 address, add `--through-kubeconfig`",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_requires_a_reason_and_accepts_a_duration() {
        #[derive(Debug, clap::Parser)]
        struct Words {
            #[command(flatten)]
            args: DeployLockArgs,
        }
        let parsed = |words: &[&str]| <Words as clap::Parser>::try_parse_from([&["lock"], words].concat());
        assert!(parsed(&[]).unwrap_err().to_string().contains("--reason <TEXT>"));
        assert!(parsed(&["--what", "all"]).unwrap_err().to_string().contains("--reason <TEXT>"));
        let made = parsed(&["--reason", "why", "--for", "1h30m"]).unwrap().args.make;
        assert_eq!((made.reason.as_deref(), made.seconds), (Some("why"), Some(5400)));
        assert!(parsed(&["status"]).unwrap().args.command.is_some(), "status needs no reason");
        for wrong in ["1s", "2 h", "200h", "h"] {
            assert!(parsed(&["--reason", "why", "--for", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn service_account_becomes_its_user_name() {
        assert_eq!(service_account("ci/deployer").as_deref(), Ok("system:serviceaccount:ci:deployer"));
        for text in ["deployer", "/a", "a/", "a/b/c"] {
            assert!(service_account(text).is_err(), "{text}");
        }
    }
}
