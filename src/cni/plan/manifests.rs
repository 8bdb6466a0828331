//! Reads the manifests of the new network plug-in, with limits: a folder can contain anything.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::inventory::{list, text};

/// Maximum number of files. The largest known installation has about ten.
pub const MOST_FILES: usize = 200;
/// Maximum size of a file. The largest known manifest has about 2 MB.
pub const LARGEST_FILE: u64 = 8 * 1024 * 1024;
/// Maximum size of all files.
pub const LARGEST_SUM: u64 = 24 * 1024 * 1024;
/// Maximum number of objects.
pub const MOST_OBJECTS: usize = 2_000;

/// Kinds whose content is read. Of all other kinds, also of Secrets, only the names are kept.
const READ: [&str; 8] = [
    "ConfigMap",
    "DaemonSet",
    "Deployment",
    "IPPool",
    "FelixConfiguration",
    "Installation",
    "CiliumPodIPPool",
    "Subnet",
];

/// Why manifests cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestsError {
    /// A file or folder cannot be read.
    #[error("`{0}` cannot be read: {1}")]
    Unreadable(PathBuf, String),
    /// The path is a device, a pipe or a socket.
    #[error("`{0}` is not a regular file")]
    NotRegular(PathBuf),
    /// The folder contains no manifest.
    #[error("`{0}` contains no file with the extension `yaml`, `yml` or `json`")]
    Empty(PathBuf),
    /// There are too many files.
    #[error("`{0}` contains more than {MOST_FILES} manifests")]
    ManyFiles(PathBuf),
    /// A file, or all files together, are too large.
    #[error("`{0}` is too large: a file must not exceed 8 MiB, and all files together 24 MiB")]
    Large(PathBuf),
    /// There are too many objects.
    #[error("the manifests contain more than {MOST_OBJECTS} objects")]
    ManyObjects,
    /// A file is not YAML.
    #[error("`{0}` is not valid YAML: {1}")]
    Invalid(PathBuf, String),
}

/// Reads the objects in the manifests of a folder, in the order of the file names, as `kubectl apply -f` does; subfolders are
/// ignored. The path can also be a file.
pub fn read(path: &Path) -> Result<Vec<Value>, ManifestsError> {
    let mut left = LARGEST_SUM;
    let mut objects = Vec::new();
    for file in files(path)? {
        let content = content(&file, left.min(LARGEST_FILE))?;
        left = left.saturating_sub(u64::try_from(content.len()).unwrap_or(u64::MAX));
        let fault = |reason: String| ManifestsError::Invalid(file.clone(), reason);
        let content = String::from_utf8(content).map_err(|error| fault(error.to_string()))?;
        // `kubectl` reads YAML 1.1, for example `defaultMode: 0400`.
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(&content, options)
            // Without the part of the text, which can contain a secret.
            .map_err(|error| fault(error.without_snippet().to_string()))?;
        for document in &documents {
            objects.extend(objects_in(document));
        }
        if objects.len() > MOST_OBJECTS {
            return Err(ManifestsError::ManyObjects);
        }
    }
    Ok(objects)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ManifestsError> {
    let unreadable =
        |error: std::io::Error| ManifestsError::Unreadable(path.to_path_buf(), error.to_string());
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if matches!(extension, "yaml" | "yml" | "json") && !file.is_dir() {
            found.push(file);
        }
        if found.len() > MOST_FILES {
            return Err(ManifestsError::ManyFiles(path.to_path_buf()));
        }
    }
    found.sort();
    if found.is_empty() { Err(ManifestsError::Empty(path.to_path_buf())) } else { Ok(found) }
}

/// Reads a regular file with at most `most` bytes. Opening a pipe does not block.
fn content(file: &Path, most: u64) -> Result<Vec<u8>, ManifestsError> {
    let unreadable =
        |error: std::io::Error| ManifestsError::Unreadable(file.to_path_buf(), error.to_string());
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(file).map_err(unreadable)?;
    if !opened.metadata().map_err(unreadable)?.is_file() {
        return Err(ManifestsError::NotRegular(file.to_path_buf()));
    }
    let mut content = Vec::new();
    opened.take(most.saturating_add(1)).read_to_end(&mut content).map_err(unreadable)?;
    if u64::try_from(content.len()).is_ok_and(|length| length <= most) {
        Ok(content)
    } else {
        Err(ManifestsError::Large(file.to_path_buf()))
    }
}

/// Returns the objects of a document: the object itself, or those of a list.
fn objects_in(document: &Value) -> Vec<Value> {
    if text(document, "/kind").ends_with("List") && document.get("items").is_some() {
        return list(document, "/items").iter().map(kept).collect();
    }
    if document.is_object() { vec![kept(document)] } else { Vec::new() }
}

/// Returns the part of an object that is read.
fn kept(object: &Value) -> Value {
    let kind = text(object, "/kind");
    if READ.contains(&kind) {
        return object.clone();
    }
    json!({
        "apiVersion": text(object, "/apiVersion"), "kind": kind,
        "metadata": {"name": text(object, "/metadata/name"), "namespace": text(object, "/metadata/namespace")},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_in_order_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b.yaml", "kind: Secret\nmetadata: {name: b}\nstringData: {password: hush}\n");
        write(
            "a.yml",
            "kind: ConfigMap\nmetadata: {name: a}\ndata: {x: y}\n---\n# nothing\n---\nkind: List\nitems: [{kind: Service}]\n",
        );
        write("c.json", r#"{"kind": "DaemonSet"}"#);
        write("README.md", "{");
        fs::create_dir(folder.path().join("d.yaml")).unwrap();
        let found = read(folder.path()).unwrap();
        let kinds: Vec<&str> = found.iter().map(|object| text(object, "/kind")).collect();
        assert_eq!(kinds, ["ConfigMap", "Service", "Secret", "DaemonSet"]);
        assert!(!format!("{found:?}").contains("hush"));
        assert_eq!(read(&folder.path().join("c.json")).unwrap().len(), 1);
        write("d.yml", "kind: Deployment\nspec: {mode: 0400, size: 12}\n");
        let deployment = &read(&folder.path().join("d.yml")).unwrap()[0];
        assert_eq!((&deployment["spec"]["mode"], &deployment["spec"]["size"]), (&json!(0o400), &json!(12)));
    }

    #[test]
    fn hostile_manifests_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(matches!(read(folder.path()), Err(ManifestsError::Empty(_))));
        assert!(matches!(read(&at("none")), Err(ManifestsError::Unreadable(..))));
        assert!(matches!(read(Path::new("/dev/zero")), Err(ManifestsError::NotRegular(_))));
        let aliases = (1..12).fold("a0: &a0 [x]\n".to_string(), |all, index| {
            let before = format!("*a{}", index - 1);
            all + &format!("a{index}: &a{index} [{}]\n", vec![before; 10].join(", "))
        });
        let deep = "[".repeat(5_000);
        for (name, text) in [
            ("aliases", aliases.as_str()),
            ("deep", &deep),
            ("open", "a: {"),
            ("secret", "password: hush: hush"),
        ] {
            fs::write(at("x.yaml"), text).unwrap();
            let error = read(folder.path()).unwrap_err();
            assert!(matches!(error, ManifestsError::Invalid(..)), "{name}: {error}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
        fs::write(at("x.yaml"), [0xff, 0xfe, 0x00]).unwrap();
        assert!(matches!(read(folder.path()), Err(ManifestsError::Invalid(..))));
        fs::write(at("x.yaml"), "---\nkind: A\n".repeat(900)).unwrap();
        for copy in ["y.yaml", "z.yaml"] {
            fs::copy(at("x.yaml"), at(copy)).unwrap();
        }
        assert!(matches!(read(folder.path()), Err(ManifestsError::ManyObjects)));
        fs::File::create(at("x.yaml")).unwrap().set_len(LARGEST_FILE + 1).unwrap();
        assert!(matches!(read(folder.path()), Err(ManifestsError::Large(_))));
        for index in 0..=MOST_FILES {
            fs::write(at(&format!("{index}.yaml")), "").unwrap();
        }
        assert!(matches!(read(folder.path()), Err(ManifestsError::ManyFiles(_))));
    }
}
