//! Rules that the compiler does not check: which room may import which, which library belongs to which room, and how long a
//! function and a file may be.

use std::path::{Path, PathBuf};

/// Each room and the rooms below it that it may import (`src/lib.rs` draws the order).
const LADDER: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    ("lib", &[]),
    (
        "cli",
        &[
            "report",
            "renumber",
            "dns",
            "mirror",
            "kops",
            "cni",
            "parity",
            "network",
            "agent",
            "deploy_lock",
            "leftovers",
            "preflight",
            "audit",
            "inventory",
            "controlplane",
            "encryption",
            "session",
            "operation",
            "survey",
            "node_state",
            "store",
            "kube_api",
            "host",
            "route53",
            "aws",
            "nameserver",
            "wire",
            "certs",
            "ip",
            "words",
        ],
    ),
    (
        "preflight",
        &[
            "renumber",
            "dns",
            "mirror",
            "inventory",
            "controlplane",
            "session",
            "operation",
            "survey",
            "store",
            "kube_api",
            "host",
            "route53",
            "nameserver",
            "registry",
            "wire",
            "certs",
            "ip",
            "words",
        ],
    ),
    (
        "report",
        &[
            "network",
            "renumber",
            "dns",
            "mirror",
            "nameserver",
            "session",
            "operation",
            "survey",
            "store",
            "ip",
            "words",
        ],
    ),
    (
        "renumber",
        &[
            "audit",
            "controlplane",
            "session",
            "operation",
            "survey",
            "store",
            "kube_api",
            "host",
            "wire",
            "certs",
            "ip",
            "words",
        ],
    ),
    (
        "dns",
        &[
            "inventory",
            "session",
            "operation",
            "store",
            "kube_api",
            "route53",
            "nameserver",
            "certs",
            "words",
        ],
    ),
    ("mirror", &["inventory", "session", "operation", "store", "kube_api", "certs", "registry", "words"]),
    ("network", &["agent", "kube_api", "words"]),
    ("agent", &["nameserver", "host"]),
    ("kops", &["wire"]),
    ("cni", &["network", "leftovers", "node_state", "inventory", "controlplane", "kube_api", "ip", "words"]),
    ("parity", &["inventory", "kube_api", "aws", "words"]),
    ("deploy_lock", &["kube_api"]),
    ("leftovers", &["node_state", "words"]),
    ("audit", &["session", "survey", "store", "kube_api", "host", "wire", "ip"]),
    (
        "inventory",
        &[
            "controlplane",
            "session",
            "survey",
            "store",
            "kube_api",
            "host",
            "route53",
            "nameserver",
            "wire",
            "ip",
            "words",
        ],
    ),
    ("controlplane", &["session", "survey", "kube_api", "host", "wire", "ip", "words"]),
    ("session", &["operation", "survey", "store", "kube_api", "host", "wire", "ip", "words"]),
    ("operation", &["store", "kube_api", "wire", "ip", "words"]),
    ("survey", &["store", "wire", "ip", "words"]),
    ("encryption", &["store", "wire"]),
    ("node_state", &["host"]),
    ("store", &["words"]),
    ("kube_api", &["wire", "ip", "words"]),
    ("host", &[]),
    ("route53", &["aws", "nameserver", "words"]),
    ("aws", &["words"]),
    ("nameserver", &[]),
    ("registry", &["words"]),
    ("wire", &["ip"]),
    ("certs", &[]),
    ("ip", &[]),
    ("words", &[]),
];

/// Names that only one place may use, or several places, separated by `|`.
const OWNED: &[(&str, &str)] = &[
    ("etcd_client", "store/etcd"),
    ("kube::", "kube_api"),
    ("prost::", "wire"),
    ("x509_cert", "certs"),
    ("rcgen", "certs"),
    ("pkcs8::", "certs"),
    ("webpki::", "certs"),
    ("minicbor", "wire"),
    ("aes::", "encryption"),
    ("aes_gcm::", "encryption"),
    ("cbc::", "encryption"),
    ("crypto_secretbox::", "encryption"),
    ("tokio_rustls", "kube_api|dns/probe|store/etcd|registry/connection.rs"),
    ("hickory_proto", "nameserver"),
    ("aws_config", "aws|route53"),
    ("aws_credential_types", "aws|route53"),
    ("aws_runtime", "aws"),
    ("aws_smithy_runtime", "aws"),
    ("quick_xml", "aws"),
    ("aws_sdk_route53", "route53"),
    ("clap", "cli"),
    ("maud::", "report"),
    ("PreEscaped", "report/html.rs"),
    ("anyhow::", "cli|session/failure.rs"),
    ("println!", "cli/output.rs"),
    ("eprintln!", "cli/output.rs"),
    ("io::stdout", "cli/output.rs"),
    ("io::stderr", "cli/output.rs"),
];

const LONGEST_FUNCTION: usize = 60;
const LONGEST_FILE: usize = 500;

pub struct Source {
    /// The path below `src/`.
    pub path: String,
    /// The lines before the unit tests; comment lines are empty.
    pub code: Vec<String>,
}

impl Source {
    fn room(&self) -> &str {
        self.path.split('/').next().expect("a name").trim_end_matches(".rs")
    }
}

pub fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files_below(&root, &["rs"]);
    assert!(files.len() > 50, "the sources are found");
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).expect("a source");
        let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
        let code = code.map(|line| if line.trim_start().starts_with("//") { "" } else { line }.to_string());
        let path = file.strip_prefix(&root).expect("below src").to_str().expect("UTF-8").to_string();
        Source { path, code: code.collect() }
    };
    let is_test = |source: &Source| source.path.ends_with("tests.rs");
    files.iter().map(read).filter(|source| source.path != "wire/generated.rs" && !is_test(source)).collect()
}

/// Returns the files below a folder that have one of these extensions.
pub fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if extension.is_some_and(|extension| extensions.contains(&extension)) {
                found.push(path);
            }
        }
    }
    found
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Returns the rooms that a line names: `crate::ROOM`, or in `main` `netsurgeon::ROOM`.
fn named(line: &str) -> Vec<&str> {
    ["crate::", "netsurgeon::"]
        .into_iter()
        .flat_map(|start| line.split(start).skip(1))
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
        .collect()
}

#[test]
fn room_imports_only_rooms_below_it() {
    let mut faults = Vec::new();
    for source in sources() {
        let room = source.room();
        let Some((_, below)) = LADDER.iter().find(|(name, _)| *name == room) else {
            faults.push(format!("src/{}: `LADDER` has no room `{room}`", source.path));
            continue;
        };
        for (index, line) in source.code.iter().enumerate() {
            for other in named(line).into_iter().filter(|other| *other != room) {
                if !below.contains(&other) {
                    let place = format!("src/{}:{}", source.path, index + 1);
                    faults.push(format!("{place}: `{room}` must not import `{other}`: {}", line.trim()));
                }
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn library_has_one_owner() {
    let mut faults = Vec::new();
    for source in sources() {
        let is_owner = |owners: &str| owners.split('|').any(|owner| source.path.starts_with(owner));
        for (name, owner) in OWNED.iter().filter(|(_, owners)| !is_owner(owners)) {
            let lines = source.code.iter().enumerate().filter(|(_, line)| line.contains(name));
            faults.extend(lines.map(|(index, _)| {
                format!("src/{}:{}: only src/{owner} may use `{name}`", source.path, index + 1)
            }));
        }
    }
    assert_none(&faults);
}

#[test]
fn functions_and_files_are_short() {
    let mut faults = Vec::new();
    for source in sources() {
        if source.code.len() > LONGEST_FILE {
            faults.push(format!("src/{} has {} lines", source.path, source.code.len()));
        }
        for (index, line) in source.code.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let is_function = line.split_whitespace().take(4).any(|word| word == "fn");
            if !is_function || line.trim_end().ends_with([';', '}']) {
                continue;
            }
            let end = format!("{}}}", " ".repeat(indent));
            let length = source.code.iter().skip(index).position(|line| *line == end).unwrap_or(0) + 1;
            if length > LONGEST_FUNCTION {
                faults.push(format!("src/{}:{}: a function of {length} lines", source.path, index + 1));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn every_module_has_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let silent = sources().into_iter().filter(|source| {
        let text = std::fs::read_to_string(root.join(&source.path)).expect("a source");
        !text.starts_with("//! ")
    });
    let faults: Vec<String> =
        silent.map(|source| format!("src/{} has no module documentation", source.path)).collect();
    assert_none(&faults);
}

/// The rule for names in docs/development.md.
#[test]
fn files_have_the_names_of_things() {
    /// Nouns that end like a participle, the records of a session, and files that have the name of a check or of generated code.
    const NOUNS: &[&str] = &[
        "listing",
        "wording",
        "renumbering",
        "shared",
        "generated",
        "recorded",
        "advertised",
        "pinned",
        "tested",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut faults = Vec::new();
    for file in
        files_below(&root.join("src"), &["rs"]).into_iter().chain(files_below(&root.join("tests"), &["rs"]))
    {
        let parts = file.strip_prefix(root).expect("below the root").components();
        for part in parts.map(|part| part.as_os_str().to_string_lossy().replace(".rs", "")) {
            let word = part.rsplit('_').next().unwrap_or_default();
            let is_participle = word.len() > 4 && (word.ends_with("ing") || word.ends_with("ed"));
            if is_participle && !NOUNS.contains(&word) {
                faults.push(format!("{}: `{word}` is a participle", file.display()));
            }
        }
    }
    assert_none(&faults);
}
