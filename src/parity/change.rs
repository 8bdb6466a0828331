//! A change that gives the mirror what the source has, and the shell commands of the AWS CLI for it.

use serde::Serialize;

use crate::aws::{AwsError, Region};
use crate::words::shell_word;

/// What a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// Nodes and groups of nodes that cannot be compared.
    Nodes,
    /// The metadata service of instances.
    MetadataService,
    /// Rights of the nodes' roles.
    NodeRole,
    /// Rules of security groups, and which groups instances have.
    SecurityGroup,
    /// Roles that Pods assume.
    PodRole,
    /// Addresses that hosts outside of the network see.
    PublicAddress,
}

impl Area {
    /// Returns the name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::MetadataService => "metadata service",
            Self::NodeRole => "roles of nodes",
            Self::SecurityGroup => "security groups",
            Self::PodRole => "roles of Pods",
            Self::PublicAddress => "public addresses",
        }
    }
}

/// Whether a difference was found, or something could not be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The mirror lacks something.
    Missing,
    /// It is not known whether the mirror lacks something.
    NotChecked,
}

/// A change to make, or a comparison that was not possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it is about.
    pub area: Area,
    /// Whether a difference was found.
    pub verdict: Verdict,
    /// The object to change, or that could not be compared.
    pub subject: String,
    /// What to do; or what was not compared.
    pub change: String,
    /// Why.
    pub reason: String,
    /// Commands of the AWS CLI: that make the change, or that show what could not be read.
    pub commands: Vec<String>,
}

impl Change {
    /// Returns a change to make.
    pub fn missing(area: Area, subject: String, change: String, reason: String) -> Self {
        Self { area, verdict: Verdict::Missing, subject, change, reason, commands: Vec::new() }
    }

    /// Returns a comparison that was not possible.
    pub fn not_checked(area: Area, subject: String, change: String, reason: String) -> Self {
        Self { area, verdict: Verdict::NotChecked, subject, change, reason, commands: Vec::new() }
    }

    /// Returns a comparison that was not possible because a request failed.
    pub fn unread(area: Area, subject: String, change: &str, error: &AwsError) -> Self {
        Self::not_checked(area, subject, change.to_string(), error.to_string())
    }

    /// Adds a command.
    #[must_use]
    pub fn with_command(mut self, command: String) -> Self {
        self.commands.push(command);
        self
    }
}

/// A command of the AWS CLI. Its words are quoted for a shell.
pub struct Command(Vec<String>);

impl Command {
    /// Returns `aws SERVICE ACTION`.
    pub fn new(service: &str, action: &str) -> Self {
        Self(vec!["aws".to_string(), service.to_string(), action.to_string()])
    }

    /// Adds the region.
    #[must_use]
    pub fn in_region(self, region: &Region) -> Self {
        self.with("--region", region.as_str())
    }

    /// Adds an option with its value.
    #[must_use]
    pub fn with(mut self, option: &str, value: &str) -> Self {
        self.0.extend([option.to_string(), shell_word(value)]);
        self
    }

    /// Adds an option with several values.
    #[must_use]
    pub fn with_list<'v>(self, option: &str, values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut values = values.into_iter();
        let Some(first) = values.next() else { return self };
        values.fold(self.with(option, first), |mut command, value| {
            command.0.push(shell_word(value));
            command
        })
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        self.0.join(" ")
    }

    /// Returns the command for each id, as the last option.
    pub fn for_each(self, option: &str, ids: &[&str]) -> String {
        if let [one] = ids {
            return self.with(option, one).text();
        }
        format!("for id in {}; do {} {option} $id; done", ids.join(" "), self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words_of_a_shell() {
        let policy = || Command::new("iam", "put-role-policy").with("--policy-document", r#"{"a":"it's"}"#);
        let words = shlex::split(&policy().text()).unwrap();
        assert_eq!(words, ["aws", "iam", "put-role-policy", "--policy-document", r#"{"a":"it's"}"#]);
        let each = Command::new("ec2", "x").in_region(&Region::new("eu-west-1"));
        assert_eq!(
            each.for_each("--instance-id", &["i-1"]),
            "aws ec2 x --region eu-west-1 --instance-id i-1"
        );
        let each = Command::new("ec2", "x").for_each("--instance-id", &["i-1", "i-2"]);
        assert_eq!(each, "for id in i-1 i-2; do aws ec2 x --instance-id $id; done");
    }
}
