//! The whole way from files to the specification of the mirror.

use proptest::prelude::*;

use super::identity::occurrences;
use super::*;
use crate::wire::yaml::Yaml;

const FILES: [(&str, &str); 6] = [
    ("production.yaml", include_str!("../../testdata/kops/production.yaml")),
    ("weave.yaml", include_str!("../../testdata/kops/weave.yaml")),
    ("gossip.yaml", include_str!("../../testdata/kops/gossip.yaml")),
    ("newer.yaml", include_str!("../../testdata/kops/newer.yaml")),
    ("newer-groups.yaml", include_str!("../../testdata/kops/newer-groups.yaml")),
    ("handmade.yaml", include_str!("../../testdata/kops/handmade.yaml")),
];

fn files(names: &[&str]) -> Vec<SourceFile> {
    let of = |name: &str| {
        let (_, text) = FILES.iter().find(|(file, _)| *file == name).unwrap();
        SourceFile { name: name.to_string(), text: (*text).to_string() }
    };
    names.iter().map(|name| of(name)).collect()
}

fn file(text: &str) -> Vec<SourceFile> {
    vec![SourceFile { name: "blue.yaml".to_string(), text: text.to_string() }]
}

fn request(name: &str, set: &[&str]) -> Request {
    let pair = |text: &&str| text.split_once('=').map(|(left, right)| (left.to_string(), right.to_string()));
    Request { name: name.to_string(), set: set.iter().filter_map(pair).collect(), ..Request::default() }
}

/// Gives every value that the source needs, as the refusal asks for it.
fn completed(files: &[SourceFile], mut request: Request) -> Result<Specification, KopsError> {
    for _ in 0..3 {
        let Err(KopsError::Refused(refusal)) = specification(files, &request) else { break };
        for missing in &refusal.missing {
            let number = request.set.len();
            let value = match missing.field.rsplit('.').next().unwrap_or_default() {
                "networkCIDR" => "10.1.0.0/16".to_string(),
                "cidr" => format!("10.1.{number}.0/24"),
                _ => missing.example.replace("...", "none"),
            };
            request.set.push((missing.field.clone(), value));
        }
    }
    specification(files, &request)
}

fn refusal(files: &[SourceFile], request: &Request) -> Refusal {
    match specification(files, request) {
        Err(KopsError::Refused(refusal)) => *refusal,
        other => panic!("{other:?}"),
    }
}

fn fields(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.field.as_str()).collect()
}

/// The lines of the source that the mirror does not have, and the new ones.
fn line_changes(before: &str, after: &str) -> (usize, usize) {
    let count =
        |one: &str, other: &str| one.lines().filter(|line| !other.lines().any(|l| l == *line)).count();
    (count(before, after), count(after, before))
}

#[test]
fn specification_of_a_production_cluster_keeps_every_other_line() {
    let source = files(&["production.yaml"]);
    let found = completed(&source, request("green.k8s.shop.example", &[])).unwrap();
    let yaml = found.yaml();
    assert!(Yaml::parse(&yaml).is_ok());
    assert!(
        !yaml.contains("blue.k8s") && !yaml.contains("eipalloc-") && !yaml.contains("creationTimestamp"),
        "{yaml}"
    );
    for line in [
        "bucketPrefix: kops/green.k8s.shop.example",
        "- name: utility-eu-west-1a",
        "maxSize: 40",
        "api.shop.example",
    ] {
        assert!(yaml.contains(line), "{line}: {yaml}");
    }
    assert_eq!(line_changes(&source[0].text, &yaml), (50, 28));
    let again = completed(
        &[SourceFile { name: "green.yaml".into(), text: yaml }],
        request("green.k8s.shop.example", &[]),
    );
    let Err(KopsError::Refused(again)) = again else { panic!("{again:?}") };
    assert!(again.arguments[0].contains("is the name of the source"), "{again:?}");
    assert_eq!(
        found.kept.iter().map(|kept| kept.text.as_str()).collect::<Vec<_>>(),
        ["sg-0a1b2c3d4e5f60718", "sg-0a1b2c3d4e5f60719", "sg-0a1b2c3d4e5f60720"]
    );
    let warned = fields(&found.warnings);
    for field in ["nonMasqueradeCIDR", "kubernetesApiAccess.1", "additionalSans.0"] {
        assert!(warned.contains(&field), "{field}: {warned:?}");
    }
}

#[test]
fn missing_values_are_listed_at_once_and_nothing_is_guessed() {
    let found = refusal(&files(&["newer.yaml", "newer-groups.yaml"]), &request("new.cloud.example", &[]));
    let fields: Vec<&str> = found.missing.iter().map(|missing| missing.field.as_str()).collect();
    for field in [
        "api.loadBalancer.securityGroupOverride",
        "configStore.base",
        "configStore.keypairs",
        "configStore.secrets",
        "etcdClusters.main.backups.backupStore",
        "kubeAPIServer.serviceAccountIssuer",
        "networking.networkCIDR",
        "networking.subnets.a.cidr",
        "networking.topology.bastion.publicName",
        "serviceAccountIssuerDiscovery.discoveryStore",
    ] {
        assert!(fields.contains(&field), "{field}: {fields:?}");
    }
    assert!(
        found.remnants.is_empty(),
        "a value that must be given is not reported twice: {:?}",
        found.remnants
    );
}

#[test]
fn newer_spelling_is_kept_and_both_names_of_a_field_are_accepted() {
    let set = [
        "networkCIDR=10.1.0.0/16",
        "networking.subnets.a.cidr=10.1.32.0/19",
        "subnets.utility-a.cidr=10.1.0.0/22",
        "configBase=s3://cloud-state/clusters/new",
        "additionalNetworkCIDRs.0=none",
        "networkID=vpc-99999999",
        "subnets.a.id=subnet-99999991",
        "subnets.utility-a.id=subnet-99999992",
    ];
    let found =
        completed(&files(&["newer.yaml", "newer-groups.yaml"]), request("new.cloud.example", &set)).unwrap();
    let yaml = found.yaml();
    for line in [
        "    base: s3://cloud-state/clusters/new\n",
        "    additionalNetworkCIDRs: []\n",
        "    networkID: vpc-99999999\n",
        "    - cidr: 10.1.32.0/19\n      id: subnet-99999991\n      name: a\n",
        "      - name: utility-a\n      type: Public\n    publicName: api.new.cloud.example\n",
        "    kops.k8s.io/cluster: new.cloud.example\n",
    ] {
        assert!(yaml.contains(line), "{line}: {yaml}");
    }
    assert!(!yaml.contains("configBase") && !yaml.contains("additionalServiceAccountIssuers"), "{yaml}");
    assert!(
        found
            .decisions
            .iter()
            .any(|decision| decision.commands.iter().any(|c| c.contains("subnet-99999991 subnet-99999992")))
    );
    assert_eq!(found.files.len(), 2);
}

#[test]
fn weave_is_refused_or_replaced_and_text_of_the_source_is_found_everywhere() {
    let source = files(&["weave.yaml"]);
    let found = refusal(&source, &request("new.green.example", &[]));
    assert_eq!(fields(&found.refused), ["networking.weave"]);
    let left: Vec<String> = found.remnants.iter().map(|one| format!("{} {}", one.at, one.field)).collect();
    assert_eq!(
        left,
        [
            "weave.yaml:40:14 fileAssets.rotate-logs.content",
            "weave.yaml:47:36 hooks.fetch-tools.service.manifest",
            "weave.yaml:52:18 hooks.metrics.execContainer.environment.CLUSTER",
            "weave.yaml:111:21 ig/nodes.additionalUserData.tag.sh.content",
        ]
    );
    let mut request = request(
        "new.green.example",
        &[
            "networking=calico",
            "fileAssets.rotate-logs.content=eAo=",
            "kubelet.networkPluginName=none",
            "ig/nodes.kubelet.networkPluginName=none",
            "iam.legacy=false",
            "api.loadBalancer.class=Network",
            "kubernetesVersion=1.34.1",
            "cloudLabels.KubernetesCluster=none",
        ],
    );
    request.replace = vec![("kube.legacy.example".to_string(), "new.green.example".to_string())];
    let found = completed(&source, request).unwrap();
    let yaml = found.yaml();
    for line in [
        "  networking:\n    calico: {}\n  nonMasq",
        "    loadBalancer:\n      class: Network\n      type: Public\n",
        "  kubelet: {}\n  machineType: m4.xlarge\n",
        "s3 cp s3://legacy-kops-state/new.green.example/tools/run.sh /opt/run.sh\n",
        "name: us-east-1b, type: Public, zone: us-east-1b}\n",
        "    legacy: false\n",
    ] {
        assert!(yaml.contains(line), "{line}: {yaml}");
    }
    assert!(!yaml.contains("kube.legacy") && !yaml.contains("networkPluginName"), "{yaml}");
    assert_eq!(fields(&found.warnings), ["nonMasqueradeCIDR"]);
    let changed = format!("{:?}", found.changes);
    assert!(
        !changed.contains("ExecStart") && !changed.contains("not-a-real-token"),
        "only the replaced text is printed"
    );
}

#[test]
fn gossip_needs_a_choice_and_its_secrets_are_not_printed() {
    let source = files(&["gossip.yaml"]);
    let found = refusal(&source, &request("new.green.example", &["networkCIDR=10.1.0.0/16"]));
    assert!(found.missing.iter().any(|missing| missing.field == "dns"), "{found:?}");
    let found = refusal(&source, &request("lab2.k8s.local", &["dns=public"]));
    assert!(found.arguments[0].contains("gossip DNS"), "{found:?}");
    let found = completed(&source, request("lab2", &["dns=none"])).unwrap();
    let yaml = found.yaml();
    assert!(yaml.contains("  topology:\n    dns: {type: None}\n    masters: public\n"), "{yaml}");
    assert!(!yaml.contains("gossip"), "{yaml}");
    assert!(!format!("{:?}", found.changes).contains("gossip-canary"), "{:?}", found.changes);
    let warned = fields(&found.warnings);
    assert!(
        warned.contains(&"api.loadBalancer.class") && warned.contains(&"kubernetesVersion"),
        "{warned:?}"
    );
}

#[test]
fn odd_quoting_and_comments_stay() {
    let source = files(&["handmade.yaml"]);
    let found = completed(
        &source,
        request("new.made.example", &["subnets.a.cidr=10.1.32.0/19", "subnets.b.cidr=10.1.64.0/19"]),
    );
    let expected = source[0]
        .text
        .replace("hand.made.example", "new.made.example")
        .replace(" , generation: 4 }", " }")
        .replace("\"10.0.0.0/16\"", "\"10.1.0.0/16\"")
        .replace(
            "egress: nat-0a0a0a0a0a0a0a0a0  # paid until May\n            cidr: \"10.0.0.0/24\"",
            "cidr: \"10.1.32.0/19\"",
        )
        .replace("'10.0.1.0/24'", "'10.1.64.0/19'")
        .replace("            egress: i-0b0b0b0b0b0b0b0b0\n", "");
    assert_eq!(found.unwrap().yaml(), expected);
}

#[test]
fn same_vpc_keeps_the_network_and_shares_subnets_by_id() {
    let source = files(&["production.yaml"]);
    let mut wanted = request(
        "green.k8s.shop.example",
        &[
            "subnets.eu-west-1a.id=subnet-0aaaaaaaaaaaaaaa1",
            "subnets.eu-west-1b.id=subnet-0aaaaaaaaaaaaaaa2",
            "subnets.eu-west-1c.id=subnet-0aaaaaaaaaaaaaaa3",
            "subnets.utility-eu-west-1a.id=subnet-0bbbbbbbbbbbbbbb1",
            "subnets.utility-eu-west-1b.id=subnet-0bbbbbbbbbbbbbbb2",
            "api.loadBalancer.sslCertificate=none",
            "ig/bastions.securityGroupOverride=none",
        ],
    );
    wanted.same_vpc = true;
    let yaml = specification(&source, &wanted).unwrap().yaml();
    assert!(
        yaml.contains("networkID: vpc-00112233445566778")
            && yaml.contains("  - cidr: 172.20.32.0/19\n    id: subnet-0aaaaaaaaaaaaaaa1\n"),
        "{yaml}"
    );
    wanted.set.truncate(4);
    wanted.set.push(("subnets.utility-eu-west-1b.cidr".to_string(), "172.20.32.0/20".to_string()));
    let found = refusal(&source, &wanted);
    let reasons: Vec<&str> = found.refused.iter().map(|finding| finding.reason.as_str()).collect();
    assert!(
        reasons.iter().any(|reason| reason.contains("overlaps with `subnets.eu-west-1a.cidr`")),
        "{reasons:?}"
    );
    assert!(reasons.iter().any(|reason| reason.contains("ids for only some subnets")), "{reasons:?}");
}

#[test]
fn ranges_that_do_not_fit_are_refused() {
    let set = ["networkCIDR=10.1.0.0/16", "subnets.a.cidr=10.2.0.0/24", "subnets.b.cidr=10.1.0.7/24"];
    let found = refusal(&files(&["handmade.yaml"]), &request("new.made.example", &set));
    assert_eq!(fields(&found.refused), ["subnets.b.cidr", "subnets.a.cidr"]);
    let set = ["networkCIDR=10.0.0.0/8", "subnets.a.cidr=10.2.0.0/24", "subnets.b.cidr=10.2.0.0/25"];
    let found = refusal(&files(&["handmade.yaml"]), &request("new.made.example", &set));
    assert_eq!(fields(&found.refused), ["subnets.b.cidr"]);
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let mut wanted =
        request("NEW", &["netwrkCIDR=10.0.0.0/8", "networking=weave", "subnets=x", "dns=x", "dns=y"]);
    wanted.replace = vec![("nowhere".to_string(), String::new())];
    let found = refusal(&files(&["handmade.yaml"]), &wanted);
    let all = found.arguments.join("\n");
    for text in [
        "`NEW` is no DNS name",
        "no field `netwrkCIDR`",
        "networking=weave",
        "`subnets` is a list",
        "dns=x",
        "given twice",
        "`nowhere`",
    ] {
        assert!(all.contains(text), "{text}: {all}");
    }
}

const CLUSTER: &str = "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nmetadata:\n  name: blue.example.com\nspec:\n  configBase: s3://state/blue.example.com\n";

#[test]
fn bad_input_has_a_position() {
    let group = |name: &str| {
        format!(
            "---\napiVersion: kops.k8s.io/v1alpha2\nkind: InstanceGroup\nmetadata:\n  name: nodes\n  labels:\n    kops.k8s.io/cluster: {name}\nspec:\n  role: Node\n"
        )
    };
    for (text, expected) in [
        ("a: [1\nb: 2\n".to_string(), "blue.yaml:2:2: it is not valid YAML"),
        (CLUSTER.replace("  name", "\tname"), "blue.yaml:4:1: it is not valid YAML: a tab"),
        (CLUSTER.replace("s3://", "&a s3://"), "blue.yaml:6:18: an anchor"),
        (CLUSTER.replace("s3://state", "x: *a"), "blue.yaml:6"),
        (format!("{CLUSTER}  configBase: s3://x\n"), "blue.yaml:7:3: the key `configBase` occurs twice"),
        (group("blue.example.com"), "blue.yaml:1:1: no file has a document of the kind `Cluster`"),
        (String::new(), "blue.yaml:1:1: no file has a document"),
        (format!("{CLUSTER}---\n{CLUSTER}"), "blue.yaml:8:1: a second Cluster"),
        (
            format!("{CLUSTER}{}", group("red.example.com")),
            "blue.yaml:13:26: InstanceGroup nodes belongs to the cluster `red.example.com`",
        ),
        (
            format!("{CLUSTER}{}{}", group("blue.example.com"), group("blue.example.com")),
            "blue.yaml:17:1: a second InstanceGroup nodes",
        ),
        (CLUSTER.replace("Cluster", "Deployment"), "blue.yaml:2:7: the kind `Deployment` is not known"),
        (CLUSTER.replace("kops.k8s.io/v1alpha2", "apps/v1"), "blue.yaml:1:13: `apps/v1` is not known"),
        (CLUSTER.replace("  name: blue.example.com\n", "  x: y\n"), "the document has no `metadata.name`"),
        ("- a\n".to_string(), "blue.yaml:1:1: expected a kOps document"),
        ("text\n".to_string(), "blue.yaml:1:1: expected a kOps document"),
    ] {
        let found = specification(&file(&text), &request("green.example.com", &[]));
        let Err(KopsError::Input(error)) = found else { panic!("{expected}: {found:?}") };
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

/// A pattern of the table as YAML, with a value.
fn planted(pattern: &str, value: &str) -> serde_json::Value {
    let Some((part, rest)) =
        pattern.split_once('.').map(|(part, rest)| (part, Some(rest))).or(Some((pattern, None)))
    else {
        return serde_json::Value::Null;
    };
    let inner = rest.map_or_else(|| serde_json::Value::from(value), |rest| planted(rest, value));
    let (key, is_list) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
    let key = if key == "*" { format!("tag/{value}") } else { key.replace('~', ".") };
    serde_json::json!({ key: if is_list { serde_json::json!([inner]) } else { inner } })
}

fn merge(into: &mut serde_json::Value, from: serde_json::Value) {
    use serde_json::Value;
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => match (into.first_mut(), from.into_iter().next()) {
            (Some(into), Some(from)) => merge(into, from),
            (None, Some(from)) => into.push(from),
            _ => {}
        },
        (into, from) => {
            if into.is_null() {
                *into = from;
            }
        }
    }
}

/// A source with a value in every field of the table, and in free text. Returns the documents as YAML.
fn full_source(name: &str, values: &[String], free: &[String]) -> String {
    let mut next = values.iter().cycle();
    let mut documents = Vec::new();
    for (kind, on) in [("Cluster", rule::On::Cluster), ("InstanceGroup", rule::On::Group)] {
        let mut document = serde_json::json!({"apiVersion": "kops.k8s.io/v1alpha2", "kind": kind});
        let metadata = if kind == "Cluster" { name } else { "nodes" };
        let labels = serde_json::json!({"kops.k8s.io/cluster": name});
        merge(
            &mut document,
            serde_json::json!({"metadata": {"name": metadata, "labels": labels}, "spec": {"role": "x"}}),
        );
        for rule in rules::RULES.iter().filter(|rule| rule.on == on || rule.on == rule::On::All) {
            // In this source `configStore` is a map, and the API has no gossip.
            for path in rule.paths.iter().filter(|path| !path.contains("ossipConfig") && **path != "status") {
                merge(&mut document, planted(path, next.next().unwrap()));
            }
        }
        for text in free {
            merge(
                &mut document,
                serde_json::json!({"spec": {"hooks": [{"manifest": format!("line one\n{text} two\n")}]}}),
            );
            merge(&mut document, serde_json::json!({"spec": {text: {"x": [text, {"y": text}]}}}));
        }
        documents.push(serde_json::to_string_pretty(&document).unwrap());
    }
    format!("# {}\n{}", free.join(" "), documents.join("\n---\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever names the source in any field, key, text or comment is changed, or printed with its place.
    #[test]
    fn nothing_of_the_source_stays_unnoticed(
        name in "[a-z]{3,8}[0-9]\\.[a-z]{3,6}\\.example",
        id in "[0-9a-f]{17}",
        bucket in "[a-z]{5,9}[0-9]{2}",
        kind in prop::sample::select(vec!["vpc", "subnet", "eipalloc", "nat", "sg", "eni"]),
    ) {
        let id = format!("{kind}-{id}");
        let store = format!("s3://{bucket}/{name}/x");
        let values = [name.clone(), id.clone(), store.clone(), format!("api.{name}"), format!("{store}/{id}")];
        let free = [name.clone(), id.clone(), store.clone(), name.replace('.', "-")];
        let source = file(&full_source(&name, &values, &free));
        let set = ["dns=public", "networkCIDR=10.1.0.0/16"];
        let found = completed(&source, request("zz-mirror.test", &set));
        let Err(KopsError::Refused(found)) = found else { return Err(TestCaseError::fail(format!("{found:?}"))) };
        let field = |text: &str| found.remnants.iter().filter(|one| one.text == text).count();
        // Two documents, each with a key, two items and a script; and one comment.
        prop_assert!(field(&id) >= 7 && field(&name.replace('.', "-")) >= 7, "{found:#?}");
        // If every text that was printed is accepted, the output has the texts of the source only at these places.
        let mut wanted = request("zz-mirror.test", &set);
        wanted.allow = found.remnants.iter().map(|one| one.text.clone()).collect();
        let accepted = match completed(&source, wanted) {
            Ok(accepted) => accepted,
            Err(error) => return Err(TestCaseError::fail(format!("{error:?}"))),
        };
        let yaml = accepted.yaml();
        prop_assert!(Yaml::parse(&yaml).is_ok());
        let whole = |text: &str| occurrences(&yaml, text).len();
        let printed = |text: &str| accepted.kept.iter().filter(|one| one.text.contains(text)).count();
        for text in [&id, &name] {
            prop_assert!(whole(text) <= printed(text), "{text}: {} > {}\n{yaml}", whole(text), printed(text));
        }
    }
}
