//! Compares the metadata service of instances: Pods without roles of their own get the role of their node from it.

use std::collections::BTreeSet;

use super::change::{Area, Change, Command};
use super::node_group::GroupPair;
use super::side::Side;
use crate::aws::ec2::{Instance, MetadataOptions};

/// What Pods of a group of nodes need of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Needed {
    is_enabled: bool,
    /// Whether version 1 answers, without a token.
    takes_no_token: bool,
    hops: u32,
}

impl Needed {
    fn of(options: &MetadataOptions) -> Self {
        Self {
            is_enabled: options.http_endpoint != "disabled",
            takes_no_token: options.http_tokens != "required",
            hops: options.http_put_response_hop_limit,
        }
    }

    /// Returns what the most permissive instances of a group offer.
    fn most(instances: &[&Instance]) -> Option<Self> {
        let all = instances.iter().filter_map(|one| one.metadata_options.as_ref()).map(Self::of);
        all.reduce(|one, other| Self {
            is_enabled: one.is_enabled || other.is_enabled,
            takes_no_token: one.takes_no_token || other.takes_no_token,
            hops: one.hops.max(other.hops),
        })
    }

    /// Returns what an instance lacks, as text.
    fn lacks(self, instance: &MetadataOptions) -> Vec<String> {
        let has = Self::of(instance);
        let mut found = Vec::new();
        if self.is_enabled && !has.is_enabled {
            return vec!["the service is disabled, so Pods get no role of their node".to_string()];
        }
        if !self.is_enabled {
            return found;
        }
        if has.hops < self.hops {
            found.push(format!(
                "the hop limit is {}, and {} in the source: with 1, answers do not reach Pods without the network of the host",
                has.hops, self.hops
            ));
        }
        if self.takes_no_token && !has.takes_no_token {
            found.push(
                "a token is required, and optional in the source: old SDKs do not request a token"
                    .to_string(),
            );
        }
        found
    }
}

/// Compares groups of nodes.
pub fn compare((source, mirror): (&Side, &Side), pairs: &[GroupPair]) -> Vec<Change> {
    pairs.iter().filter_map(|pair| of_group(source, mirror, pair)).collect()
}

fn of_group(source: &Side, mirror: &Side, pair: &GroupPair) -> Option<Change> {
    let needed = Needed::most(&source.group(&pair.source))?;
    let (mut instances, mut reasons, mut lacks_hops, mut lacks_tokens) =
        (Vec::new(), BTreeSet::new(), false, false);
    for instance in mirror.group(&pair.mirror) {
        let Some(options) = &instance.metadata_options else { continue };
        let lacks = needed.lacks(options);
        if !lacks.is_empty() {
            let has = Needed::of(options);
            instances.push(instance.instance_id.as_str());
            lacks_hops |= has.hops < needed.hops;
            lacks_tokens |= needed.takes_no_token && !has.takes_no_token;
            reasons.extend(lacks);
        }
    }
    let (first, reasons) = (instances.first()?, Vec::from_iter(reasons));
    let mut command = Command::new("ec2", "modify-instance-metadata-options").in_region(&mirror.region);
    command = command.with("--http-endpoint", "enabled");
    let mut words = Vec::new();
    if lacks_hops {
        command = command.with("--http-put-response-hop-limit", &needed.hops.to_string());
        words.push(format!("set the hop limit {}", needed.hops));
    }
    if lacks_tokens {
        command = command.with("--http-tokens", "optional");
        words.push("require no token, if SDKs of Pods request none".to_string());
    }
    let words = if words.is_empty() { "enable it".to_string() } else { words.join("; ") };
    let change =
        format!("{words}; also where new instances come from (launch template, `instanceMetadata` of kOps)");
    let count = instances.len();
    let subject = if count == 1 {
        format!("instance {first} of group `{}`", pair.mirror)
    } else {
        format!("{count} instances of group `{}`", pair.mirror)
    };
    let change = Change::missing(Area::MetadataService, subject, change, reasons.join("; "));
    Some(change.with_command(command.for_each("--instance-id", &instances)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_pods_lose_is_a_difference() {
        let options = |tokens: &str, hops, endpoint: &str| MetadataOptions {
            http_tokens: tokens.into(),
            http_put_response_hop_limit: hops,
            http_endpoint: endpoint.into(),
        };
        let open = Needed::of(&options("optional", 2, "enabled"));
        assert_eq!(open.lacks(&options("optional", 3, "enabled")), Vec::<String>::new());
        assert_eq!(open.lacks(&options("required", 1, "enabled")).len(), 2);
        assert_eq!(open.lacks(&options("optional", 2, "disabled")).len(), 1);
        let strict = Needed::of(&options("required", 1, "enabled"));
        assert_eq!(strict.lacks(&options("optional", 2, "enabled")), Vec::<String>::new());
        let none = Needed::of(&options("optional", 2, "disabled"));
        assert_eq!(none.lacks(&options("required", 1, "enabled")), Vec::<String>::new());
    }
}
