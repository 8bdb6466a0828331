//! The configuration file of `mirror`: YAML, checked against a schema and for contradictions. An error names the line, the column, and
//! what was expected.

mod consistency;
mod schema;
mod tree;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use schema::SCHEMA;
use tree::{Located, Position};

use super::config::Config;

/// Reads a configuration file. Paths of files in it become absolute: they count from its folder.
pub fn read_config(path: &Path) -> Result<Config, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("`{name}` cannot be read: {error}"))?;
    let mut config = parse_config(&text).map_err(|error| format!("{name}:{error}"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for secret in &mut config.pull_secrets {
        let file = folder.join(&secret.from_file);
        let file = std::path::absolute(&file).map_err(|error| format!("`{}`: {error}", file.display()))?;
        secret.from_file = file.display().to_string();
    }
    Ok(config)
}

/// Parses a configuration. An error starts with the line and the column.
pub fn parse_config(text: &str) -> Result<Config, String> {
    let told = |at: Position, field: &str, reason: &str| {
        let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
        format!("{}:{}: {field}{reason}", at.line, at.column)
    };
    if text.trim().is_empty() {
        return Err("1:1: the file is empty".to_string());
    }
    let document = Located::parse(text).map_err(|error| {
        let at = error.location().map(|at| Position { line: at.line(), column: at.column() });
        told(at.unwrap_or_default(), "", &format!("it is not valid YAML: {}", error.without_snippet()))
    })?;
    schema::check(&document).map_err(|fault| told(fault.at, &fault.field, &fault.reason))?;
    let config: Config = serde_json::from_value(document.value())
        .map_err(|error| told(document.at, "", &format!("it cannot be read: {error}")))?;
    match consistency::contradiction(&config) {
        None => Ok(config),
        Some((path, reason)) => {
            let steps: Vec<&str> = path.iter().map(String::as_str).collect();
            Err(told(document.position(&steps), &field(&steps), &reason))
        }
    }
}

/// Returns a path as text, for example `images[0].to`.
fn field(path: &[&str]) -> String {
    let mut text = String::new();
    for step in path {
        match step.parse::<usize>() {
            Ok(index) => text.extend(["[", &index.to_string(), "]"]),
            Err(_) if text.is_empty() => text.push_str(step),
            Err(_) => text.extend([".", step]),
        }
    }
    text
}

/// Returns the example of the documentation.
#[cfg(test)]
pub(super) fn example() -> &'static str {
    let text = include_str!("../../../docs/mirror.md");
    let start = text.split_once("```yaml\n").map(|(_, rest)| rest).unwrap_or_default();
    start.split_once("```").map(|(example, _)| example).unwrap_or_default()
}
