//! Reads what a cluster says about AWS: the instances of its nodes, the roles of its Pods, and the issuer of its tokens.
//!
//! Users who can create a Pod or change a ServiceAccount choose some of these texts. A name of a role with other characters than IAM
//! allows is dropped, and its object is listed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::node_group::AwsNode;
use crate::aws::iam::name_of;
use crate::inventory::{list, text};
use crate::kube_api::{ClusterError, Collection, ReadOnly};

/// The role of a ServiceAccount for its Pods (`aws/amazon-eks-pod-identity-webhook`, README).
const ROLE_OF_ACCOUNT: &str = "eks.amazonaws.com/role-arn";
/// The audience of their tokens, if it is not the webhook's own.
const AUDIENCE_OF_ACCOUNT: &str = "eks.amazonaws.com/audience";
/// The role of a Pod that an agent on its node assumes (`jtblin/kube2iam` and `uswitch/kiam`, README).
const ROLE_OF_POD: &str = "iam.amazonaws.com/role";
/// The role of a Pod in the variables of its containers, which the webhook sets; and those of EKS Pod Identity.
const ROLE_VARIABLE: &str = "AWS_ROLE_ARN";
const POD_IDENTITY_VARIABLE: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
/// Audiences of tokens for AWS: that of EKS, and that of kOps.
const AUDIENCES: [&str; 2] = ["sts.amazonaws.com", "amazonaws.com"];

/// A ServiceAccount with a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountRole {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// ARN of the role.
    pub role: String,
    /// The audience of its tokens, if the cluster tells it.
    pub audience: Option<String>,
}

impl AccountRole {
    /// Returns the audiences that its tokens can have.
    pub fn audiences(&self) -> Vec<&str> {
        self.audience.as_deref().map_or_else(|| AUDIENCES.to_vec(), |audience| vec![audience])
    }
}

/// What a cluster says about AWS.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// The nodes that are instances.
    pub nodes: Vec<AwsNode>,
    /// Names of the other nodes.
    pub other_nodes: Vec<String>,
    /// Namespaces and names of all ServiceAccounts.
    pub account_names: BTreeSet<(String, String)>,
    /// The ServiceAccounts with a role, by an annotation or in the variables of a Pod.
    pub accounts: Vec<AccountRole>,
    /// The roles in annotations of Pods, each with the namespaces of its Pods.
    pub annotated: BTreeMap<String, BTreeSet<String>>,
    /// Objects with a text that is no role.
    pub odd: BTreeSet<String>,
    /// ServiceAccounts whose Pods get a role by EKS Pod Identity.
    pub pod_identities: BTreeSet<String>,
    /// The issuer of ServiceAccounts' tokens without `https://`, or why it is unknown.
    pub issuer: Result<String, String>,
    /// The keys of the tokens, or why they are unknown.
    pub keys: Result<Value, String>,
}

impl ClusterView {
    /// Reads a cluster.
    pub async fn read(cluster: &ReadOnly) -> Result<Self, ClusterError> {
        let all = |kind| Collection { api_version: "v1", kind, namespace: None };
        let node =
            |node: Value| Some(AwsNode::of(&node).ok_or_else(|| text(&node, "/metadata/name").to_string()));
        let found = cluster.list_as(&all("Node"), &node).await?;
        let accounts = cluster.list_as(&all("ServiceAccount"), &|object| Some(Account::of(&object))).await?;
        let pods = cluster.list_as(&all("Pod"), &|object| PodView::of(&object)).await?;
        let issuer = cluster.token_issuer().await.map_err(|error| error.to_string());
        let issuer = issuer.map(|url| url.trim_start_matches("https://").trim_end_matches('/').to_string());
        let keys = cluster.token_keys().await.map_err(|error| error.to_string());
        let (mut nodes, mut other_nodes) = (Vec::new(), Vec::new());
        for node in found {
            match node {
                Ok(node) => nodes.push(node),
                Err(name) => other_nodes.push(name),
            }
        }
        let mut view = Self {
            nodes,
            other_nodes,
            account_names: accounts.iter().map(|one| (one.namespace.clone(), one.name.clone())).collect(),
            accounts: Vec::new(),
            annotated: BTreeMap::new(),
            odd: BTreeSet::new(),
            pod_identities: BTreeSet::new(),
            issuer,
            keys,
        };
        view.add(accounts, pods);
        Ok(view)
    }

    fn add(&mut self, accounts: Vec<Account>, pods: Vec<PodView>) {
        // By namespace, name and role, because a Pod and its ServiceAccount name the same role.
        let mut roles: BTreeMap<(String, String, String), Option<String>> = BTreeMap::new();
        for Account { namespace, name, role, audience } in accounts {
            match role {
                Some(role) if is_role(&role) => drop(roles.insert((namespace, name, role), audience)),
                Some(_) => drop(self.odd.insert(format!("ServiceAccount `{namespace}/{name}`"))),
                None => {}
            }
        }
        for pod in pods {
            let subject = format!("Pod `{}/{}`", pod.namespace, pod.name);
            match pod.annotated {
                Some(role) if is_role(&role) => {
                    self.annotated.entry(role).or_default().insert(pod.namespace.clone());
                }
                Some(_) => drop(self.odd.insert(subject.clone())),
                None => {}
            }
            match pod.role {
                Some(role) if is_role(&role) => {
                    let known = roles.entry((pod.namespace.clone(), pod.account.clone(), role)).or_default();
                    *known = pod.audience.or_else(|| known.take());
                }
                Some(_) => drop(self.odd.insert(subject)),
                None => {}
            }
            if pod.has_pod_identity {
                self.pod_identities.insert(format!("`{}/{}`", pod.namespace, pod.account));
            }
        }
        let account = |((namespace, name, role), audience)| AccountRole { namespace, name, role, audience };
        self.accounts = roles.into_iter().map(account).collect();
    }
}

/// Returns whether a text is the ARN, the path or the name of a role (IAM User Guide, "IAM and STS quotas", names).
fn is_role(text: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "+=,.@_-/:".contains(letter);
    let name = name_of(text);
    text.len() <= 2048
        && text.chars().all(is_allowed)
        && (1..=64).contains(&name.len())
        && !name.contains(':')
}

/// What a ServiceAccount says.
struct Account {
    namespace: String,
    name: String,
    role: Option<String>,
    audience: Option<String>,
}

impl Account {
    fn of(account: &Value) -> Self {
        let annotation = |name: &str| {
            let value = account.pointer("/metadata/annotations")?.get(name)?.as_str()?;
            Some(value.to_string())
        };
        Self {
            namespace: text(account, "/metadata/namespace").to_string(),
            name: text(account, "/metadata/name").to_string(),
            role: annotation(ROLE_OF_ACCOUNT),
            audience: annotation(AUDIENCE_OF_ACCOUNT),
        }
    }
}

/// What a Pod says.
struct PodView {
    namespace: String,
    name: String,
    account: String,
    annotated: Option<String>,
    role: Option<String>,
    audience: Option<String>,
    has_pod_identity: bool,
}

impl PodView {
    /// Returns `None` for a Pod that says nothing about roles, or that has ended.
    fn of(pod: &Value) -> Option<Self> {
        if ["Succeeded", "Failed"].contains(&text(pod, "/status/phase")) {
            return None;
        }
        let variable = |name: &str| {
            let containers = list(pod, "/spec/containers").iter();
            let mut variables = containers.flat_map(|container| list(container, "/env"));
            variables.find(|one| text(one, "/name") == name).map(|one| text(one, "/value").to_string())
        };
        let annotated = pod.pointer("/metadata/annotations").and_then(|all| all.get(ROLE_OF_POD)?.as_str());
        let sources = list(pod, "/spec/volumes").iter().flat_map(|volume| list(volume, "/projected/sources"));
        let mut audiences = sources.map(|source| text(source, "/serviceAccountToken/audience"));
        let audience = audiences.find(|audience| audience.contains("amazonaws.com"));
        let view = Self {
            namespace: text(pod, "/metadata/namespace").to_string(),
            name: text(pod, "/metadata/name").to_string(),
            account: text(pod, "/spec/serviceAccountName").to_string(),
            annotated: annotated.filter(|role| !role.is_empty()).map(str::to_string),
            role: variable(ROLE_VARIABLE),
            audience: audience.map(str::to_string),
            has_pod_identity: variable(POD_IDENTITY_VARIABLE).is_some(),
        };
        (view.annotated.is_some() || view.role.is_some() || view.has_pod_identity).then_some(view)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_have_the_characters_that_iam_allows() {
        for role in ["shop-web", "arn:aws:iam::123456789012:role/team/shop+web@x", "team/web"] {
            assert!(is_role(role), "{role}");
        }
        for text in ["", "a b", "x`; why", "a\nb", "arn:aws:iam::1:role/", "arn:aws", "ü", &"a".repeat(65)] {
            assert!(!is_role(text), "{text}");
        }
    }

    #[test]
    fn pods_tell_role_and_audience() {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "web-1"},
            "spec": {
                "serviceAccountName": "web",
                "containers": [{"env": [{"name": "AWS_ROLE_ARN", "value": "arn:aws:iam::1:role/web"}]}],
                "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"audience": "amazonaws.com"}}]}}],
            },
        });
        let view = PodView::of(&pod).unwrap();
        assert_eq!(
            (view.role.as_deref(), view.audience.as_deref()),
            (Some("arn:aws:iam::1:role/web"), Some("amazonaws.com"))
        );
        assert!(PodView::of(&json!({"spec": {"containers": [{}]}})).is_none());
    }
}
