//! Reads from IAM: instance profiles, roles with their policies, and OpenID Connect providers; and from STS: the account.
//!
//! The names of elements are those of the IAM API Reference, version 2010-05-08. Policies in answers are percent-encoded (RFC 3986).

use serde::Deserialize;
use serde_json::Value;

use super::xml_list::list;
use super::{Account, AwsError, Query, Region, Service};

/// Returns the name at the end of an ARN or of a path: `web` for `arn:aws:iam::1:role/team/web`.
pub fn name_of(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or(arn)
}

/// Returns the issuer without `https://` of an OpenID Connect provider, from its ARN.
pub fn issuer_of(provider: &str) -> Option<&str> {
    provider.split_once(":oidc-provider/").map(|(_, issuer)| issuer)
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Role {
    /// Its name.
    pub role_name: String,
    /// Its ARN.
    pub arn: String,
    /// Who can assume the role, percent-encoded.
    #[serde(default)]
    assume_role_policy_document: String,
    /// Maximum duration of a session, in seconds.
    #[serde(default = "hour")]
    pub max_session_duration: u32,
    permissions_boundary: Option<Boundary>,
}

fn hour() -> u32 {
    3600
}

impl Role {
    /// Returns the policy that says who can assume the role.
    pub fn trust(&self) -> Result<Value, AwsError> {
        policy(&self.assume_role_policy_document, "iam:GetRole")
    }

    /// Returns the ARN of the policy that bounds the role.
    pub fn boundary(&self) -> Option<&str> {
        Some(self.permissions_boundary.as_ref()?.permissions_boundary_arn.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Boundary {
    permissions_boundary_arn: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceProfile {
    #[serde(default, deserialize_with = "list")]
    roles: Vec<Role>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProfileResult {
    instance_profile: InstanceProfile,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProfileAnswer {
    get_instance_profile_result: ProfileResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleResult {
    role: Role,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleAnswer {
    get_role_result: RoleResult,
}

/// A managed policy that is attached to a role.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AttachedPolicy {
    /// Its ARN.
    pub policy_arn: String,
    /// Its name.
    pub policy_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttachedResult {
    #[serde(default, deserialize_with = "list")]
    attached_policies: Vec<AttachedPolicy>,
    marker: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttachedAnswer {
    list_attached_role_policies_result: AttachedResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InlineResult {
    #[serde(default, deserialize_with = "list")]
    policy_names: Vec<String>,
    marker: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InlineAnswer {
    list_role_policies_result: InlineResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InlinePolicy {
    policy_document: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InlinePolicyAnswer {
    get_role_policy_result: InlinePolicy,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManagedPolicy {
    default_version_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManagedResult {
    policy: ManagedPolicy,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManagedAnswer {
    get_policy_result: ManagedResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PolicyVersion {
    document: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VersionResult {
    policy_version: PolicyVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VersionAnswer {
    get_policy_version_result: VersionResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Provider {
    arn: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProvidersResult {
    #[serde(default, rename = "OpenIDConnectProviderList", deserialize_with = "list")]
    list: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProvidersAnswer {
    #[serde(rename = "ListOpenIDConnectProvidersResult")]
    result: ProvidersResult,
}

/// An OpenID Connect provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcProvider {
    /// Its ARN.
    pub arn: String,
    /// The audiences that it accepts.
    pub client_ids: Vec<String>,
}

#[derive(Deserialize)]
struct ProviderResult {
    #[serde(default, rename = "ClientIDList", deserialize_with = "list")]
    client_ids: Vec<String>,
}

#[derive(Deserialize)]
struct ProviderAnswer {
    #[serde(rename = "GetOpenIDConnectProviderResult")]
    result: ProviderResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Identity {
    account: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IdentityAnswer {
    get_caller_identity_result: Identity,
}

fn next_page(marker: Option<&String>) -> Option<(&'static str, String)> {
    Some(("Marker", marker?.clone()))
}

/// Decodes a policy.
fn policy(encoded: &str, action: &str) -> Result<Value, AwsError> {
    let garbled = |reason: String| AwsError::Garbled { action: action.to_string(), reason };
    let text = decoded(encoded).ok_or_else(|| garbled("a policy is not percent-encoded".to_string()))?;
    serde_json::from_str(&text).map_err(|error| garbled(format!("a policy is not valid JSON: {error}")))
}

/// Decodes percent-encoded UTF-8. Text without `%` stays.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

fn iam(action: &'static str) -> Query {
    Query::new(Service::Iam, action)
}

impl Account {
    /// Returns the number of the account.
    pub async fn id(&self, region: &Region) -> Result<String, AwsError> {
        let query = Query::new(Service::Sts, "GetCallerIdentity");
        Ok(self.read::<IdentityAnswer>(region, &query).await?.get_caller_identity_result.account)
    }

    /// Returns the role of an instance profile; `None` if it has no role.
    pub async fn role_of_profile(&self, region: &Region, name: &str) -> Result<Option<Role>, AwsError> {
        let query = iam("GetInstanceProfile").with("InstanceProfileName", name);
        let answer: ProfileAnswer = self.read(region, &query).await?;
        Ok(answer.get_instance_profile_result.instance_profile.roles.into_iter().next())
    }

    /// Returns a role.
    pub async fn role(&self, region: &Region, name: &str) -> Result<Role, AwsError> {
        let query = iam("GetRole").with("RoleName", name);
        Ok(self.read::<RoleAnswer>(region, &query).await?.get_role_result.role)
    }

    /// Returns the managed policies of a role.
    pub async fn attached_policies(
        &self,
        region: &Region,
        role: &str,
    ) -> Result<Vec<AttachedPolicy>, AwsError> {
        let query = iam("ListAttachedRolePolicies").with("RoleName", role);
        let next = |page: &AttachedAnswer| next_page(page.list_attached_role_policies_result.marker.as_ref());
        let pages = self.pages(region, &query, next).await?;
        let policies =
            pages.into_iter().flat_map(|page| page.list_attached_role_policies_result.attached_policies);
        Ok(policies.collect())
    }

    /// Returns the names of the policies inside a role.
    pub async fn inline_policies(&self, region: &Region, role: &str) -> Result<Vec<String>, AwsError> {
        let query = iam("ListRolePolicies").with("RoleName", role);
        let next = |page: &InlineAnswer| next_page(page.list_role_policies_result.marker.as_ref());
        let pages = self.pages(region, &query, next).await?;
        Ok(pages.into_iter().flat_map(|page| page.list_role_policies_result.policy_names).collect())
    }

    /// Returns a policy inside a role.
    pub async fn inline_policy(&self, region: &Region, role: &str, name: &str) -> Result<Value, AwsError> {
        let query = iam("GetRolePolicy").with("RoleName", role).with("PolicyName", name);
        let answer: InlinePolicyAnswer = self.read(region, &query).await?;
        policy(&answer.get_role_policy_result.policy_document, "iam:GetRolePolicy")
    }

    /// Returns the version of a managed policy that is in force.
    pub async fn managed_policy(&self, region: &Region, arn: &str) -> Result<Value, AwsError> {
        let query = iam("GetPolicy").with("PolicyArn", arn);
        let answer: ManagedAnswer = self.read(region, &query).await?;
        let version = answer.get_policy_result.policy.default_version_id;
        let query = iam("GetPolicyVersion").with("PolicyArn", arn).with("VersionId", version);
        let answer: VersionAnswer = self.read(region, &query).await?;
        policy(&answer.get_policy_version_result.policy_version.document, "iam:GetPolicyVersion")
    }

    /// Returns the OpenID Connect provider of an issuer without `https://`; `None` if the account has none.
    pub async fn oidc_provider(
        &self,
        region: &Region,
        issuer: &str,
    ) -> Result<Option<OidcProvider>, AwsError> {
        let answer: ProvidersAnswer = self.read(region, &iam("ListOpenIDConnectProviders")).await?;
        let mut arns = answer.result.list.into_iter().map(|provider| provider.arn);
        let Some(arn) = arns.find(|arn| issuer_of(arn) == Some(issuer)) else { return Ok(None) };
        let query = iam("GetOpenIDConnectProvider").with("OpenIDConnectProviderArn", &arn);
        let answer: ProviderAnswer = self.read(region, &query).await?;
        Ok(Some(OidcProvider { arn, client_ids: answer.result.client_ids }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_parsed() {
        let xml = "<GetRoleResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><GetRoleResult><Role><Path>/</Path>\
            <Arn>arn:aws:iam::1:role/a</Arn><RoleName>a</RoleName>\
            <AssumeRolePolicyDocument>%7B%22Statement%22%3A%5B%5D%7D</AssumeRolePolicyDocument>\
            <PermissionsBoundary><PermissionsBoundaryType>Policy</PermissionsBoundaryType>\
            <PermissionsBoundaryArn>arn:aws:iam::1:policy/b</PermissionsBoundaryArn></PermissionsBoundary>\
            <MaxSessionDuration>7200</MaxSessionDuration></Role></GetRoleResult></GetRoleResponse>";
        let role = quick_xml::de::from_str::<RoleAnswer>(xml).unwrap().get_role_result.role;
        assert_eq!(role.trust().unwrap(), serde_json::json!({ "Statement": [] }));
        assert_eq!((role.boundary(), role.max_session_duration), (Some("arn:aws:iam::1:policy/b"), 7200));
    }

    #[test]
    fn policies_are_decoded() {
        assert_eq!(decoded("a%20b%C3%A9+c").as_deref(), Some("a bé+c"));
        assert_eq!(decoded("a%2"), None);
        assert_eq!(decoded("%zz"), None);
        assert!(matches!(policy("%7B", "iam:GetRole"), Err(AwsError::Garbled { .. })));
    }
}
