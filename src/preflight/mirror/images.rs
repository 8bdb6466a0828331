//! `images`: whether the registries have every image that the copied workloads use, and accept the credentials of their Pods.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Mirror;
use crate::inventory::{ReadError, text, unread_by};
use crate::kube_api::ReadOnly;
use crate::mirror::image_pulls::ImagePulls;
use crate::mirror::namespace_choice::is_copied;
use crate::mirror::reader::{MirrorOptions, MirrorReader};
use crate::preflight::secrets_role::SECRETS_ROLE;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::registry::{Answer, DockerConfigFault, ImageName, Keyring, Login, Registries};
use crate::words::{all_of, counted, list_or};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "images",
    why: "the mirror's nodes pull every image; the check contacts the registries from this machine, not from the nodes",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

/// Number of requests at the same time.
const AT_ONCE: usize = 8;

async fn read(input: &Mirror) -> Read<Judged> {
    let mut namespaces = input.source.names().await?;
    namespaces.retain(|name| is_copied(name));
    // The role for the source has no permission to list its Nodes.
    let of_source: Vec<Node> = input.source.reader.objects().await.unwrap_or_default();
    let platforms = new_platforms(input.target.nodes().await?, &of_source);
    let (source, mirror) = (input.source.reader.cluster()?, input.target.cluster()?);
    let options = MirrorOptions { namespaces, config: input.config.clone(), ..MirrorOptions::default() };
    let reader = MirrorReader::new(ReadOnly::new(source.clone()), ReadOnly::new(mirror.clone()), options);
    let pulls = reader.image_pulls().await.map_err(|failure| unread_by(&failure))?;
    let keyrings = keyrings(&reader, &pulls).await?;
    let (questions, unusable) = questions(&pulls, &keyrings);
    let registries = Registries::new().map_err(|error| ReadError::unknown(error, ""))?;
    let answers = questions.into_iter().map(async |((image, logins), uses)| {
        let answer = registries.ask(&image, &logins, !platforms.is_empty()).await;
        (image, uses, answer)
    });
    let answers: Vec<Answered> = stream::iter(answers).buffered(AT_ONCE).collect().await;
    Ok(judge(&answers, &unusable, &platforms))
}

/// Returns the platforms of the mirror's nodes, such as `linux/arm64`, if the source has no node with one of them. Otherwise returns
/// none: a registry can count the request for the platforms as a pull.
fn new_platforms(mirror: &[Node], source: &[Node]) -> BTreeSet<String> {
    let of = |nodes: &[Node]| -> BTreeSet<String> {
        let infos = nodes.iter().filter_map(|node| node.status.as_ref()?.node_info.as_ref());
        let named = infos.filter(|info| !info.architecture.is_empty());
        named.map(|info| format!("{}/{}", info.operating_system, info.architecture)).collect()
    };
    let (mirror, source) = (of(mirror), of(source));
    if mirror.is_subset(&source) { BTreeSet::new() } else { mirror }
}

/// A pull secret.
#[derive(Debug, Clone)]
enum Credentials {
    /// Its credentials.
    Valid(Keyring),
    /// It has credentials that the kubelet cannot parse.
    Faulty(DockerConfigFault),
    /// There is no such Secret, or none of the right type. The kubelet then pulls without it.
    Missing,
    /// The user has no permission to read it.
    Denied,
}

/// Pull secrets, by namespace in the source and name.
type Keyrings = BTreeMap<(String, String), Credentials>;

/// Reads each pull secret once.
async fn keyrings(reader: &MirrorReader, pulls: &[ImagePulls]) -> Read<Keyrings> {
    let named =
        pulls.iter().flat_map(|one| one.secrets.iter().map(|name| (one.namespace.clone(), name.clone())));
    let named: BTreeSet<(String, String)> = named.collect();
    let read = named.into_iter().map(async |(namespace, name)| {
        let credentials = match reader.pull_secret(&namespace, &name).await {
            Ok(secret) => secret.map_or(Credentials::Missing, |secret| content_of(&secret)),
            Err(failure) => match unread_by(&failure) {
                error if error.denied.is_some() => Credentials::Denied,
                error => return Err(error),
            },
        };
        Ok(((namespace, name), credentials))
    });
    let read: Vec<Result<_, ReadError>> = stream::iter(read).buffered(AT_ONCE).collect().await;
    Ok(read.into_iter().collect::<Result<Keyrings, ReadError>>()?)
}

/// Returns the content of a Secret, if it has one of the two types of pull secrets (`secretsToTrackedDockerConfigs`,
/// `pkg/credentialprovider/secrets/secrets.go`, v1.37.2). The kubelet ignores other Secrets.
fn content_of(secret: &Value) -> Credentials {
    let of = |kind: &str, key: &str| {
        let data = (text(secret, "/type") == kind).then(|| secret.get("data")?.get(key)?.as_str())??;
        STANDARD.decode(data).ok().filter(|content| !content.is_empty()).map(Zeroizing::new)
    };
    let mut keyring = Keyring::default();
    let added = match of("kubernetes.io/dockerconfigjson", ".dockerconfigjson") {
        Some(content) => keyring.add_config(&content),
        None => match of("kubernetes.io/dockercfg", ".dockercfg") {
            Some(content) => keyring.add_former_config(&content),
            None => return Credentials::Missing,
        },
    };
    added.map_or_else(Credentials::Faulty, |()| Credentials::Valid(keyring))
}

/// An image, and the credentials for it.
type Question = (ImageName, Vec<Login>);

/// Which Pods use an image with the same credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Uses {
    /// The workloads.
    who: BTreeSet<String>,
    /// The Secrets with an entry for the image, each as `NAMESPACE/NAME`.
    secrets: BTreeSet<String>,
    /// Whether a workload runs Pods in the source.
    is_running: bool,
    /// Whether a Secret could not be read.
    is_secret_unread: bool,
}

/// An image, its uses, and the answer of its registry.
type Answered = (ImageName, Uses, Answer);

/// Returns the questions, and images that no kubelet can pull, each with the reason.
fn questions(pulls: &[ImagePulls], keyrings: &Keyrings) -> (BTreeMap<Question, Uses>, Vec<String>) {
    let (mut questions, mut unusable) = (BTreeMap::<Question, Uses>::new(), BTreeSet::new());
    for pull in pulls {
        let secrets = pull.secrets.iter().map(|name| (pull.namespace.clone(), name.clone()));
        let secrets: Vec<_> =
            secrets.filter_map(|key| Some((format!("`{}/{}`", key.0, key.1), keyrings.get(&key)?))).collect();
        let mut keyring = Keyring::default();
        for (name, credentials) in &secrets {
            match credentials {
                Credentials::Valid(own) => keyring.add_all(own),
                Credentials::Faulty(fault) => {
                    unusable.insert(format!(
                        "Secret {name}: {fault}, so no image of the Pod is pulled ({})",
                        pull.of
                    ));
                }
                Credentials::Missing | Credentials::Denied => {}
            }
        }
        for image in &pull.images {
            let Some(name) = ImageName::parse(image) else {
                unusable.insert(format!("`{image}` is no valid name of an image ({})", pull.of));
                continue;
            };
            let of_image = secrets
                .iter()
                .filter(|(_, one)| matches!(one, Credentials::Valid(own) if !own.of(&name).is_empty()));
            let uses = questions.entry((name.clone(), keyring.of(&name))).or_default();
            uses.who.insert(pull.of.clone());
            uses.secrets.extend(of_image.map(|(secret, _)| secret.clone()));
            uses.is_running |= !pull.is_idle;
            uses.is_secret_unread |= secrets.iter().any(|(_, one)| matches!(one, Credentials::Denied));
        }
    }
    (questions, unusable.into_iter().collect())
}

/// Registries whose credentials the nodes usually have themselves, from a credential provider of the kubelet (the defaults of
/// `matchImages` of the providers for AWS, Google Cloud and Azure).
const REGISTRIES_OF_CLOUDS: [&str; 7] =
    [".amazonaws.com", ".amazonaws.com.cn", "gcr.io", ".gcr.io", ".pkg.dev", ".azurecr.io", ".azurecr.cn"];

/// What the check found, each for people.
#[derive(Default)]
struct ImageFindings {
    missing: Vec<String>,
    denied: Vec<String>,
    other_platform: Vec<String>,
    /// Missing or denied, but no Pod of the source uses it.
    idle: Vec<String>,
    /// Hosts that gave no answer, with the reason, and the number of their images.
    silent: BTreeMap<(String, String), usize>,
    of_unread_secrets: Vec<String>,
    of_nodes: Vec<String>,
}

impl ImageFindings {
    fn add(&mut self, (image, uses, answer): &Answered, platforms: &BTreeSet<String>) {
        let who = first_few(&uses.who.iter().cloned().collect::<Vec<_>>());
        let has_none = uses.secrets.is_empty();
        let (list, reason) = match answer {
            Answer::Unknown(reason) => {
                let count = self.silent.entry((image.host().to_string(), reason.clone())).or_default();
                *count = count.saturating_add(1);
                return;
            }
            Answer::Denied(_) if uses.is_secret_unread => {
                return self.of_unread_secrets.push(format!("`{image}` ({who})"));
            }
            Answer::Denied(_) if has_none && is_of_cloud(image.host()) => {
                return self.of_nodes.push(format!("`{image}` ({who})"));
            }
            Answer::Denied(reason) if has_none => {
                (&mut self.denied, format!("denied without a Secret, {reason}"))
            }
            Answer::Denied(reason) => {
                let secrets: Vec<String> = uses.secrets.iter().cloned().collect();
                (&mut self.denied, format!("denied with Secret {}, {reason}", first_few(&secrets)))
            }
            Answer::Missing(reason) => (&mut self.missing, format!("not found, {reason}")),
            Answer::Present(Some(found)) if !platforms.is_empty() && found.is_disjoint(platforms) => {
                let found: Vec<String> = found.iter().cloned().collect();
                (&mut self.other_platform, format!("only for {}", list_or(&found, "no platform")))
            }
            Answer::Present(_) => return,
        };
        let list = if uses.is_running { list } else { &mut self.idle };
        list.push(format!("`{image}`: {reason} ({who})"));
    }
}

/// Returns whether the nodes usually have credentials for a registry themselves.
fn is_of_cloud(host: &str) -> bool {
    REGISTRIES_OF_CLOUDS.iter().any(|end| is_host_of(host, end))
}

/// Returns whether a host, with or without a port, is a name or ends with it. The end starts with a dot.
fn is_host_of(host: &str, end: &str) -> bool {
    let host = host.split(':').next().unwrap_or_default();
    if end.starts_with('.') { host.ends_with(end) } else { host == end }
}

/// Judges the answers. `unusable`: images that no kubelet can pull. `platforms`: platforms of the mirror's nodes.
fn judge(answers: &[Answered], unusable: &[String], platforms: &BTreeSet<String>) -> Judged {
    let mut found = ImageFindings::default();
    for answered in answers {
        found.add(answered, platforms);
    }
    if answers.is_empty() && unusable.is_empty() {
        return Judged::pass("no copied workload pulls an image");
    }
    let faults: [&[String]; 4] = [&found.missing, &found.denied, &found.other_platform, unusable];
    let is_bad = faults.iter().any(|list| !list.is_empty());
    let is_open =
        !(found.silent.is_empty() && found.of_unread_secrets.is_empty() && found.of_nodes.is_empty());
    let (parts, remedies) = texts(found, unusable, platforms);
    if parts.is_empty() {
        let images: BTreeSet<&ImageName> = answers.iter().map(|(image, _, _)| image).collect();
        let all = all_of(images.len(), "image", "images");
        return Judged::pass(format!("asked from this machine: the registries have {all}"));
    }
    let (observed, remedy) = (format!("asked from this machine: {}", parts.join("; ")), remedies.join("; "));
    match (is_bad, is_open) {
        (true, _) => Judged::fail(observed, remedy),
        (false, true) => Judged::unknown(observed, remedy),
        (false, false) => Judged::warn(observed, remedy),
    }
}

/// Returns what was found, and what to do.
fn texts(
    found: ImageFindings,
    unusable: &[String],
    platforms: &BTreeSet<String>,
) -> (Vec<String>, Vec<String>) {
    let platforms = platforms.iter().cloned().collect::<Vec<_>>().join(", ");
    let silent = found.silent.into_iter();
    let silent = silent
        .map(|((host, reason), count)| format!("`{host}` ({}; {reason})", counted(count, "image", "images")));
    let (mut parts, mut remedies) = (Vec::new(), Vec::new());
    let mut add = |what: &str, list: &[String], remedy: &str| {
        if !list.is_empty() {
            parts.push(format!("{what}: {}", first_few(list)));
            remedies.push(remedy.to_string());
        }
    };
    add(
        "not in their registry",
        &found.missing,
        "push the missing images, or correct their names or the rules `images` of `--config`",
    );
    add(
        "denied",
        &found.denied,
        "create a Secret whose user can pull (`kubectl create secret docker-registry`), and name it in `imagePullSecrets`, or in a rule \
         `pullSecrets` of `--config`",
    );
    add(
        &format!("not built for the mirror's nodes ({platforms})"),
        &found.other_platform,
        "build them for these platforms, or give the mirror nodes of the source's architecture",
    );
    add("cannot be pulled", unusable, "correct the name of the image, or the content of the Secret");
    add(
        "used only by workloads without Pods",
        &found.idle,
        "push these images and give their workloads a Secret before they run, or delete the workloads",
    );
    add(
        "not checked, because this machine gets no answer from",
        &silent.collect::<Vec<_>>(),
        "run this check on a machine that reaches these registries, or skip it: `--skip images`",
    );
    add(
        "private and not checked, because the user has no permission to read their Secrets",
        &found.of_unread_secrets,
        &format!("{SECRETS_ROLE}; or skip this check: `--skip images`"),
    );
    add(
        "private and not checked, because the nodes can have credentials of their own",
        &found.of_nodes,
        "make sure that the mirror's nodes are allowed to pull them (IAM role, credential provider of the kubelet); or skip this check: \
         `--skip images`",
    );
    (parts, remedies)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::pod_templates::testing::typed;
    use crate::preflight::Verdict;

    fn image(name: &str) -> ImageName {
        ImageName::parse(name).unwrap()
    }

    fn uses(secrets: &[&str]) -> Uses {
        Uses {
            who: ["Deployment `shop/web`".to_string()].into(),
            secrets: secrets.iter().map(ToString::to_string).collect(),
            is_running: true,
            is_secret_unread: false,
        }
    }

    fn of(name: &str, uses: Uses, answer: Answer) -> Judged {
        judge(&[(image(name), uses, answer)], &[], &BTreeSet::new())
    }

    fn denied() -> Answer {
        Answer::Denied("HTTP status 401".to_string())
    }

    #[test]
    fn each_answer_has_its_verdict() {
        let missing = || Answer::Missing("HTTP status 404, MANIFEST_UNKNOWN".to_string());
        let found = of("quay.io/a:1", uses(&[]), missing());
        assert_eq!(found.verdict, Verdict::Fail);
        assert_eq!(
            found.observed,
            "asked from this machine: not in their registry: `quay.io/a:1`: not found, HTTP status 404, MANIFEST_UNKNOWN (Deployment `shop/web`)"
        );
        let idle = Uses { is_running: false, ..uses(&[]) };
        assert_eq!(of("quay.io/a:1", idle, missing()).verdict, Verdict::Warn, "no Pod uses it");
        let found = of("quay.io/a:1", uses(&[]), denied());
        assert!(
            found.verdict == Verdict::Fail && found.observed.contains("denied without a Secret"),
            "{found:?}"
        );
        let found = of("quay.io/a:1", uses(&["`shop/regcred`"]), denied());
        assert!(
            found.verdict == Verdict::Fail && found.observed.contains("denied with Secret `shop/regcred`"),
            "{found:?}"
        );
        let found = of("quay.io/a:1", uses(&[]), Answer::Unknown("quay.io: connection refused".to_string()));
        assert_eq!(found.verdict, Verdict::Unknown);
        assert!(found.observed.contains("`quay.io` (1 image; quay.io: connection refused)"), "{found:?}");
        let found = of("quay.io/a:1", uses(&[]), Answer::Present(None));
        assert_eq!(
            (found.verdict, found.observed.as_str()),
            (Verdict::Pass, "asked from this machine: the registries have 1 image")
        );
        assert_eq!(judge(&[], &[], &BTreeSet::new()).verdict, Verdict::Pass);
        assert_eq!(judge(&[], &["x".to_string()], &BTreeSet::new()).verdict, Verdict::Fail);
    }

    #[test]
    fn denial_is_unknown_if_other_credentials_could_exist() {
        let unread = Uses { is_secret_unread: true, ..uses(&[]) };
        let found = of("quay.io/a:1", unread, denied());
        assert!(
            found.verdict == Verdict::Unknown && found.remedy.contains("netsurgeon-mirror-secrets"),
            "{found:?}"
        );
        let of_cloud = "1.dkr.ecr.eu-west-1.amazonaws.com/a:1";
        assert_eq!(of(of_cloud, uses(&[]), denied()).verdict, Verdict::Unknown);
        assert_eq!(of(of_cloud, uses(&["`shop/regcred`"]), denied()).verdict, Verdict::Fail);
        assert_eq!(of("notgcr.io/a:1", uses(&[]), denied()).verdict, Verdict::Fail);
    }

    #[test]
    fn index_must_have_a_platform_of_the_mirror() {
        let node = |architecture: &str| -> Node {
            let info = json!({"architecture": architecture, "operatingSystem": "linux"});
            typed(json!({"status": {"nodeInfo": info}}))
        };
        let platforms = BTreeSet::from(["linux/arm64".to_string()]);
        let found = |all: &[&str]| {
            let all: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
            judge(&[(image("quay.io/a"), uses(&[]), Answer::Present(Some(all)))], &[], &platforms)
        };
        assert_eq!(found(&["linux/amd64", "linux/arm64"]).verdict, Verdict::Pass);
        let other = found(&["linux/amd64"]);
        assert!(
            other.verdict == Verdict::Fail && other.observed.contains("only for linux/amd64"),
            "{other:?}"
        );
        assert_eq!(new_platforms(&[node("arm64")], &[node("amd64")]), platforms);
        assert!(new_platforms(&[node("arm64")], &[node("amd64"), node("arm64")]).is_empty(), "no request");
        assert!(new_platforms(&[node("")], &[]).is_empty());
    }

    #[test]
    fn image_is_asked_once_for_equal_credentials() {
        let secret = |entry: &str| {
            let content = json!({"auths": {entry: {"username": "canary", "password": "canary"}}}).to_string();
            let data = json!({".dockerconfigjson": STANDARD.encode(content)});
            content_of(&json!({"type": "kubernetes.io/dockerconfigjson", "data": data}))
        };
        let key = |namespace: &str, name: &str| (namespace.to_string(), name.to_string());
        let keyrings = Keyrings::from([
            (key("shop", "a"), secret("quay.io")),
            (key("pay", "b"), secret("quay.io")),
            (key("pay", "other"), secret("ghcr.io")),
            (key("pay", "denied"), Credentials::Denied),
        ]);
        let pull = |namespace: &str, secrets: &[&str], image: &str| ImagePulls {
            of: format!("Deployment `{namespace}/web`"),
            namespace: namespace.to_string(),
            images: vec![image.to_string()],
            secrets: secrets.iter().map(ToString::to_string).collect(),
            is_idle: namespace == "pay",
        };
        let pulls = [
            pull("shop", &["a"], "quay.io/a:1"),
            pull("pay", &["b", "other"], "quay.io/a:1"),
            pull("pay", &["other", "denied"], "quay.io/a:1"),
            pull("pay", &[], "quay.io/A"),
        ];
        let (questions, unusable) = questions(&pulls, &keyrings);
        assert_eq!(unusable, ["`quay.io/A` is no valid name of an image (Deployment `pay/web`)"]);
        let found: Vec<(usize, &Uses)> =
            questions.iter().map(|((_, logins), uses)| (logins.len(), uses)).collect();
        let [(0, without), (1, with)] = found.as_slice() else { panic!("{found:?}") };
        assert!(without.is_secret_unread && without.secrets.is_empty() && !without.is_running);
        assert_eq!(with.secrets.iter().cloned().collect::<Vec<_>>(), ["`pay/b`", "`shop/a`"]);
        assert!(with.is_running && with.who.len() == 2);
        assert!(!format!("{keyrings:?}").contains("canary"));
    }
}
