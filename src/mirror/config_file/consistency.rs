//! What the schema cannot say about a configuration: rules that contradict each other, and texts that do not mean anything.

use std::collections::BTreeMap;

use crate::mirror::config::{Config, Namespaces, parse_selector};
use crate::mirror::rules::{check_patch, image_conflict, is_registry_prefix};

/// A contradiction: the path of the value, and the reason.
pub(super) type Contradiction = (Vec<String>, String);

/// Returns the first contradiction.
pub(super) fn contradiction(config: &Config) -> Option<Contradiction> {
    renames(config)
        .or_else(|| selectors(config))
        .or_else(|| images(config))
        .or_else(|| hosts(config))
        .or_else(|| pull_secrets(config))
        .or_else(|| changes(config))
}

fn at(path: &[&str], reason: impl Into<String>) -> Contradiction {
    (path.iter().map(ToString::to_string).collect(), reason.into())
}

fn renames(config: &Config) -> Option<Contradiction> {
    let names: &[String] = match &config.namespaces {
        Some(Namespaces::Names(names)) => names,
        _ => &[],
    };
    let mut targets: BTreeMap<&str, &str> = BTreeMap::new();
    for (from, to) in &config.rename {
        let path = ["rename", from.as_str()];
        if !is_label(to) {
            return Some(at(&path, format!("`{to}` is no name of a namespace")));
        }
        if let Some(other) = targets.insert(to, from) {
            return Some(at(&path, format!("`{other}` and `{from}` have the same new name `{to}`")));
        }
        if !names.is_empty() && !names.contains(from) {
            return Some(at(&path, format!("`namespaces` does not contain `{from}`")));
        }
        // A namespace that is renamed itself leaves its name to another one.
        if names.contains(to) && config.renamed(to) == to {
            return Some(at(&path, format!("`{to}` is also copied, so two namespaces would have this name")));
        }
    }
    None
}

/// Returns whether a text is a DNS label (RFC 1123).
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn selectors(config: &Config) -> Option<Contradiction> {
    let listed = |path: &'static [&'static str], texts: &[String]| {
        texts.iter().enumerate().find_map(|(index, text)| {
            let reason = parse_selector(text).err()?;
            let mut place: Vec<String> = path.iter().map(ToString::to_string).collect();
            place.push(index.to_string());
            Some((place, reason))
        })
    };
    if let Some(Namespaces::Selected(selected)) = &config.namespaces
        && let Err(reason) = parse_selector(&selected.selector)
    {
        return Some(at(&["namespaces", "selector"], reason));
    }
    listed(&["passive", "workloads"], &config.passive.workloads).or_else(|| listed(&["run"], &config.run))
}

fn images(config: &Config) -> Option<Contradiction> {
    for (index, rule) in config.images.iter().enumerate() {
        let index = index.to_string();
        if !is_registry_prefix(&rule.to) {
            let reason = format!("`{}` does not start with the host of a registry", rule.to);
            return Some(at(&["images", &index, "to"], reason));
        }
        if rule.from.ends_with('/') != rule.to.ends_with('/') {
            return Some(at(&["images", &index, "to"], "`from` and `to` must both end with `/`, or neither"));
        }
    }
    if let Some((first, second)) = image_conflict(&config.images) {
        let reason = format!("images[{second}] would change the result of images[{first}] again");
        return Some(at(&["images", &first.to_string(), "to"], reason));
    }
    let mut paths = config.image_paths.iter().enumerate();
    let (index, found) = paths.find(|(_, one)| !one.path.starts_with('/'))?;
    let reason = format!("`{}` is no JSON pointer: it does not start with `/`", found.path);
    Some(at(&["imagePaths", &index.to_string(), "path"], reason))
}

fn hosts(config: &Config) -> Option<Contradiction> {
    for (index, rule) in config.hosts.iter().enumerate() {
        let index = index.to_string();
        let path = ["hosts", index.as_str()];
        let (field, domain) = match (&rule.add, &rule.replace) {
            (Some(domain), None) => ("add", domain),
            (None, Some(domain)) => ("replace", domain),
            _ => return Some(at(&path, "exactly one of `add` and `replace` is needed")),
        };
        for (field, name) in [("suffix", &rule.suffix), (field, domain)] {
            if !is_domain(name) {
                let reason = format!("`{name}` is no domain name in lower case");
                return Some(at(&["hosts", &index, field], reason));
            }
        }
    }
    None
}

fn is_domain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn pull_secrets(config: &Config) -> Option<Contradiction> {
    for (index, secret) in config.pull_secrets.iter().enumerate() {
        let index_text = index.to_string();
        if !is_domain(&secret.name) {
            let reason = format!("`{}` is no name of a Secret", secret.name);
            return Some(at(&["pullSecrets", &index_text, "name"], reason));
        }
        if config.pull_secrets.iter().take(index).any(|other| other.name == secret.name) {
            let reason = format!("another pull secret has the name `{}`", secret.name);
            return Some(at(&["pullSecrets", &index_text, "name"], reason));
        }
    }
    None
}

/// Checks the rules that name kinds.
fn changes(config: &Config) -> Option<Contradiction> {
    if let Some(index) =
        config.kinds.exclude.iter().position(|kind| kind == "Namespace" || kind == "namespaces")
    {
        let reason = "a Namespace is always copied; omit its name in `namespaces` instead";
        return Some(at(&["kinds", "exclude", &index.to_string()], reason));
    }
    for (index, rule) in config.patches.iter().enumerate() {
        if let Err((step, reason)) = check_patch(&rule.patch) {
            let mut path = vec!["patches".to_string(), index.to_string(), "patch".to_string()];
            path.extend(step.map(|step| step.to_string()));
            return Some((path, reason));
        }
    }
    None
}
