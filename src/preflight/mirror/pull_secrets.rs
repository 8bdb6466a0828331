//! `pull-secrets`: whether the source has the image registry Secrets that objects refer to.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{LocalObjectReference, ServiceAccount};

use super::Mirror;
use crate::inventory::namespaces::place;
use crate::inventory::pod_templates::Template;
use crate::kube_api::accessors::{namespace, subject};
use crate::preflight::secrets_role::SECRETS_ROLE;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::{all_of, counted};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "pull-secrets",
    why: "the mirror pulls every image with the copied credentials",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let accounts = input.source.selected::<ServiceAccount>().await?;
    let secrets = input.source.metadata(("v1", "Secret")).await;
    let secrets =
        secrets.map_err(|error| if error.denied.is_some() { no_secrets() } else { error.into() })?;
    let secrets = secrets.iter().map(place);
    let secrets = secrets.map(|(namespace, name)| (namespace.to_string(), name.to_string())).collect();
    Ok(judge(input.source.templates().await?, &accounts, &secrets))
}

/// Returns the result if the user has no permission to list Secrets.
fn no_secrets() -> Judged {
    Judged::unknown(
        "Secrets of the source are not checked: the user has no permission to list them",
        format!("{SECRETS_ROLE}; or skip this check: `--skip pull-secrets`"),
    )
}

/// Checks the image registry Secrets that objects refer to. Each Secret must exist in the source. `secrets`: namespace and name of
/// each Secret in the source.
fn judge(
    templates: &[Template],
    accounts: &[ServiceAccount],
    secrets: &BTreeSet<(String, String)>,
) -> Judged {
    let mut named: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut name = |namespace: &str, secret: &str, who: &str| {
        named.entry((namespace.to_string(), secret.to_string())).or_default().insert(who.to_string());
    };
    for template in templates {
        for secret in named_by(template.spec.image_pull_secrets.as_ref()) {
            name(&template.namespace, secret, &template.of);
        }
    }
    for account in accounts {
        let who = format!("ServiceAccount {}", subject(account));
        for secret in named_by(account.image_pull_secrets.as_ref()) {
            name(namespace(account), secret, &who);
        }
    }
    let missing = named.iter().filter(|(secret, _)| !secrets.contains(secret));
    let missing: Vec<String> = missing
        .map(|((namespace, name), who)| {
            format!("`{namespace}/{name}` ({})", first_few(&who.iter().cloned().collect::<Vec<_>>()))
        })
        .collect();
    if !missing.is_empty() {
        return Judged::fail(
            format!(
                "{} referenced, but missing in the source: {}",
                counted(missing.len(), "Secret is", "Secrets are"),
                first_few(&missing)
            ),
            "create them (`kubectl create secret docker-registry`), or remove the references: the mirror pulls every image",
        );
    }
    if named.is_empty() {
        return Judged::pass("no object refers to an image registry Secret");
    }
    Judged::pass(format!("the source has {}", all_of(named.len(), "referenced Secret", "referenced Secrets")))
}

fn named_by(secrets: Option<&Vec<LocalObjectReference>>) -> impl Iterator<Item = &str> {
    secrets.into_iter().flatten().map(|secret| secret.name.as_str()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::pod_templates::testing::{deployed, typed};
    use crate::preflight::Verdict;

    fn account(name: &str) -> ServiceAccount {
        typed(
            json!({"metadata": {"namespace": "shop", "name": name}, "imagePullSecrets": [{"name": "registry"}]}),
        )
    }

    #[test]
    fn pull_secret_must_be_in_the_source() {
        let of = deployed(&json!({"imagePullSecrets": [{"name": "registry"}]}));
        let there = BTreeSet::from([("shop".to_string(), "registry".to_string())]);
        assert_eq!(judge(&of, &[], &there).verdict, Verdict::Pass);
        let elsewhere = BTreeSet::from([("till".to_string(), "registry".to_string())]);
        let judged = judge(&of, &[account("ci")], &elsewhere);
        assert_eq!(
            judged.observed,
            "1 Secret is referenced, but missing in the source: `shop/registry` (Deployment `shop/web`, ServiceAccount `shop/ci`)"
        );
    }

    #[test]
    fn check_without_permission_can_be_skipped() {
        assert!(no_secrets().remedy.ends_with("`--skip pull-secrets`"));
    }
}
