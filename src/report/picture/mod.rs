//! Pictures that show which parts of a range are in use, as text for a terminal or as SVG.
//!
//! A picture divides a range into at most 1,024 equal blocks, so that it fits on a screen. The shade of a block shows how much of
//! the block is in use, and whether the block belongs to the static band.

mod svg;

use std::fmt::Write;

use crate::ip::ServiceCidr;
pub use svg::svg;

/// Number of blocks in a row: a power of two, so that rows start at round addresses.
pub const COLUMNS: usize = 64;
/// Largest number of rows in a picture.
const ROWS: usize = 16;

/// A range, divided into blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Title, for example `10.96.0.0/16`.
    pub title: String,
    /// The unit: `addresses` or `ports`.
    pub unit: &'static str,
    /// Number of items in one block.
    pub per_block: u128,
    /// Number of items in use.
    pub used: u128,
    /// Number of items that can be allocated.
    pub capacity: u128,
    blocks: Vec<Block>,
    /// The first item of each row.
    labels: Vec<String>,
}

/// A block of consecutive addresses or ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    used: u128,
    band: bool,
}

impl Block {
    /// Returns whether the block is in the static band.
    pub fn is_in_band(self) -> bool {
        self.band
    }
}

/// The input of a picture.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Title, for example `10.96.0.0/16`.
    pub title: String,
    /// The unit: `addresses` or `ports`.
    pub unit: &'static str,
    /// Number of items, including items that cannot be allocated.
    pub size: u128,
    /// Number of items that can be allocated.
    pub capacity: u128,
    /// The static band: its first offset and its number of items.
    pub band: (u128, u128),
    /// Offsets in use.
    pub offsets: &'a [u128],
}

impl Picture {
    /// Divides a range into blocks. `label` returns the text for the item at an offset.
    pub fn new(subject: Subject<'_>, label: impl Fn(u128) -> String) -> Self {
        let most = (COLUMNS as u128).saturating_mul(ROWS as u128);
        let per_block = subject.size.div_ceil(most).max(1).checked_next_power_of_two().unwrap_or(u128::MAX);
        let count = usize::try_from(subject.size.div_ceil(per_block))
            .unwrap_or(usize::MAX)
            .min(COLUMNS.saturating_mul(ROWS));
        let start = |index: usize| (index as u128).saturating_mul(per_block);
        let (band_first, band_count) = subject.band;
        let in_band = |index: usize| {
            let middle = start(index).saturating_add(per_block / 2);
            middle >= band_first && middle < band_first.saturating_add(band_count)
        };
        let mut blocks: Vec<Block> =
            (0..count).map(|index| Block { used: 0, band: in_band(index) }).collect();
        for offset in subject.offsets {
            let index = offset.checked_div(per_block).and_then(|index| usize::try_from(index).ok());
            if let Some(block) = index.and_then(|index| blocks.get_mut(index)) {
                block.used = block.used.saturating_add(1);
            }
        }
        let labels = (0..count).step_by(COLUMNS).map(|index| label(start(index))).collect();
        let used = subject.offsets.len() as u128;
        let Subject { title, unit, capacity, .. } = subject;
        Self { title, unit, per_block, used, capacity, blocks, labels }
    }

    /// Divides a range of addresses into blocks. `offsets` are the offsets of the addresses in use.
    pub fn of_range(range: &ServiceCidr, offsets: &[u128]) -> Self {
        let subject = Subject {
            title: range.to_string(),
            unit: "addresses",
            size: range.size(),
            capacity: range.capacity(),
            // The static band starts after the network address.
            band: (1, range.static_band()),
            offsets,
        };
        Self::new(subject, |offset| range.nth(offset).map(|address| address.to_string()).unwrap_or_default())
    }

    /// Returns the rows: the label of the first item, and the blocks.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &[Block])> {
        self.labels.iter().map(String::as_str).zip(self.blocks.chunks(COLUMNS))
    }

    /// Returns the shade of a block: 0 if it is free, 1 to 4 for the share of the block that is in use.
    pub fn shade(&self, block: Block) -> usize {
        match block.used.saturating_mul(4).div_ceil(self.per_block) {
            0 => 0,
            quarters => usize::try_from(quarters).unwrap_or(4).min(4),
        }
    }
}

/// The characters of a picture: free, free in the static band, and four shades of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// Unicode block elements.
    Blocks,
    /// ASCII.
    Ascii,
}

impl Charset {
    fn of(self, shade: usize, band: bool) -> char {
        let shades = match self {
            Self::Blocks => ['·', '░', '▒', '▓', '█'],
            Self::Ascii => ['.', '-', '+', '*', '#'],
        };
        match (shade, band) {
            (0, true) => '_',
            _ => shades.get(shade).copied().unwrap_or('?'),
        }
    }

    /// Returns the line that explains the characters.
    pub fn legend(self) -> String {
        format!(
            "{} free   {} free, in the static band   {} up to a quarter in use   {} half   {} three quarters   {} more",
            self.of(0, false),
            self.of(0, true),
            self.of(1, false),
            self.of(2, false),
            self.of(3, false),
            self.of(4, false),
        )
    }
}

/// Smallest number of consecutive free rows that are folded into one line.
const FOLD: usize = 3;

/// Draws a picture with characters. `paint` colours a block of the static band.
pub fn text(picture: &Picture, charset: Charset, paint: impl Fn(&str) -> String) -> String {
    let mut text = format!("{}, {} per block: {}\n", picture.title, picture.unit, picture.per_block);
    let width = picture.labels.iter().map(String::len).max().unwrap_or(0);
    let mut free: Vec<String> = Vec::new();
    for (label, blocks) in picture.rows() {
        let drawn: String = blocks
            .iter()
            .map(|block| {
                let character = charset.of(picture.shade(*block), block.band).to_string();
                if block.band { paint(&character) } else { character }
            })
            .collect();
        let line = format!("  {label:width$}  {drawn}\n");
        if blocks.iter().any(|block| block.used > 0 || block.band) {
            fold(&mut text, &mut free, width);
            text.push_str(&line);
        } else {
            free.push(line);
        }
    }
    fold(&mut text, &mut free, width);
    text
}

fn fold(text: &mut String, free: &mut Vec<String>, width: usize) {
    if free.len() < FOLD {
        text.extend(free.drain(..));
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {:width$}  ({} rows, all free)", "...", free.len());
    free.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(size: u128, band: (u128, u128), offsets: &[u128]) -> Picture {
        let subject = Subject { title: "r".into(), unit: "addresses", size, capacity: size, band, offsets };
        Picture::new(subject, |offset| offset.to_string())
    }

    #[test]
    fn small_range_has_a_block_for_each_address() {
        let drawn = text(&picture(80, (1, 4), &[1, 2, 40, 66]), Charset::Ascii, ToString::to_string);
        let expected = "r, addresses per block: 1\n\
             \x20 0   .##__...................................#.......................\n\
             \x20 64  ..#.............\n";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn shades_show_the_share_and_free_rows_are_folded() {
        let half: Vec<u128> = (0..32).collect();
        let large = picture(65_536, (1, 256), &half);
        assert_eq!(large.per_block, 64);
        let drawn = text(&large, Charset::Blocks, ToString::to_string);
        assert!(drawn.contains("  0      ▒___····") && drawn.contains("(15 rows, all free)"), "{drawn}");
    }

    #[test]
    fn largest_range_is_drawn() {
        let drawn = text(&picture(u128::MAX, (1, 256), &[1]), Charset::Ascii, ToString::to_string);
        assert!(drawn.contains('-'), "{drawn}");
    }
}
