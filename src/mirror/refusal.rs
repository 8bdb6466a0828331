//! What a failed request means for one object.

use crate::kube_api::ClusterError;
use crate::operation::StepFault;

/// Returns the reason for people. The message of an API server can contain values of the object, so the reason for a Secret has only
/// the kind of the error, and the name of the webhook, policy or quota.
pub(super) fn words(error: &ClusterError, is_secret: bool) -> String {
    if !is_secret {
        return error.to_string();
    }
    let text = match error {
        ClusterError::Forbidden { verb, .. } => {
            return format!("the user is not allowed to {verb} this Secret");
        }
        ClusterError::Refused { reason, .. } => match refuser(reason) {
            Some(refuser) => &format!("{refuser} rejected the Secret"),
            None => "admission control rejected the Secret",
        },
        ClusterError::Invalid { .. } => "the API server does not accept the Secret",
        ClusterError::NotFound { .. } => "the namespace of the Secret does not exist",
        ClusterError::AlreadyExists { .. } => "another client has created the Secret",
        ClusterError::Conflict { .. } => "another client has changed the Secret",
        ClusterError::Server { code, reason, .. } => {
            let webhook = refuser(reason).map(|webhook| format!(", and {webhook} does not answer"));
            return format!("the API server failed with status {code}{}", webhook.unwrap_or_default());
        }
        ClusterError::Answer { .. } | ClusterError::TooLarge { .. } => {
            "the API server sent an unusable answer"
        }
        other => return other.to_string(),
    };
    format!("{text}; its message is not shown, because it can contain values of the Secret")
}

/// Starts of the messages of admission control, each with the kind of object whose name follows, and the end of the name. They come
/// before any text that a webhook or policy writes (apiserver/pkg/admission/plugin/webhook/errors/statuserror.go,
/// plugin/policy/validating/plugin.go, plugin/resourcequota/controller.go).
const REFUSERS: [(&str, &str, char); 4] = [
    ("failed calling webhook \"", "webhook", '"'),
    ("admission webhook \"", "webhook", '"'),
    ("ValidatingAdmissionPolicy '", "policy", '\''),
    ("exceeded quota: ", "quota", ','),
];

/// Returns which webhook, policy or quota refused a change.
fn refuser(reason: &str) -> Option<String> {
    let found = REFUSERS.iter().filter_map(|(start, kind, end)| {
        let (before, rest) = reason.split_once(start)?;
        Some((before.len(), kind, rest.split(*end).next()?))
    });
    let (_, kind, name) = found.min_by_key(|(at, ..)| *at)?;
    Some(format!("the {kind} `{name}`"))
}

/// Returns what a person can do, so that the API server accepts the change.
pub(super) fn advice(error: &ClusterError) -> Option<&'static str> {
    const RULE: &str = "change the copy with a rule of the configuration";
    Some(match error {
        ClusterError::Forbidden { verb, reason, .. } => role(verb, reason),
        ClusterError::Refused { reason, .. } if reason.contains("exceeded quota: ") => {
            "raise this quota, or remove objects that it counts"
        }
        ClusterError::Refused { reason, .. } if reason.contains("because it is being terminated") => {
            "wait until the mirror has deleted the namespace"
        }
        ClusterError::Refused { .. } => {
            "exempt the user from this policy or webhook, or change the copy with a rule of the configuration"
        }
        ClusterError::Server { reason, .. } if reason.contains("failed calling webhook \"") => {
            "start the server of this webhook, or remove the webhook"
        }
        ClusterError::Invalid { reason, .. } if is_immutable(reason) => {
            "delete the copy in the mirror: the API server does not change this field"
        }
        ClusterError::Invalid { .. } | ClusterError::Server { .. } => RULE,
        ClusterError::NotFound { reason, .. } if reason.contains("namespaces \"") => "create the namespace",
        ClusterError::NotFound { reason, .. } if is_of_binding(reason) => {
            "copy the role that it names first; the user needs the permissions of the role"
        }
        ClusterError::NotFound { .. } => {
            "the mirror does not serve this kind: install its CustomResourceDefinition"
        }
        ClusterError::Conflict { reason, .. } if !is_stale(reason) => {
            "let the other client give up these fields"
        }
        _ => return None,
    })
}

/// Returns the role of `deploy/rbac.yaml` with a missing permission. `reason`: the message of the API server.
fn role(verb: &str, reason: &str) -> &'static str {
    let is_of_cluster = reason.contains("at the cluster scope");
    match verb {
        "get" | "list" if reason.contains("resource \"secrets\"") => {
            "bind the ClusterRole `netsurgeon-mirror-secrets` in the source and `netsurgeon-mirror-write` in the mirror (deploy/rbac.yaml)"
        }
        "get" | "list" => {
            "bind the ClusterRole `netsurgeon-mirror-source` in the source and `netsurgeon-mirror` in the mirror (deploy/rbac.yaml); custom resources need a role of your own"
        }
        _ if is_of_cluster => {
            "give the user this permission by a ClusterRole of your own: deploy/rbac.yaml has no role for it"
        }
        _ => {
            "bind the ClusterRole `netsurgeon-mirror-write` of deploy/rbac.yaml in this namespace of the mirror; custom resources need a role of your own"
        }
    }
}

/// Returns whether the API server refuses a binding because the mirror does not have the role, and the user must not bind any role
/// (`BindingAuthorized`, pkg/registry/rbac/escalation_check.go).
pub(super) fn is_of_binding(reason: &str) -> bool {
    reason.contains("rolebindings.rbac.authorization.k8s.io \"")
}

/// Returns whether a change was refused because a field never changes (`FieldImmutableErrorMsg`,
/// apimachinery/pkg/api/validation/objectmeta.go; ValidateConfigMapUpdate, pkg/apis/core/validation; ValidateRoleBindingUpdate,
/// pkg/apis/rbac/validation).
fn is_immutable(reason: &str) -> bool {
    ["field is immutable", "immutable when `immutable` is set", "cannot change roleRef"]
        .iter()
        .any(|text| reason.contains(text))
}

/// Returns the reason with what helps.
pub(super) fn reason_and_advice(error: &ClusterError, is_secret: bool) -> String {
    let text = words(error, is_secret);
    match advice(error) {
        Some(advice) => format!("{text}; what helps: {advice}"),
        None => text,
    }
}

/// Returns whether an error concerns one object or one kind, so that other objects can still be copied.
pub(super) fn is_of_object(error: &ClusterError) -> bool {
    match error {
        ClusterError::Forbidden { .. } | ClusterError::Conflict { .. } => true,
        // Objects that server-side apply refuses: duplicate keys in a list, unknown fields, or too many keys.
        ClusterError::Server { reason, .. } => {
            error.is_of_one_object()
                || reason.contains("failed to create typed patch object")
                || reason.contains("request is too large")
                || reason.contains("message larger than max")
        }
        error => error.is_of_one_object(),
    }
}

/// Converts the error of a change. `is_secret`: whether the object is a Secret.
pub(super) fn fault(error: &ClusterError, is_secret: bool) -> StepFault {
    let text = words(error, is_secret);
    match error {
        ClusterError::TimedOut { .. } | ClusterError::Unreachable { .. } => StepFault::InDoubt(text),
        ClusterError::NotReady { .. } => StepFault::Retry { why: text, after: None },
        ClusterError::Conflict { reason, .. } if is_of_quota(reason) || is_stale(reason) => {
            StepFault::Retry { why: text, after: None }
        }
        error if is_of_object(error) => StepFault::Skip(reason_and_advice(error, is_secret)),
        ClusterError::Server { .. } => StepFault::InDoubt(text),
        _ => StepFault::Halt(text),
    }
}

/// Returns whether a change was refused because several requests use one quota at the same time (kubernetes/kubernetes#67761). The
/// message is about the quota, not about the object of the request.
pub(super) fn is_of_quota(reason: &str) -> bool {
    reason.contains("on resourcequotas")
}

/// Returns whether an apply was refused because the object has another `resourceVersion`.
pub(super) fn is_stale(reason: &str) -> bool {
    reason.contains("the object has been modified")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, reason: &str) -> ClusterError {
        let (subject, reason) = ("x".to_string(), reason.to_string());
        match code {
            403 => ClusterError::Refused { verb: "patch", subject, reason },
            409 => ClusterError::Conflict { subject, reason },
            401 => ClusterError::Unauthorized { server: String::new(), reason },
            422 => ClusterError::Invalid { verb: "patch", subject, reason },
            _ => ClusterError::Server { server: String::new(), verb: "patch", subject, code, reason },
        }
    }

    #[test]
    fn trouble_of_one_object_skips_only_it() {
        for (error, expected) in [
            (error(403, "exceeded quota"), "skip"),
            (error(422, "immutable"), "skip"),
            (error(409, "Apply failed with 1 conflict: conflict with \"team\""), "skip"),
            (error(409, "Operation cannot be fulfilled on resourcequotas \"q\""), "retry"),
            (error(409, "the object has been modified; please apply your changes"), "retry"),
            (error(500, "failed to create typed patch object (shop/a): duplicate entries"), "skip"),
            (error(500, "failed calling webhook \"a\""), "skip"),
            (error(500, "etcdserver: leader changed"), "in doubt"),
            (error(401, "expired"), "halt"),
        ] {
            let found = match fault(&error, false) {
                StepFault::Skip(_) => "skip",
                StepFault::Retry { .. } => "retry",
                StepFault::InDoubt(_) => "in doubt",
                StepFault::Halt(_) => "halt",
            };
            assert_eq!(found, expected, "{error}");
        }
    }

    #[test]
    fn reason_for_a_secret_has_no_message_of_the_server() {
        for code in [403, 409, 422, 500] {
            let error = error(code, "Invalid value: \"canary\"");
            assert!(!words(&error, true).contains("canary"), "{error}");
            assert!(words(&error, false).contains("canary"), "{error}");
        }
    }
}
