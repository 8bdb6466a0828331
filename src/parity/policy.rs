//! Policies of IAM in a normal form, and which rights of one are missing in others.
//!
//! Two policies can say the same with other words: one text instead of a list of one, other capitals in actions, other statements, other
//! ids of statements. So rights are compared one by one: each action on each resource under its condition (IAM User Guide, "IAM JSON policy
//! elements reference").

use std::collections::BTreeSet;

use serde_json::Value;

use super::names::Names;
use crate::words::first_few;

/// Whether a statement allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It allows.
    Allow,
    /// It denies.
    Deny,
}

/// Actions or resources of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// These.
    Of(Vec<String>),
    /// All but these.
    AllBut(Vec<String>),
}

/// A statement of a policy that is attached to a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    effect: Effect,
    actions: Pattern,
    resources: Pattern,
    /// The condition with sorted keys and lists, as text; empty if there is none.
    condition: String,
}

/// Actions on resources that a statement allows or denies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Whether the statement allows or denies them.
    pub effect: Effect,
    /// The actions, for example `s3:getobject`.
    pub actions: Vec<String>,
    /// The resources.
    pub resources: Vec<String>,
    /// Whether the statement has a condition.
    pub is_conditional: bool,
}

/// Formats the first actions and resources: `s3:getobject, s3:putobject on arn:aws:s3:::b/*`.
impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", first_few(&self.actions), first_few(&self.resources))?;
        if self.is_conditional { write!(f, " with a condition") } else { Ok(()) }
    }
}

/// Returns the statements of a policy. The names of the source become those of the mirror.
pub fn statements(policy: &Value, names: &Names) -> Vec<Statement> {
    let list = match policy.get("Statement") {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().map(|one| statement(one, names)).collect()
}

fn statement(value: &Value, names: &Names) -> Statement {
    let effect = if value["Effect"] == "Deny" { Effect::Deny } else { Effect::Allow };
    let pattern = |name: &str, but: &str, is_action: bool| {
        let of = |value: &Value| {
            let texts = texts(value).into_iter();
            let words = texts.map(|text| if is_action { text.to_lowercase() } else { names.renamed(&text) });
            words.collect::<BTreeSet<_>>().into_iter().collect()
        };
        match value.get(but) {
            Some(but) => Pattern::AllBut(of(but)),
            None => Pattern::Of(value.get(name).map(of).unwrap_or_default()),
        }
    };
    Statement {
        effect,
        actions: pattern("Action", "NotAction", true),
        resources: pattern("Resource", "NotResource", false),
        condition: value.get("Condition").map(|found| condition(found, names)).unwrap_or_default(),
    }
}

/// Returns a text or a list of texts as a list.
pub fn texts(value: &Value) -> Vec<String> {
    let of = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    match value {
        Value::Array(list) => list.iter().map(of).collect(),
        Value::Null => Vec::new(),
        one => vec![of(one)],
    }
}

/// Returns a condition with sorted keys and values. Operators and keys have no case.
fn condition(value: &Value, names: &Names) -> String {
    let mut found = Vec::new();
    for (operator, keys) in value.as_object().into_iter().flatten() {
        for (key, values) in keys.as_object().into_iter().flatten() {
            let mut values: Vec<String> = texts(values).iter().map(|text| names.renamed(text)).collect();
            values.sort();
            let key = names.renamed(key).to_lowercase();
            found.push(format!("{}({key}: {})", operator.to_lowercase(), values.join(" or ")));
        }
    }
    found.sort();
    found.join(" and ")
}

/// Returns the rights of these statements that no other statement covers.
pub fn uncovered(statements: &[Statement], others: &[Statement], effect: Effect) -> Vec<Right> {
    let others: Vec<&Statement> = others.iter().filter(|other| other.effect == effect).collect();
    let wanted = statements.iter().filter(|one| one.effect == effect);
    wanted.filter_map(|one| rest(one, &others)).collect()
}

/// Returns the allowed rights of a policy that no other statement covers, neither with the names of the source nor with those of the mirror:
/// a name in a policy can be that of a cluster by chance.
pub fn missing(policy: &Value, names: &Names, others: &[Statement]) -> Vec<Right> {
    let (renamed, original) = (statements(policy, names), statements(policy, &Names::default()));
    let both = renamed.iter().zip(&original);
    let missing = both.filter_map(|(renamed, original)| {
        let is_covered = uncovered(std::slice::from_ref(original), others, Effect::Allow).is_empty();
        if is_covered { None } else { uncovered(std::slice::from_ref(renamed), others, Effect::Allow).pop() }
    });
    missing.collect()
}

/// Returns a policy with the names of the mirror in resources and conditions.
pub fn renamed(policy: &Value, names: &Names) -> Value {
    let mut policy = policy.clone();
    let statements = match policy.get_mut("Statement") {
        Some(Value::Array(list)) => list.as_mut_slice(),
        Some(one) => std::slice::from_mut(one),
        None => &mut [],
    };
    for statement in statements {
        for part in ["Resource", "NotResource", "Condition"] {
            if let Some(value) = statement.get_mut(part) {
                *value = serde_json::from_str(&names.renamed(&value.to_string())).unwrap_or_default();
            }
        }
    }
    policy
}

/// Returns what these statements do not cover of a statement.
fn rest(one: &Statement, others: &[&Statement]) -> Option<Right> {
    let parts = one.resources.parts();
    let is_usable = |other: &&&Statement| other.condition.is_empty() || other.condition == one.condition;
    // Each with the resources that it covers, which are the same for every action.
    let usable: Vec<(&Pattern, Vec<bool>)> = others
        .iter()
        .filter(is_usable)
        .map(|other| (&other.actions, parts.iter().map(|part| other.resources.covers(part)).collect()))
        .collect();
    let (mut actions, mut resources) = (BTreeSet::new(), BTreeSet::new());
    for action in one.actions.parts() {
        let by_action: Vec<&Vec<bool>> =
            usable.iter().filter(|(own, _)| own.covers(&action)).map(|(_, covered)| covered).collect();
        for (at, resource) in parts.iter().enumerate() {
            if !by_action.iter().any(|covered| covered.get(at) == Some(&true)) {
                actions.insert(action.to_string());
                resources.insert(resource.to_string());
            }
        }
    }
    (!actions.is_empty()).then(|| Right {
        effect: one.effect,
        actions: actions.into_iter().collect(),
        resources: resources.into_iter().collect(),
        is_conditional: !one.condition.is_empty(),
    })
}

/// A part of a pattern: one text, or all but a list.
enum Part<'p> {
    One(&'p str),
    AllBut(&'p [String]),
}

impl std::fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(text) => f.write_str(text),
            Self::AllBut(list) => write!(f, "all but {}", list.join(", ")),
        }
    }
}

impl Pattern {
    fn parts(&self) -> Vec<Part<'_>> {
        match self {
            Self::Of(list) => list.iter().map(|text| Part::One(text)).collect(),
            Self::AllBut(list) => vec![Part::AllBut(list)],
        }
    }

    /// Returns whether this pattern matches everything that a part matches.
    fn covers(&self, part: &Part<'_>) -> bool {
        match (self, part) {
            (Self::Of(list), Part::One(text)) => list.iter().any(|pattern| covers(pattern, text)),
            (Self::Of(list), Part::AllBut(_)) => list.iter().any(|pattern| pattern == "*"),
            (Self::AllBut(list), Part::One(text)) => !list.iter().any(|pattern| meet(pattern, text)),
            (Self::AllBut(list), Part::AllBut(other)) => {
                list.iter().all(|one| other.iter().any(|but| covers(but, one)))
            }
        }
    }
}

/// Returns whether a pattern with `*` and `?` matches everything that another pattern matches. Can return `false` for a pattern with more
/// than one `*` that does.
pub fn covers(pattern: &str, other: &str) -> bool {
    let (pattern, other): (Vec<char>, Vec<char>) = (pattern.chars().collect(), other.chars().collect());
    // Which lengths of `other` the first letters of the pattern can consume.
    let mut reached = vec![false; other.len().saturating_add(1)];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    for letter in pattern {
        let mut next = vec![false; reached.len()];
        for (at, is_reached) in reached.iter().enumerate() {
            // `*` consumes any letter of the other pattern, and also its `*`.
            let can_stay = letter == '*'
                && (*is_reached || at.checked_sub(1).is_some_and(|before| next.get(before) == Some(&true)));
            let consumes = at.checked_sub(1).is_some_and(|before| {
                let other = other.get(before).copied().unwrap_or_default();
                reached.get(before) == Some(&true) && (letter == other || letter == '?' && other != '*')
            });
            if let Some(slot) = next.get_mut(at) {
                *slot = can_stay || consumes && letter != '*';
            }
        }
        reached = next;
    }
    reached.last() == Some(&true)
}

/// Returns whether a text matches two patterns at once.
fn meet(one: &str, other: &str) -> bool {
    fn go(one: &[char], other: &[char], known: &mut BTreeSet<(usize, usize)>) -> bool {
        if !known.insert((one.len(), other.len())) {
            return false;
        }
        match (one.split_first(), other.split_first()) {
            (None, None) => true,
            (Some(('*', after)), _) if go(after, other, known) => true,
            (_, Some(('*', after))) if go(one, after, known) => true,
            (Some(('*', _)), Some((_, rest))) => go(one, rest, known),
            (Some((_, rest)), Some(('*', _))) => go(rest, other, known),
            (Some((left, rest)), Some((right, more))) => {
                (left == right || [left, right].contains(&&'?')) && go(rest, more, known)
            }
            _ => false,
        }
    }
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    go(&one, &other, &mut BTreeSet::new())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(policy: &Value) -> Vec<Statement> {
        statements(policy, &Names::default())
    }

    /// Returns what the first statements allow and the others do not, and what only the others deny.
    fn missing(source: &[Statement], mirror: &[Statement]) -> Vec<Right> {
        let denied = uncovered(mirror, source, Effect::Deny);
        uncovered(source, mirror, Effect::Allow).into_iter().chain(denied).collect()
    }

    #[test]
    fn pattern_covers_what_it_matches() {
        for (pattern, other) in [
            ("*", "s3:*"),
            ("s3:*", "s3:get*"),
            ("s3:get?bject", "s3:getobject"),
            ("a*c", "abc"),
            ("a*", "a"),
            ("*b*", "abc"),
        ] {
            assert!(covers(pattern, other), "{pattern} {other}");
        }
        for (pattern, other) in
            [("s3:get*", "s3:*"), ("s3:?", "s3:*"), ("abc", "ab"), ("ab", "abc"), ("", "a"), ("?", "")]
        {
            assert!(!covers(pattern, other), "{pattern} {other}");
        }
        assert!(meet("s3:*object", "s3:get*") && meet("a?", "?b") && meet("*", "") && !meet("s3:*", "ec2:*"));
    }

    #[test]
    fn spelling_makes_no_difference() {
        let one = json!({ "Version": "2012-10-17", "Statement": { "Sid": "a", "Effect": "Allow", "Action": "S3:GetObject", "Resource": "*",
            "Condition": { "StringEquals": { "aws:SourceVpc": ["vpc-1", "vpc-2"] } } } });
        let other = json!({ "Statement": [{ "Effect": "Allow", "Action": ["s3:getobject", "s3:getobject"], "Resource": ["*"],
            "Condition": { "stringequals": { "AWS:sourceVPC": ["vpc-2", "vpc-1"] } } }] });
        assert_eq!(missing(&of(&one), &of(&other)), []);
        assert_eq!(missing(&of(&other), &of(&one)), []);
    }

    #[test]
    fn missing_rights_are_named() {
        let source = json!({ "Statement": [
            { "Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket", "ecr:*"], "Resource": ["arn:aws:s3:::b", "arn:aws:s3:::b/blue/*"] },
            { "Effect": "Allow", "NotAction": ["iam:*"], "Resource": "*" }] });
        let mirror = json!({ "Statement": [
            { "Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b*" },
            { "Effect": "Allow", "Action": "*", "Resource": "*", "Condition": { "Bool": { "aws:SecureTransport": "true" } } },
            { "Effect": "Deny", "Action": "s3:DeleteObject", "Resource": "*" }] });
        let found = missing(&of(&source), &of(&mirror));
        let words: Vec<String> =
            found.iter().map(|right| format!("{:?} {}", right.effect, right.actions.join(", "))).collect();
        assert_eq!(words, ["Allow ecr:*", "Allow all but iam:*", "Deny s3:deleteobject"]);
        assert_eq!(missing(&of(&source), &of(&source)), []);
    }

    #[test]
    fn names_of_both_clusters_count() {
        let mut names = Names::default();
        names.add("prod", "prod2");
        let policy = |bucket: &str| json!({ "Statement": { "Effect": "Allow", "Action": "prod:Get", "Resource": bucket } });
        let source = policy("arn:aws:s3:::acme-prod-data/*");
        for bucket in ["arn:aws:s3:::acme-prod-data/*", "arn:aws:s3:::acme-prod2-data/*"] {
            assert_eq!(super::missing(&source, &names, &of(&policy(bucket))), []);
        }
        let found = super::missing(&source, &names, &of(&policy("arn:aws:s3:::other/*")));
        assert_eq!(found[0].resources, ["arn:aws:s3:::acme-prod2-data/*"]);
        assert_eq!(renamed(&source, &names), policy("arn:aws:s3:::acme-prod2-data/*"));
    }

    #[test]
    fn all_but_covers_what_it_does_not_name() {
        let all_but = |action: &str| json!({ "Statement": [{ "Effect": "Allow", "NotAction": action, "Resource": "*" }] });
        let one = json!({ "Statement": [{ "Effect": "Allow", "Action": "s3:Get*", "Resource": "*" }] });
        assert_eq!(missing(&of(&one), &of(&all_but("iam:*"))), []);
        assert_eq!(missing(&of(&one), &of(&all_but("s3:*Object"))).len(), 1);
        assert_eq!(missing(&of(&all_but("iam:*")), &of(&all_but("iam:Pass*"))), []);
        assert_eq!(missing(&of(&all_but("iam:Pass*")), &of(&all_but("iam:*"))).len(), 1);
    }
}
