//! `audit` on a real cluster: it finds one object of every place, with its path and meaning, and nothing else; nothing before the
//! objects are created. It finds Pods that are older than the moves in a journal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use netsurgeon::operation::{Journal, Ledger as _, Noted, State, Summary};
use netsurgeon::renumber::{PlanOptions, plan};
use netsurgeon::store::Transaction;
use netsurgeon::survey::{Layout, Survey};
use serde_json::{Value, json};

use super::commands::{Run, netsurgeon};
use super::edits::store_of;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::run::says;

/// Not an address of the cluster itself, whose addresses are in 10.200.0.0/16.
const OLD: [&str; 7] = ["audit", "--old", "10.96.0.0/16", "--old", "fd00:96::/112", "-o", "json"];
const PASSWORD: &str = "p4ssw0rd-planted";

async fn start() -> Cluster {
    let mut options = ClusterOptions::new(Era::Objects);
    options.service_cidrs = "10.200.0.0/16".into();
    Cluster::start(options).await
}

fn object(api_version: &str, kind: &str, name: &str, body: &Value) -> Value {
    let mut whole =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
    for (member, value) in body.as_object().expect("an object") {
        whole[member] = value.clone();
    }
    whole
}

fn without_namespace(mut whole: Value) -> Value {
    whole["metadata"].as_object_mut().expect("metadata").remove("namespace");
    whole
}

fn system(mut whole: Value) -> Value {
    whole["metadata"]["namespace"] = "kube-system".into();
    whole
}

fn annotated(mut whole: Value, name: &str, text: &str) -> Value {
    whole["metadata"]["annotations"] = json!({name: text});
    whole
}

fn config_map(name: &str, key: &str, text: &str) -> Value {
    object("v1", "ConfigMap", name, &json!({"data": {key: text}}))
}

fn template(pod: &Value) -> Value {
    json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}})
}

fn configurations() -> Vec<Value> {
    vec![
        config_map("app", "app.conf", "one\nupstream 10.96.7.1:80;\n"),
        config_map(
            "not",
            "text",
            "v10.96.0.1-x 110.96.0.1 1.10.96.0.1 10.0.0.0/8 0.0.0.0/0 in-addr.arpa 10.97.0.1",
        ),
        system(config_map(
            "coredns",
            "Corefile",
            ".:53 {\n kubernetes cluster.local 96.10.in-addr.arpa\n forward . 10.96.7.2\n}\n",
        )),
        system(config_map(
            "kubeadm-config",
            "ClusterConfiguration",
            "networking:\n  serviceSubnet: 10.96.0.0/16\n",
        )),
        system(config_map("kubelet-config", "kubelet", "clusterDNS:\n- 10.96.0.10\n")),
        system(config_map("kube-proxy", "config.conf", "ipvs:\n  excludeCIDRs: [10.96.0.0/16]\n")),
        system(config_map("cilium-config", "ipv4-service-range", "10.96.0.0/16")),
        system(config_map("node-local-dns", "Corefile", "a\n bind 169.254.20.10 10.96.0.10\n")),
        object(
            "v1",
            "Secret",
            "db",
            &json!({"stringData": {"url": format!("postgres://u:{PASSWORD}@10.96.7.8:5432")}}),
        ),
        annotated(
            object("v1", "Secret", "copy", &json!({})),
            "kubectl.kubernetes.io/last-applied-configuration",
            &json!({"stringData": {"url": format!("{PASSWORD}@10.96.7.8")}}).to_string(),
        ),
        object(
            "v1",
            "Event",
            "noise",
            &json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "x"}, "message": "10.96.7.99"}),
        ),
    ]
}

fn workloads() -> Vec<Value> {
    let container = |more: Value| {
        let mut whole = json!({"name": "app", "image": "example.com/a:1"});
        for (member, value) in more.as_object().expect("members") {
            whole[member] = value.clone();
        }
        whole
    };
    let env = json!([{"name": "NO_PROXY", "value": "localhost,10.96.0.0/16"}, {"name": "API", "value": "http://10.96.7.9/x"}]);
    let mut web = template(&json!({
        "containers": [container(json!({"env": env, "args": ["serve", "--upstream=10.96.7.10:80"]}))],
        "hostAliases": [{"ip": "10.96.7.11", "hostnames": ["cart"]}],
        "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.96.7.12"]},
    }));
    web["template"]["metadata"]["annotations"] =
        json!({"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.96.0.0/16"});
    let cache = template(
        &json!({"containers": [container(json!({"args": ["-localip", "169.254.20.10,10.96.0.10"]}))]}),
    );
    let mut cron = template(
        &json!({"restartPolicy": "Never", "containers": [container(json!({"command": ["curl", "http://10.96.7.22/"]}))]}),
    );
    cron.as_object_mut().expect("members").remove("selector");
    let server = container(json!({"command": ["kube-apiserver", "--service-cluster-ip-range=10.96.0.0/16"]}));
    vec![
        object("apps/v1", "Deployment", "web", &json!({"spec": web})),
        system(object("apps/v1", "DaemonSet", "node-local-dns", &json!({"spec": cache}))),
        object(
            "batch/v1",
            "CronJob",
            "cron",
            &json!({"spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": cron}}}),
        ),
        object("v1", "Pod", "kube-apiserver-n1", &json!({"spec": {"containers": [server]}})),
        object(
            "apps/v1",
            "ControllerRevision",
            "rev",
            &json!({"revision": 1, "data": {"spec": {"x": "10.96.7.21"}}}),
        ),
    ]
}

fn networking() -> Vec<Value> {
    let peers = json!([{"to": [{"ipBlock": {"cidr": "10.96.0.0/16", "except": ["10.96.7.0/24"]}}]}]);
    let hook = json!({"name": "hook.example.com", "clientConfig": {"url": "https://10.96.7.13/v"}, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore"});
    let service = |name: &str, spec: Value| object("v1", "Service", name, &json!({"spec": spec}));
    let port = json!([{"port": 80}]);
    let applied = json!({"spec": {"clusterIP": "10.96.7.14"}}).to_string();
    vec![
        without_namespace(object(
            "networking.k8s.io/v1",
            "ServiceCIDR",
            "old",
            &json!({"spec": {"cidrs": ["10.96.0.0/16"]}}),
        )),
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "np",
            &json!({"spec": {"podSelector": {}, "egress": peers}}),
        ),
        without_namespace(object(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "hook",
            &json!({"webhooks": [hook]}),
        )),
        annotated(
            service("applied", json!({"ports": port, "clusterIP": "10.200.0.50"})),
            "kubectl.kubernetes.io/last-applied-configuration",
            &applied,
        ),
        service("outside", json!({"type": "ExternalName", "externalName": "10.96.7.17"})),
        service(
            "external",
            json!({"ports": port, "clusterIP": "10.200.0.51", "externalIPs": ["10.96.7.19"]}),
        ),
        object(
            "v1",
            "Endpoints",
            "legacy",
            &json!({"subsets": [{"addresses": [{"ip": "10.96.7.15"}], "ports": port}]}),
        ),
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "manual",
            &json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.96.7.16"]}]}),
        ),
        without_namespace(annotated(
            object("v1", "Node", "n1", &json!({})),
            "example.com/route",
            "10.96.0.0/16 via 192.0.2.1",
        )),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            "in",
            &json!({"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}),
        ),
    ]
}

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Cluster", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    })
}

/// Creates an object as soon as its kind is served, or its range allocates addresses.
async fn create(cluster: &Cluster, object: &Value) {
    wait_until(
        &format!("{} is created", object["metadata"]),
        std::time::Duration::from_mins(1),
        async || cluster.api.try_create(object).await.map(drop).map_err(|error| error.to_string()),
    )
    .await;
}

async fn plant(cluster: &Cluster) {
    for whole in configurations().iter().chain(&workloads()).chain(&networking()) {
        create(cluster, whole).await;
    }
    let born = object(
        "v1",
        "Service",
        "born",
        &json!({"spec": {"clusterIP": "10.96.7.20", "ports": [{"port": 80}]}}),
    );
    create(cluster, &born).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.96.7.18"}]}}});
    cluster.api.merge("/apis/networking.k8s.io/v1/namespaces/default/ingresses/in/status", &status).await;
    cluster.api.create(&definition("example.com", "things", "Thing")).await;
    cluster.api.create(&definition("crd.projectcalico.org", "bgpconfigurations", "BGPConfiguration")).await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"hosts": ["http://[fd00:96::5]:80/"]}});
    create(cluster, &thing).await;
    let routers = json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "BGPConfiguration", "metadata": {"name": "default"}, "spec": {"serviceClusterIPs": [{"cidr": "10.96.0.0/16"}]}});
    create(cluster, &routers).await;
}

/// Kind and name, path with the line, what is found, what it is.
const PLANTED: [(&str, &str, &str, &str); 37] = [
    ("ConfigMap app", "data[app.conf]:2", "10.96.7.1", "config-map"),
    ("ConfigMap coredns", "data[Corefile]:2", "96.10.in-addr.arpa", "corefile"),
    ("ConfigMap coredns", "data[Corefile]:3", "10.96.7.2", "corefile"),
    ("ConfigMap kubeadm-config", "data[ClusterConfiguration]:2", "10.96.0.0/16", "kubeadm-config"),
    ("ConfigMap kubelet-config", "data[kubelet]:2", "10.96.0.10", "kubelet-config"),
    ("ConfigMap kube-proxy", "data[config.conf]:2", "10.96.0.0/16", "kube-proxy-config"),
    ("ConfigMap cilium-config", "data[ipv4-service-range]", "10.96.0.0/16", "network-plugin"),
    ("ConfigMap node-local-dns", "data[Corefile]:2", "10.96.0.10", "node-local-dns"),
    ("Secret db", "data[url]", "", "secret"),
    (
        "Secret copy",
        "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]",
        "",
        "last-applied",
    ),
    ("Deployment web", "spec.template.spec.containers[app].env[NO_PROXY].value", "10.96.0.0/16", "no-proxy"),
    ("Deployment web", "spec.template.spec.containers[app].env[API].value", "10.96.7.9", "environment"),
    ("Deployment web", "spec.template.spec.containers[app].args[1]", "10.96.7.10", "arguments"),
    ("Deployment web", "spec.template.spec.hostAliases[0].ip", "10.96.7.11", "host-alias"),
    ("Deployment web", "spec.template.spec.dnsConfig.nameservers[0]", "10.96.7.12", "pod-dns-config"),
    (
        "Deployment web",
        "spec.template.metadata.annotations[traffic.sidecar.istio.io/includeOutboundIPRanges]",
        "10.96.0.0/16",
        "mesh-ranges",
    ),
    (
        "DaemonSet node-local-dns",
        "spec.template.spec.containers[app].args[1]",
        "10.96.0.10",
        "node-local-dns",
    ),
    (
        "CronJob cron",
        "spec.jobTemplate.spec.template.spec.containers[app].command[1]",
        "10.96.7.22",
        "arguments",
    ),
    ("Pod kube-apiserver-n1", "spec.containers[app].command[1]", "10.96.0.0/16", "service-range-flag"),
    ("ControllerRevision rev", "data.raw.spec.x", "10.96.7.21", "controller-revision"),
    ("ServiceCIDR old", "spec.cidrs[0]", "10.96.0.0/16", "service-cidr"),
    ("NetworkPolicy np", "spec.egress[0].to[0].ipBlock.cidr", "10.96.0.0/16", "network-policy"),
    ("NetworkPolicy np", "spec.egress[0].to[0].ipBlock.except[0]", "10.96.7.0/24", "network-policy"),
    (
        "ValidatingWebhookConfiguration hook",
        "webhooks[hook.example.com].clientConfig.url",
        "10.96.7.13",
        "webhook-url",
    ),
    (
        "Service applied",
        "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration].spec.clusterIP",
        "10.96.7.14",
        "last-applied-address",
    ),
    ("Service outside", "spec.externalName", "10.96.7.17", "service-external-name"),
    ("Service external", "spec.externalIPs[0]", "10.96.7.19", "service-external-ip"),
    ("Endpoints legacy", "subsets[0].addresses[0].ip", "10.96.7.15", "endpoints"),
    ("EndpointSlice manual", "endpoints[0].addresses[0]", "10.96.7.16", "endpoints"),
    ("Node n1", "metadata.annotations[example.com/route]", "10.96.0.0/16", "annotation"),
    ("Ingress in", "status.loadBalancer.ingress[0].ip", "10.96.7.18", "published-status"),
    ("Service born", "spec.clusterIP", "10.96.7.20", "service-address"),
    ("Service born", "spec.clusterIPs[0]", "10.96.7.20", "service-address"),
    ("IPAddress 10.96.7.20", "metadata.name", "10.96.7.20", "ip-address-object"),
    ("Thing t", "spec.hosts[0]", "fd00:96::5", "custom-resource"),
    ("BGPConfiguration default", "spec.serviceClusterIPs[0].cidr", "10.96.0.0/16", "announced-range"),
    // A list of the API that is keyed by address has the address in the managed fields, too.
    ("Deployment web", "metadata.managedFields", "10.96.7.11", "managed-fields"),
];

/// Returns the findings in the form of [`PLANTED`].
fn found(told: &Value) -> BTreeSet<(String, String, String, String)> {
    let text = |finding: &Value, member: &str| finding[member].as_str().unwrap_or_default().to_string();
    let one = |finding: &Value| {
        let path = text(finding, "path");
        let path =
            if path.starts_with("metadata.managedFields") { "metadata.managedFields".into() } else { path };
        let line = finding["line"].as_u64().map(|line| format!(":{line}")).unwrap_or_default();
        let subject = format!("{} {}", text(finding, "kind"), text(finding, "name"));
        (subject, format!("{path}{line}"), text(finding, "found"), text(finding, "place"))
    };
    told["findings"].as_array().expect("findings").iter().map(one).collect()
}

#[tokio::test]
async fn planted_references_are_found_and_nothing_else() {
    let cluster = start().await;
    let before = netsurgeon(&cluster, &OLD);
    assert_eq!((before.code, &before.json()["findings"]), (0, &json!([])), "{}", before.err);
    plant(&cluster).await;

    let run = netsurgeon(&cluster, &OLD);
    let told = run.json();
    let text = |part: &str| part.to_string();
    let wanted: BTreeSet<_> =
        PLANTED.iter().map(|(a, b, c, d)| (text(a), text(b), text(c), text(d))).collect();
    let found = found(&told);
    let missing: Vec<_> = wanted.difference(&found).collect();
    let more: Vec<_> = found.difference(&wanted).collect();
    assert!(missing.is_empty() && more.is_empty(), "missing: {missing:#?}\nmore: {more:#?}");
    assert_eq!(run.code, 3);
    assert!(told["skipped"].as_u64().is_some_and(|count| count > 0), "the Event is skipped: {told}");

    let table = netsurgeon(&cluster, &["audit", "--old", "10.96.0.0/16", "-vvv"]);
    let encoded = base64(PASSWORD);
    for Run { out, err, .. } in [&run, &table] {
        for secret in [PASSWORD, "10.96.7.8", &encoded] {
            assert!(!out.contains(secret) && !err.contains(secret), "no content of a Secret is printed");
        }
    }
    assert!(table.out.contains("Secret default/db") && table.out.contains("data[url]"), "{}", table.out);

    cluster.etcd.put("/registry/secrets/default/closed", b"k8s:enc:aescbc:v1:key:0123".to_vec()).await;
    let clean = netsurgeon(&cluster, &["audit", "--old", "10.201.0.0/16", "-o", "json"]);
    assert_eq!((clean.code, &clean.json()["findings"]), (3, &json!([])), "an unreadable object: incomplete");
    assert_eq!(clean.json()["unread"][0]["reason"], "encrypted");
    says(&clean.err, &["1 value", "(encrypted)"]);
}

/// A process with a resolv.conf of its own, as in a Pod's sandbox; it is killed with this.
struct Sandbox(Child);

impl Sandbox {
    async fn start(resolver: &Path) -> Self {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" /etc/resolv.conf && exec sleep 600";
        command.args(["--mount", "sh", "-c", script]).arg(resolver).env("DNS", "10.96.0.10");
        let sandbox = Self(command.spawn().expect("unshare starts"));
        let (seen, wanted) = (sandbox.path("root/etc/resolv.conf"), std::fs::read(resolver).expect("a file"));
        wait_until("the sandbox is running", Duration::from_mins(1), async || {
            let (content, name) = (std::fs::read(&seen), std::fs::read_to_string(sandbox.path("comm")));
            let is_there = content.is_ok_and(|content| content == wanted);
            let name = name.unwrap_or_default();
            if is_there && name == "sleep\n" { Ok(()) } else { Err(format!("`{name}`, {is_there}")) }
        })
        .await;
        sandbox
    }

    fn path(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.0.id()).into()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn resolver_of_sandbox_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let resolver = folder.path().join("resolv.conf");
    std::fs::write(&resolver, "search default.svc.cluster.local\nnameserver 10.96.0.10\n").expect("a file");
    let sandbox = Sandbox::start(&resolver).await;
    let looked = Command::new(env!("CARGO_BIN_EXE_netsurgeon"))
        .args(["audit", "--old", "10.96.0.0/16", "--host", "-o", "json"])
        .output()
        .expect("netsurgeon runs");
    assert_eq!(looked.status.code(), Some(3));
    let told: Value = serde_json::from_slice(&looked.stdout).expect("JSON");
    let findings = told["findings"].as_array().expect("findings").iter();
    let of_sandbox = findings.filter(|finding| finding["pid"] == sandbox.0.id());
    let found: BTreeSet<&str> = of_sandbox.filter_map(|finding| finding["path"].as_str()).collect();
    assert_eq!(found, BTreeSet::from(["/etc/resolv.conf", "DNS"]), "{told}");
}

/// The middle of a text in base64, which is the same wherever the text is in a longer one.
fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text).chars().take(12).collect()
}

/// The journal has the times of the moves: older Pods have the old addresses, whatever etcd holds now.
#[tokio::test]
async fn pods_older_than_a_journalled_move_are_found() {
    let cluster = start().await;
    let audit = ["audit", "--old", "10.200.0.0/16", "-o", "json"];
    for (name, started) in [("elder", "2020-01-01T00:00:00Z"), ("younger", "2999-01-01T00:00:00Z")] {
        let pod = json!({"containers": [{"name": "app", "image": "example.com/a:1"}]});
        create(&cluster, &object("v1", "Pod", name, &json!({"spec": pod}))).await;
        let running = json!({"running": {"startedAt": started}});
        let container = json!({"name": "app", "image": "a", "imageID": "", "ready": true, "restartCount": 0, "state": running});
        let status =
            json!({"status": {"phase": "Running", "startTime": started, "containerStatuses": [container]}});
        cluster.api.merge(&format!("/api/v1/namespaces/default/pods/{name}/status"), &status).await;
    }
    let of_pods = |told: &Value| -> Vec<(String, String, String)> {
        let text = |finding: &Value, member: &str| finding[member].as_str().unwrap_or_default().to_string();
        let pods =
            told["findings"].as_array().expect("findings").iter().filter(|finding| finding["kind"] == "Pod");
        pods.map(|finding| (text(finding, "name"), text(finding, "place"), text(finding, "meaning")))
            .collect()
    };
    let without = netsurgeon(&cluster, &audit);
    assert_eq!(without.json()["pods_looked_at"], false);
    assert_eq!(of_pods(&without.json()), []);
    says(&without.err, &["note: ", "Pods"]);

    let store = store_of(&cluster.etcd).await;
    let survey = Survey::read(&store, &Layout::default(), None).await.unwrap();
    let plan = plan(&survey, &PlanOptions::new("10.201.0.0/16".parse().unwrap())).unwrap();
    let summary =
        Summary { kind: "renumber".into(), digest: plan.digest.clone(), started: 1, ..Summary::default() };
    let (id, text) = (&plan.header.cluster, serde_json::to_vec(&plan).unwrap());
    Journal::begin(&store, id, "told", &text, summary, &[]).await.unwrap();
    let (journal, ..) = Journal::open(&store, id, "told").await.unwrap();
    for candidate in &plan.work.moves {
        let (change, _) =
            journal.record(&candidate.step("flip"), State::Done, 1_800_000_000, Noted::default()).unwrap();
        journal.in_store(&store, &[]).write(vec![change], Transaction::default()).await.unwrap();
    }
    let with = netsurgeon(&cluster, &audit);
    assert_eq!((with.code, &with.json()["pods_looked_at"]), (3, &json!(true)));
    let pods = of_pods(&with.json());
    let [(name, place, meaning)] = &pods[..] else { panic!("{pods:?}") };
    assert_eq!((name.as_str(), place.as_str()), ("elder", "started-before-the-move"));
    assert!(meaning.contains("KUBERNETES_SERVICE_HOST"), "{meaning}");
}
