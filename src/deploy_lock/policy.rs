//! Builds the ValidatingAdmissionPolicy of a deploy lock. Does no I/O.
//!
//! The policy refuses requests that create, change or delete locked objects. The holder, the exempt users and groups, and the
//! components of the cluster can still send these requests. For all users, the policy permits:
//!
//! * subresources, which no rule of the policy matches: `services/status` (load-balancer controllers), `*/scale` (autoscalers),
//!   `pods/eviction` (drains);
//! * changes outside `spec`: finalizers, owner references, annotations and labels that controllers write, and writes without a
//!   change;
//! * all kinds except Services and workloads, such as EndpointSlices, ConfigMaps and namespaces. A user with permission to delete
//!   a namespace can therefore delete the objects in the namespace.
//!
//! The policy of a deploy lock with a time limit has its timer ([`super::timer`]) as parameter. Once the timer has expired or is
//! deleted, the policy refuses nothing.
//!
//! The policy fails closed. If an expression fails, the request is refused. The expressions are written in a form that does not
//! fail. The API server evaluates the policy, so no other component is needed. The policy does not cover policies and bindings,
//! so a user with permission to delete them can end the lock.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{DeployLock, NAME, PROBE, timer};

/// API version of admission policies, GA in Kubernetes 1.30.
pub const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// User names of the cluster's own components (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`, v1.36.3, and the loopback
/// client of `apiserver/pkg/authentication/user`).
const OWN_USERS: [&str; 4] = [
    "system:apiserver",
    "system:cloud-controller-manager",
    "system:kube-controller-manager",
    "system:kube-scheduler",
];

/// Groups of the cluster's own components: kubelets, and the service accounts of `kube-system`. With
/// `--use-service-account-credentials` each controller of the controller manager uses such a service account.
const OWN_GROUPS: [&str; 2] = ["system:nodes", "system:serviceaccounts:kube-system"];

/// Returns the policy of a deploy lock.
pub fn policy(freeze: &DeployLock) -> Value {
    // Unused fields are null, so that the merge patch removes them from an existing policy (RFC 7386).
    let timer = freeze.seconds.map(|_| json!({"apiVersion": timer::API_VERSION, "kind": timer::KIND}));
    let ended = if freeze.seconds.is_some() { timer::HAS_ENDED } else { "false" };
    json!({
        "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicy",
        "metadata": freeze.metadata(NAME, None),
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": timer,
            "variables": [{"name": "ended", "expression": ended}],
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": namespaces(freeze)},
                "resourceRules": rules(freeze),
            },
            "matchConditions": [{"name": "locked-out", "expression": locked_out(freeze)}],
            "validations": [
                {
                    "expression": format!("variables.ended || !({})", probe()),
                    "message": in_force(freeze),
                    "reason": "Forbidden",
                },
                {
                    "expression": format!("variables.ended || {} || ({HARMLESS})", probe()),
                    "messageExpression": message(freeze),
                    "message": format!("locked by netsurgeon: {}", freeze.says()),
                    "reason": "Forbidden",
                },
            ],
        },
    })
}

/// Returns the binding of the policy. The binding activates the policy and writes every refusal to the audit log.
pub fn binding(freeze: &DeployLock) -> Value {
    let timer = freeze.seconds.map(|_| {
        json!({"name": timer::name(freeze), "namespace": timer::NAMESPACE, "parameterNotFoundAction": "Allow"})
    });
    json!({
        "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": freeze.metadata(NAME, None),
        "spec": {"policyName": NAME, "validationActions": ["Deny", "Audit"], "paramRef": timer},
    })
}

/// Returns the error message for the probe. The policy refuses the probe even for the holder.
pub fn in_force(freeze: &DeployLock) -> String {
    format!("netsurgeon lock {} is in force", freeze.id)
}

const HARMLESS: &str = "request.operation == \"UPDATE\" && object.spec == oldObject.spec";

/// Returns the CEL expression that matches the probe. The policy refuses the probe for every user. The refusal shows that the
/// policy is active.
fn probe() -> String {
    let name = text(PROBE);
    format!(
        "(request.operation == \"CREATE\" && has(request.dryRun) && request.dryRun && has(object.metadata.name) \
         && object.metadata.name == {name})"
    )
}

fn locked_out(freeze: &DeployLock) -> String {
    let merged = |given: &BTreeSet<String>, own: &[&str]| {
        let all: BTreeSet<&str> = given.iter().map(String::as_str).chain(own.iter().copied()).collect();
        let list: Vec<String> = all.into_iter().map(text).collect();
        format!("[{}]", list.join(", "))
    };
    let users = merged(&freeze.exempt.users, &OWN_USERS);
    let groups = merged(&freeze.exempt.groups, &OWN_GROUPS);
    format!(
        "{} || !(request.userInfo.username in {users} || (has(request.userInfo.groups) && \
         request.userInfo.groups.exists(group, group in {groups})))",
        probe()
    )
}

/// Returns the label requirements that select the namespaces. Every namespace has its name as a label
/// (`NamespaceDefaultLabelName`, 1.21 and later). This label cannot be removed.
fn namespaces(freeze: &DeployLock) -> Vec<Value> {
    let requirement = |operator: &str, names: &BTreeSet<String>| {
        let key = "kubernetes.io/metadata.name";
        json!({"key": key, "operator": operator, "values": names})
    };
    let mut requirements = Vec::new();
    if !freeze.scope.only.is_empty() {
        requirements.push(requirement("In", &freeze.scope.only));
    }
    if !freeze.scope.without.is_empty() {
        requirements.push(requirement("NotIn", &freeze.scope.without));
    }
    requirements
}

fn rules(freeze: &DeployLock) -> Vec<Value> {
    const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];
    let rule = |group: &str, resources: &[&str], operations: &[&str]| {
        json!({
            "apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources,
            "scope": "Namespaced",
        })
    };
    let mut rules = Vec::new();
    if freeze.what.services() {
        rules.push(rule("", &["services"], ALL));
    }
    if freeze.what.deploys() {
        rules.push(rule("apps", &["deployments", "statefulsets", "daemonsets", "replicasets"], ALL));
        rules.push(rule("batch", &["jobs", "cronjobs"], ALL));
        // Pods can still be deleted, because this is a normal operation, and a controller replaces the Pod.
        rules.push(rule("", &["pods"], &["CREATE"]));
    }
    rules
}

/// Returns the CEL expression of the message for clients: the refused action, the reason, the time, and how to end the lock.
fn message(freeze: &DeployLock) -> String {
    let end = text(&format!(
        ": {}; ask the holder, or run `netsurgeon unlock` (with `--force` if you are not the holder)",
        freeze.says()
    ));
    format!(
        "\"locked by netsurgeon: user \" + request.userInfo.username + \" is not allowed to \" + \
         request.operation.lowerAscii() + \" \" + request.resource.resource + \" in namespace \" + \
         request.namespace + {end}"
    )
}

/// Returns the text as a string literal of CEL. Every JSON string is also a string literal of CEL
/// (<https://github.com/google/cel-spec/blob/master/doc/langdef.md>, "Strings").
fn text(value: &str) -> String {
    Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::tests::freeze;
    use super::super::{Scope, What};
    use super::*;

    #[test]
    fn text_is_quoted_for_cel() {
        assert_eq!(text("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
        let freeze = DeployLock { reason: "\" + request.name + \"".into(), ..freeze() };
        assert!(message(&freeze).contains(r#"\" + request.name + \""#), "{}", message(&freeze));
    }

    #[test]
    fn cluster_components_and_holder_are_exempt() {
        let condition = locked_out(&freeze());
        for name in OWN_USERS.iter().chain(&OWN_GROUPS).chain(&["kubernetes-admin"]) {
            assert!(condition.contains(&text(name)), "{name}: {condition}");
        }
        assert!(!condition.contains("system:masters"), "{condition}");
    }

    #[test]
    fn rules_and_namespaces_match_the_scope() {
        let resources = |what| {
            let list = rules(&DeployLock { what, ..freeze() });
            list.iter().flat_map(|rule| rule["resources"].as_array().cloned().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(resources(What::Services), ["services"]);
        assert!(!resources(What::Deploys).contains(&json!("services")));
        assert_eq!(resources(What::All).len(), resources(What::Deploys).len() + 1);
        let scope = Scope::new(&["shop".to_string()], &[]);
        let selected = namespaces(&DeployLock { scope, ..freeze() });
        assert_eq!(selected.len(), 1);
        assert_eq!((&selected[0]["operator"], &selected[0]["values"]), (&json!("In"), &json!(["shop"])));
        assert_eq!(namespaces(&freeze())[0]["values"], json!(["kube-system"]));
    }
}
