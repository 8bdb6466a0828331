//! Which namespaces a plan copies: those of the command line, those of the configuration, or both restricted to each other.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::config::{Config, NamespaceSelector, Namespaces, parse_selector};
use crate::inventory::selectors::selects;
use crate::kube_api::{Collection, ReadOnly};
use crate::session::Failure;

/// Namespaces that belong to a cluster, and the namespace of netsurgeon's records. They are not copied.
const NOT_COPIED: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "netsurgeon"];

/// Returns whether a namespace can be copied.
pub fn is_copied(namespace: &str) -> bool {
    !NOT_COPIED.contains(&namespace)
}

/// Fails if a namespace must not be copied, or if two namespaces would have the same name in the mirror.
pub(super) fn refuse_namespaces(namespaces: &[String], config: &Config) -> Result<(), Failure> {
    let mut targets: BTreeMap<&str, &str> = BTreeMap::new();
    for name in namespaces {
        let target = config.renamed(name);
        if let Some(name) = [name, target].into_iter().find(|name| NOT_COPIED.contains(name)) {
            let text = format!("the namespace `{name}` belongs to its cluster, so it is not copied");
            return Err(Failure::refused(text).hint("give the namespaces of your workloads: `--namespace`"));
        }
        if let Some(other) = targets.insert(target, name) {
            let text = format!("the copies of `{other}` and `{name}` would have the same name, `{target}`");
            return Err(Failure::refused(text).hint("change `rename` in the configuration"));
        }
    }
    Ok(())
}

/// Returns the names of the namespaces to copy, sorted. `given`: the namespaces of the command line, which restrict the configuration.
pub async fn chosen_namespaces(
    source: &ReadOnly,
    config: &Config,
    given: &[String],
) -> Result<Vec<String>, Failure> {
    let configured = match &config.namespaces {
        None => None,
        Some(Namespaces::Names(names)) => Some(names.clone()),
        Some(Namespaces::Selected(NamespaceSelector { selector })) => Some(selected(source, selector).await?),
    };
    let mut chosen = match (configured, given) {
        (None, []) => {
            return Err(Failure::usage("no namespace is given")
                .hint("give `--namespace`, or `namespaces` in the configuration"));
        }
        (None, given) => given.to_vec(),
        (Some(configured), []) => configured,
        (Some(configured), given) => {
            if let Some(name) = given.iter().find(|name| !configured.contains(name)) {
                return Err(Failure::usage(format!(
                    "the configuration does not contain the namespace `{name}`"
                ))
                .hint("`--namespace` restricts the namespaces of the configuration"));
            }
            given.to_vec()
        }
    };
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// Returns the namespaces of the source that a selector selects.
async fn selected(source: &ReadOnly, text: &str) -> Result<Vec<String>, Failure> {
    let selector = parse_selector(text).map_err(Failure::usage)?;
    let found = source.list_metadata(&Collection::new("v1", "Namespace", None)).await?;
    let is_selected = |one: &ObjectMeta| selects(Some(&selector), &one.labels.clone().unwrap_or_default());
    let names = found.into_iter().filter(is_selected).filter_map(|one| one.name);
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Err(Failure::refused(format!("the selector `{text}` selects no namespace of the source"))
            .hint("check `namespaces` in the configuration, and `--context`"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::config_file::parse_config;

    #[test]
    fn names_in_the_mirror_are_different() {
        for (namespaces, config, is_valid) in [
            (vec!["a", "b"], "rename: {a: c}", true),
            (vec!["a", "b"], "rename: {a: b}", false),
            (vec!["a", "b"], "rename: {a: b, b: a}", true),
            (vec!["a"], "rename: {a: kube-system}", false),
            (vec!["netsurgeon"], "run: [a]", false),
        ] {
            let names: Vec<String> = namespaces.iter().map(ToString::to_string).collect();
            let config = parse_config(config).unwrap();
            assert_eq!(refuse_namespaces(&names, &config).is_ok(), is_valid, "{namespaces:?}");
        }
    }
}
