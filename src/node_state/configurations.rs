//! Reads the network configurations of the container runtime in `/etc/cni/net.d`, or in the folder of K3s if there are none.
//!
//! The runtime reads the files with the suffixes `.conf`, `.conflist` and `.json`, in the order of their names (`ConfFiles` in
//! `libcni/conf.go`, version 1.3). A file that cannot be parsed is an error for containerd 2.4, also if later files are valid.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::files::{MOST_NAMES, Opened, content, entries, unopened};
use super::model::{NetworkConfiguration, Part};
use crate::host::untrusted_root::Root;

/// The folder of the container runtime, and that of K3s.
const FOLDERS: [&str; 2] = ["/etc/cni/net.d", "/var/lib/rancher/k3s/agent/etc/cni/net.d"];
const SUFFIXES: [&str; 3] = ["conf", "conflist", "json"];
/// Limit for the size of a file.
const LARGEST: u64 = 1 << 20;
/// Limit for the number of files.
const MOST: usize = 1000;

pub(super) fn read(root: &Opened) -> Part<NetworkConfiguration> {
    let root = match root {
        Ok(root) => root,
        Err(error) => return unopened(error),
    };
    let [own, of_k3s] = FOLDERS;
    let found = of_folder(root, own);
    if !found.items.is_empty() || found.gap().is_some() {
        return found;
    }
    let mut found = of_folder(root, of_k3s);
    for configuration in &mut found.items {
        configuration.folder = Some(of_k3s.to_string());
    }
    found
}

fn of_folder(root: &Root, folder: &str) -> Part<NetworkConfiguration> {
    let (names, is_cut) = match entries(root, Path::new(folder), MOST_NAMES) {
        Ok(found) => found,
        Err(error) => return Part::incomplete(Vec::new(), format!("`{folder}`: {error}")),
    };
    let mut gap = is_cut.then(|| format!("`{folder}` contains more than {MOST_NAMES} names"));
    let is_read = |path: &Path| {
        let suffix = path.extension().and_then(|suffix| suffix.to_str());
        suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix))
    };
    let mut found = Vec::new();
    for entry in names.iter().filter(|entry| is_read(Path::new(&entry.name)) && !entry.is_folder) {
        if found.len() >= MOST {
            gap = Some(format!("`{folder}` contains more than {MOST} configurations"));
            break;
        }
        let path = Path::new(folder).join(&entry.name);
        let text = content(root, &path, LARGEST);
        found.push(configuration(entry.name.to_string_lossy().into_owned(), text));
    }
    Part::with_gap(found, gap)
}

fn configuration(file: String, text: io::Result<Option<Vec<u8>>>) -> NetworkConfiguration {
    let with_fault =
        |file, fault: String| NetworkConfiguration { file, fault: Some(fault), ..Default::default() };
    let text = match text {
        Ok(Some(text)) => text,
        Ok(None) => return with_fault(file, "it is no regular file".to_string()),
        Err(error) => return with_fault(file, error.to_string()),
    };
    let value: Map<String, Value> = match serde_json::from_slice(&text) {
        Ok(value) => value,
        Err(error) => return with_fault(file, format!("it is no JSON object: {error}")),
    };
    let is_list = file.ends_with(".conflist");
    let plugins: Vec<&Value> = match value.get("plugins").and_then(Value::as_array) {
        Some(plugins) if is_list => plugins.iter().collect(),
        _ => Vec::new(),
    };
    let whole = Value::Object(value.clone());
    let plugins = if is_list { plugins } else { vec![&whole] };
    let kind = |plugin: &Value| plugin.get("type").and_then(Value::as_str).map(ToString::to_string);
    let types: Vec<String> = plugins.iter().copied().filter_map(kind).collect();
    let mut all = Vec::new();
    for plugin in &plugins {
        collect_types(plugin, &mut all);
    }
    let network = value.get("name").and_then(Value::as_str).map(ToString::to_string);
    let fault = if types.is_empty() || types.len() < plugins.len() {
        Some("a plug-in without `type`, or no plug-in".to_string())
    } else if network.is_none() {
        Some("it has no `name`".to_string())
    } else {
        None
    };
    let inner_types = all.into_iter().filter(|inner| !types.contains(inner)).collect();
    NetworkConfiguration {
        file,
        folder: None,
        network,
        plugins: types,
        inner_types,
        bridge: bridge(&whole),
        fault,
    }
}

/// Adds every `type` in a value. `serde_json` limits the depth of values to 128.
fn collect_types(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("type").and_then(Value::as_str).map(ToString::to_string));
            fields.values().for_each(|value| collect_types(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_types(item, found)),
        _ => {}
    }
}

/// Returns the first `bridge` in a value.
fn bridge(value: &Value) -> Option<String> {
    match value {
        Value::Object(fields) => match fields.get("bridge").and_then(Value::as_str) {
            Some(name) => Some(name.to_string()),
            None => fields.values().find_map(bridge),
        },
        Value::Array(items) => items.iter().find_map(bridge),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(file: &str, text: &str) -> NetworkConfiguration {
        configuration(file.to_string(), Ok(Some(text.as_bytes().to_vec())))
    }

    #[test]
    fn folder_of_k3s_is_read_if_the_other_one_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let files = || {
            let found = super::read(&Root::open(folder.path()));
            assert_eq!(found.gap(), None);
            found.items.into_iter().map(|one| (one.file, one.folder)).collect::<Vec<_>>()
        };
        let [own, of_k3s] = FOLDERS;
        assert_eq!(files(), []);
        for (at, name) in [(of_k3s, "10-flannel.conflist"), (own, "10-calico.conflist")] {
            let at = folder.path().join(at.trim_start_matches('/'));
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join(name), "{}").unwrap();
            let expected = if name.contains("flannel") { Some(of_k3s.to_string()) } else { None };
            assert_eq!(files(), [(name.to_string(), expected)]);
        }
    }

    #[test]
    fn plugins_are_listed_in_order() {
        let text = r#"{"name": "cbr0", "plugins": [
            {"type": "flannel", "delegate": {"isDefaultGateway": true}},
            {"type": "bridge", "bridge": "br7", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}"#;
        let found = read("10-flannel.conflist", text);
        assert_eq!(found.plugins, ["flannel", "bridge", "portmap"]);
        assert_eq!(found.inner_types, ["host-local"]);
        assert_eq!(
            (found.network.as_deref(), found.bridge.as_deref(), found.fault),
            (Some("cbr0"), Some("br7"), None)
        );
    }

    #[test]
    fn invalid_files_have_a_fault() {
        for (file, text) in [
            ("10-a.conflist", "{\"name\": \"x\", \"plug"),
            ("10-a.conflist", "{\"name\": \"x\", \"type\": \"bridge\"}"),
            ("10-a.conf", "{\"name\": \"x\"}"),
            ("10-a.conf", "{\"type\": \"bridge\"}"),
            ("10-a.conf", "[]"),
            ("10-a.conf", ""),
        ] {
            assert!(read(file, text).fault.is_some(), "{text}");
        }
        assert_eq!(read("10-a.conf", "{\"name\": \"x\", \"type\": \"bridge\"}").fault, None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,100}") {
            let _ = (read("a.conf", &text), read("a.conflist", &format!("{{\"plugins\": [{text}]}}")));
        }
    }
}
