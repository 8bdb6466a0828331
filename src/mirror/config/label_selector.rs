//! Label selectors in the form that `kubectl` accepts: `app=web,tier!=db,zone in (a,b),!old`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Parses a selector. The error is for people, and has no position.
pub fn parse_selector(text: &str) -> Result<LabelSelector, String> {
    let requirements: Vec<LabelSelectorRequirement> =
        parts(text).into_iter().map(requirement).collect::<Result<_, _>>()?;
    if requirements.is_empty() {
        return Err("a selector without a requirement selects everything".to_string());
    }
    Ok(LabelSelector { match_expressions: Some(requirements), match_labels: None })
}

/// Splits a selector at the commas outside of parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut is_open) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => is_open = true,
            ')' => is_open = false,
            ',' if !is_open => {
                found.push(text.get(start..at).unwrap_or_default());
                start = at.saturating_add(1);
            }
            _ => {}
        }
    }
    found.push(text.get(start..).unwrap_or_default());
    found.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn requirement(part: &str) -> Result<LabelSelectorRequirement, String> {
    let of = |key: &str, operator: &str, values: Vec<&str>| {
        let (key, values) = (key.trim(), values.into_iter().map(str::trim));
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        let values: Vec<String> = values.map(str::to_string).collect();
        if key.is_empty() || !is_name(key) || !values.iter().all(|value| is_name(value)) {
            return Err(format!(
                "`{part}` is no requirement; examples: `app=web`, `tier!=db`, `zone in (a,b)`, `!old`"
            ));
        }
        let values = (!values.is_empty()).then_some(values);
        Ok(LabelSelectorRequirement { key: key.to_string(), operator: operator.to_string(), values })
    };
    if let Some(list) = part.strip_suffix(')') {
        let (head, list) = list.split_once('(').unwrap_or((part, ""));
        let values: Vec<&str> = list.split(',').collect();
        return match head.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => of(key, "In", values),
            Some((key, "notin")) => of(key, "NotIn", values),
            _ => of("", "", Vec::new()),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return of(key, "NotIn", vec![value]);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return of(key, "In", vec![value]);
    }
    match part.strip_prefix('!') {
        Some(key) => of(key, "DoesNotExist", Vec::new()),
        None => of(part, "Exists", Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::selectors::selects;

    #[test]
    fn selectors_select_the_labels_that_kubectl_selects() {
        let labels = [("app", "web"), ("example.com/tier", "db")];
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        for (text, expected) in [
            ("app=web", true),
            ("app==web", true),
            (" app = web , example.com/tier = db ", true),
            ("app=web,example.com/tier!=db", false),
            ("app!=api", true),
            ("missing!=api", true),
            ("app in (api, web),example.com/tier", true),
            ("app notin (api,web)", false),
            ("!app", false),
            ("!missing", true),
            ("missing", false),
            ("app=", false),
        ] {
            let selector = parse_selector(text).unwrap();
            assert_eq!(selects(Some(&selector), &labels), expected, "{text}");
        }
        for text in ["", ",", "=web", "app web", "app in web", "app like (web)", "a=b=c", "app in (a"] {
            assert!(parse_selector(text).is_err(), "{text}");
        }
    }
}
