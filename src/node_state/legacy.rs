//! Reads the tables of `iptables-legacy`.
//!
//! The kernel reports them only through `getsockopt`, for which Rust needs `unsafe` code. So netsurgeon runs the host's own
//! `iptables-legacy-save`, but only for tables that exist: the kernel lists them, and the program then loads no module. Hosts
//! without this program, for example Talos, rarely have such tables; if they do, the tables are reported as not read.
//!
//! The program needs the libraries of the host, so it runs with the host's root folder as its root: netsurgeon starts itself as
//! `netsurgeon agent run-in-root`, which changes its root and then becomes the program.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::model::{FilterTable, Part};
use super::save_text::tables;

/// Each family with the kernel's list of its tables, and the names of the program.
const FAMILIES: [(&str, &str, [&str; 2]); 2] = [
    ("ip", "/proc/net/ip_tables_names", ["iptables-legacy-save", "iptables-save"]),
    ("ip6", "/proc/net/ip6_tables_names", ["ip6tables-legacy-save", "ip6tables-save"]),
];
/// Folders of the host that contain the program.
const FOLDERS: [&str; 5] = ["usr/sbin", "sbin", "usr/local/sbin", "usr/bin", "bin"];
/// Limit for the output of the program.
const MOST: u64 = 64 << 20;
/// Limit for the kernel's list of tables.
const MOST_NAMES: u64 = 64 << 10;

pub(super) fn read(root: &Path) -> Part<FilterTable> {
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    let mut has_list = false;
    for (family, list, programs) in FAMILIES {
        let names = match names(list) {
            Ok(Some(names)) => names,
            Ok(None) => continue,
            Err(error) => {
                has_list = true;
                gaps.push(format!("`{list}`: {error}"));
                continue;
            }
        };
        has_list = true;
        if names.is_empty() {
            continue;
        }
        match save(root, family, programs, &names) {
            Ok(tables) => found.extend(tables),
            Err(error) => gaps.push(format!(
                "the tables {} of family `{family}` exist and could not be read: {error}",
                names.join(", ")
            )),
        }
    }
    match (has_list, gaps.is_empty()) {
        (false, _) => Part::absent("the kernel has not loaded `ip_tables` or `ip6_tables`"),
        (true, true) => Part::complete(found),
        (true, false) => Part::incomplete(found, gaps.join("; ")),
    }
}

/// Returns the tables that the kernel lists; `None` if it has no list.
fn names(list: &str) -> io::Result<Option<Vec<String>>> {
    let file = match std::fs::File::open(list) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MOST_NAMES).read_to_string(&mut text)?;
    let mut names: Vec<String> = text.split_whitespace().map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    Ok(Some(names))
}

fn save(root: &Path, family: &str, programs: [&str; 2], names: &[String]) -> io::Result<Vec<FilterTable>> {
    let program = program(root, programs)?;
    let mut found = Vec::new();
    for name in names {
        let text = output(root, &program, &["-t", name])?;
        let parsed = tables(&text, family);
        found.extend(
            parsed
                .ok_or_else(|| io::Error::other(format!("`{program} -t {name}` printed something else")))?,
        );
    }
    Ok(found)
}

/// Returns the path of the program on the host. `iptables-save` is used only if it is not that of `iptables-nft`.
fn program(root: &Path, names: [&str; 2]) -> io::Result<String> {
    let exists = |name: &str| {
        let paths = FOLDERS.iter().map(|folder| format!("/{folder}/{name}"));
        paths.into_iter().find(|path| root.join(path.trim_start_matches('/')).symlink_metadata().is_ok())
    };
    let [legacy, plain] = names;
    if let Some(path) = exists(legacy) {
        return Ok(path);
    }
    if let Some(path) = exists(plain)
        && !output(root, &path, &["--version"])?.contains("nf_tables")
    {
        return Ok(path);
    }
    Err(io::Error::other(format!("the node has no `{legacy}`")))
}

/// Runs a program of the host and returns its output.
fn output(root: &Path, program: &str, arguments: &[&str]) -> io::Result<String> {
    let mut command = if root == Path::new("/") {
        Command::new(program)
    } else {
        let mut command = Command::new("/proc/self/exe");
        command.args(["agent", "run-in-root", "--root"]).arg(root).arg("--").arg(program);
        command
    };
    command.args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MOST.saturating_add(1)).read_to_end(&mut text)?;
    }
    if text.len() as u64 > MOST {
        // The process is a child of this one and has not been waited for, so its id is still its own.
        child.kill()?;
        child.wait()?;
        return Err(io::Error::other(format!("`{program}` prints more than {} MiB", MOST >> 20)));
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!("`{program}` ended with {status}")));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Changes the root folder of this process and becomes a program. Returns only if this fails.
pub fn run_in_root(root: &Path, program: &str, arguments: &[String]) -> io::Error {
    let changed = std::os::unix::fs::chroot(root).and_then(|()| std::env::set_current_dir("/"));
    match changed {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}
