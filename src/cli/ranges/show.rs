//! `netsurgeon ranges show`: shows how full every Service range is, with a picture.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::counts::Counts;
use super::node_ports::NodePorts;
use crate::cli::file::{Readers, write_file};
use crate::cli::output::{Output, Tone, speaks_utf8, table};
use crate::cli::source::SourceArgs;
use crate::cli::{Context, Outcome};
use crate::ip::ServiceCidr;
use crate::report::picture::{self, Charset, Picture};
use crate::session::Failure;
use crate::store::Revision;
use crate::survey::{Era, Survey, Usage};

/// Show the source and the use of every Service range, with a picture
///
/// The command counts the addresses that Services have. The static band is the low end of a range. The allocator chooses an
/// address of the static band only if the rest of the range is full.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a kubeadm control-plane host
  netsurgeon ranges show
  netsurgeon ranges show --snapshot backup.db --svg ranges.svg
  netsurgeon ranges show -o json | jq '.ranges[] | {range, free}'")]
pub struct ShowArgs {
    /// Write the picture to this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw with ASCII characters [default: only if the locale does not use UTF-8]
    #[arg(long)]
    ascii: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// The output of `ranges show -o json`.
#[derive(Serialize)]
struct RangesOutput {
    version: u8,
    store: String,
    revision: Revision,
    era: Era,
    era_because: String,
    ranges: Vec<Row>,
    node_ports: Option<NodePorts>,
}

#[derive(Serialize)]
struct Row {
    range: ServiceCidr,
    sources: Vec<String>,
    #[serde(flatten)]
    counts: Counts,
}

impl Row {
    fn of(survey: &Survey, range: &ServiceCidr) -> Self {
        let usage = Usage::of(survey, range);
        let counts = Counts {
            capacity: usage.capacity,
            used: usage.used,
            free: usage.capacity.saturating_sub(usage.used),
            static_band: usage.band,
            static_band_used: usage.band_used,
            offsets: usage.offsets,
        };
        Self { range: *range, sources: sources(survey, range), counts }
    }

    fn cells(&self) -> [String; 6] {
        self.counts.cells(self.range.to_string(), self.sources.join(", "))
    }

    fn picture(&self) -> Picture {
        Picture::of_range(&self.range, &self.counts.offsets)
    }
}

/// Returns the names of the objects that define a range, for example `ServiceCIDR kubernetes`.
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
    let (survey, store) = args.source.survey(context).await?;
    let shown = RangesOutput {
        version: 1,
        store,
        revision: survey.revision,
        era: survey.era.era,
        era_because: survey.era.because.clone(),
        ranges: survey.service_ranges().iter().map(|range| Row::of(&survey, range)).collect(),
        node_ports: NodePorts::of(&survey),
    };
    let pictures = pictures(&shown);
    if let Some(path) = &args.svg {
        write_svg(path, &shown, &pictures)?;
        context.output.progress(&format!("wrote `{}`", path.display()));
    }
    let charset = if args.ascii || !speaks_utf8() { Charset::Ascii } else { Charset::Blocks };
    context.output.data(&shown, |output| text(output, &shown, &pictures, charset))?;
    Ok(Outcome::Done)
}

fn pictures(shown: &RangesOutput) -> Vec<Picture> {
    shown.ranges.iter().map(Row::picture).chain(shown.node_ports.iter().map(NodePorts::picture)).collect()
}

fn write_svg(path: &Path, shown: &RangesOutput, pictures: &[Picture]) -> Result<(), Failure> {
    let subtitle = format!("{}, revision {}, era {}", shown.store, shown.revision, shown.era);
    let drawing = picture::svg("Service ranges", &subtitle, pictures);
    write_file(path, drawing.as_bytes(), Readers::All)
}

fn text(output: &Output, shown: &RangesOutput, pictures: &[Picture], charset: Charset) -> String {
    let drawn: Vec<String> = pictures
        .iter()
        .map(|picture| picture::text(picture, charset, |block| output.paint(Tone::Careful, block)))
        .collect();
    format!("{}\n{}\n{}\n", overview(output, shown), drawn.join("\n"), charset.legend())
}

fn overview(output: &Output, shown: &RangesOutput) -> String {
    let rows = shown.ranges.iter().map(Row::cells).chain(shown.node_ports.iter().map(NodePorts::cells));
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
