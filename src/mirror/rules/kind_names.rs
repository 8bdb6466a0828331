//! Names of kinds in the configuration.

use crate::mirror::config::Config;

/// The kind of an object.
#[derive(Debug, Clone, Copy)]
pub(in crate::mirror) struct Kind<'a> {
    /// `GROUP/PLURAL`, for example `apps/deployments` or `/services`.
    pub resource: &'a str,
    /// Name of the kind, for example `Deployment`.
    pub kind: &'a str,
}

/// Returns whether a name in the configuration means a kind. A name is a kind, a plural, or a plural with its group, for example
/// `Deployment`, `deployments` or `deployments.apps`.
pub(in crate::mirror) fn is_kind(name: &str, kind: &Kind<'_>) -> bool {
    let (group, plural) = kind.resource.split_once('/').unwrap_or_default();
    name == kind.kind || name == plural || name.split_once('.') == Some((plural, group))
}

/// Returns whether the configuration excludes a kind. `resource`: `GROUP/PLURAL`.
pub fn is_excluded(config: &Config, resource: &str, kind: &str) -> bool {
    config.kinds.exclude.iter().any(|name| is_kind(name, &Kind { resource, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_several_names() {
        let deployment = Kind { resource: "apps/deployments", kind: "Deployment" };
        for (name, expected) in [
            ("Deployment", true),
            ("deployments", true),
            ("deployments.apps", true),
            ("deployments.other", false),
            ("deployment", false),
            ("Service", false),
        ] {
            assert_eq!(is_kind(name, &deployment), expected, "{name}");
        }
        assert!(is_kind("services", &Kind { resource: "/services", kind: "Service" }));
    }
}
