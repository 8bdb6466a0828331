//! Network plug-ins, DNS and versions: what current versions of kOps do not create, and what replaces it.

use super::change::Changer;
use super::field::FieldNode;
use super::rule::Demand;
use super::source::Document;

/// A network plug-in of kOps: its key in `networking`, in both spellings.
struct Plugin {
    key: &'static str,
    newer: &'static str,
    /// Why kOps no longer creates it; none if it does.
    removed: Option<&'static str>,
}

const fn plugin(key: &'static str, newer: &'static str, removed: Option<&'static str>) -> Plugin {
    Plugin { key, newer, removed }
}

/// The network plug-ins (`NetworkingSpec` in kOps 1.37, and `validateNetworking`).
const PLUGINS: [Plugin; 16] = [
    plugin("amazonvpc", "amazonVPC", None),
    plugin("calico", "calico", None),
    plugin("canal", "canal", Some("kOps has no Canal for Kubernetes 1.28 and later")),
    plugin("cilium", "cilium", None),
    plugin("classic", "classic", Some("kOps has no classic networking")),
    plugin("cni", "cni", None),
    plugin("external", "external", Some("kOps has no external networking for Kubernetes 1.26 and later")),
    plugin("flannel", "flannel", None),
    plugin("gce", "gcp", None),
    plugin("kindnet", "kindnet", None),
    plugin("kopeio", "kopeio", None),
    plugin("kubenet", "kubenet", None),
    plugin("kuberouter", "kubeRouter", None),
    plugin("lyftvpc", "lyftvpc", Some("kOps has no LyftVPC")),
    plugin("romana", "romana", Some("kOps has no Romana")),
    plugin("weave", "weave", Some("kOps no longer has Weave, and the project is archived")),
];

/// Replaces the network plug-in with the one of `--set networking=`, or refuses one that kOps no longer creates.
pub(super) fn change_network_plugin(changer: &mut Changer<'_, '_>) {
    let cluster = &changer.sources.cluster;
    let given = changer.settings.take(&["networking"]).map(|name| name.to_lowercase().replace('-', ""));
    let find = |name: &str| PLUGINS.iter().find(|one| one.key == name || one.newer.to_lowercase() == name);
    let present: Vec<(&FieldNode, &Plugin)> = PLUGINS
        .iter()
        .filter_map(|one| {
            Some((cluster.spec(&["networking", if cluster.is_newer { one.newer } else { one.key }])?, one))
        })
        .collect();
    let wanted = match given.as_deref().map(|name| (name, find(name))) {
        None => None,
        Some((_, Some(one))) if one.removed.is_none() => Some(one),
        Some((name, _)) => {
            let known: Vec<&str> =
                PLUGINS.iter().filter(|one| one.removed.is_none()).map(|one| one.key).collect();
            let text = format!("`--set networking={name}`: expected one of {}", known.join(", "));
            return changer.refusal.arguments.push(text);
        }
    };
    let key_of = |one: &Plugin| if cluster.is_newer { one.newer } else { one.key };
    match (present.first(), wanted) {
        (Some((field, old)), None) => {
            if let Some(removed) = old.removed {
                let text = format!(
                    "{removed}; choose the mirror's network plug-in, for example `--set networking=cilium` or `--set networking=calico`"
                );
                changer.refuse(cluster, field, text);
            }
        }
        (Some((field, old)), Some(new)) if old.key != new.key => {
            let (field, key) = (*field, key_of(new));
            if let Some(edit) = changer.edit(cluster) {
                edit.replace_entry(field.key, field.node, (key, "{}"));
            }
            let reason = old.removed.unwrap_or("the mirror gets another network plug-in, with its defaults");
            changer.record(cluster, field, (Some(old.key.to_string()), Some(key.to_string())), reason);
        }
        (None, Some(new)) => {
            let parent = cluster.spec(&["networking"]);
            let reason = "the network plug-in of the mirror";
            let spec = || cluster.fields.iter().find(|field| field.path == "spec");
            if let Some(parent) = parent.filter(|field| cluster.parsed.yaml.is_map(field.node)) {
                changer.add_entry(cluster, parent, (key_of(new), "{}"), reason);
            } else if let Some(spec) = spec() {
                changer.add_entry(
                    cluster,
                    spec,
                    ("networking", &format!("{{{}: {{}}}}", key_of(new))),
                    reason,
                );
            }
        }
        _ => {}
    }
}

const DNS: Demand = Demand { what: "the DNS of the mirror: `none`, `public` or `private`", example: "none" };

/// Applies `--set dns=`, and checks what the DNS of the mirror requires of its name.
pub(super) fn change_dns(changer: &mut Changer<'_, '_>) {
    let sources = changer.sources;
    let cluster = &sources.cluster;
    let path: &[&str] =
        if cluster.is_newer { &["networking", "topology", "dns"] } else { &["topology", "dns", "type"] };
    let field = cluster.spec(path);
    let present = field.and_then(|field| cluster.scalar(field)).unwrap_or("Public").to_string();
    let wanted = match changer.settings.take(&["dns", "topology.dns.type", "networking.topology.dns"]) {
        None => None,
        Some(given) => match given.to_lowercase().as_str() {
            "none" => Some("None"),
            "public" => Some("Public"),
            "private" => Some("Private"),
            _ => {
                let text = format!("`--set dns={given}`: expected `none`, `public` or `private`");
                return changer.refusal.arguments.push(text);
            }
        },
    };
    let is_gossip = (sources.cluster.name.ends_with(".k8s.local") && !present.eq_ignore_ascii_case("none"))
        || ["gossipConfig", "dnsControllerGossipConfig"].iter().any(|key| cluster.spec(&[key]).is_some());
    let name = changer.request.name.clone();
    match wanted {
        None if is_gossip => {
            let reason = "the source uses gossip DNS, which kOps 1.37 no longer has";
            changer.missing("dns", DNS, reason, field.map(|field| cluster.at(field)));
            return;
        }
        Some(wanted) if wanted != present || field.is_none() => set_dns(changer, cluster, field, wanted),
        _ => {}
    }
    let dns = wanted.map_or(present, str::to_string);
    if dns.eq_ignore_ascii_case("none") {
        return;
    }
    if name.ends_with(".k8s.local") {
        let text = format!(
            "`--name`: `{name}` means gossip DNS, which kOps 1.37 no longer has; add `--set dns=none`, or choose another name"
        );
        changer.refusal.arguments.push(text);
    } else if !name.contains('.') {
        let text = format!(
            "`--name`: `{name}` is not fully qualified; kOps requires a name in a DNS zone, or `--set dns=none`"
        );
        changer.refusal.arguments.push(text);
    }
    check_zone(changer, cluster, &name);
}

fn set_dns<'f>(
    changer: &mut Changer<'_, 'f>,
    cluster: &Document<'f>,
    field: Option<&FieldNode>,
    wanted: &str,
) {
    let reason = "where kOps publishes the names of the mirror";
    if let Some(field) = field {
        return changer.set(cluster, field, wanted, reason);
    }
    let (parents, nested): ([&[&str]; 3], [String; 3]) = if cluster.is_newer {
        let of_topology = format!("dns: {wanted}");
        let of_networking = format!("topology: {{{of_topology}}}");
        (
            [&["networking", "topology"], &["networking"], &[]],
            [of_topology, of_networking.clone(), format!("networking: {{{of_networking}}}")],
        )
    } else {
        let of_dns = format!("type: {wanted}");
        let of_topology = format!("dns: {{{of_dns}}}");
        (
            [&["topology", "dns"], &["topology"], &[]],
            [of_dns, of_topology.clone(), format!("topology: {{{of_topology}}}")],
        )
    };
    for (path, entry) in parents.into_iter().zip(nested) {
        let parent = cluster.spec(path).filter(|field| cluster.parsed.yaml.is_map(field.node));
        if let Some((parent, (key, value))) = parent.zip(entry.split_once(": ")) {
            return changer.add_entry(cluster, parent, (key, value), reason);
        }
    }
}

/// Checks that the name of the mirror is in its DNS zone.
fn check_zone<'f>(changer: &mut Changer<'_, 'f>, cluster: &Document<'f>, name: &str) {
    const ZONE: Demand = Demand { what: "the DNS zone of the mirror, or its id", example: "example.com" };
    let Some(field) = cluster.spec(&["dnsZone"]) else { return };
    let zone = cluster.scalar(field).unwrap_or_default();
    let has_id = !zone.contains('.');
    let contains_name = name.strip_suffix(zone.trim_end_matches('.')).is_some_and(|host| host.ends_with('.'));
    if zone.is_empty() || has_id || contains_name || changer.settings.value(&["dnsZone"]).is_some() {
        return;
    }
    let reason = format!("`{name}` is not in the zone `{zone}`");
    changer.missing("dnsZone", ZONE, &reason, Some(cluster.at(field)));
}

/// The oldest minor version of Kubernetes 1 that kOps 1.37 creates (`OldestSupportedKubernetesVersion`).
const OLDEST: u32 = 32;

/// Tags that kOps sets itself, and refuses in `cloudLabels` (`validateCloudLabels`).
const RESERVED: [&str; 5] =
    ["Name", "KubernetesCluster", "kubernetes.io/cluster/", "k8s.io/role/", "kops.k8s.io/"];

/// Warns of versions and tags that current versions of kOps refuse.
pub(super) fn check_versions(changer: &mut Changer<'_, '_>) {
    let sources = changer.sources;
    let cluster = &sources.cluster;
    if let Some(field) = cluster.spec(&["kubernetesVersion"]) {
        let given = changer.settings.value(&["kubernetesVersion"]);
        let version = given.or_else(|| cluster.scalar(field)).unwrap_or_default();
        if minor(version).is_some_and(|minor| minor < OLDEST) {
            let text = format!(
                "`{version}`: kOps 1.37 creates no cluster before 1.{OLDEST}; set a newer version with `--set kubernetesVersion=`, or \
                 use an older kOps"
            );
            changer.warn(cluster, field, text);
        }
    }
    let balancer = cluster.spec(&["api", "loadBalancer"]);
    if let Some(field) = balancer.filter(|_| cluster.spec(&["api", "loadBalancer", "class"]).is_none())
        && changer.settings.value(&["api.loadBalancer.class"]).is_none()
    {
        let text = "it has no `class`, which meant a classic load balancer; kOps 1.37 creates none: `--set api.loadBalancer.class=Network`";
        changer.warn(cluster, field, text.to_string());
    }
    for document in sources.documents() {
        let is_label = |field: &&FieldNode| matches!(field.segments.as_slice(), [spec, labels, _] if spec.text == "spec" && labels.text == "cloudLabels");
        for field in document.fields.iter().filter(is_label) {
            if changer.is_removed(document, field) {
                continue;
            }
            let key = field.segments.last().map(|last| last.text.as_str()).unwrap_or_default();
            let is_reserved = |name: &str| key == name || (name.ends_with('/') && key.starts_with(name));
            if RESERVED.into_iter().any(is_reserved) {
                let text = "kOps sets this tag itself, and current versions refuse it in `cloudLabels`; remove it with the value `none`";
                changer.warn(document, field, text.to_string());
            }
        }
    }
    check_cloud(changer, cluster);
}

/// The table has the fields of AWS. Of other clouds it has only those that every cloud has.
fn check_cloud<'f>(changer: &mut Changer<'_, 'f>, cluster: &Document<'f>) {
    let Some(field) = cluster.spec(&["cloudProvider"]) else { return };
    let is_aws = match cluster.scalar(field) {
        Some(cloud) => cloud == "aws" || cloud.is_empty(),
        None => cluster.spec(&["cloudProvider", "aws"]).is_some(),
    };
    if !is_aws {
        let text = "the table of fields is complete only for AWS: check every field that names something of this cloud";
        changer.warn(cluster, field, text.to_string());
    }
}

fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next()?;
    parts.next().filter(|_| major == "1")?.parse().ok()
}
