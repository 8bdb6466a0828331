//! Container images from scratch, in one archive that `ctr` imports: there is no registry that a test may pull from.
//!
//! The archive has the format of `docker save`: for each image one layer, a configuration, and an entry in `manifest.json`. It is
//! written once per build: its name contains a digest of everything in it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::process::run;
use super::programs::{coredns, pause};

/// An image with one program that sleeps, `/pause`.
pub const PAUSE: &str = "rig.test/pause:1";

/// An image with CoreDNS, `/coredns`.
pub const COREDNS: &str = "rig.test/coredns:1";

/// An image with the tested program, `/netsurgeon`, its libraries, and `/pause`.
pub const AGENT: &str = "rig.test/netsurgeon:1";

/// Change this when the archive of the same files changes.
const FORMAT: u8 = 1;

/// How long an archive of another build stays: another process may be about to import it.
const EXPIRY: Duration = Duration::from_hours(1);

/// A file of an image. Everything is executable.
struct ImageFile {
    path: String,
    content: Vec<u8>,
}

struct Image {
    name: &'static str,
    entrypoint: &'static str,
    files: Vec<ImageFile>,
}

/// Returns the archive of all images.
pub fn archive() -> &'static Path {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let (program, folder) = (option_env!("CARGO_BIN_EXE_netsurgeon"), option_env!("CARGO_TARGET_TMPDIR"));
        let (Some(program), Some(folder)) = (program, folder) else {
            panic!("cargo names both for tests only")
        };
        written(Path::new(program), Path::new(folder))
    })
}

fn written(program: &Path, folder: &Path) -> PathBuf {
    let libraries = libraries(program);
    let mut digest = Sha256::new();
    digest.update([FORMAT]);
    for file in [program, &pause(), &coredns()].into_iter().chain(libraries.iter().map(Path::new)) {
        digest.update(Sha256::digest(content(file)));
    }
    let archive = folder.join(format!("images-{}.tar", hex(&digest.finalize())));
    if archive.is_file() {
        return archive;
    }
    remove_expired(folder);
    // Another process may write the same archive: the last rename wins.
    let new = tempfile::Builder::new().prefix("new-images-").tempdir_in(folder).expect("a folder");
    let stripped = new.path().join("netsurgeon");
    let paths = [program, &stripped].map(|path| path.display().to_string());
    run(Path::new("strip"), &["-o", &paths[1], &paths[0]], &[]);
    let file = |path: &str, source: &Path| ImageFile { path: path.to_owned(), content: content(source) };
    let mut agent = vec![file("/netsurgeon", &stripped), file("/pause", &pause())];
    agent.extend(libraries.iter().map(|path| file(path, Path::new(path))));
    let images = [
        Image { name: PAUSE, entrypoint: "/pause", files: vec![file("/pause", &pause())] },
        Image { name: COREDNS, entrypoint: "/coredns", files: vec![file("/coredns", &coredns())] },
        Image { name: AGENT, entrypoint: "/netsurgeon", files: agent },
    ];
    let complete = new.path().join("images.tar");
    std::fs::write(&complete, bundle(&images)).expect("an archive");
    std::fs::rename(&complete, &archive).expect("the archive gets its name");
    archive
}

/// The libraries that a program is linked to, and its loader.
fn libraries(program: &Path) -> BTreeSet<String> {
    let text = run(Path::new("ldd"), &[&program.display().to_string()], &[]);
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    text.lines().filter_map(path).collect()
}

fn remove_expired(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_archive = entry.file_name().to_string_lossy().starts_with("images-");
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
        if is_archive && age.is_some_and(|age| age > EXPIRY) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn bundle(images: &[Image]) -> Vec<u8> {
    let mut tar = Vec::new();
    let mut manifest = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let layer = layer(&image.files);
        let (layer_name, config_name) = (format!("{number}.tar"), format!("{number}.json"));
        let config = configuration(image.entrypoint, &hex(&Sha256::digest(&layer)));
        add(&mut tar, &layer_name, &Kind::File(&layer));
        add(&mut tar, &config_name, &Kind::File(config.to_string().as_bytes()));
        manifest.push(json!({"Config": config_name, "RepoTags": [image.name], "Layers": [layer_name]}));
    }
    add(&mut tar, "manifest.json", &Kind::File(Value::from(manifest).to_string().as_bytes()));
    end(tar)
}

fn configuration(entrypoint: &str, layer: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture, "os": "linux",
        "config": {"Entrypoint": [entrypoint], "Env": ["PATH=/"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
    })
}

fn layer(files: &[ImageFile]) -> Vec<u8> {
    let mut tar = Vec::new();
    let parents = files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    let folders: BTreeSet<&Path> = parents.filter(|path| path.parent().is_some()).collect();
    for folder in folders {
        add(&mut tar, &format!("{}/", folder.display()), &Kind::Folder("0000755"));
    }
    add(&mut tar, "/tmp/", &Kind::Folder("0001777"));
    for file in files {
        add(&mut tar, &file.path, &Kind::File(&file.content));
    }
    end(tar)
}

enum Kind<'a> {
    /// Its content.
    File(&'a [u8]),
    /// Its mode.
    Folder(&'static str),
}

/// Adds an entry in the format of POSIX (`ustar`).
fn add(tar: &mut Vec<u8>, path: &str, kind: &Kind<'_>) {
    let (mode, flag, content): (&str, u8, &[u8]) = match *kind {
        Kind::File(content) => ("0000755", b'0', content),
        Kind::Folder(mode) => (mode, b'5', &[]),
    };
    let name = path.trim_start_matches('/');
    assert!(name.len() < 100, "{path}: too long for this format");
    let mut header = [0; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, mode);
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", content.len()));
    put(136, "00000000000");
    put(148, "        ");
    put(257, "ustar\x0000");
    header[156] = flag;
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

fn end(mut tar: Vec<u8>) -> Vec<u8> {
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
