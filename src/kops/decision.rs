//! What only a person can decide or do, in the order of the work.

use super::field_values::{REMOVE, Settings};
use super::outcome::Decision;
use super::source::{Kind, Sources};
use super::{Request, name};

/// Returns the decisions.
pub(super) fn decisions(sources: &Sources<'_>, request: &Request, settings: &Settings) -> Vec<Decision> {
    let mut found = secrets(sources, request);
    found.extend(issuer(sources));
    found.extend(subnets(sources, request, settings));
    found.extend(load_balancers(sources));
    found.extend(permissions(sources, request));
    found.extend(network_plugin(settings));
    found.extend(metadata_service(sources));
    found
}

fn decision(subject: &str, reason: String, commands: Vec<String>) -> Decision {
    Decision { subject: subject.to_string(), reason, commands }
}

fn secrets(sources: &Sources<'_>, request: &Request) -> Vec<Decision> {
    let (old, new) = (&sources.cluster.name, &request.name);
    let mut found = vec![decision(
        "certificate authority",
        "kOps creates a new one for the mirror, so kubeconfigs of the source do not work there".to_string(),
        vec![format!("kops export kubeconfig --name {new} --admin")],
    )];
    found.push(decision(
        "secrets in the store",
        "no specification contains them; create those that the source has".to_string(),
        vec![
            format!("kops get secrets --name {old}"),
            format!("kops create secret dockerconfig -f FILE --name {new}"),
        ],
    ));
    if sources.value(&["encryptionConfig"]) == Some("true") {
        found.push(decision(
            "encryption at rest",
            "`encryptionConfig` is on, so kOps needs the configuration before the first update".to_string(),
            vec![format!("kops create secret encryptionconfig -f FILE --name {new}")],
        ));
    }
    let is_ipsec = sources.value(&["networking", "cilium", "enableEncryption"]) == Some("true")
        && sources.value(&["networking", "cilium", "encryptionType"]) != Some("wireguard");
    if is_ipsec {
        found.push(decision(
            "key of Cilium",
            "Cilium encrypts with IPsec, and its key is in the store".to_string(),
            vec![format!("kops create secret ciliumpassword -f FILE --name {new}")],
        ));
    }
    if sources.value(&["sshKeyName"]).is_none_or(str::is_empty) {
        found.push(decision(
            "SSH key",
            "the source has no `sshKeyName`, so the key is in the store".to_string(),
            vec![format!("kops create sshpublickey {new} -i ~/.ssh/id_ed25519.pub")],
        ));
    }
    found
}

fn issuer(sources: &Sources<'_>) -> Option<Decision> {
    let has = |path: &[&str]| sources.cluster.spec(path).is_some();
    let is_used = has(&["serviceAccountIssuerDiscovery"])
        || has(&["kubeAPIServer", "serviceAccountIssuer"])
        || has(&["iam", "serviceAccountExternalPermissions"]);
    is_used.then(|| {
        decision(
            "OIDC issuer",
            "the mirror has an issuer of its own: each IAM role of a ServiceAccount needs a second statement in its trust policy"
                .to_string(),
            vec!["aws iam list-open-id-connect-providers".to_string()],
        )
    })
}

fn subnets(sources: &Sources<'_>, request: &Request, settings: &Settings) -> Option<Decision> {
    let cluster = &sources.cluster;
    let is_id = |path: &str| {
        let path = path.strip_prefix("networking.").unwrap_or(path);
        path.starts_with("subnets.") && path.rsplit('.').next() == Some("name")
    };
    let names = cluster.fields.iter().filter(|field| is_id(&field.path));
    let ids = names.filter_map(|field| {
        let id = field.path.replace(".name", ".id");
        settings.value(&[&id, id.strip_prefix("networking.").unwrap_or(&id)])
    });
    let ids: Vec<&str> = ids.filter(|id| *id != REMOVE).collect();
    (!ids.is_empty()).then(|| {
        let tag = format!("Key=kubernetes.io/cluster/{},Value=shared", request.name);
        decision(
            "tags of existing subnets",
            "cloud controllers use only subnets with the tag of their cluster".to_string(),
            vec![format!("aws ec2 create-tags --resources {} --tags {tag}", ids.join(" "))],
        )
    })
}

fn load_balancers(sources: &Sources<'_>) -> Vec<Decision> {
    let mut found = Vec::new();
    let groups = sources.others.iter().filter(|document| document.kind == Kind::Group);
    let with: Vec<&str> = groups
        .filter(|group| group.spec(&["externalLoadBalancers"]).is_some())
        .map(|group| group.name.as_str())
        .collect();
    if !with.is_empty() {
        let reason = format!(
            "the groups {} had load balancers of their own: create new ones, and attach them",
            with.join(", ")
        );
        found.push(decision("load balancers", reason, Vec::new()));
    }
    let addresses = sources.cluster.fields.iter().any(|field| {
        field
            .segments
            .last()
            .is_some_and(|last| matches!(last.text.as_str(), "allocationId" | "allocationID"))
    });
    if addresses {
        let reason =
            "the API of the source has Elastic IPs: allocate others if clients allow only fixed addresses";
        found.push(decision(
            "addresses of the API",
            reason.to_string(),
            vec!["aws ec2 allocate-address".to_string()],
        ));
    }
    let gateways = sources
        .cluster
        .fields
        .iter()
        .any(|field| field.segments.last().is_some_and(|last| last.text == "egress"));
    if gateways {
        let reason = "the mirror leaves its VPC through other addresses: third parties that allow those of the source must allow them too";
        found.push(decision(
            "outgoing addresses",
            reason.to_string(),
            vec!["aws ec2 describe-nat-gateways".to_string()],
        ));
    }
    found
}

fn permissions(sources: &Sources<'_>, request: &Request) -> Vec<Decision> {
    let mut found = Vec::new();
    let scalars = |path: &[&str]| -> Vec<String> {
        let mut values: Vec<String> = sources
            .others
            .iter()
            .filter_map(|group| Some(group.scalar(group.spec(path)?)?.to_string()))
            .collect();
        values.sort();
        values.dedup();
        values
    };
    let profiles = scalars(&["iam", "profile"]);
    if !profiles.is_empty() {
        let reason = format!("its policy must allow the state store of the mirror: {}", profiles.join(", "));
        found.push(decision("instance profiles", reason, Vec::new()));
    }
    let has_groups = sources.documents().flat_map(|document| &document.fields).any(|field| {
        field.segments.iter().any(|segment| segment.text.to_lowercase().contains("securitygroup"))
    });
    let reason = if has_groups {
        "a security group works only in its own VPC; and databases allow the groups of the source, so add those of the mirror"
    } else {
        "databases and other services allow the security groups of the source: add those of the mirror"
    };
    let filter = format!("Name=tag:KubernetesCluster,Values={}", request.name);
    let command = format!("aws ec2 describe-security-groups --filters {filter}");
    found.push(decision("security groups", reason.to_string(), vec![command]));
    let long = name::long_roles(&request.name);
    if !long.is_empty() {
        let reason = format!(
            "an IAM role has at most 64 characters, so kOps shortens these names and adds a hash: {}",
            long.join(", ")
        );
        found.push(decision("names of IAM roles", reason, Vec::new()));
    }
    found
}

fn network_plugin(settings: &Settings) -> Option<Decision> {
    let name = settings.value(&["networking"])?;
    let checked = ["calico", "cilium"].contains(&name);
    Some(decision(
        "network plug-in",
        format!(
            "`{name}` starts with the defaults of kOps: check MTU, encryption, kube-proxy, and the network policies"
        ),
        checked.then(|| format!("netsurgeon preflight cni --to {name}")).into_iter().collect(),
    ))
}

fn metadata_service(sources: &Sources<'_>) -> Option<Decision> {
    let groups = sources.others.iter().filter(|document| document.kind == Kind::Group);
    let without: Vec<&str> = groups
        .filter(|group| group.spec(&["instanceMetadata", "httpPutResponseHopLimit"]).is_none())
        .map(|group| group.name.as_str())
        .collect();
    (!without.is_empty()).then(|| {
        decision(
            "instance metadata",
            format!(
                "new clusters have a hop limit of 1, so Pods without host network cannot use the role of their node; set \
                 `instanceMetadata` where they must: {}",
                without.join(", ")
            ),
            Vec::new(),
        )
    })
}
