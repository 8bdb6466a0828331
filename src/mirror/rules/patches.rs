//! Patches of single objects, and replacements of text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::RuleFault;
use super::json_patch::apply_patch;
use super::kind_names::{Kind, is_kind};
use super::places::{each, each_text};
use super::uses::Uses;
use crate::inventory::text;
use crate::mirror::config::{Config, TextRule};

/// Fields that identify an object. No patch changes them.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// Applies the patches to an object. `namespace`: its namespace in the source.
pub(super) fn patch(
    config: &Config,
    (kind, namespace): (&Kind<'_>, &str),
    object: &mut Value,
    uses: &Uses,
) -> Result<(), RuleFault> {
    for (index, rule) in config.patches.iter().enumerate() {
        let is_named =
            rule.names.as_deref().is_none_or(|names| is_match(names, text(object, "/metadata/name")));
        let is_in = rule.namespaces.is_empty() || rule.namespaces.iter().any(|one| one == namespace);
        if !is_named || !is_in || !rule.kinds.iter().any(|name| is_kind(name, kind)) {
            continue;
        }
        uses.mark("patches", index);
        let before = IDENTITY.map(|place| object.pointer(place).cloned());
        let fault =
            |reason: String| RuleFault(format!("patches[{index}] of the configuration failed: {reason}"));
        apply_patch(object, &rule.patch).map_err(|(step, reason)| {
            let step = step.map(|step| format!("operation {step}: ")).unwrap_or_default();
            fault(format!("{step}{reason}"))
        })?;
        if IDENTITY.map(|place| object.pointer(place).cloned()) != before {
            return Err(fault("it changes the kind, the name or the namespace of the object".to_string()));
        }
    }
    Ok(())
}

/// Returns whether a name matches a pattern, in which `*` stands for any text.
fn is_match(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(end) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at.saturating_add(part.len())..).unwrap_or_default();
    }
    rest.ends_with(end)
}

/// Replaces text in an object: in every value except its kind, its name, its namespace and its labels.
pub(super) fn replace_text(config: &Config, kind: &Kind<'_>, object: &mut Value, uses: &Uses) {
    for (index, rule) in config.text.iter().enumerate() {
        if !rule.kinds.iter().any(|name| is_kind(name, kind)) {
            continue;
        }
        let mut change = |text: &str| {
            let new = replaced(rule, text)?;
            uses.mark("text", index);
            Some(new)
        };
        each(object, "/metadata/annotations", &mut |value| each_text(value, &mut change));
        let Some(fields) = object.as_object_mut() else { return };
        for (name, value) in fields {
            match name.as_str() {
                "apiVersion" | "kind" | "metadata" => {}
                "type" if kind.resource == "/secrets" => {}
                "data" if kind.resource == "/secrets" => {
                    each_text(value, &mut |data| in_base64(data, &mut change));
                }
                _ => each_text(value, &mut change),
            }
        }
    }
}

fn replaced(rule: &TextRule, text: &str) -> Option<String> {
    text.contains(&rule.from).then(|| text.replace(&rule.from, &rule.to))
}

/// Replaces text in base64. Data that is no text stays as it is.
fn in_base64(data: &str, change: &mut dyn FnMut(&str) -> Option<String>) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(data).ok()?).ok()?;
    change(&text).map(|new| STANDARD.encode(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mirror::config::PatchRule;

    #[test]
    fn names_match_patterns() {
        for (pattern, name, expected) in [
            ("api-*", "api-1", true),
            ("api-*", "web-api-1", false),
            ("*", "", true),
            ("*-api", "web-api", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("a*a", "a", false),
            ("web", "web", true),
            ("web", "web2", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    fn rule(kinds: &[&str], names: Option<&str>, patch: Value) -> PatchRule {
        PatchRule {
            kinds: kinds.iter().map(ToString::to_string).collect(),
            names: names.map(str::to_string),
            namespaces: vec!["shop".to_string()],
            patch,
        }
    }

    #[test]
    fn patch_changes_its_objects() {
        let kind = Kind { resource: "apps/deployments", kind: "Deployment" };
        let object = json!({"kind": "Deployment", "metadata": {"name": "api-1"}, "spec": {"replicas": 1}});
        let op = |value: Value| json!([value]);
        for (rule, namespace, expected) in [
            (rule(&["Deployment"], Some("api-*"), json!({"spec": {"replicas": 2}})), "shop", Ok(json!(2))),
            (
                rule(
                    &["deployments.apps"],
                    None,
                    op(json!({"op": "replace", "path": "/spec/replicas", "value": 3})),
                ),
                "shop",
                Ok(json!(3)),
            ),
            (rule(&["Deployment"], Some("web"), json!({"spec": {"replicas": 2}})), "shop", Ok(json!(1))),
            (rule(&["Deployment"], None, json!({"spec": {"replicas": 2}})), "pay", Ok(json!(1))),
            (rule(&["Service"], None, json!({"spec": {"replicas": 2}})), "shop", Ok(json!(1))),
            (rule(&["Deployment"], None, json!({"metadata": {"name": "x"}})), "shop", Err("name")),
            (rule(&["Deployment"], None, json!({"metadata": {"namespace": "x"}})), "shop", Err("namespace")),
            (
                rule(&["Deployment"], None, op(json!({"op": "remove", "path": "/spec/none"}))),
                "shop",
                Err("patches[0]"),
            ),
        ] {
            let config = Config { patches: vec![rule.clone()], ..Config::default() };
            let mut copy = object.clone();
            let result = patch(&config, (&kind, namespace), &mut copy, &Uses::default());
            match (result, expected) {
                (Ok(()), Ok(replicas)) => assert_eq!(copy["spec"]["replicas"], replicas, "{rule:?}"),
                (Err(RuleFault(text)), Err(words)) => assert!(text.contains(words), "{text}"),
                (result, expected) => panic!("{rule:?}: {result:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn text_changes_only_in_the_named_kinds() {
        let rule = |kind: &str| TextRule {
            kinds: vec![kind.to_string()],
            from: "blue".to_string(),
            to: "green".to_string(),
        };
        let config = Config { text: vec![rule("ConfigMap"), rule("Secret")], ..Config::default() };
        let after = |config: &Config, resource: &str, kind: &str, object: &Value| {
            let mut copy = object.clone();
            replace_text(config, &Kind { resource, kind }, &mut copy, &Uses::default());
            copy
        };
        let map = json!({"metadata": {"name": "blue", "labels": {"a": "blue"}, "annotations": {"b": "blue"}}, "data": {"blue": "db.blue, blue"}});
        let expected = json!({"metadata": {"name": "blue", "labels": {"a": "blue"}, "annotations": {"b": "green"}}, "data": {"blue": "db.green, green"}});
        assert_eq!(after(&config, "/configmaps", "ConfigMap", &map), expected);
        assert_eq!(after(&config, "/services", "Service", &map), map);
        let encoded = |text: &[u8]| STANDARD.encode(text);
        let secret = json!({"type": "blue", "data": {"a": encoded(b"db.blue"), "b": encoded(&[0xff, 0]), "c": "blue"}});
        let expected = json!({"type": "blue", "data": {"a": encoded(b"db.green"), "b": encoded(&[0xff, 0]), "c": "blue"}});
        assert_eq!(after(&config, "/secrets", "Secret", &secret), expected);
        let only_maps = Config { text: vec![rule("ConfigMap")], ..Config::default() };
        assert_eq!(after(&only_maps, "/secrets", "Secret", &secret), secret);
    }
}
