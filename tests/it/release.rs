//! The scripts of `release/`: what they make from stand-ins for the programs is valid, and the same bytes each time. `make dist-check` tries
//! a real release with the tools of its users.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const TARGETS: [(&str, &str); 2] =
    [("x86_64-unknown-linux-musl", "amd64"), ("aarch64-unknown-linux-musl", "arm64")];
/// Stands for the commit of a release.
const COMMIT: &str = "0123456789012345678901234567890123456789";

/// Runs a command in the repository, and returns its stdout.
fn run(command: &mut Command) -> String {
    let output = command.current_dir(ROOT).output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A folder with a small program for each target, which behaves as the real one.
fn programs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (target, _) in TARGETS {
        let folder = folder.path().join(target);
        fs::create_dir(&folder).unwrap();
        let program = folder.join("netsurgeon");
        let text = format!("#!/bin/sh\n# {target}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_netsurgeon"));
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("netsurgeon.debug"), target).unwrap();
    }
    fs::write(folder.path().join("notices"), "the licences").unwrap();
    folder
}

/// Makes a release of the programs. `shell` is run before.
fn package(programs: &Path, shell: &str) -> tempfile::TempDir {
    let out = tempfile::tempdir().expect("a folder");
    let script = format!("{shell}; exec release/package.sh \"$0\" \"$0/notices\" \"$1/release\"");
    let mut command = Command::new("bash");
    command.args(["-euc", &script]).args([programs, out.path()]);
    run(command.env("SOURCE_COMMIT", COMMIT).env("SOURCE_DATE_EPOCH", "1700000000"));
    out
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)))
}

/// The files of a release.
fn release() -> (tempfile::TempDir, PathBuf) {
    let out = package(programs().path(), "true");
    let folder = out.path().join("release");
    (out, folder)
}

#[test]
fn same_programs_make_the_same_release() {
    let programs = programs();
    let release = package(programs.path(), "true");
    let again = package(programs.path(), "umask 077; export TZ=Asia/Tokyo LC_ALL=C.UTF-8");
    let sums = read(&release.path().join("release/SHA256SUMS"));
    assert_eq!(sums, read(&again.path().join("release/SHA256SUMS")));
    assert_eq!(sums.lines().count(), 9, "{sums}");
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").expect("a sum and a name");
        let bytes = fs::read(release.path().join("release").join(name)).expect("a file");
        assert_eq!(digest(&bytes), format!("sha256:{sum}"), "{name}");
    }
}

#[test]
fn archives_and_packages_contain_program_manual_completions_and_licences() {
    let (_out, folder) = release();
    for (target, architecture) in TARGETS {
        let name = format!("netsurgeon-{VERSION}-{target}");
        let list = run(Command::new("tar").arg("-tzf").arg(folder.join(format!("{name}.tar.gz"))));
        for file in [
            "netsurgeon",
            "LICENSE",
            "THIRD-PARTY-NOTICES",
            "man/netsurgeon-renumber-plan.1",
            "completions/_netsurgeon",
            "completions/netsurgeon.bash",
            "completions/netsurgeon.fish",
        ] {
            assert!(list.lines().any(|line| line == format!("{name}/{file}")), "{file}: {list}");
        }
        let debian = VERSION.replacen('-', "~", 1);
        let package = folder.join(format!("netsurgeon_{debian}_{architecture}.deb"));
        let fields = run(Command::new("dpkg-deb").arg("--field").arg(&package));
        assert!(fields.contains(&format!("Version: {debian}\nArchitecture: {architecture}\n")), "{fields}");
        assert!(!fields.contains("Depends"), "{fields}");
        let list = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
        for (mode, file) in [
            ("-rwxr-xr-x root/root", "./usr/bin/netsurgeon"),
            ("lrwxrwxrwx root/root", "./usr/bin/kubectl-netsurgeon -> netsurgeon"),
            ("-rw-r--r-- root/root", "./usr/share/man/man1/netsurgeon-renumber-plan.1.gz"),
            ("-rw-r--r-- root/root", "./usr/share/bash-completion/completions/netsurgeon"),
            ("-rw-r--r-- root/root", "./usr/share/doc/netsurgeon/copyright"),
        ] {
            assert!(
                list.lines().any(|line| line.starts_with(mode) && line.ends_with(file)),
                "{file}: {list}"
            );
        }
    }
}

/// Returns the content of a blob, and checks its size and its digest.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let name = descriptor["digest"].as_str().expect("a digest").replace(':', "/");
    let bytes = fs::read(layout.join("blobs").join(name)).expect("a blob");
    assert_eq!(
        (descriptor["size"].as_u64(), &descriptor["digest"]),
        (Some(bytes.len() as u64), &json!(digest(&bytes)))
    );
    bytes
}

fn document(layout: &Path, descriptor: &Value) -> Value {
    serde_json::from_slice(&blob(layout, descriptor)).expect("JSON")
}

#[test]
fn image_runs_the_program_of_each_architecture_as_an_ordinary_user() {
    let (out, folder) = release();
    let layout = folder.join(format!("netsurgeon-{VERSION}-image"));
    let index: Value = serde_json::from_str(&read(&layout.join("index.json"))).expect("JSON");
    assert_eq!(read(&layout.join("oci-layout")).trim(), r#"{"imageLayoutVersion":"1.0.0"}"#);
    let images = document(&layout, &index["manifests"][0]);
    assert_eq!(images["manifests"].as_array().map(Vec::len), Some(2));
    for (number, (target, architecture)) in TARGETS.into_iter().enumerate() {
        let image = &images["manifests"][number];
        assert_eq!(image["platform"], json!({"architecture": architecture, "os": "linux"}));
        let manifest = document(&layout, image);
        let config = document(&layout, &manifest["config"]);
        assert_eq!((&config["architecture"], &config["os"]), (&json!(architecture), &json!("linux")));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/netsurgeon"]));
        assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], COMMIT);
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
        let root = out.path().join(target);
        fs::create_dir(&root).unwrap();
        let layer = root.join("layer.tar");
        fs::write(root.join("layer.tar.gz"), blob(&layout, &manifest["layers"][0])).unwrap();
        run(Command::new("gunzip").arg(root.join("layer.tar.gz")));
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest(&fs::read(&layer).unwrap())]));
        let list = run(Command::new("tar").args(["--numeric-owner", "-tvf"]).arg(&layer));
        let files: Vec<_> =
            list.lines().map(|line| (&line[..14], line.rsplit(' ').next().unwrap())).collect();
        let expected = [
            ("-rw-r--r-- 0/0", "LICENSE"),
            ("-rw-r--r-- 0/0", "THIRD-PARTY-NOTICES"),
            ("-rwxr-xr-x 0/0", "netsurgeon"),
        ];
        assert_eq!(files, expected);
        assert!(
            run(Command::new("tar").arg("-xOf").arg(&layer).arg("netsurgeon"))
                .contains(&format!("# {target}\n"))
        );
    }
}

/// krew's own validation is in `make dist-check`.
#[test]
fn manifests_of_package_managers_have_the_sums_of_the_archives() {
    let (_out, folder) = release();
    let krew: Value = serde_saphyr::from_str(&read(&folder.join("netsurgeon.yaml"))).expect("YAML");
    let formula = read(&folder.join("netsurgeon.rb"));
    assert_eq!(krew["spec"]["version"], format!("v{VERSION}"));
    for (number, (target, architecture)) in TARGETS.into_iter().enumerate() {
        let archive = format!("netsurgeon-{VERSION}-{target}.tar.gz");
        let sum = digest(&fs::read(folder.join(&archive)).unwrap()).replace("sha256:", "");
        let platform = &krew["spec"]["platforms"][number];
        assert_eq!(platform["selector"]["matchLabels"], json!({"os": "linux", "arch": architecture}));
        assert_eq!(platform["sha256"], sum);
        let address = format!("{}/releases/download/v{VERSION}/{archive}", env!("CARGO_PKG_REPOSITORY"));
        assert_eq!(platform["uri"], address);
        assert!(formula.contains(&format!("url \"{address}\"\n    sha256 \"{sum}\"\n")), "{formula}");
        // What `cargo binstall` makes of the template in Cargo.toml.
        assert!(address.ends_with(&format!("/v{VERSION}/netsurgeon-{VERSION}-{target}.tar.gz")));
        for file in platform["files"].as_array().expect("files") {
            let list = run(Command::new("tar").arg("-tzf").arg(folder.join(&archive)));
            assert!(list.lines().any(|line| file["from"] == line), "{file}");
        }
    }
    assert!(!formula.contains('@') && !krew.to_string().contains('@'), "a placeholder is left");
}

#[test]
fn manifests_get_an_image_by_its_digest() {
    let out = tempfile::tempdir().expect("a folder");
    let manifests = |image: &str| {
        Command::new(Path::new(ROOT).join("release/manifests.sh"))
            .arg(image)
            .arg(out.path())
            .output()
            .expect("the script")
    };
    let digest = format!("sha256:{}", "ab".repeat(32));
    let image = format!("registry.example.com:5000/tools/netsurgeon@{digest}");
    assert!(manifests(&image).status.success());
    let mut count = 0;
    for entry in fs::read_dir(Path::new(ROOT).join("deploy")).unwrap() {
        let filled = read(&out.path().join(entry.unwrap().file_name()));
        assert!(!filled.contains("FILL-IN/netsurgeon"), "{filled}");
        count += filled.matches(&format!("image: {image}\n")).count();
    }
    assert_eq!(count, 5);
    for tag in ["registry.example.com:5000/netsurgeon:0.2.0", "netsurgeon@sha256:ab", ""] {
        let refused = manifests(tag);
        assert_eq!(refused.status.code(), Some(1), "{tag}");
        assert!(!refused.stderr.is_empty(), "{tag}");
    }
}

/// The sums that a maintainer compares are only equal if the workflow runs the same commands.
#[test]
fn release_workflow_runs_make_targets() {
    let workflow: Value =
        serde_saphyr::from_str(&read(&Path::new(ROOT).join(".github/workflows/release.yml"))).expect("YAML");
    let steps = workflow["jobs"]["build"]["steps"].as_array().expect("steps");
    let ran: Vec<_> = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .filter_map(|run| run.strip_prefix("make "))
        .collect();
    assert_eq!(ran, ["dist", "dist-check", "dist-twice"]);
    let makefile = read(&Path::new(ROOT).join("Makefile"));
    assert!(ran.iter().all(|target| makefile.contains(&format!("\n{target}:"))));
}
