//! Which namespaces a plan copies: those of the command line, those of the configuration, or both restricted to each other.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::config::{Config, NamespaceSelector, Namespaces, parse_selector};
use crate::inventory::selectors::selects;
use crate::kube_api::{Collection, ReadOnly};
use crate::session::Failure;

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
