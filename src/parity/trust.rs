//! Trust policies of roles: who can assume a role, and the policy that also lets the mirror assume it.
//!
//! A policy is evaluated, not searched for a text: a condition that names two issuers in one statement matches neither (IAM User Guide,
//! "IAM JSON policy elements: Condition": all keys of a statement must match). What cannot be evaluated here is unknown, never a yes.

use serde_json::{Value, json};

use super::names::Names;
use super::policy::{covers, texts};
use crate::aws::iam::issuer_of;

/// Maximum length of a trust policy without white space, in characters, unless the quota was raised (IAM User Guide, "IAM and STS quotas",
/// role trust policy length).
pub const LONGEST: usize = 2048;

/// The answer to the question whether a policy allows a client to assume the role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trusted {
    /// Yes.
    Yes,
    /// No.
    No,
    /// A statement contains this element, which is not evaluated.
    Unknown(String),
}

/// A ServiceAccount that asks for a role with its token.
#[derive(Debug, Clone, Copy)]
pub struct WebIdentity<'w> {
    /// The issuer of its tokens without `https://`.
    pub issuer: &'w str,
    /// `system:serviceaccount:NAMESPACE:NAME`.
    pub subject: &'w str,
    /// The audience of its tokens.
    pub audience: &'w str,
}

/// Who asks for the role.
#[derive(Debug, Clone, Copy)]
pub enum Asker<'a> {
    /// A ServiceAccount with its token.
    Identity(WebIdentity<'a>),
    /// A role, by its ARN.
    Role(&'a str),
}

/// The value of a key of a condition in a request.
enum KeyValue<'v> {
    Known(&'v str),
    /// The request does not have the key.
    Absent,
    /// Only AWS knows the value.
    Unknown,
}

impl<'a> Asker<'a> {
    fn action(self) -> &'static str {
        match self {
            Self::Identity(_) => "sts:assumerolewithwebidentity",
            Self::Role(_) => "sts:assumerole",
        }
    }

    /// Returns the value of a key of a condition. Keys have no case.
    fn value(self, key: &str) -> KeyValue<'a> {
        let key = key.to_lowercase();
        let is_of_issuer = |key: &str| !key.starts_with("aws:") && !key.starts_with("sts:");
        match self {
            Self::Identity(identity) => match key.strip_prefix(&identity.issuer.to_lowercase()) {
                Some(":sub") => KeyValue::Known(identity.subject),
                Some(":aud") => KeyValue::Known(identity.audience),
                // A token has no claim of another issuer.
                Some(rest) if !rest.starts_with(':') => KeyValue::Absent,
                None if is_of_issuer(&key) => KeyValue::Absent,
                _ => KeyValue::Unknown,
            },
            Self::Role(arn) => match key.as_str() {
                "aws:principalarn" => KeyValue::Known(arn),
                "aws:principalaccount" => KeyValue::Known(account_of(arn)),
                key if is_of_issuer(key) => KeyValue::Absent,
                _ => KeyValue::Unknown,
            },
        }
    }

    /// Returns whether a statement is about this asker, without its condition.
    fn is_named(self, statement: &Value, is_denial: bool) -> bool {
        let is_anybody = statement.get("Principal").is_some_and(|principal| principal == "*");
        let of_aws = principals(statement, "AWS");
        if is_anybody || is_denial && of_aws.iter().any(|found| found == "*") {
            return true;
        }
        match self {
            Self::Identity(identity) => has_provider(statement, identity.issuer),
            Self::Role(arn) => of_aws.iter().any(|found| is_or_contains(found, arn)),
        }
    }
}

fn account_of(arn: &str) -> &str {
    arn.split(':').nth(4).unwrap_or_default()
}

fn statements(trust: &Value) -> &[Value] {
    match trust.get("Statement") {
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
        None => &[],
    }
}

fn has_action(statement: &Value, action: &str) -> bool {
    let patterns = statement.get("Action").map(texts).unwrap_or_default();
    patterns.iter().any(|pattern| covers(&pattern.to_lowercase(), action))
}

/// Returns whether a statement names the provider of an issuer.
fn has_provider(statement: &Value, issuer: &str) -> bool {
    principals(statement, "Federated").iter().any(|arn| issuer_of(arn) == Some(issuer))
}

/// Returns the principals of a kind: `AWS` or `Federated`.
fn principals(statement: &Value, kind: &str) -> Vec<String> {
    statement.pointer("/Principal").and_then(|found| found.get(kind)).map(texts).unwrap_or_default()
}

/// Returns whether a principal is a role, or the whole account of the role.
fn is_or_contains(principal: &str, arn: &str) -> bool {
    let account = account_of(arn);
    principal == "*"
        || principal == arn
        || principal == account
        || account_of(principal) == account && principal.ends_with(":root")
}

fn is_denial(statement: &Value) -> bool {
    statement.get("Effect").is_some_and(|effect| effect == "Deny")
}

/// Returns whether a client can assume the role.
pub fn trusts(trust: &Value, asker: Asker<'_>) -> Trusted {
    let (mut is_allowed, mut allowing, mut denying) = (false, None, None);
    for statement in statements(trust) {
        let is_denial = is_denial(statement);
        match applies(statement, asker, is_denial) {
            Trusted::Yes if is_denial => return Trusted::No,
            Trusted::Yes => is_allowed = true,
            Trusted::Unknown(what) if is_denial => denying = Some(what),
            Trusted::Unknown(what) => allowing = Some(what),
            Trusted::No => {}
        }
    }
    match (denying, allowing) {
        (Some(what), allowing) if is_allowed || allowing.is_some() => Trusted::Unknown(what),
        _ if is_allowed => Trusted::Yes,
        (_, Some(what)) => Trusted::Unknown(what),
        _ => Trusted::No,
    }
}

/// Returns whether a statement applies to a request.
fn applies(statement: &Value, asker: Asker<'_>, is_denial: bool) -> Trusted {
    if let Some(element) =
        ["NotPrincipal", "NotAction"].into_iter().find(|name| statement.get(name).is_some())
    {
        return Trusted::Unknown(element.to_string());
    }
    if !has_action(statement, asker.action()) || !asker.is_named(statement, is_denial) {
        return Trusted::No;
    }
    let mut result = Trusted::Yes;
    for (operator, keys) in statement.get("Condition").and_then(Value::as_object).into_iter().flatten() {
        for (key, values) in keys.as_object().into_iter().flatten() {
            match fulfils(operator, &asker.value(key), &texts(values)) {
                Some(true) => {}
                Some(false) => return Trusted::No,
                None => result = Trusted::Unknown(format!("{operator} {key}")),
            }
        }
    }
    result
}

/// Returns whether a value fulfils an operator; `None` if that is not known. An absent key fulfils only operators that end with `IfExists`,
/// those for all values, and negated ones.
fn fulfils(operator: &str, actual: &KeyValue<'_>, values: &[String]) -> Option<bool> {
    let lower = operator.to_lowercase();
    let (rest, for_all) =
        lower.strip_prefix("forallvalues:").map_or((lower.as_str(), false), |rest| (rest, true));
    let rest = rest.strip_prefix("foranyvalue:").unwrap_or(rest);
    let (name, if_exists) = rest.strip_suffix("ifexists").map_or((rest, false), |name| (name, true));
    let any = |test: &dyn Fn(&str, &str) -> bool, is_negated: bool| match actual {
        KeyValue::Known(actual) => Some(values.iter().any(|value| test(value, actual)) != is_negated),
        KeyValue::Absent => Some(is_negated || if_exists || for_all),
        KeyValue::Unknown => None,
    };
    let equal = |value: &str, actual: &str| value == actual;
    let folded = |value: &str, actual: &str| value.eq_ignore_ascii_case(actual);
    match name {
        "stringequals" => any(&equal, false),
        "stringnotequals" => any(&equal, true),
        "stringequalsignorecase" => any(&folded, false),
        "stringnotequalsignorecase" => any(&folded, true),
        "stringlike" | "arnlike" | "arnequals" => any(&covers, false),
        "stringnotlike" | "arnnotlike" | "arnnotequals" => any(&covers, true),
        _ => None,
    }
}

/// Returns the roles that can assume the role.
pub fn trusted_roles(trust: &Value) -> Vec<String> {
    let allowing =
        statements(trust).iter().filter(|one| !is_denial(one) && has_action(one, "sts:assumerole"));
    let principals = allowing.flat_map(|statement| principals(statement, "AWS"));
    principals.filter(|arn| arn.contains(":role/")).collect()
}

/// Returns the trust policy with statements for the tokens of a ServiceAccount of the mirror: copies of those of the source's issuer, or a
/// new one if the copies do not let it assume the role. `role` is the ARN of the role.
pub fn with_identity(trust: &Value, role: &str, source: &str, identity: WebIdentity<'_>) -> Value {
    let mut names = Names::default();
    names.add(source, identity.issuer);
    let of_source = statements(trust).iter().filter(|one| {
        !is_denial(one) && has_action(one, "sts:assumerolewithwebidentity") && has_provider(one, source)
    });
    let copies = of_source.map(|statement| {
        let mut copy: Value =
            serde_json::from_str(&names.renamed(&statement.to_string())).unwrap_or_default();
        // The ids of statements must differ.
        copy.as_object_mut().and_then(|copy| copy.shift_remove("Sid"));
        copy
    });
    let known = || statements(trust).iter().cloned();
    let changed = with_statements(trust, known().chain(copies).collect());
    if trusts(&changed, Asker::Identity(identity)) == Trusted::Yes {
        return changed;
    }
    let WebIdentity { issuer, subject, audience } = identity;
    let partition = role.split(':').nth(1).unwrap_or("aws");
    let provider = format!("arn:{partition}:iam::{}:oidc-provider/{issuer}", account_of(role));
    let condition =
        json!({ "StringEquals": { format!("{issuer}:aud"): audience, format!("{issuer}:sub"): subject } });
    let own = json!({
        "Effect": "Allow", "Principal": { "Federated": provider }, "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": condition,
    });
    with_statements(trust, known().chain([own]).collect())
}

/// Returns a policy with other statements.
fn with_statements(policy: &Value, statements: Vec<Value>) -> Value {
    let mut changed = policy.clone();
    if let Some(fields) = changed.as_object_mut() {
        fields.insert("Statement".to_string(), Value::Array(statements));
    }
    changed
}

/// Returns the trust policy with another role in each statement that names a role.
pub fn with_role(trust: &Value, source: &str, mirror: &str) -> Value {
    let with = |statement: &Value| {
        let mut statement = statement.clone();
        let known = principals(&statement, "AWS");
        if known.iter().any(|arn| arn == source) && !is_denial(&statement) {
            let all: Vec<String> = known.into_iter().chain([mirror.to_string()]).collect();
            if let Some(principal) = statement.pointer_mut("/Principal").and_then(Value::as_object_mut) {
                principal.insert("AWS".to_string(), json!(all));
            }
        }
        statement
    };
    with_statements(trust, statements(trust).iter().map(with).collect())
}

/// Returns the length of a policy as IAM counts it, without white space.
pub fn length(policy: &Value) -> usize {
    policy.to_string().chars().filter(|letter| !letter.is_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLUE: &str = "oidc.example.com/blue";
    const GREEN: &str = "oidc.example.com/green";
    const ROLE: &str = "arn:aws:iam::1:role/shop-web";

    fn identity(issuer: &'static str) -> WebIdentity<'static> {
        WebIdentity { issuer, subject: "system:serviceaccount:shop:web", audience: "sts.amazonaws.com" }
    }

    fn of_identity(trust: &Value, issuer: &'static str) -> Trusted {
        trusts(trust, Asker::Identity(identity(issuer)))
    }

    fn statement(issuers: &[&str], subject: &str) -> Value {
        let providers: Vec<String> =
            issuers.iter().map(|issuer| format!("arn:aws:iam::1:oidc-provider/{issuer}")).collect();
        let mut condition = json!({ "StringEquals": {}, "StringLike": {} });
        for issuer in issuers {
            condition["StringEquals"][format!("{issuer}:aud")] = json!("sts.amazonaws.com");
            condition["StringLike"][format!("{issuer}:sub")] = json!([subject]);
        }
        json!({ "Sid": "one", "Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
                "Principal": { "Federated": providers }, "Condition": condition })
    }

    #[test]
    fn issuer_must_be_trusted_with_the_subject() {
        let trust = json!({ "Statement": statement(&[BLUE], "system:serviceaccount:shop:*") });
        assert_eq!(of_identity(&trust, BLUE), Trusted::Yes);
        assert_eq!(of_identity(&trust, GREEN), Trusted::No);
        let other = json!({ "Statement": [statement(&[BLUE], "system:serviceaccount:pay:*")] });
        assert_eq!(of_identity(&other, BLUE), Trusted::No);
    }

    #[test]
    fn two_issuers_in_one_statement_match_neither() {
        let trust = json!({ "Statement": [statement(&[BLUE, GREEN], "system:serviceaccount:shop:web")] });
        assert_eq!(of_identity(&trust, BLUE), Trusted::No);
        assert_eq!(of_identity(&trust, GREEN), Trusted::No);
    }

    #[test]
    fn copy_of_the_statement_trusts_the_other_issuer() {
        let trust = json!({ "Version": "2012-10-17", "Statement": [statement(&[BLUE], "system:serviceaccount:shop:web")] });
        let both = with_identity(&trust, ROLE, BLUE, identity(GREEN));
        assert_eq!(of_identity(&both, BLUE), Trusted::Yes);
        assert_eq!(of_identity(&both, GREEN), Trusted::Yes);
        assert_eq!(both["Statement"][1].get("Sid"), None);
        assert!(length(&both) > length(&trust) && !both.to_string().contains("null"));
        // The role of the copy has no statement of the source's issuer.
        let none = json!({ "Version": "2012-10-17", "Statement": [] });
        assert_eq!(of_identity(&with_identity(&none, ROLE, BLUE, identity(GREEN)), GREEN), Trusted::Yes);
    }

    #[test]
    fn denials_win() {
        let deny = |principal: Value, condition: Value| json!({ "Effect": "Deny", "Action": "*", "Principal": principal, "Condition": condition });
        let subject = json!({ "StringLike": { "oidc.example.com/blue:sub": "*" } });
        for denial in [deny(json!("*"), subject.clone()), deny(json!({ "AWS": "*" }), json!({}))] {
            let trust = json!({ "Statement": [statement(&[BLUE], "*"), denial] });
            assert_eq!(of_identity(&trust, BLUE), Trusted::No);
        }
        let address = json!({ "NotIpAddress": { "aws:SourceIp": "10.0.0.0/8" } });
        let trust = json!({ "Statement": [statement(&[BLUE], "*"), deny(json!("*"), address)] });
        assert!(matches!(of_identity(&trust, BLUE), Trusted::Unknown(_)));
    }

    #[test]
    fn what_only_aws_knows_is_unknown() {
        for (operator, key) in [
            ("NumericLessThan", "aws:x"),
            ("StringEquals", "aws:RequestedRegion"),
            ("StringNotEquals", "aws:SourceVpc"),
        ] {
            let mut odd = statement(&[BLUE], "*");
            odd["Condition"][operator][key] = json!("1");
            let trust = json!({ "Statement": [odd] });
            assert!(matches!(of_identity(&trust, BLUE), Trusted::Unknown(_)), "{operator} {key}");
        }
    }

    #[test]
    fn roles_are_principals() {
        let (blue, green) = ("arn:aws:iam::1:role/nodes.blue", "arn:aws:iam::1:role/nodes.green");
        let of = |principal: Value, condition: Value| {
            json!({ "Statement": [{ "Effect": "Allow", "Action": ["sts:AssumeRole"], "Principal": { "AWS": principal },
                                    "Condition": condition }] })
        };
        let is = |trust: &Value, arn: &str| trusts(trust, Asker::Role(arn));
        let trust = of(json!(blue), json!({}));
        assert_eq!((is(&trust, blue), is(&trust, green)), (Trusted::Yes, Trusted::No));
        let root = of(json!("arn:aws:iam::1:root"), json!({}));
        assert_eq!(is(&root, green), Trusted::Yes);
        assert_eq!(is(&of(json!("arn:aws:iam::2:root"), json!({})), green), Trusted::No);
        let only = of(json!("arn:aws:iam::1:root"), json!({ "ArnEquals": { "aws:PrincipalArn": blue } }));
        assert_eq!((is(&only, blue), is(&only, green)), (Trusted::Yes, Trusted::No));
        let tagged = of(json!(blue), json!({ "StringEquals": { "aws:PrincipalTag/x": "1" } }));
        assert!(matches!(is(&tagged, blue), Trusted::Unknown(_)));
        let both = with_role(&trust, blue, green);
        assert_eq!((is(&both, blue), is(&both, green)), (Trusted::Yes, Trusted::Yes));
        assert_eq!(trusted_roles(&both), [blue, green]);
    }
}
