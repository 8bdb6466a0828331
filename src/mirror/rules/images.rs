//! Image rules: other registries in the mirror.

use serde_json::Value;

use super::kind_names::{Kind, is_kind};
use super::places::change_text;
use super::pod_specs::{IMAGES, with_pod_spec};
use super::uses::Uses;
use crate::mirror::config::{Config, ImageRule};
use crate::registry::full_name;

/// Changes the images of an object.
pub(super) fn change_images(config: &Config, kind: &Kind<'_>, object: &mut Value, uses: &Uses) {
    if config.images.is_empty() {
        return;
    }
    let mut change = |image: &str| {
        let (index, new) = rewrite(&config.images, image)?;
        uses.mark("images", index);
        Some(new)
    };
    with_pod_spec(kind.resource, object, &mut |spec| {
        for place in IMAGES {
            change_text(spec, place, &mut change);
        }
    });
    for (index, path) in config.image_paths.iter().enumerate() {
        if is_kind(&path.kind, kind) {
            change_text(object, &path.path, &mut |image| {
                uses.mark("imagePaths", index);
                change(image)
            });
        }
    }
}

/// Returns the rule that matches an image, and the new image. The tag and the digest stay.
pub(super) fn rewrite(rules: &[ImageRule], image: &str) -> Option<(usize, String)> {
    // An empty image is set by another program, for example a sidecar injector.
    let name = (!image.is_empty()).then(|| full_name(image))?;
    let (index, rule) = rules.iter().enumerate().find(|(_, rule)| rest(&rule.from, &name).is_some())?;
    if rest(&rule.to, &name).is_some() {
        return Some((index, image.to_string()));
    }
    Some((index, format!("{}{}", rule.to, rest(&rule.from, &name)?)))
}

/// Returns what follows the start of an image's name, if the start ends where a part of the name ends.
fn rest<'n>(start: &str, name: &'n str) -> Option<&'n str> {
    let start = full_name(start);
    let rest = name.strip_prefix(start.as_ref())?;
    // Without a slash, the start is the host of a registry, and `:` is followed by its port.
    let ends: &[char] = if start.contains('/') { &['/', ':', '@'] } else { &['/'] };
    (start.ends_with('/') || rest.is_empty() || rest.starts_with(ends)).then_some(rest)
}

/// Returns whether a text starts with the host of a registry.
pub(in crate::mirror) fn is_registry_prefix(text: &str) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    (text.contains('/') || host.contains('.')) && full_name(text) == text && !text.starts_with('/')
}

/// Returns two rules of which the second would change the result of the first again. Then the result would depend on how often the
/// rules are applied.
pub(in crate::mirror) fn image_conflict(rules: &[ImageRule]) -> Option<(usize, usize)> {
    let is_within = |inner: &str, outer: &str| rest(outer, &full_name(inner)).is_some();
    let pairs = rules.iter().enumerate().flat_map(|(first, one)| {
        rules.iter().enumerate().map(move |(second, other)| (first, one, second, other))
    });
    pairs
        .filter(|(_, one, _, other)| !is_within(&one.to, &other.to))
        .find(|(_, one, _, other)| is_within(&one.to, &other.from) || is_within(&other.from, &one.to))
        .map(|(first, _, second, _)| (first, second))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rule(from: &str, to: &str) -> ImageRule {
        ImageRule { from: from.to_string(), to: to.to_string() }
    }

    const DIGEST: &str = "sha256:9b7d1f6c1c0f4d4a8f2a3c5e6d7b8a9f0e1d2c3b4a5968778695a4b3c2d1e0f1";

    #[test]
    fn images_match_by_their_full_names() {
        let rules = [
            rule("registry.example.com/base/", "green.example.com/base-images/"),
            rule("registry.example.com/", "green.example.com/"),
            rule("docker.io/library/nginx", "green.example.com/hub/nginx"),
            rule("bitnami/", "green.example.com/bitnami/"),
            rule("quay.io", "green.example.com/quay"),
        ];
        for (image, expected) in [
            ("registry.example.com/base/a:1", Some("green.example.com/base-images/a:1")),
            ("registry.example.com/x/a:1", Some("green.example.com/x/a:1")),
            ("registry.example.com:5000/a", None),
            ("nginx", Some("green.example.com/hub/nginx")),
            ("nginx:1.27", Some("green.example.com/hub/nginx:1.27")),
            ("library/nginx", Some("green.example.com/hub/nginx")),
            ("docker.io/nginx:1", Some("green.example.com/hub/nginx:1")),
            ("index.docker.io/library/nginx:1", Some("green.example.com/hub/nginx:1")),
            ("nginx-exporter:1", None),
            ("nginx/agent:1", None),
            ("bitnami/redis:7", Some("green.example.com/bitnami/redis:7")),
            ("localhost/nginx", None),
            ("quay.io/a/b:1", Some("green.example.com/quay/a/b:1")),
            ("quay.io:443/a/b:1", None),
            ("", None),
        ] {
            assert_eq!(rewrite(&rules, image).map(|(_, new)| new).as_deref(), expected, "{image}");
        }
        let with_digest = format!("nginx:1.27@{DIGEST}");
        let expected = format!("green.example.com/hub/nginx:1.27@{DIGEST}");
        assert_eq!(rewrite(&rules, &with_digest), Some((2, expected)));
    }

    #[test]
    fn rules_that_change_their_own_results_are_refused() {
        for (rules, expected) in [
            (vec![rule("a.io/", "b.io/")], None),
            (vec![rule("a.io/", "b.io/"), rule("b.io/", "c.io/")], Some((0, 1))),
            (vec![rule("b.io/x/", "c.io/"), rule("a.io/", "b.io/")], Some((1, 0))),
            (vec![rule("a.io/", "a.io/cache/")], None),
            (vec![rule("a.io/base/", "a.io/cache/base/"), rule("a.io/", "a.io/cache/")], None),
            (vec![rule("a.io/", "a.io/")], None),
        ] {
            assert_eq!(image_conflict(&rules), expected, "{rules:?}");
        }
        for (text, expected) in [
            ("a.io/", true),
            ("a.io", true),
            ("a.io:5000/x", true),
            ("localhost/x", true),
            ("x/", false),
            ("nginx", false),
            ("/x", false),
        ] {
            assert_eq!(is_registry_prefix(text), expected, "{text}");
        }
    }

    #[test]
    fn every_carrier_of_an_image_is_changed() {
        let config = Config { images: vec![rule("docker.io/", "green.example.com/")], ..Config::default() };
        let spec = json!({
            "containers": [{"image": "a"}], "initContainers": [{"image": "b", "restartPolicy": "Always"}],
            "ephemeralContainers": [{"image": "c"}],
            "volumes": [{"image": {"reference": "d"}}, {"configMap": {"name": "image"}}],
        });
        for (kind, place) in super::super::pod_specs::POD_SPECS {
            let mut object = json!({});
            let steps: Vec<&str> = place.split('/').skip(1).collect();
            let mut at = &mut object;
            for step in &steps {
                at[*step] = json!({});
                at = &mut at[*step];
            }
            *at = spec.clone();
            let uses = Uses::default();
            change_images(&config, &Kind { resource: kind, kind: "X" }, &mut object, &uses);
            let text = object.to_string();
            for name in ["a", "b", "c", "d"] {
                assert!(text.contains(&format!("\"green.example.com/library/{name}\"")), "{kind}: {text}");
            }
            assert!(uses.has("images", 0));
        }
    }

    #[test]
    fn custom_resource_is_changed_at_its_path() {
        let config = Config {
            images: vec![rule("docker.io/", "green.example.com/")],
            image_paths: vec![crate::mirror::config::ImagePath {
                kind: "rollouts.argoproj.io".to_string(),
                path: "/spec/template/spec/containers/*/image".to_string(),
            }],
            ..Config::default()
        };
        let rollout = json!({"spec": {"template": {"spec": {"containers": [{"image": "a"}]}}}});
        for (resource, expected) in
            [("argoproj.io/rollouts", "green.example.com/library/a"), ("example.com/rollouts", "a")]
        {
            let mut object = rollout.clone();
            change_images(&config, &Kind { resource, kind: "Rollout" }, &mut object, &Uses::default());
            assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], expected);
        }
    }

    proptest! {
        /// Rules without a conflict give the same result if they are applied again, and keep tag and digest.
        #[test]
        fn rewriting_is_idempotent(
            starts in prop::collection::vec(("(a|b|docker)\\.io(/[ab]){0,2}/", "(a|b|c)\\.io(/[abc]){0,2}/"), 1..4),
            image in "((a|b|c|docker)\\.io/|localhost:5000/|)([abc]/){0,2}[abc]{1,2}",
            tag in "(:[a-z0-9]{1,4})?",
            has_digest in any::<bool>(),
        ) {
            let rules: Vec<ImageRule> = starts.iter().map(|(from, to)| rule(from, to)).collect();
            prop_assume!(image_conflict(&rules).is_none());
            let end = if has_digest { format!("{tag}@{DIGEST}") } else { tag };
            let image = format!("{image}{end}");
            if let Some((index, new)) = rewrite(&rules, &image) {
                prop_assert!(new.ends_with(&end));
                prop_assert!(rest(&rules[index].to, &new).is_some(), "{new}");
                let again = rewrite(&rules, &new).map_or(new.clone(), |(_, again)| again);
                prop_assert_eq!(again, new);
            }
        }
    }
}
