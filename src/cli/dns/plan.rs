//! `netsurgeon dns plan`: plans which records of the names change, and in which stages.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{describe, summary};
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::file::{Readers, write_file};
use crate::cli::zone::ZoneArgs;
use crate::cli::{Context, Outcome};
use crate::dns::reader::{CutoverReader, Names, Probes};
use crate::dns::{KIND, LeftOut, PlanOptions, Planned, Share, ShareQuery, plan};
use crate::kube_api::Cluster;
use crate::operation::{ClusterRecord, Listed};
use crate::preflight::dns;
use crate::preflight::{self, CheckResult, Selection, Verdict};
use crate::session::{ExitKind, Failure};
use crate::words::{counted, first_few, pasted};

/// Value of `--force` that allows a soak that is shorter than the TTL.
const SHORT_SOAK: &str = "short-soak";

/// Checks that every plan needs. `--force` cannot override them.
const NEEDED: [&str; 4] = ["zone-servers", "zone-updates", "names", "targets"];

/// Checks that prevent a plan even if they only warn. `zone-share` warns if too many names of the zone would change.
/// `external-dns` warns if an ExternalDNS would revert the changes.
const STRICT: [&str; 2] = ["zone-share", "external-dns"];

/// Checks that do not prevent a plan if their result is unknown, because not every user may read what they need.
const OPTIONAL: [&str; 1] = ["record-space"];

/// Plan a cutover: the names, their new records, and the stages
///
/// Finds the names of the zone in the Ingresses, Services and routes of the cluster. Reads the DNS records of these names, and
/// the addresses of these names on the mirror. A name moves only if its records point to this cluster. Changes nothing in the
/// cluster or in the zone. The command runs the checks of `preflight dns`. It creates no plan if a check fails or is unknown, or
/// if `zone-share` or `external-dns` warns; see `--force`.
///
/// At each stage, the mirror gets a share of the clients (`--shares`). Route 53 supports weights, so every share is possible. A
/// name server has no weights, so the share depends on the number of old and new addresses in the answer. With one old and one
/// new address, half of the clients use the new address. On a name server, the plan uses the largest possible share that does not
/// exceed the requested share, and a CNAME changes only in the last stage.
///
/// `--save` writes the plan to a file, and `-o json` prints it. The plan has a digest. Review the plan, then run exactly this
/// plan with `dns cutover --plan FILE --approve DIGEST`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon dns plan --zone example.com --tsig-key-file mover.key \\
      --mirror-context green --save cutover.json
  netsurgeon dns plan --zone example.com --name www.example.com \\
      --mirror-kubeconfig green.conf --shares 25,50,100 --soak 3600
  netsurgeon dns plan --provider route53 --zone example.com \\
      --mirror-context green --shares 1,10,50,100 --save cutover.json
  netsurgeon dns plan --zone example.com --mirror-context green \\
      --probe https/healthz --probe-body ok -o json | jq .names")]
pub struct PlanArgs {
    #[command(flatten)]
    zone: ZoneArgs,
    /// The share of clients that the mirror gets at each stage: numbers in percent, separated by commas
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "10,50,100", value_parser = clap::value_parser!(u8).range(1..=100))]
    shares: Vec<Share>,
    /// Maximum TTL of the names while the cutover runs, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    ttl: u32,
    /// How long each stage waits after the resolver returns the new records, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u64).range(1..=2_592_000))]
    soak: u64,
    /// The Prometheus for `--share-query`. `dns status` and the report then show the mirror's share of the requests
    #[arg(long, value_name = "URL", requires = "share_query")]
    share_prometheus: Option<String>,
    /// An instant query that returns the mirror's share of the requests for a name, as a number from 0 to 100. In the query,
    /// write `{name}` in place of the name
    #[arg(long, value_name = "PROMQL", requires = "share_prometheus")]
    share_query: Option<String>,
    /// Create the plan even if this check does not allow it. With `short-soak`, create the plan even if a stage is shorter than
    /// the TTL. Can be repeated, or a list separated by commas
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    force: Vec<String>,
    /// Maximum time for one check, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=600))]
    within: u64,
    /// Also write the plan to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &PlanArgs) -> Result<Outcome, Failure> {
    let (names, trusted) = args.zone.names()?;
    names.check()?;
    let options = args.options(&names, trusted)?;
    let of_mirror = args.mirror.required(&args.kube)?;
    let (cluster, mirror) = tokio::join!(args.kube.connect(), of_mirror.connect());
    let cluster = cluster?;
    warn_of_another(context, &cluster).await;
    let input = CutoverReader::new(Some(Ok(cluster)), Some(Ok(mirror?)), names).await;
    refuse_unready(context, args, &input).await?;
    let facts = input.facts().await?;
    let Planned { plan, left_out } = plan(&facts, &options)?;
    warn_of_left_out(context, &left_out);
    note_omitted_shares(context, &args.shares, &plan.work.shares);
    if let Some(path) = &args.save {
        let text = serde_json::to_vec_pretty(&plan).map_err(|error| Failure::new(ExitKind::Bug, error))?;
        write_file(path, &text, Readers::Owner)?;
        context.output.note(&format!("the plan was written to `{}`", path.display()));
    }
    context.output.data(&plan, |output| describe(output, &plan.work))?;
    context.output.progress(&summary(&plan));
    if let Some(path) = &args.save {
        let path = pasted(path);
        context.output.note(&format!("next: `netsurgeon dns cutover --plan {path} --stage 1`"));
    }
    Ok(Outcome::Done)
}

/// Prints the requested shares that are no stage of the plan.
fn note_omitted_shares(context: &Context, requested: &[Share], planned: &[Share]) {
    let omitted: Vec<String> =
        requested.iter().filter(|share| !planned.contains(share)).map(|share| format!("{share} %")).collect();
    if !omitted.is_empty() {
        context
            .output
            .note(&format!("no stage for {}: its records would be the same as before", omitted.join(", ")));
    }
}

/// Maximum number of names to print that the plan does not contain. Each user of the cluster can create objects with any names.
const MOST_LEFT_OUT: usize = 100;

/// Prints the names of objects in this cluster that the plan does not contain.
fn warn_of_left_out(context: &Context, names: &[LeftOut]) {
    for LeftOut { name, by, reason } in names.iter().take(MOST_LEFT_OUT) {
        context.output.warn(&format!("not in the plan: `{name}` ({}): {reason}", first_few(by)));
    }
    if let Some(more) = names.len().checked_sub(MOST_LEFT_OUT).filter(|more| *more > 0) {
        context.output.warn(&format!("{} not in the plan", counted(more, "more name is", "more names are")));
    }
    if names.iter().any(|one| one.reason.starts_with("its records are ")) {
        context
            .output
            .note("to point a name to the mirror although its records point elsewhere: `--take NAME`");
    }
}

/// Warns if a cutover has not ended, because the new plan would treat the intermediate records of this cutover as the old
/// records. A user who is not allowed to list operations gets no warning.
async fn warn_of_another(context: &Context, cluster: &Cluster) {
    let listed = ClusterRecord::list(cluster).await.unwrap_or_default();
    let is_open = |one: &&Listed| one.summary.kind == KIND && !one.summary.status.has_ended();
    for Listed { operation, .. } in listed.iter().filter(is_open) {
        context.output.warn(&format!(
            "the cutover `{operation}` has not ended: if it changes the same names, this plan does not contain their original records"
        ));
    }
}

impl PlanArgs {
    /// Returns the query for the mirror's share of requests, if the options contain one.
    fn seen(&self) -> Result<Option<ShareQuery>, Failure> {
        let (Some(prometheus), Some(query)) = (&self.share_prometheus, &self.share_query) else {
            return Ok(None);
        };
        let seen = ShareQuery { prometheus: prometheus.clone(), query: query.clone() };
        seen.check()
            .map_err(|reason| Failure::usage(format!("`--share-prometheus`, `--share-query`: {reason}")))?;
        Ok(Some(seen))
    }

    /// Validates the arguments that need no connection. `trusted`: additional CA certificates for probes, as PEM.
    fn options(&self, names: &Names, trusted: Vec<String>) -> Result<PlanOptions, Failure> {
        let is_known =
            |name: &&String| name.as_str() == SHORT_SOAK || forcible().any(|check| check == name.as_str());
        if let Some(name) = self.force.iter().find(|name| !is_known(name)) {
            let names: Vec<&str> = forcible().chain([SHORT_SOAK]).collect();
            return Err(Failure::usage(format!("`--force` does not accept `{name}`"))
                .hint(format!("it accepts: {}", names.join(", "))));
        }
        let Probes { probe, of: probes, .. } = names.probes.clone();
        let short_soak = self.force.iter().any(|name| name == SHORT_SOAK);
        Ok(PlanOptions {
            shares: self.shares.clone(),
            ttl: self.ttl,
            soak: self.soak,
            probe,
            trusted,
            probes,
            seen: self.seen()?,
            short_soak,
        })
    }
}

/// Returns the checks that `--force` can override.
fn forcible() -> impl Iterator<Item = &'static str> {
    dns::CHECKS.iter().map(|check| check.name).filter(|name| !NEEDED.contains(name))
}

/// Runs the checks of `preflight dns`. Fails if a check does not allow the cutover and `--force` does not name this check.
async fn refuse_unready(context: &Context, args: &PlanArgs, input: &CutoverReader) -> Result<(), Failure> {
    let selection =
        Selection { only: Vec::new(), skip: Vec::new(), within: Duration::from_secs(args.within) };
    let results = preflight::run(dns::CHECKS, input, &selection).await;
    let is_bad = |result: &&CheckResult| match result.verdict {
        Verdict::Fail => true,
        Verdict::Unknown => !OPTIONAL.contains(&result.name),
        Verdict::Warn => STRICT.contains(&result.name),
        Verdict::Pass | Verdict::Skipped => false,
    };
    let (forced, bad): (Vec<&CheckResult>, Vec<&CheckResult>) =
        results.iter().filter(is_bad).partition(|result| args.force.iter().any(|name| name == result.name));
    // A check that did not run is omitted, because the check on which it depends is listed.
    let is_run = |result: &&&CheckResult| result.depends_on.is_none();
    for result in forced.iter().filter(is_run) {
        context.output.warn(&format!("{} (`--force {}`)", result.observed, result.name));
    }
    // The names that the check `names` lists are printed with the plan.
    let warned = results.iter().filter(|result| result.verdict == Verdict::Warn && !is_bad(result));
    for result in warned.filter(|result| result.name != "names" || !bad.is_empty()) {
        context.output.warn(&format!("{}: {}", result.name, result.observed));
    }
    if bad.is_empty() {
        return Ok(());
    }
    let count = counted(bad.iter().filter(is_run).count(), "check does not allow", "checks do not allow");
    let mut failure = Failure::refused(format!("{count} this cutover"));
    for result in bad.iter().filter(is_run) {
        let remedy = if result.remedy.is_empty() { String::new() } else { format!("; {}", result.remedy) };
        failure = failure.hint(format!("{}: {}{remedy}", result.name, result.observed));
    }
    let names: Vec<&str> = bad.iter().map(|result| result.name).collect();
    if names.iter().any(|name| NEEDED.contains(name)) {
        return Err(failure);
    }
    Err(failure.hint(format!("to create the plan anyway: `--force {}`", names.join(","))))
}
