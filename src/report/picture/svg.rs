//! Pictures as one self-contained SVG document (SVG 1.1; no script, no font, no external resource).
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "places in a drawing of a few pictures, each of at most COLUMNS by ROWS blocks"
    )
)]

use std::fmt::Write;

use super::{COLUMNS, Picture};

/// Sizes in the drawing, in SVG units (pixels at the usual scale).
const BLOCK: usize = 12;
const GAP: usize = 2;
const LEFT: usize = 180;
const MARGIN: usize = 24;
/// Colours of the shades, from light to dark; they differ in greyscale, too.
const SHADES: [&str; 5] = ["#eef1f5", "#b9d3ee", "#7fb0de", "#3f83c4", "#0b4f94"];
const BAND_FREE: &str = "#fff3c9";
const BAND_EDGE: &str = "#d9a400";

/// Draws pictures one below the other in a self-contained SVG document.
pub fn svg(title: &str, subtitle: &str, pictures: &[Picture]) -> String {
    let step = BLOCK + GAP;
    let width = MARGIN * 2 + LEFT + COLUMNS * step;
    let mut body = String::new();
    let mut y = MARGIN + 20;
    label(&mut body, MARGIN, y, "title", title);
    y += 22;
    label(&mut body, MARGIN, y, "small", subtitle);
    y += 34;
    for picture in pictures {
        y = draw(&mut body, picture, y);
    }
    y = legend(&mut body, y);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" viewBox=\"0 0 {width} {y}\" \
         role=\"img\">\n<title>{}</title>\n<style>text{{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;\
         fill:#1c2733;font-size:13px}}.title{{font-size:20px;font-weight:bold}}.head{{font-size:15px;\
         font-weight:bold}}.small{{fill:#51606f}}.row{{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;\
         font-size:12px;fill:#51606f}}</style>\n<rect width=\"{width}\" height=\"{y}\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        escape(title)
    )
}

fn draw(body: &mut String, picture: &Picture, top: usize) -> usize {
    let step = BLOCK + GAP;
    let _ = writeln!(
        body,
        "<text x=\"{MARGIN}\" y=\"{top}\"><tspan class=\"head\">{}</tspan><tspan class=\"small\" dx=\"14\">{} of {} \
         {unit} in use; one block is {} {unit}</tspan></text>",
        escape(&picture.title),
        picture.used,
        picture.capacity,
        picture.per_block,
        unit = picture.unit,
    );
    let mut y = top + 14;
    for (name, blocks) in picture.rows() {
        label(body, MARGIN, y + BLOCK - 2, "row", name);
        for (column, block) in blocks.iter().enumerate() {
            let share = format!("{} of {} in use", block.used, picture.per_block);
            rectangle(body, (MARGIN + LEFT + column * step, y), picture.shade(*block), block.band, &share);
        }
        y += step;
    }
    y + 30
}

fn rectangle(body: &mut String, (x, y): (usize, usize), shade: usize, band: bool, says: &str) {
    let fill = match (shade, band) {
        (0, true) => BAND_FREE,
        _ => SHADES.get(shade).copied().unwrap_or("#000000"),
    };
    let edge = if band { format!(" stroke=\"{BAND_EDGE}\" stroke-width=\"1.5\"") } else { String::new() };
    let _ = writeln!(
        body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{BLOCK}\" height=\"{BLOCK}\" rx=\"2\" fill=\"{fill}\"{edge}><title>{says}</title></rect>"
    );
}

fn legend(body: &mut String, y: usize) -> usize {
    const ENTRIES: [(usize, bool, &str); 6] = [
        (0, false, "free"),
        (0, true, "static band"),
        (1, false, "up to 1/4"),
        (2, false, "up to 1/2"),
        (3, false, "up to 3/4"),
        (4, false, "more"),
    ];
    label(body, MARGIN, y + BLOCK - 2, "small", "Share of a block in use:");
    for (index, (shade, band, text)) in ENTRIES.into_iter().enumerate() {
        let x = MARGIN + LEFT + index * 120;
        rectangle(body, (x, y), shade, band, text);
        label(body, x + BLOCK + 6, y + BLOCK - 2, "small", text);
    }
    y + BLOCK + MARGIN
}

fn label(body: &mut String, x: usize, y: usize, class: &str, text: &str) {
    let _ = writeln!(body, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escape(text));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
