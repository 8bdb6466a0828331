//! The arguments for tiers of Services, the file that lists tiers, and the program that prints them.

use std::collections::BTreeMap;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::process::Command;

use super::Context;
use super::file::read;
use super::output::counted;
use crate::host::program::{self, Ran};
use crate::renumber::plan::open_to_tiers;
use crate::renumber::tier::API_BACKENDS;
use crate::renumber::{PlanOptions, TierSource, Tiers};
use crate::session::Failure;
use crate::survey::{ServiceRecord, Survey};
use crate::words::pasted;

/// Maximum number of concurrent processes of the program `--tier-command`.
const AT_ONCE: usize = 8;

/// The order of Services by tier.
#[derive(Debug, Args)]
pub struct TierArgs {
    /// Names of tiers, from least to most critical, for example `dev,batch,web,core`. A batch contains Services of one tier only.
    /// Services behind webhooks and aggregated APIs move after these tiers. The cluster's DNS and `default/kubernetes` move last
    #[arg(
        help_heading = "Tiers",
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        requires = "tier-source"
    )]
    tiers: Vec<String>,
    /// The tier of a Service is the value of this label
    #[arg(help_heading = "Tiers", long, value_name = "KEY", requires = "tiers", group = "tier-source")]
    tier_label: Option<String>,
    /// The tier of a Service is the value of this annotation
    #[arg(help_heading = "Tiers", long, value_name = "KEY", requires = "tiers", group = "tier-source")]
    tier_annotation: Option<String>,
    /// File with the tiers, one Service per line: `NAMESPACE/NAME TIER`. The line `NAMESPACE/* TIER` sets the tier of all other
    /// Services in the namespace
    #[arg(help_heading = "Tiers", long, value_name = "FILE", requires = "tiers", group = "tier-source")]
    tier_file: Option<PathBuf>,
    /// Run this program for each Service that moves, with namespace and name as arguments. The first line of the output is the
    /// tier. The program runs without a shell, and for up to 8 Services at the same time
    #[arg(help_heading = "Tiers", long, value_name = "PROGRAM", requires = "tiers", group = "tier-source")]
    tier_command: Option<PathBuf>,
    /// Maximum time that the program can run for one Service, in seconds
    #[arg(help_heading = "Tiers", long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=600))]
    tier_command_timeout: u64,
    /// Tier of all Services that have no tier. Without this option, the plan fails if a Service has no tier
    #[arg(help_heading = "Tiers", long, value_name = "NAME", requires = "tiers")]
    default_tier: Option<String>,
}

impl TierArgs {
    /// Checks the names and reads the file. The program runs later, in [`Self::settle`].
    pub(super) fn resolve(&self) -> Result<Option<Tiers>, Failure> {
        if self.tiers.is_empty() {
            return Ok(None);
        }
        check_names(&self.tiers)?;
        let is_known = |name: &String| self.tiers.contains(name);
        if let Some(name) = self.default_tier.as_ref().filter(|name| !is_known(name)) {
            return Err(Failure::usage(format!("`--default-tier {name}` is not one of the tiers")));
        }
        let source = match (&self.tier_label, &self.tier_annotation, &self.tier_file) {
            (Some(key), ..) => TierSource::Label(key.clone()),
            (_, Some(key), _) => TierSource::Annotation(key.clone()),
            (.., Some(path)) => TierSource::Listed(read_tiers(path, &self.tiers)?),
            _ => TierSource::Listed(BTreeMap::new()),
        };
        Ok(Some(Tiers { names: self.tiers.clone(), source, default: self.default_tier.clone() }))
    }

    /// Returns whether [`Self::settle`] needs the Services of the cluster.
    pub(super) fn needs_survey(&self) -> bool {
        self.tier_command.is_some() || self.tier_file.is_some()
    }

    /// Runs the program that prints tiers, if one is given. Warns about lines of the tier file that match no Service. Also warns
    /// if Services behind webhooks or aggregated APIs cannot be determined, because the order of the Services can then be wrong.
    pub(super) async fn settle(
        &self,
        context: &Context,
        survey: &Survey,
        options: &mut PlanOptions,
    ) -> Result<(), Failure> {
        self.warn_of_strangers(context, survey, options);
        if let [first, rest @ ..] = survey.unreadable_extensions().as_slice() {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            context.output.warn(&format!(
                "cannot tell which Services are behind webhooks or aggregated APIs, so their order may be wrong: cannot read \
                 `{}` ({}){more}",
                first.key, first.reason
            ));
        }
        self.ask(context, survey, options).await
    }

    fn warn_of_strangers(&self, context: &Context, survey: &Survey, options: &PlanOptions) {
        let (Some(path), Some(tiers)) = (&self.tier_file, &options.tiers) else { return };
        let strangers = tiers.strangers(survey);
        if let Some(first) = strangers.first() {
            let fit = if strangers.len() == 1 { "matches" } else { "match" };
            context.output.warn(&format!(
                "`{}`: {} of its lines {fit} no Service of this cluster; the first is `{first}`",
                path.display(),
                strangers.len()
            ));
        }
    }

    /// Runs the program once for every Service that moves, if a program is given. Stops at the first failure.
    async fn ask(
        &self,
        context: &Context,
        survey: &Survey,
        options: &mut PlanOptions,
    ) -> Result<(), Failure> {
        let services = open_to_tiers(survey, options);
        let (Some(program), Some(tiers)) = (&self.tier_command, &mut options.tiers) else { return Ok(()) };
        let count = counted(services.len(), "Service", "Services");
        context.output.progress(&format!("running `{}` to get the tiers of {count}", program.display()));
        let limit = Duration::from_secs(self.tier_command_timeout);
        let names = tiers.names.as_slice();
        let answers = Question { program, limit, names }.ask_all(&services).await?;
        tiers.source = TierSource::Listed(answers);
        Ok(())
    }
}

fn check_names(names: &[String]) -> Result<(), Failure> {
    for (index, name) in names.iter().enumerate() {
        let wrong = match () {
            () if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) => {
                "is not a valid name"
            }
            () if name == API_BACKENDS => "is the built-in tier of webhooks and aggregated APIs",
            () if names.iter().skip(index).filter(|other| *other == name).count() > 1 => "is named twice",
            () => continue,
        };
        return Err(Failure::usage(format!("`--tiers`: `{name}` {wrong}"))
            .hint("give the tiers from least to most critical, for example `--tiers dev,batch,web,core`"));
    }
    Ok(())
}

fn read_tiers(path: &Path, names: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut tiers = BTreeMap::new();
    for (index, line) in read(path)?.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let place = format!("line {} of `{}`", index.saturating_add(1), path.display());
        let (subject, tier) = parse_line(line).ok_or_else(|| {
            Failure::usage(format!("{place} does not assign a tier: `{line}`"))
                .hint("write `NAMESPACE/NAME TIER` or `NAMESPACE/* TIER`, for example `shop/cart web`")
        })?;
        if !names.iter().any(|name| name == tier) {
            return Err(Failure::usage(format!("{place}: `{tier}` is not one of the tiers"))
                .hint(format!("the tiers are {}", names.join(", "))));
        }
        if tiers.insert(subject.to_string(), tier.to_string()).is_some() {
            return Err(Failure::usage(format!("{place}: `{subject}` already has a tier")));
        }
    }
    Ok(tiers)
}

fn parse_line(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let (subject, tier) = (words.next()?, words.next()?);
    let (namespace, name) = subject.split_once('/')?;
    let is_name = |text: &str| !text.is_empty() && !text.contains(['/', '*']);
    let is_line = is_name(namespace) && (name == "*" || is_name(name)) && words.next().is_none();
    is_line.then_some((subject, tier))
}

/// The program, and how to run it for a Service.
struct Question<'a> {
    program: &'a Path,
    limit: Duration,
    names: &'a [String],
}

impl Question<'_> {
    /// Returns the tier of each Service by `namespace/name`, or the first failure of the program. After a failure, the other
    /// running processes of the program are killed.
    async fn ask_all(&self, services: &[&ServiceRecord]) -> Result<BTreeMap<String, String>, Failure> {
        let asked = services.iter().map(async |service| Ok((service.subject(), self.ask(service).await?)));
        stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn run(&self, service: &ServiceRecord) -> io::Result<(Ran, String)> {
        let mut stdout = tempfile::tempfile()?;
        let mut command = Command::new(self.program);
        command.args([&service.namespace, &service.name]).stdout(stdout.try_clone()?);
        let ran = program::run(&mut command, self.limit).await?;
        stdout.rewind()?;
        Ok((ran, program::text(stdout)?))
    }

    async fn ask(&self, service: &ServiceRecord) -> Result<String, Failure> {
        let (program, subject) = (self.program.display(), service.subject());
        let failed = |what: String| {
            Failure::refused(format!("the tier of Service `{subject}` is not known: `{program}` {what}"))
                .hint(format!(
                    "try it by hand: `{} {} {}`",
                    pasted(self.program),
                    service.namespace,
                    service.name
                ))
        };
        let (ran, stdout) =
            self.run(service).await.map_err(|error| failed(format!("cannot be run: {error}")))?;
        let said = if ran.stderr.is_empty() { String::new() } else { format!(": {}", ran.stderr) };
        let Some(status) = ran.status else {
            return Err(failed(format!("gave no answer within {} s{said}", self.limit.as_secs())));
        };
        if !status.success() {
            return Err(failed(format!("failed with {status}{said}")));
        }
        let tier = stdout.lines().next().unwrap_or_default().trim();
        if !tier.is_empty() && !self.names.iter().any(|name| name == tier) {
            return Err(failed(format!("printed `{tier}`, which is not one of the tiers{said}")));
        }
        Ok(tier.to_string())
    }
}
