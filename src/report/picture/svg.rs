//! Pictures as one self-contained SVG document (SVG 1.1; no script, no font, no external resource).
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "positions in a drawing of a few pictures, each of at most COLUMNS by ROWS blocks"
    )
)]

use maud::{Markup, html};

use super::{COLUMNS, Picture};

/// Sizes in the drawing, in SVG units (pixels at the usual scale).
const BLOCK: usize = 12;
const STEP: usize = BLOCK + 2;
const LEFT: usize = 180;
const MARGIN: usize = 24;
/// Distances: from the title of a picture to its first row, and from its last row to the next title.
const HEAD: usize = 14;
const SPACE: usize = 30;
/// Colours of the shades, from light to dark; they differ in greyscale, too.
const SHADES: [&str; 5] = ["#eef1f5", "#b9d3ee", "#7fb0de", "#3f83c4", "#0b4f94"];
const BAND_FREE: &str = "#fff3c9";
const BAND_EDGE: &str = "#d9a400";
const STYLE: &str = "text{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;fill:#1c2733;font-size:13px}\
    .title{font-size:20px;font-weight:bold}.head{font-size:15px;font-weight:bold}.small{fill:#51606f}\
    .row{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:12px;fill:#51606f}";

/// Draws pictures one below the other in a self-contained SVG document.
pub fn svg(title: &str, subtitle: &str, pictures: &[Picture]) -> String {
    let width = MARGIN * 2 + LEFT + COLUMNS * STEP;
    let mut y = MARGIN + 76;
    let mut drawn = Vec::new();
    for picture in pictures {
        drawn.push(draw(picture, y));
        y += HEAD + picture.rows().count() * STEP + SPACE;
    }
    let height = y + BLOCK + MARGIN;
    let view = format!("0 0 {width} {height}");
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height) viewBox=(view) role="img" {
            title { (title) }
            style { (STYLE) }
            rect width=(width) height=(height) fill="#ffffff" {}
            (label(MARGIN, MARGIN + 20, "title", title))
            (label(MARGIN, MARGIN + 42, "small", subtitle))
            @for picture in drawn { (picture) }
            (legend(y))
        }
        "\n"
    };
    document.into_string()
}

fn draw(picture: &Picture, top: usize) -> Markup {
    let Picture { title, unit, per_block, used, capacity, .. } = picture;
    html! {
        text x=(MARGIN) y=(top) {
            tspan.head { (title) }
            tspan.small dx="14" {
                (used) " of " (capacity) " " (unit) " in use; " (unit) " per block: " (per_block)
            }
        }
        @for (row, (name, blocks)) in picture.rows().enumerate() {
            @let y = top + HEAD + row * STEP;
            (label(MARGIN, y + BLOCK - 2, "row", name))
            @for (column, block) in blocks.iter().enumerate() {
                @let words = format!("{} of {per_block} in use", block.used);
                (rectangle((MARGIN + LEFT + column * STEP, y), picture.shade(*block), block.band, &words))
            }
            "\n"
        }
    }
}

fn rectangle((x, y): (usize, usize), shade: usize, band: bool, words: &str) -> Markup {
    let fill = match (shade, band) {
        (0, true) => BAND_FREE,
        _ => SHADES.get(shade).copied().unwrap_or("#000000"),
    };
    let (edge, edge_width) = (band.then_some(BAND_EDGE), band.then_some("1.5"));
    html! {
        rect x=(x) y=(y) width=(BLOCK) height=(BLOCK) rx="2" fill=(fill) stroke=[edge] stroke-width=[edge_width] {
            title { (words) }
        }
    }
}

fn legend(y: usize) -> Markup {
    const ENTRIES: [(usize, bool, &str); 6] = [
        (0, false, "free"),
        (0, true, "static band"),
        (1, false, "up to 1/4"),
        (2, false, "up to 1/2"),
        (3, false, "up to 3/4"),
        (4, false, "more"),
    ];
    html! {
        (label(MARGIN, y + BLOCK - 2, "small", "Share of a block in use:"))
        @for (index, (shade, band, text)) in ENTRIES.into_iter().enumerate() {
            @let x = MARGIN + LEFT + index * 120;
            (rectangle((x, y), shade, band, text))
            (label(x + BLOCK + 6, y + BLOCK - 2, "small", text))
        }
    }
}

fn label(x: usize, y: usize, class: &str, text: &str) -> Markup {
    html! { text x=(x) y=(y) class=(class) { (text) } }
}
