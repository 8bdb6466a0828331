//! Reads and changes flags in the manifest of a static Pod. Reads every notation of a flag, and changes only its value in the
//! text.
//!
//! kubeadm writes a list of words (`- --service-cluster-ip-range=10.96.0.0/16`). Other tools write a flag and its value as two
//! words, or a whole shell command as one word.

use super::yaml::{Node, Yaml, YamlError};

/// Reason why a flag cannot be found or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The manifest has no container that runs the program.
    #[error("the manifest has no container that runs `{0}`")]
    NoContainer(String),
    /// The program is started without the flag.
    #[error("`{program}` has no flag `--{flag}`")]
    NoFlag {
        /// The program.
        program: String,
        /// The flag.
        flag: String,
    },
    /// The flag occurs more than once. The program uses the last occurrence.
    #[error("`{program}` has the flag `--{flag}` {count} times")]
    Several {
        /// The program.
        program: String,
        /// The flag.
        flag: String,
        /// Number of occurrences.
        count: usize,
    },
}

/// A flag in a manifest.
struct Found<'a> {
    node: Node,
    /// Text that was found: the flag and its value, or only the value.
    written: &'a str,
    value: &'a str,
}

/// Returns whether a manifest has a container that runs this program, for example `kube-apiserver`.
pub fn runs(text: &str, program: &str) -> Result<bool, ManifestError> {
    let yaml = Yaml::parse(text)?;
    Ok(containers(&yaml).into_iter().any(|container| is_of(&yaml, container, program)))
}

/// Returns the value of a program's flag in a manifest; `None` if the flag is missing.
pub fn flag(text: &str, program: &str, flag: &str) -> Result<Option<String>, ManifestError> {
    let yaml = Yaml::parse(text)?;
    match find(&yaml, program, flag) {
        Ok(found) => Ok(Some(found.value.to_string())),
        Err(ManifestError::NoFlag { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the manifest with a new value for a program's flag. Every other byte is unchanged.
pub fn with_flag(text: &str, program: &str, flag: &str, value: &str) -> Result<String, ManifestError> {
    let yaml = Yaml::parse(text)?;
    let found = find(&yaml, program, flag)?;
    let new = found.written.replacen(found.value, value, 1);
    Ok(yaml.replaced(found.node, found.written, &new)?)
}

fn containers(yaml: &Yaml<'_>) -> Vec<Node> {
    let specs = yaml.documents().iter().filter_map(|document| yaml.get(*document, "spec"));
    let lists = specs.filter_map(|spec| yaml.get(spec, "containers"));
    lists.flat_map(|list| yaml.items(list)).copied().collect()
}

fn words(yaml: &Yaml<'_>, container: Node) -> Vec<Node> {
    let lists = ["command", "args"].into_iter().filter_map(|key| yaml.get(container, key));
    lists.flat_map(|list| yaml.items(list)).copied().collect()
}

/// Returns whether a container runs the program. This is the case if the container has the program's name. It is also the case if
/// the command or the arguments of the container contain the program's name, or a path that ends with the program's name.
fn is_of(yaml: &Yaml<'_>, container: Node, program: &str) -> bool {
    let name = yaml.get(container, "name").and_then(|name| yaml.scalar(name));
    let calls = |word: &Node| {
        let parts = yaml.scalar(*word).into_iter().flat_map(str::split_whitespace);
        parts.into_iter().any(|part| part.rsplit('/').next() == Some(program))
    };
    name == Some(program) || words(yaml, container).iter().any(calls)
}

fn find<'a>(yaml: &'a Yaml<'_>, program: &str, flag: &str) -> Result<Found<'a>, ManifestError> {
    let of_it: Vec<Node> =
        containers(yaml).into_iter().filter(|container| is_of(yaml, *container, program)).collect();
    if of_it.is_empty() {
        return Err(ManifestError::NoContainer(program.to_string()));
    }
    let mut found: Vec<Found<'a>> =
        of_it.into_iter().flat_map(|container| in_words(yaml, &words(yaml, container), flag)).collect();
    let (program, flag, count) = (program.to_string(), flag.to_string(), found.len());
    match (found.pop(), count) {
        (Some(one), 1) => Ok(one),
        (None, _) => Err(ManifestError::NoFlag { program, flag }),
        _ => Err(ManifestError::Several { program, flag, count }),
    }
}

/// Returns all occurrences of a flag in the words of a command.
fn in_words<'a>(yaml: &'a Yaml<'_>, words: &[Node], flag: &str) -> Vec<Found<'a>> {
    let (alone, with_value) = (format!("--{flag}"), format!("--{flag}="));
    let mut found = Vec::new();
    for (number, node) in words.iter().copied().enumerate() {
        let word = yaml.scalar(node).unwrap_or_default();
        if let Some(value) = word.strip_prefix(&with_value) {
            found.push(Found { node, written: word, value });
        } else if word == alone {
            let next = words.get(number.saturating_add(1)).copied();
            let value = next.and_then(|next| yaml.scalar(next).map(|value| (next, value)));
            found.extend(value.map(|(node, value)| Found { node, written: value, value }));
        } else if word.contains(char::is_whitespace) {
            found.extend(in_a_shell(node, word, &alone));
        }
    }
    found
}

/// Returns all occurrences of a flag in a shell command.
fn in_a_shell<'a>(node: Node, command: &'a str, alone: &str) -> Vec<Found<'a>> {
    let is_end = |character: char| {
        character.is_whitespace() || matches!(character, '\'' | '"' | ';' | '&' | '|' | '>')
    };
    let mut found = Vec::new();
    for (at, _) in command.match_indices(alone) {
        let before = command.get(..at).and_then(|before| before.chars().next_back());
        let rest = command.get(at.saturating_add(alone.len())..).unwrap_or_default();
        let is_flag = rest.starts_with('=') || rest.starts_with(' ');
        if !is_flag || before.is_some_and(|before| !is_end(before)) {
            continue;
        }
        let value = rest.get(1..).unwrap_or_default().trim_start_matches(is_end);
        let value = value.split(is_end).next().unwrap_or_default();
        let length =
            rest.find(value).unwrap_or_default().saturating_add(value.len()).saturating_add(alone.len());
        let written = command.get(at..at.saturating_add(length)).unwrap_or_default();
        found.push(Found { node, written, value });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAG: &str = "service-cluster-ip-range";

    fn manifest(command: &str) -> String {
        format!(
            "# made by hand\napiVersion: v1\nkind: Pod\nmetadata: {{name: kube-apiserver, labels: {{a: \"10.96.0.0/16\"}}}}\nspec:\n  \
             containers:\n  # the server\n  - name: kube-apiserver\n{command}\n    image: x # --service-cluster-ip-range=no\n  \
             hostNetwork: true\n"
        )
    }

    #[test]
    fn flag_is_changed_in_every_notation_and_nothing_else() {
        for command in [
            "    command:\n    - kube-apiserver\n    - --service-cluster-ip-range=10.96.0.0/16   # ours\n    - --v=2",
            "    command: [kube-apiserver, '--service-cluster-ip-range=10.96.0.0/16', \"--v=2\"]",
            "    command:\n    - \"kube-apiserver\"\n    args:\n    - \"--service-cluster-ip-range\"\n    - \"10.96.0.0/16\"",
            "    command:\n    - &flag --service-cluster-ip-range=10.96.0.0/16\n    - --other",
            "    command: [/bin/sh, -c, 'exec /usr/bin/kube-apiserver --v=2 --service-cluster-ip-range=10.96.0.0/16 2>&1']",
            "    command:\n    - /bin/sh\n    - -c\n    - |\n      exec kube-apiserver \\\n        --service-cluster-ip-range \"10.96.0.0/16\" \\\n        --v=2",
            "    command: [\n      kube-apiserver,   # the program\n\n      --service-cluster-ip-range=10.96.0.0/16,\n    ]",
        ] {
            for line_end in ["\n", "\r\n"] {
                let text = manifest(command).replace('\n', line_end);
                assert_eq!(
                    flag(&text, "kube-apiserver", FLAG).unwrap().as_deref(),
                    Some("10.96.0.0/16"),
                    "{text}"
                );
                let after = with_flag(&text, "kube-apiserver", FLAG, "10.200.0.0/16").unwrap();
                let (head, rest) = text.split_once("- name: kube-apiserver").unwrap();
                let expected = rest.replacen("10.96.0.0/16", "10.200.0.0/16", 1);
                assert_eq!(after, format!("{head}- name: kube-apiserver{expected}"));
                let back = with_flag(&after, "kube-apiserver", FLAG, "10.96.0.0/16").unwrap();
                assert_eq!(back, text, "restored");
            }
        }
    }

    #[test]
    fn both_families_are_quoted_if_a_comma_ends_a_word() {
        let both = "10.200.0.0/16,fd00:200::/112";
        let text = manifest("    command: [kube-apiserver, --service-cluster-ip-range=10.96.0.0/16]");
        let after = with_flag(&text, "kube-apiserver", FLAG, both).unwrap();
        assert!(
            after.contains("[kube-apiserver, '--service-cluster-ip-range=10.200.0.0/16,fd00:200::/112']"),
            "{after}"
        );
        assert_eq!(flag(&after, "kube-apiserver", FLAG).unwrap().as_deref(), Some(both));
    }

    #[test]
    fn missing_and_duplicate_flags_are_reported() {
        let text = manifest("    command: [kube-apiserver, --v=2]");
        assert_eq!(flag(&text, "kube-apiserver", FLAG), Ok(None));
        let error = with_flag(&text, "kube-apiserver", FLAG, "10.200.0.0/16").unwrap_err();
        assert_eq!(error.to_string(), "`kube-apiserver` has no flag `--service-cluster-ip-range`");
        let twice =
            manifest("    command: [a, --service-cluster-ip-range=1, --service-cluster-ip-range, '2']");
        assert!(matches!(flag(&twice, "kube-apiserver", FLAG), Err(ManifestError::Several { count: 2, .. })));
        let other = flag(&text, "kube-scheduler", FLAG).unwrap_err();
        assert_eq!(other, ManifestError::NoContainer("kube-scheduler".to_string()));
        assert!(matches!(
            flag("a: [", "kube-apiserver", FLAG),
            Err(ManifestError::Yaml(YamlError::Syntax(_)))
        ));
        assert_eq!(runs("", "kube-apiserver"), Ok(false));
        let longer = manifest("    command: [sh, -c, 'kube-apiserver --service-cluster-ip-range-extra=1']");
        assert_eq!(flag(&longer, "kube-apiserver", FLAG), Ok(None));
    }
}
