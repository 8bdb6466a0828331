//! The allocation before and after the operation, as pictures side by side. The colour of a block shows how many of its addresses
//! are in use.

use std::fmt::Write as _;
use std::net::IpAddr;

use maud::{Markup, html};

use super::float;
use super::html::{px, thousands};
use super::picture::{COLUMNS, Picture};
use crate::ip::ServiceCidr;

/// Sizes in units of the drawing, which is half as wide as the page.
const BLOCK: f64 = 6.6;
const STEP: f64 = 7.6;
/// Width of a character of a label.
const LETTER: f64 = 5.3;

/// A range and its addresses in use.
pub struct Allocation {
    /// The range.
    pub range: ServiceCidr,
    /// The users of the addresses, for example `by Services that move`.
    pub what: String,
    /// The addresses in use. Addresses outside the range are ignored.
    pub addresses: Vec<IpAddr>,
}

impl Allocation {
    fn picture(&self) -> Picture {
        let mut offsets: Vec<u128> =
            self.addresses.iter().filter_map(|address| self.range.offset(*address)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        Picture::of_range(&self.range, &offsets)
    }
}

/// Draws ranges one below the other under a heading.
pub fn column(heading: &str, allocations: &[Allocation]) -> Markup {
    html! {
        div {
            h3 { (heading) }
            @for allocation in allocations {
                @let picture = allocation.picture();
                @let used = usize::try_from(picture.used).unwrap_or(usize::MAX);
                p { code { (picture.title) } " " (thousands(used)) " in use " (allocation.what) }
                (draw(&picture))
            }
        }
    }
}

fn draw(picture: &Picture) -> Markup {
    let longest = picture.rows().map(|(label, _)| label.len()).max().unwrap_or(0);
    let left = (float(longest) * LETTER + 8.0).max(84.0);
    let width = left + float(COLUMNS) * STEP;
    let height = float(picture.rows().count()) * STEP + 3.0;
    let top = |index: usize| float(index) * STEP + 1.0;
    // Draws one path for each shade, instead of a rectangle for each block.
    let mut paths: Vec<String> = vec![String::new(); 6];
    for (index, (_, blocks)) in picture.rows().enumerate() {
        for (column, block) in blocks.iter().enumerate() {
            let shade = match picture.shade(*block) {
                0 if block.is_in_band() => 5,
                shade => shade,
            };
            if let Some(path) = paths.get_mut(shade) {
                let (x, y) = (left + float(column) * STEP, top(index));
                let _ = write!(path, "M{x:.1} {y:.1}h{BLOCK}v{BLOCK}h-{BLOCK}z");
            }
        }
    }
    let label = format!("{}: {} of {} addresses in use", picture.title, picture.used, picture.capacity);
    html! {
        svg.range viewBox=(format!("0 0 {width:.0} {height:.0}")) role="img" aria-label=(label) {
            // Only every second row has a label, so that the labels can have a readable font size.
            @for (index, (label, _)) in picture.rows().enumerate().step_by(2) {
                text x=(px(left - 6.0)) y=(px(top(index) + BLOCK - 0.2)) { (label) }
            }
            @for (shade, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
                path class={ "s" (shade) } d=(path) {}
            }
        }
    }
}

/// The legend: CSS class and text of each entry.
pub const LEGEND: [(&str, &str); 6] = [
    ("s0", "free"),
    ("s5", "free, static band"),
    ("s1", "up to 1/4 in use"),
    ("s2", "1/2"),
    ("s3", "3/4"),
    ("s4", "more"),
];
