//! Warnings of a plan: rules that match nothing, and findings of rules.

use super::uses::Uses;
use crate::mirror::config::Config;

/// Returns the warnings of a plan.
pub(in crate::mirror) fn warnings(config: &Config, uses: &Uses) -> Vec<String> {
    let unused = rules(config).into_iter().filter(|(list, index, _, _)| !uses.has(list, *index));
    let told = |(list, index, text, what): (&str, usize, String, &str)| {
        let place = if list == "replicas" { list.to_string() } else { format!("{list}[{index}]") };
        format!("{place} of the configuration ({text}) matches {what}; check its spelling")
    };
    unused.map(told).chain(uses.findings()).collect()
}

/// A rule: the name of its list, its index, its text, and what it should match.
type Rule = (&'static str, usize, String, &'static str);

fn rules(config: &Config) -> Vec<Rule> {
    fn each<T>(
        list: &'static str,
        rules: &[T],
        what: &'static str,
        text: impl Fn(&T) -> String,
    ) -> Vec<Rule> {
        rules.iter().enumerate().map(|(index, rule)| (list, index, text(rule), what)).collect()
    }
    let mut found =
        each("kinds.exclude", &config.kinds.exclude, "no kind of the source", |kind| format!("`{kind}`"));
    found.extend(each(
        "kinds.include",
        &config.kinds.include,
        "no custom resource of the source that is left out otherwise",
        |kind| format!("`{kind}`"),
    ));
    found.extend(each("images", &config.images, "no image", |rule| format!("from `{}`", rule.from)));
    found.extend(each("imagePaths", &config.image_paths, "no text", |rule| {
        format!("`{}` of `{}`", rule.path, rule.kind)
    }));
    let attached: Vec<_> = config.pull_secrets.iter().map(|one| (one, one.attach_to.is_some())).collect();
    found.extend(each("pullSecrets", &attached, "no object to attach it to", |(rule, _)| {
        format!("`{}`", rule.name)
    }));
    found.retain(|(list, index, _, _)| {
        *list != "pullSecrets" || attached.get(*index).is_some_and(|(_, is)| *is)
    });
    found.extend(each("hosts", &config.hosts, "no host name", |rule| format!("suffix `{}`", rule.suffix)));
    let selector = |text: &String| format!("`{text}`");
    found.extend(each("passive.workloads", &config.passive.workloads, "no workload", selector));
    found.extend(each("run", &config.run, "no workload", selector));
    let replicas: Vec<_> = config.replicas.iter().collect();
    found.extend(each("replicas", &replicas, "no workload", |rule| format!("factor {}", rule.factor)));
    found.extend(each("patches", &config.patches, "no object", |rule| {
        let names = rule.names.as_ref().map(|names| format!(" `{names}`")).unwrap_or_default();
        format!("{}{names}", rule.kinds.join(", "))
    }));
    found.extend(each("text", &config.text, "no text", |rule| {
        format!("from `{}` in {}", rule.from, rule.kinds.join(", "))
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::config_file::{example, parse_config};

    #[test]
    fn rule_without_a_match_is_named() {
        let config = parse_config(example()).unwrap();
        let uses = Uses::default();
        let all = warnings(&config, &uses);
        let counted = rules(&config).len();
        assert_eq!(all.len(), counted);
        for (list, index, _, _) in rules(&config) {
            uses.mark(list, index);
        }
        assert_eq!(warnings(&config, &uses), Vec::<String>::new());
        let first = all.iter().find(|text| text.starts_with("images[0]")).unwrap();
        assert_eq!(
            first,
            "images[0] of the configuration (from `registry.example.com/`) matches no image; check its spelling"
        );
    }
}
