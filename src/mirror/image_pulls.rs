//! The images that the Pods of copied workloads pull, after the rules of the configuration, and with which pull secrets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::decision::{Around, Decision};
use super::reader::MirrorReader;
use super::rules::{image_pulls, is_excluded, is_only_chosen, pod_spec_place, pull_secret};
use super::work::Reference;
use crate::inventory::{list, text};
use crate::kube_api::{Collection, with_kind};
use crate::session::Failure;

/// The images of a workload that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePulls {
    /// The workload, for example ``Deployment `shop/web` ``.
    pub of: String,
    /// Namespace in the source.
    pub namespace: String,
    /// The images, as the copy names them.
    pub images: Vec<String>,
    /// Names of the Pods' pull secrets, in order.
    pub secrets: Vec<String>,
    /// Whether the workload runs no Pod in the source.
    pub is_idle: bool,
}

/// Kinds of workloads that can be copied. Jobs and Pods are never copied.
const WORKLOADS: [(&str, &str, &str); 6] = [
    ("apps/v1", "Deployment", "apps/deployments"),
    ("apps/v1", "DaemonSet", "apps/daemonsets"),
    ("apps/v1", "StatefulSet", "apps/statefulsets"),
    ("apps/v1", "ReplicaSet", "apps/replicasets"),
    ("v1", "ReplicationController", "/replicationcontrollers"),
    ("batch/v1", "CronJob", "batch/cronjobs"),
];

/// Pull secrets of the copied ServiceAccounts, by namespace in the source and name.
type Accounts = BTreeMap<(String, String), Vec<String>>;

impl MirrorReader {
    /// Returns the images of the workloads that are copied.
    pub async fn image_pulls(&self) -> Result<Vec<ImagePulls>, Failure> {
        let around = self.around().await?;
        let accounts = self.accounts(&around).await?;
        let mut found = Vec::new();
        for namespace in &self.options.namespaces {
            for (version, kind, resource) in WORKLOADS {
                let is_copied = !is_only_chosen(resource) || around.choices.reads(resource);
                if !is_copied || is_excluded(&self.options.config, resource, kind) {
                    continue;
                }
                let pulls = |object: Value| {
                    let object = with_kind(object, version, kind);
                    of_workload((kind, resource), &object, &around, &accounts)
                };
                let collection = Collection::new(version, kind, Some(namespace));
                found.extend(self.source.list_as(&collection, &pulls).await?);
            }
        }
        Ok(found)
    }

    async fn accounts(&self, around: &Around) -> Result<Accounts, Failure> {
        const RESOURCE: &str = "/serviceaccounts";
        let mut found = Accounts::new();
        if is_excluded(&self.options.config, RESOURCE, "ServiceAccount") {
            return Ok(found);
        }
        for namespace in &self.options.namespaces {
            let secrets = |account: Value| {
                let account = with_kind(account, "v1", "ServiceAccount");
                let Decision::Create(copy) = around.decide(RESOURCE, &account, None) else { return None };
                let name = text(&account, "/metadata/name").to_string();
                Some(((namespace.clone(), name), secrets(&copy)))
            };
            let collection = Collection::new("v1", "ServiceAccount", Some(namespace));
            found.extend(self.source.list_as(&collection, &secrets).await?);
        }
        Ok(found)
    }

    /// Returns a pull secret as the mirror gets it: from the file of a rule, otherwise from the source. `namespace`: in the source.
    pub async fn pull_secret(&self, namespace: &str, name: &str) -> Result<Option<Value>, Failure> {
        if let Some(rule) = self.options.config.pull_secrets.iter().find(|rule| rule.name == name) {
            return pull_secret(rule, namespace).map(Some).map_err(|fault| Failure::refused(fault.0));
        }
        Ok(self.source.get(&Reference::to_secret(namespace, name).object()).await?)
    }
}

/// Returns the images of a workload; `None` if it is not copied.
fn of_workload(
    (kind, resource): (&str, &str),
    object: &Value,
    around: &Around,
    accounts: &Accounts,
) -> Option<ImagePulls> {
    let Decision::Create(copy) = around.decide(resource, object, None) else { return None };
    let spec = copy.pointer(pod_spec_place(resource)?)?;
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let mut secrets = secrets(spec);
    if secrets.is_empty() {
        // The admission of Pods adds those of the ServiceAccount (`plugin/pkg/admission/serviceaccount/admission.go`, v1.37.2).
        let account = Some(text(spec, "/serviceAccountName")).filter(|account| !account.is_empty());
        let account = account.unwrap_or("default").to_string();
        secrets = accounts.get(&(namespace.to_string(), account)).cloned().unwrap_or_default();
    }
    let is_idle = object.pointer("/spec/replicas").and_then(Value::as_u64) == Some(0)
        || object.pointer("/spec/suspend") == Some(&Value::Bool(true));
    Some(ImagePulls {
        of: format!("{kind} `{namespace}/{name}`"),
        namespace: namespace.to_string(),
        images: image_pulls(spec),
        secrets,
        is_idle,
    })
}

fn secrets(object: &Value) -> Vec<String> {
    let names = list(object, "/imagePullSecrets").iter().map(|one| text(one, "/name").to_string());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mirror::config::{AttachTo, Config, ImageRule, PullSecret};

    fn around(config: Config) -> Around {
        let selector = BTreeMap::from([("app".to_string(), "web".to_string())]);
        Around { selectors: vec![("shop".to_string(), selector)], config, ..Around::default() }
    }

    fn of(spec: &Value, config: Config) -> Option<ImagePulls> {
        let object = json!({"kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": spec}}});
        let accounts =
            Accounts::from([(("shop".to_string(), "web".to_string()), vec!["of-account".to_string()])]);
        of_workload(("Deployment", "apps/deployments"), &object, &around(config), &accounts)
    }

    #[test]
    fn pods_pull_with_their_own_secrets_or_those_of_their_account() {
        let secrets = |spec: Value, config: Config| of(&spec, config).unwrap().secrets;
        let none = Vec::<String>::new();
        assert_eq!(secrets(json!({}), Config::default()), none);
        assert_eq!(secrets(json!({"serviceAccountName": "web"}), Config::default()), ["of-account"]);
        let own = json!({"serviceAccountName": "web", "imagePullSecrets": [{"name": "own"}]});
        assert_eq!(secrets(own.clone(), Config::default()), ["own"]);
        let rule = PullSecret {
            name: "added".to_string(),
            from_file: "x".to_string(),
            attach_to: Some(AttachTo::PodTemplates),
        };
        assert_eq!(secrets(own, Config { pull_secrets: vec![rule], ..Config::default() }), ["own", "added"]);
    }

    #[test]
    fn images_are_those_after_the_rules() {
        let spec = json!({
            "containers": [{"image": "a"}, {"image": "present", "imagePullPolicy": "Never"}],
            "initContainers": [{"image": "b", "restartPolicy": "Always"}],
            "volumes": [{"image": {"reference": "c"}}, {"image": {"reference": "d", "pullPolicy": "Never"}}],
        });
        let rule = ImageRule { from: "docker.io/".to_string(), to: "green.example.com/".to_string() };
        let found = of(&spec, Config { images: vec![rule], ..Config::default() }).unwrap();
        let expected = ["a", "b", "c"].map(|name| format!("green.example.com/library/{name}"));
        assert_eq!(found.images, expected);
        assert_eq!((found.of.as_str(), found.is_idle), ("Deployment `shop/web`", false));
    }

    #[test]
    fn workload_that_is_not_copied_pulls_nothing() {
        let object = json!({"kind": "Deployment", "metadata": {"namespace": "shop", "name": "silent"},
            "spec": {"template": {"spec": {"containers": [{"image": "a"}]}}}});
        let found = of_workload(
            ("Deployment", "apps/deployments"),
            &object,
            &around(Config::default()),
            &Accounts::new(),
        );
        assert_eq!(found, None, "no Service selects it");
    }
}
