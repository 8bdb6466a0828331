//! `netsurgeon ranges show`: every Service range, how full it is, and a picture of where.

use clap::Args;
use serde::Serialize;

use super::node_ports::NodePorts;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Tone, table};
use crate::cli::source::SourceArgs;
use crate::cli::{Context, Outcome};
use crate::ip::ServiceCidr;
use crate::store::Revision;
use crate::survey::{Era, Survey, Usage};

/// Show every Service range: where it comes from, how full it is, and a picture of where
///
/// The counts are those of the Services, in every storage era. The static band is the low end of a range,
/// from which the allocator gives no address at random.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon ranges show                               # on a control-plane host of kubeadm's
  netsurgeon ranges show --snapshot backup.db --svg ranges.svg
  netsurgeon ranges show -o json | jq '.ranges[] | {range, free}'")]
pub(super) struct ShowArgs {
    #[command(flatten)]
    source: SourceArgs,
}

/// What `ranges show -o json` prints.
#[derive(Serialize)]
struct Shown {
    version: u8,
    store: String,
    revision: Revision,
    era: Era,
    era_because: String,
    ranges: Vec<Range>,
    node_ports: Option<NodePorts>,
}

#[derive(Serialize)]
struct Range {
    range: ServiceCidr,
    sources: Vec<String>,
    capacity: u128,
    used: u128,
    free: u128,
    static_band: u128,
    static_band_used: u128,
    #[serde(skip)]
    offsets: Vec<u128>,
}

impl Range {
    fn of(survey: &Survey, range: &ServiceCidr) -> Self {
        let usage = Usage::of(survey, range);
        Self {
            range: *range,
            sources: sources(survey, range),
            capacity: usage.capacity,
            used: usage.used,
            free: usage.capacity.saturating_sub(usage.used),
            static_band: usage.band,
            static_band_used: usage.band_used,
            offsets: usage.offsets,
        }
    }
}

/// Names what defines a range, as in `ServiceCIDR kubernetes`.
fn sources(survey: &Survey, range: &ServiceCidr) -> Vec<String> {
    let cidrs = survey.service_cidrs.iter().filter(|cidr| cidr.ranges.contains(range));
    let mut sources: Vec<String> = cidrs
        .map(|cidr| {
            let ending = if cidr.terminating { " (being deleted)" } else { "" };
            format!("ServiceCIDR {}{ending}", cidr.name)
        })
        .collect();
    let bitmaps = survey.bitmaps.iter().filter(|bitmap| bitmap.cidr().as_ref() == Some(range));
    sources.extend(bitmaps.map(|bitmap| {
        let leftover = if survey.era.bitmap_is_leftover { " (leftover)" } else { "" };
        format!("RangeAllocation {}{leftover}", bitmap.name)
    }));
    sources
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &ShowArgs) -> Result<Outcome, Failure> {
    let (survey, store) = super::survey(context, &args.source).await?;
    let shown = Shown {
        version: 1,
        store,
        revision: survey.revision,
        era: survey.era.era,
        era_because: survey.era.because.clone(),
        ranges: survey.service_ranges().iter().map(|range| Range::of(&survey, range)).collect(),
        node_ports: NodePorts::of(&survey),
    };
    context.output.data(&shown, |output| Ok(text(output, &shown)))?;
    Ok(Outcome::Done)
}

fn text(output: &Output, shown: &Shown) -> String {
    let mut rows: Vec<[String; 6]> = shown
        .ranges
        .iter()
        .map(|range| {
            let band = (range.static_band_used, range.static_band);
            row(&range.range, range.capacity, range.used, range.free, band, &range.sources.join(", "))
        })
        .collect();
    rows.extend(shown.node_ports.iter().map(|ports| {
        let band = (ports.static_band_used, ports.static_band);
        let source = "RangeAllocation servicenodeports";
        row(&ports.range, ports.capacity, ports.used, ports.free, band, source)
    }));
    format!(
        "{} {}, revision {}\n{} {} ({})\n\n{}\n",
        output.paint(Tone::Strong, "Store:"),
        shown.store,
        shown.revision,
        output.paint(Tone::Strong, "Era:  "),
        shown.era,
        shown.era_because,
        table(["RANGE", "CAPACITY", "USED", "FREE", "STATIC BAND", "SOURCE"], rows)
    )
}

fn row(
    range: &dyn std::fmt::Display,
    capacity: u128,
    used: u128,
    free: u128,
    band: (u128, u128),
    source: &str,
) -> [String; 6] {
    let band = format!("{} of {}", band.0, band.1);
    [range.to_string(), capacity.to_string(), used.to_string(), free.to_string(), band, source.to_string()]
}
