//! Compares the roles of nodes: policies, permissions boundary, and duration of sessions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::change::{Area, Change, Command, Verdict};
use super::names::Names;
use super::policy::{Effect, Right, Statement, missing, renamed, statements, uncovered};
use crate::aws::iam::{Role, name_of};
use crate::aws::{Account, AwsError, Region};

/// A policy of a role.
#[derive(Debug, Clone)]
struct RolePolicy {
    name: String,
    /// ARN of a managed policy; `None` for a policy inside the role.
    arn: Option<String>,
    document: Result<Value, AwsError>,
}

/// A role with its policies.
#[derive(Debug, Clone)]
pub struct RoleView {
    /// The role.
    pub role: Role,
    policies: Vec<RolePolicy>,
    /// The policy that bounds the role.
    boundary: Option<RolePolicy>,
}

impl RoleView {
    /// Reads the policies of a role. Fails if they cannot be listed.
    pub async fn read(account: &Account, region: &Region, role: Role) -> Result<Self, AwsError> {
        let mut policies = Vec::new();
        for attached in account.attached_policies(region, &role.role_name).await? {
            let document = account.managed_policy(region, &attached.policy_arn).await;
            policies.push(RolePolicy {
                name: attached.policy_name,
                arn: Some(attached.policy_arn),
                document,
            });
        }
        for name in account.inline_policies(region, &role.role_name).await? {
            let document = account.inline_policy(region, &role.role_name, &name).await;
            policies.push(RolePolicy { name, arn: None, document });
        }
        let boundary = match role.boundary() {
            Some(arn) => {
                let document = account.managed_policy(region, arn).await;
                let name = name_of(arn).to_string();
                Some(RolePolicy { name, arn: Some(arn.to_string()), document })
            }
            None => None,
        };
        Ok(Self { role, policies, boundary })
    }

    fn has(&self, policy: &RolePolicy) -> bool {
        policy.arn.is_some() && self.policies.iter().any(|own| own.arn == policy.arn)
    }

    /// Returns the statements of the policies that were read.
    fn statements(&self, names: &Names) -> Vec<Statement> {
        let read = self.policies.iter().filter_map(|policy| policy.document.as_ref().ok());
        read.flat_map(|document| statements(document, names)).collect()
    }
}

/// Names of policies that printed commands put into roles, each with its role: a second one would replace the first.
pub type PutPolicies = BTreeSet<(String, String)>;

/// Compares a role of the source with its counterpart.
pub fn compare(source: &RoleView, mirror: &RoleView, names: &Names, put: &mut PutPolicies) -> Vec<Change> {
    let subject = format!("role `{}`", mirror.role.role_name);
    let (of_source, of_mirror) = (source.statements(names), mirror.statements(&Names::default()));
    let mut found = Vec::new();
    for policy in mirror.policies.iter().filter(|policy| !source.has(policy)) {
        match &policy.document {
            Ok(document) => {
                let denied = uncovered(&statements(document, &Names::default()), &of_source, Effect::Deny);
                if !denied.is_empty() {
                    found.push(denying(mirror, policy, &denied));
                }
            }
            Err(error) => {
                let what = format!("what its policy `{}` allows and denies was not compared", policy.name);
                found.push(Change::unread(Area::NodeRole, subject.clone(), &what, error));
            }
        }
    }
    let is_read = found.iter().all(|change| change.verdict == Verdict::Missing);
    for policy in source.policies.iter().filter(|policy| !mirror.has(policy)) {
        match &policy.document {
            Err(error) => {
                let what = format!("whether it has the rights of policy `{}` was not compared", policy.name);
                found.push(Change::unread(Area::NodeRole, subject.clone(), &what, error));
            }
            Ok(document) => {
                let missing = missing(document, names, &of_mirror);
                // A policy that was not read can have them.
                if !missing.is_empty() && is_read {
                    found.push(lacking((source, mirror), (policy, document), &missing, (names, &mut *put)));
                }
            }
        }
    }
    found.extend(boundary(source, mirror, names));
    found.extend(sessions(source, mirror));
    found
}

/// Returns the change that adds a policy.
fn lacking(
    (source, mirror): (&RoleView, &RoleView),
    (policy, document): (&RolePolicy, &Value),
    missing: &[Right],
    (names, put): (&Names, &mut PutPolicies),
) -> Change {
    let role = mirror.role.role_name.as_str();
    let rights: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let reason = format!("role `{}` of the source allows {}", source.role.role_name, rights.join("; "));
    let renamed = renamed(document, names);
    let (change, command) = match &policy.arn {
        Some(arn) if renamed == *document => (
            format!(
                "attach policy `{}`; also where the role comes from (`externalPolicies` of kOps)",
                policy.name
            ),
            Command::new("iam", "attach-role-policy").with("--role-name", role).with("--policy-arn", arn),
        ),
        _ => {
            let name = free_name(names.renamed(&policy.name), mirror, put);
            (
                format!("add policy `{name}`; also where the role comes from (`additionalPolicies` of kOps)"),
                Command::new("iam", "put-role-policy")
                    .with("--role-name", role)
                    .with("--policy-name", &name)
                    .with("--policy-document", &renamed.to_string()),
            )
        }
    };
    Change::missing(Area::NodeRole, format!("role `{role}`"), change, reason).with_command(command.text())
}

/// Returns a name that no policy inside the role has: such a policy can contain more than the new one.
fn free_name(mut name: String, mirror: &RoleView, put: &mut PutPolicies) -> String {
    let role = &mirror.role.role_name;
    let is_taken = |name: &str, put: &PutPolicies| {
        mirror.policies.iter().any(|own| own.arn.is_none() && own.name == name)
            || put.contains(&(role.clone(), name.to_string()))
    };
    while is_taken(&name, put) {
        name.push_str("-of-source");
    }
    put.insert((role.clone(), name.clone()));
    name
}

/// Returns the change that removes a denial.
fn denying(mirror: &RoleView, policy: &RolePolicy, denied: &[Right]) -> Change {
    let role = mirror.role.role_name.as_str();
    let rights: Vec<String> = denied.iter().map(ToString::to_string).collect();
    let command = match &policy.arn {
        Some(arn) => Command::new("iam", "get-policy").with("--policy-arn", arn),
        None => Command::new("iam", "get-role-policy")
            .with("--role-name", role)
            .with("--policy-name", &policy.name),
    };
    Change::missing(
        Area::NodeRole,
        format!("role `{role}`"),
        format!("remove a denial from policy `{}`; the command shows the policy", policy.name),
        format!("the source does not deny {}", rights.join("; ")),
    )
    .with_command(command.text())
}

/// Compares the permissions boundaries, in both directions: an organisation can demand one.
fn boundary(source: &RoleView, mirror: &RoleView, names: &Names) -> Option<Change> {
    let role = mirror.role.role_name.as_str();
    let subject = format!("role `{role}`");
    let missing = |change: String, reason: String, command: Command| {
        Change::missing(Area::NodeRole, subject.clone(), change, reason).with_command(command.text())
    };
    let put = |arn: &str| {
        Command::new("iam", "put-role-permissions-boundary")
            .with("--role-name", role)
            .with("--permissions-boundary", arn)
    };
    let of_role = format!("role `{}` of the source", source.role.role_name);
    match (&source.boundary, &mirror.boundary) {
        (Some(one), Some(other)) if one.arn == other.arn => None,
        (Some(one), Some(other)) => match (&one.document, &other.document) {
            (Err(error), _) | (_, Err(error)) => Some(Change::unread(
                Area::NodeRole,
                subject,
                "its permissions boundary was not compared",
                error,
            )),
            (Ok(one_text), Ok(other_text)) => {
                let (one_rights, other_rights) =
                    (statements(one_text, names), statements(other_text, &Names::default()));
                let is_same = uncovered(&one_rights, &other_rights, Effect::Allow).is_empty()
                    && uncovered(&other_rights, &one_rights, Effect::Deny).is_empty();
                let arn = one.arn.as_deref().unwrap_or_default();
                let reason =
                    format!("{of_role} has this boundary, and the boundary `{}` allows less", other.name);
                (!is_same).then(|| {
                    missing(format!("set the permissions boundary `{}`", one.name), reason, put(arn))
                })
            }
        },
        (Some(one), None) => {
            let arn = one.arn.as_deref().unwrap_or_default();
            let reason = format!("{of_role} has this boundary");
            Some(missing(format!("set the permissions boundary `{}`", one.name), reason, put(arn)))
        }
        (None, Some(other)) => Some(missing(
            format!(
                "check that its permissions boundary `{}` allows what the nodes need; the command shows the policy",
                other.name
            ),
            format!("{of_role} has no boundary"),
            Command::new("iam", "get-policy").with("--policy-arn", other.arn.as_deref().unwrap_or_default()),
        )),
        (None, None) => None,
    }
}

/// Compares the longest sessions.
fn sessions(source: &RoleView, mirror: &RoleView) -> Option<Change> {
    let (longest, own) = (source.role.max_session_duration, mirror.role.max_session_duration);
    let role = mirror.role.role_name.as_str();
    let command = Command::new("iam", "update-role")
        .with("--role-name", role)
        .with("--max-session-duration", &longest.to_string());
    (own < longest).then(|| {
        Change::missing(
            Area::NodeRole,
            format!("role `{role}`"),
            format!("set the maximum duration of a session to {longest} s"),
            format!("it is {own} s, and {longest} s for role `{}` of the source", source.role.role_name),
        )
        .with_command(command.text())
    })
}
