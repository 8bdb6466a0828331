//! Pull secrets: Secrets that each namespace of the mirror gets, and the references to them.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::RuleFault;
use super::kind_names::Kind;
use super::pod_specs::with_pod_spec;
use super::uses::Uses;
use crate::inventory::text;
use crate::mirror::config::{AttachTo, Config, PullSecret};
use crate::mirror::work::Reference;

/// Maximum size of a file with credentials. A Secret holds 1 MiB.
const MOST: u64 = 1 << 20;

/// The type of a pull secret (`SecretTypeDockerConfigJson`, k8s.io/api `core/v1/types.go`).
pub(in crate::mirror) const PULL_SECRET_TYPE: &str = "kubernetes.io/dockerconfigjson";

/// The part of a file with credentials that is checked.
#[derive(Deserialize)]
struct DockerConfig {
    auths: Option<IgnoredAny>,
}

/// Returns the Secret that a plan contains. `reads_files`: whether the plan is allowed to name its file.
pub(in crate::mirror) fn planned_pull_secret(
    config: &Config,
    object: &Reference,
    reads_files: bool,
) -> Result<Value, RuleFault> {
    let rule = config.pull_secrets.iter().find(|one| one.name == object.name);
    let rule = rule.ok_or_else(|| RuleFault("the plan has no such pull secret".to_string()))?;
    if !reads_files {
        return Err(RuleFault(format!(
            "`{}` is read only by `mirror apply --plan`, because another client could have changed the record",
            rule.from_file
        )));
    }
    pull_secret(rule, object.namespace.as_deref().unwrap_or_default())
}

/// Returns the Secret of a rule, with the content of its file. `namespace`: in the source; the rename follows.
pub(in crate::mirror) fn pull_secret(secret: &PullSecret, namespace: &str) -> Result<Value, RuleFault> {
    let content = read_credentials(Path::new(&secret.from_file))?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": namespace, "name": secret.name},
        "type": PULL_SECRET_TYPE,
        "data": {".dockerconfigjson": STANDARD.encode(content.as_slice())},
    }))
}

/// Reads a file with credentials. An error contains no part of the file.
fn read_credentials(path: &Path) -> Result<Zeroizing<Vec<u8>>, RuleFault> {
    let name = path.display();
    let fault = |reason: &str| RuleFault(format!("the file of a pull secret, `{name}`, {reason}"));
    let about = std::fs::metadata(path).map_err(|error| fault(&format!("cannot be read: {error}")))?;
    if !about.is_file() || about.len() > MOST {
        return Err(fault("is no file of at most 1 MiB"));
    }
    let content = std::fs::read(path).map_err(|error| fault(&format!("cannot be read: {error}")))?;
    let content = Zeroizing::new(content);
    // The API server checks the same (`ValidateSecret`, `pkg/apis/core/validation/validation.go`).
    let parsed: DockerConfig = serde_json::from_slice(&content).map_err(|_| fault("is no JSON map"))?;
    if parsed.auths.is_none() {
        return Err(fault("has no key `auths`"));
    }
    Ok(content)
}

/// Attaches the pull secrets to an object.
pub(super) fn attach_pull_secrets(config: &Config, kind: &Kind<'_>, object: &mut Value, uses: &Uses) {
    for (index, secret) in config.pull_secrets.iter().enumerate() {
        match secret.attach_to {
            Some(AttachTo::ServiceAccounts) if kind.resource == "/serviceaccounts" => {
                uses.mark("pullSecrets", index);
                add_reference(object, &secret.name);
            }
            Some(AttachTo::PodTemplates) => with_pod_spec(kind.resource, object, &mut |spec| {
                uses.mark("pullSecrets", index);
                add_reference(spec, &secret.name);
            }),
            _ => {}
        }
        if secret.attach_to == Some(AttachTo::ServiceAccounts) {
            note_unreached(&secret.name, kind, object, uses);
        }
    }
}

/// Adds a reference to `imagePullSecrets`, and keeps the other references.
fn add_reference(object: &mut Value, name: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let list = fields.entry("imagePullSecrets").or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    if !list.iter().any(|one| one["name"] == name) {
        list.push(json!({"name": name}));
    }
}

/// Notes Pods that do not get the secret from their ServiceAccount, because they have pull secrets of their own
/// (`plugin/pkg/admission/serviceaccount/admission.go`).
fn note_unreached(name: &str, kind: &Kind<'_>, object: &mut Value, uses: &Uses) {
    let subject =
        format!("{} {}/{}", kind.kind, text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let mut is_unreached = false;
    with_pod_spec(kind.resource, object, &mut |spec| {
        is_unreached = spec["imagePullSecrets"].as_array().is_some_and(|own| !own.is_empty());
    });
    if is_unreached {
        let finding = format!(
            "Pods with pull secrets of their own do not get `{name}` from their ServiceAccount; use `attachTo: podTemplates`"
        );
        uses.note(finding, subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(attach_to: AttachTo) -> Config {
        let secret = PullSecret {
            name: "regcred".to_string(),
            from_file: "/none".to_string(),
            attach_to: Some(attach_to),
        };
        Config { pull_secrets: vec![secret], ..Config::default() }
    }

    #[test]
    fn references_of_others_stay() {
        let account = Kind { resource: "/serviceaccounts", kind: "ServiceAccount" };
        for (object, expected) in [
            (json!({}), json!([{"name": "regcred"}])),
            (json!({"imagePullSecrets": null}), json!([{"name": "regcred"}])),
            (json!({"imagePullSecrets": [{"name": "a"}]}), json!([{"name": "a"}, {"name": "regcred"}])),
            (json!({"imagePullSecrets": [{"name": "regcred"}]}), json!([{"name": "regcred"}])),
        ] {
            let (mut object, uses) = (object, Uses::default());
            attach_pull_secrets(&config(AttachTo::ServiceAccounts), &account, &mut object, &uses);
            assert_eq!(object["imagePullSecrets"], expected);
            assert!(uses.has("pullSecrets", 0));
        }
    }

    #[test]
    fn pods_without_the_secret_are_noted() {
        let kind = Kind { resource: "apps/deployments", kind: "Deployment" };
        let object = |spec: Value| json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"template": {"spec": spec}}});
        for (spec, expected) in [
            (json!({}), 0),
            (json!({"serviceAccountName": "web"}), 0),
            (json!({"serviceAccountName": "web", "imagePullSecrets": [{"name": "a"}]}), 1),
        ] {
            let uses = Uses::default();
            let mut copy = object(spec.clone());
            attach_pull_secrets(&config(AttachTo::ServiceAccounts), &kind, &mut copy, &uses);
            assert_eq!(copy, object(spec.clone()), "the template does not change");
            assert_eq!(uses.findings().len(), expected, "{spec}");
            attach_pull_secrets(&config(AttachTo::PodTemplates), &kind, &mut copy, &uses);
            let found = copy["spec"]["template"]["spec"]["imagePullSecrets"].to_string();
            assert!(found.contains("regcred"), "{found}");
        }
    }

    #[test]
    fn error_contains_no_credentials() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let secret = |path: &Path| PullSecret {
            name: "regcred".to_string(),
            from_file: path.display().to_string(),
            attach_to: None,
        };
        for (content, expected) in [("canary", "no JSON map"), ("{\"canary\": \"canary\"}", "no key `auths`")]
        {
            std::fs::write(&path, content).unwrap();
            let RuleFault(text) = pull_secret(&secret(&path), "shop").unwrap_err();
            assert!(text.contains(expected) && !text.contains("canary"), "{text}");
        }
        std::fs::write(&path, "{\"auths\": {}}").unwrap();
        let made = pull_secret(&secret(&path), "shop").unwrap();
        assert_eq!(made["data"], json!({".dockerconfigjson": STANDARD.encode("{\"auths\": {}}")}));
        assert!(pull_secret(&secret(folder.path()), "shop").is_err());
        assert!(pull_secret(&secret(&folder.path().join("none")), "shop").is_err());
    }
}
