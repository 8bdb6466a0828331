//! What tests cost: each cluster appends a line to `target/times.tsv` when it ends, with its program, the name of its test, its
//! era, and the seconds from its start to its end.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Appends the line on drop.
pub struct Timed {
    what: String,
    test: String,
    began: Instant,
}

impl Timed {
    /// Starts the clock. The name of the calling thread is the name of the test.
    pub fn start(what: String) -> Self {
        let test = std::thread::current().name().unwrap_or("-").to_owned();
        Self { what, test, began: Instant::now() }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let Some((program, file)) = program_and_file() else { return };
        let seconds = self.began.elapsed().as_secs_f64();
        let line = format!("{program}\t{}\t{}\t{seconds:.1}\n", self.test, self.what);
        // One write at the end of the file: lines of other processes stay whole. A test does not fail because of its time.
        let file = OpenOptions::new().append(true).create(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Returns the name of this program without its hash, and the file. The program is `target/PROFILE/FOLDER/NAME-HASH`.
fn program_and_file() -> Option<(String, PathBuf)> {
    let own = std::env::current_exe().ok()?;
    let name = own.file_name()?.to_str()?;
    let program = name.split_once('-').map_or(name, |(program, _)| program).to_owned();
    Some((program, own.ancestors().nth(3).map(|target: &Path| target.join("times.tsv"))?))
}
