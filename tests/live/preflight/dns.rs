//! `netsurgeon preflight dns` on a zone that BIND serves, a cluster and its mirror, and on the same with one obstacle after the
//! other.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::objects::define;
use crate::rig::api::object_path;
use crate::rig::bind::{self, NameServer, key_file};
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::external_dns::trust;
use crate::rig::pki::Authority;
use crate::rig::process::{Process, wait_until};
use crate::rig::run::{has_line, says};
use crate::rig::workspace::Workspace;
use crate::serving_cluster::{command, run};

const ZONE: &str = "example.test";
const PRIMARY: &str = "127.0.0.53";
const SECONDARY: &str = "127.0.0.54";
const RESOLVER: &str = "127.0.0.55";
const TWIN: &str = "127.0.0.56";
/// The address of the mirror's load balancer.
const MIRROR: &str = "192.0.2.80";
/// The address of this cluster's load balancer.
const OWN: &str = "192.0.2.10";
/// A key that is allowed to change the zone, one that is allowed to change one other name, and one that the server does not have.
const KEYS: [(&str, &str); 3] =
    [("mover", "c2VjcmV0LW9mLW1vdmVy"), ("other", "c2VjcmV0LW9mLW90aGVy"), ("nobody", "bm9ib2R5")];
const ROLE: &str = "netsurgeon-dns";
/// How long a change takes to be observed, at most: only API servers and name servers have to process it.
const PATIENCE: Duration = Duration::from_secs(90);

/// The zone's names: one with a record, one of another owner, and the records that ExternalDNS would write about the first.
const NAMES: &str = "\
www 60 IN A 192.0.2.10\n\
shop 60 IN CNAME www\n\
a-www 60 IN TXT \"heritage=external-dns,external-dns/owner=blue,external-dns/resource=ingress/default/web\"\n\
slow 3600 IN A 192.0.2.10\n\
*.wild 60 IN A 192.0.2.10\n\
own.wild 60 IN A 192.0.2.10\n\
a-theirs 60 IN TXT \"heritage=external-dns,external-dns/owner=red,external-dns/resource=ingress/x/y\"\n\
theirs 60 IN A 192.0.2.11\n\
a-*.wild 60 IN TXT \"heritage=external-dns,external-dns/owner=red\"\n\
dev 60 IN NS ns9.example.org.\n\
one 60 IN A 192.0.2.12\n\
two 60 IN A 192.0.2.12\n\
three 60 IN A 192.0.2.12\n";

fn zone_file(primary: &str, names: &str) -> String {
    bind::zone_file(ZONE, primary, [PRIMARY, SECONDARY], names)
}

/// The zone's servers, and a resolver.
struct Zone {
    primary: NameServer,
    secondary: NameServer,
    _resolver: NameServer,
    _twin: NameServer,
}

impl Zone {
    async fn start() -> Self {
        let at = |address: &str| address.parse().expect("an address");
        let keys: String = KEYS.iter().take(2).map(|key| key_file(*key)).collect();
        let rules = format!("grant mover zonesub ANY; grant other name theirs.{ZONE} A;");
        let primary = format!(
            "{keys}zone \"{ZONE}\" {{ type primary; file \"zone\"; update-policy {{ {rules} }}; \
             allow-transfer {{ key mover; {SECONDARY}; }}; also-notify {{ {SECONDARY}; }}; }};"
        );
        let secondary =
            format!("zone \"{ZONE}\" {{ type secondary; primaries {{ {PRIMARY}; }}; file \"zone\"; }};");
        let resolver =
            format!("zone \"{ZONE}\" {{ type forward; forward only; forwarders {{ {PRIMARY}; }}; }};");
        let twin = format!("zone \"{ZONE}\" {{ type primary; file \"zone\"; }};");
        let (file, other) = (zone_file("ns1", NAMES), zone_file("inside", NAMES));
        let source =
            |address: &str| format!("recursion no; transfer-source {address}; notify-source {address};");
        Self {
            primary: NameServer::start(at(PRIMARY), &source(PRIMARY), &primary, &[("zone", &file)]).await,
            secondary: NameServer::start(at(SECONDARY), &source(SECONDARY), &secondary, &[]).await,
            _resolver: NameServer::start(at(RESOLVER), "recursion yes; max-cache-ttl 1;", &resolver, &[])
                .await,
            _twin: NameServer::start(at(TWIN), "recursion no;", &twin, &[("zone", &other)]).await,
        }
    }
}

/// A cluster, its mirror, and the zone of their names.
struct Stage {
    mirror: Cluster,
    zone: Zone,
    served: Served,
    cluster: Cluster,
}

impl Stage {
    async fn start() -> Self {
        let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
        // BIND answers only at addresses that an interface has.
        let addresses = [PRIMARY, SECONDARY, RESOLVER, TWIN, MIRROR];
        let addresses = addresses.map(|at| format!("address add {at}/32 dev lo"));
        cluster.network().hub().ip(&addresses);
        let mirror = Cluster::start(ClusterOptions::new(Era::Objects)).await;
        let zone = Zone::start().await;
        Self { mirror, zone, served: Served::create(), cluster }
    }

    fn key(&self, number: usize) -> String {
        let (name, _) = KEYS[number];
        self.cluster.write(&format!("{name}.key"), &key_file(KEYS[number])).display().to_string()
    }

    /// The arguments for the zone, the key and the resolver, unless a test needs others.
    fn words(&self) -> String {
        {
            let zone = format!("--zone {ZONE} --server {PRIMARY} --resolver {RESOLVER} --probe https");
            let trusted = self.served.authority.certificate.display();
            format!("{zone} --probe-ca {trusted} --tsig-key-file {} {}", self.key(0), self.to_mirror())
        }
    }

    fn to_mirror(&self) -> String {
        format!("--mirror-kubeconfig {}", self.mirror.kubeconfig().display())
    }

    fn look(&self, words: &str) -> (i32, Vec<Value>) {
        looked(words, command(&self.cluster, &format!("preflight dns -o json {words}")))
    }

    /// Waits until a check has this verdict, for a reason.
    async fn comes_out_with(&self, name: &str, words: &str, verdict: &str, reason: &[&str]) {
        wait_until("the check has the verdict", PATIENCE, async || {
            let (_, checks) = self.look(&format!("--only {name} {words}"));
            let found = checks.iter().find(|check| check["name"] == name).expect("the check is listed");
            let is_said = has_line(found["observed"].as_str().unwrap_or_default(), reason);
            let has_remedy = verdict == "pass" || !found["remedy"].as_str().unwrap_or_default().is_empty();
            if found["verdict"] == verdict && is_said && has_remedy { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    async fn comes_out(&self, name: &str, verdict: &str, reason: &[&str]) {
        self.comes_out_with(name, &self.words(), verdict, reason).await;
    }
}

/// Runs the program; returns the exit status, and each check.
fn looked(words: &str, command: Command) -> (i32, Vec<Value>) {
    let ran = run(&format!("preflight dns -o json {words}"), command);
    let shown: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
    assert_eq!(shown["target"], "dns");
    (ran.code, shown["checks"].as_array().expect("checks").clone())
}

#[tokio::test]
async fn dns_checks_pass_or_name_the_fault() {
    let mut stage = Stage::start().await;
    with_names(&stage).await;
    let _served = with_a_certificate(&stage).await;
    let before = stage.mirror.etcd.keys("/registry/ingress/").await;
    let (code, checks) = stage.look(&format!("--strict {}", stage.words()));
    let bad: Vec<&Value> = checks.iter().filter(|check| check["verdict"] != "pass").collect();
    assert!(code == 0 && bad.is_empty(), "{bad:?}");
    stage.comes_out("zone-transfer", "pass", &["18 records", "16 names"]).await;
    assert_eq!(stage.mirror.etcd.keys("/registry/ingress/").await, before);
    let shown = run("", command(&stage.cluster, &format!("preflight dns {}", stage.words()))).expect(0);
    println!("{}{}", shown.out, shown.err);
    assert!(!shown.out.contains(KEYS[0].1), "a key is never shown");

    with_other_keys(&stage).await;
    with_other_names(&stage).await;
    with_other_resolvers(&stage).await;
    with_external_dns(&stage).await;
    with_an_unready_mirror(&stage).await;
    with_few_rights(&stage).await;
    with_servers_that_are_gone(&mut stage).await;
}

fn ingress(name: &str, host: &str) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
            "tls": [{"hosts": [host]}],
        },
    })
}

fn external_dns(owner: &str, replicas: u8, policy: &str) -> Value {
    let args =
        [format!("--txt-owner-id={owner}"), format!("--policy={policy}"), "--provider=rfc2136".to_owned()];
    let container =
        json!({"name": "external-dns", "image": "registry.test/external-dns:v0.23.0", "args": args});
    let labels = json!({"app": "external-dns"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "external-dns", "namespace": "kube-system"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

/// Both clusters serve two names, by an Ingress and by an annotated Service, whose load balancers get addresses.
async fn with_names(stage: &Stage) {
    stage.comes_out("names", "fail", &["Ingress", "Service", "HTTPRoute", "`example.test`"]).await;
    let balanced = |at: &str| json!({"status": {"loadBalancer": {"ingress": [{"ip": at}]}}});
    let service = "/api/v1/namespaces/default/services/shop";
    let paths = [object_path(&ingress("web", "")), service.to_owned()];
    for cluster in [&stage.cluster, &stage.mirror] {
        let web = ingress("web", "www.example.test");
        cluster.api.create(&web).await;
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        cluster.api.create_service("default", "shop", spec).await;
        let annotations = json!({"external-dns.kubernetes.io/hostname": "shop.example.test"});
        cluster.api.merge(service, &json!({"metadata": {"annotations": annotations}})).await;
        cluster.api.create(&ingress("elsewhere", "www.example.org")).await;
    }
    stage
        .comes_out("names", "fail", &["`www.example.test` (Ingress `default/web`)", "no address", OWN])
        .await;
    for path in &paths {
        stage.cluster.api.merge(&format!("{path}/status"), &balanced(OWN)).await;
    }
    stage.comes_out("names", "pass", &["2 ", "1 A, 1 CNAME"]).await;
    stage.comes_out("targets", "fail", &["`www.example.test` (", "`shop.example.test` ("]).await;
    for path in &paths {
        stage.mirror.api.merge(&format!("{path}/status"), &balanced(MIRROR)).await;
    }
    stage.comes_out("targets", "pass", &["2"]).await;
    stage.comes_out("external-dns", "pass", &["ExternalDNS"]).await;
    stage.comes_out("owners", "fail", &["`www.example.test` (owner `blue`)"]).await;
    stage.cluster.api.create(&external_dns("blue", 1, "create-only")).await;
    // Until its service account can list objects of all namespaces, the Deployment can belong to any user.
    stage
        .comes_out("external-dns", "pass", &["not treated as ExternalDNS: `kube-system/external-dns`"])
        .await;
    stage.comes_out("owners", "fail", &["(owner `blue`)"]).await;
    let named = format!("{} --external-dns kube-system/external-dns", stage.words());
    stage.comes_out_with("owners", &named, "pass", &["ExternalDNS", "1"]).await;
    trust(&stage.cluster.api).await;
    trust(&stage.mirror.api).await;
    stage.comes_out("owners", "pass", &["ExternalDNS", "1"]).await;
}

/// The server at the mirror's address: first none, then one with a certificate for another name, then one that presents a CA
/// certificate as its own, then the right one.
async fn with_a_certificate(stage: &Stage) -> Process {
    let name = format!("`www.example.test` at {MIRROR} (https:443/): ");
    stage.comes_out("probes", "fail", &["2 names are not served", &name, "Connection refused"]).await;
    let other = stage.served.start("default-backend.local");
    stage.comes_out("probes", "fail", &[&name, "it covers `default-backend.local`"]).await;
    drop(other);
    let issuer = stage.served.start_with(&stage.served.authority.certificate, "issuer.key");
    stage.comes_out("probes", "fail", &[&name, "CA certificate (`CA:TRUE`)"]).await;
    drop(issuer);
    let right = stage.served.start("*.example.test");
    stage.comes_out("probes", "pass", &["2 names", "2 of them with a valid certificate"]).await;
    right
}

/// The certificates of TLS servers (`openssl s_server`) at the mirror's address.
struct Served {
    authority: Authority,
    workspace: Workspace,
}

impl Served {
    fn create() -> Self {
        let workspace = Workspace::create("answering");
        Self { authority: Authority::create(&workspace, "issuer", "issuer"), workspace }
    }

    fn start(&self, name: &str) -> Process {
        let pair = self.authority.issue(&self.workspace, "served", name, None, &[name.to_owned()]);
        self.start_with(&pair.certificate, "served.key")
    }

    fn start_with(&self, certificate: &Path, key: &str) -> Process {
        let (certificate, key) = (certificate.display(), self.workspace.join(key));
        let key = key.display();
        let words = format!("s_server -accept {MIRROR}:443 -cert {certificate} -key {key} -quiet -www");
        let arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let log = self.workspace.join("s_server.log");
        Process::start("s_server", Path::new("/usr/bin/openssl"), &arguments, &log)
    }
}

async fn with_other_keys(stage: &Stage) {
    let with = |more: &str| format!("--zone {ZONE} --resolver {RESOLVER} {more} {}", stage.to_mirror());
    let unsigned = with("");
    stage.comes_out_with("zone-updates", &unsigned, "fail", &["REFUSED"]).await;
    stage.comes_out_with("zone-transfer", &unsigned, "warn", &["REFUSED"]).await;
    stage.comes_out_with("zone-share", &unsigned, "unknown", &["REFUSED"]).await;
    let by = |number: usize| with(&format!("--tsig-key-file {}", stage.key(number)));
    stage.comes_out_with("zone-updates", &by(2), "fail", &["NOTAUTH BADKEY"]).await;
    stage.comes_out_with("zone-updates", &by(1), "fail", &["REFUSED", "update"]).await;
    let theirs = format!("{} --name theirs.{ZONE}", by(1));
    stage.comes_out_with("zone-updates", &theirs, "pass", &["`other`"]).await;
    stage.comes_out("zone-updates", "pass", &["`mover`"]).await;
    // A key file with the same name and another secret than the server's.
    let forged = stage.cluster.write("forged.key", &key_file(("mover", "Zm9yZ2Vk")));
    let forged = with(&format!("--tsig-key-file {}", forged.display()));
    stage.comes_out_with("zone-updates", &forged, "fail", &["NOTAUTH BADSIG"]).await;
    let empty = stage.cluster.write("empty.key", "");
    let words = format!("preflight dns --zone {ZONE} --tsig-key-file {}", empty.display());
    let refused = run(&words, command(&stage.cluster, &words)).expect(1);
    says(&refused.err, &["tsig-keygen"]);
}

async fn with_other_names(stage: &Stage) {
    let named = |names: &str| format!("{} --name {names}", stage.words());
    let cases: [(&str, &str, &str, &[&str]); 8] = [
        ("names", "api.example.test", "fail", &["`api.example.test` (--name)", "no record"]),
        ("names", "a.wild.example.test", "fail", &["wildcard", "`a.wild.example.test`"]),
        ("names", "one.example.test", "fail", &["`one.example.test` (--name)", "no object of this cluster"]),
        ("ttls", "slow.example.test", "warn", &["`slow.example.test` (3600 s)"]),
        ("targets", "slow.example.test", "fail", &["no object", "`slow.example.test`"]),
        ("owners", "theirs.example.test", "fail", &["(owner `red`)"]),
        ("names", "www.dev.example.test", "fail", &["`www.dev.example.test`", "`dev.example.test`"]),
        ("owners", "*.wild.example.test", "fail", &["`*.wild.example.test` (owner `red`)"]),
    ];
    for (check, name, verdict, reason) in cases {
        stage.comes_out_with(check, &named(name), verdict, reason).await;
    }
    let unsigned = format!("--zone {ZONE} --server {PRIMARY} --name a.wild.example.test");
    stage.comes_out_with("names", &unsigned, "fail", &["wildcard", "`a.wild.example.test`"]).await;
    // Without a zone transfer, an update with a prerequisite shows that a name has records beside the wildcard.
    let by_other =
        format!("--zone {ZONE} --server {PRIMARY} --resolver {RESOLVER} --tsig-key-file {}", stage.key(1));
    let own = format!("{by_other} --name own.wild.example.test --take own.wild.example.test");
    stage.comes_out_with("names", &own, "pass", &["1 A"]).await;
    let taken = format!("{} --name www.example.test --take one.example.test", stage.words());
    stage.comes_out_with("names", &taken, "pass", &["2 ", "2 A"]).await;
    let words = format!("preflight dns --zone {ZONE} --name www.example.org");
    let refused = run(&words, command(&stage.cluster, &words)).expect(2);
    says(&refused.err, &["`www.example.org`", &format!("`{ZONE}`")]);
    let many = "www.example.test,shop.example.test,slow.example.test,theirs.example.test";
    stage.comes_out_with("zone-share", &named(many), "warn", &["4 of ", "13 names", "30 %"]).await;
    // Gateway API, if it is served.
    let group = "gateway.networking.k8s.io";
    for (kind, plural) in [("HTTPRoute", "httproutes"), ("Gateway", "gateways")] {
        define(&stage.cluster.api, group, "v1", (kind, plural), "Namespaced").await;
    }
    let route = json!({
        "apiVersion": format!("{group}/v1"), "kind": "HTTPRoute", "metadata": {"name": "api", "namespace": "default"},
        "spec": {"hostnames": ["api.example.test"]},
    });
    stage.cluster.api.create(&route).await;
    // A host without a record does not prevent the cutover of the others.
    stage
        .comes_out("names", "warn", &["2 ", "`api.example.test` (HTTPRoute `default/api`): it has no record"])
        .await;
    stage.cluster.api.delete(&object_path(&route)).await;
    // An invalid name: API servers do not check annotations.
    let service = "/api/v1/namespaces/default/services/shop";
    let with =
        |names: &str| json!({"metadata": {"annotations": {"external-dns.kubernetes.io/hostname": names}}});
    stage.cluster.api.merge(service, &with("shop.example.test,a..example.test")).await;
    let invalid = "`a..example.test` (Service `default/shop`): it is not a valid domain name";
    stage.comes_out("names", "warn", &["2 ", invalid]).await;
    stage.comes_out("ttls", "pass", &["60 s"]).await;
    stage.cluster.api.merge(service, &with("shop.example.test")).await;
    stage.comes_out("names", "pass", &["2 ", "1 A, 1 CNAME"]).await;
}

async fn with_other_resolvers(stage: &Stage) {
    let with = |resolver: &str| {
        format!("--zone {ZONE} --server {PRIMARY} --resolver {resolver} {}", stage.to_mirror())
    };
    stage.comes_out_with("twin-zones", &with(TWIN), "fail", &["`inside.example.test`"]).await;
    stage.comes_out_with("twin-zones", &with(RESOLVER), "pass", &["`ns1.example.test`"]).await;
    let itself = format!("--zone {ZONE} --resolver {RESOLVER}");
    stage.comes_out_with("twin-zones", &itself, "warn", &["`ns1.example.test`", "resolver"]).await;
    let unreachable = with("127.0.0.99");
    stage.comes_out_with("twin-zones", &unreachable, "unknown", &["`--resolver`", "127.0.0.99:53"]).await;
}

async fn with_external_dns(stage: &Stage) {
    let path = object_path(&external_dns("blue", 1, "sync"));
    stage.cluster.api.delete(&path).await;
    stage.cluster.api.create(&external_dns("blue", 1, "sync")).await;
    stage
        .comes_out(
            "external-dns",
            "pass",
            &["`dns cutover`", "`kube-system/external-dns` (owner `blue`, policy `sync`"],
        )
        .await;
    stage.mirror.api.create(&external_dns("blue", 1, "upsert-only")).await;
    stage
        .comes_out(
            "external-dns",
            "fail",
            &["(owner `blue`, policy `sync`", "(owner `blue`, policy `upsert-only`"],
        )
        .await;
    stage.mirror.api.delete(&path).await;
    // A container can read each option from a ConfigMap.
    let container = json!({
        "name": "external-dns", "image": "registry.test/external-dns:v0.23.0", "args": ["--registry=txt"],
        "envFrom": [{"configMapRef": {"name": "edns"}}],
    });
    let template = json!({"spec": {"containers": [container]}});
    stage.cluster.api.merge(&path, &json!({"spec": {"template": template}})).await;
    stage.comes_out("owners", "unknown", &["`kube-system/external-dns`", "`--txt-owner-id`"]).await;
    stage.comes_out("external-dns", "warn", &["(owner unknown, policy unknown, provider unknown)"]).await;
    stage.cluster.api.merge(&path, &json!({"spec": {"replicas": 0}})).await;
    stage.comes_out("external-dns", "pass", &["ExternalDNS"]).await;
    define(&stage.cluster.api, "argoproj.io", "v1alpha1", ("Application", "applications"), "Namespaced")
        .await;
    stage.comes_out("gitops", "warn", &["Argo CD"]).await;
}

async fn with_an_unready_mirror(stage: &Stage) {
    let alone = format!("--zone {ZONE} --resolver {RESOLVER}");
    stage.comes_out_with("targets", &alone, "unknown", &["mirror"]).await;
    let itself = format!("{alone} --mirror-kubeconfig {}", stage.cluster.kubeconfig().display());
    stage.comes_out_with("targets", &itself, "fail", &["cluster"]).await;
    let gone = format!("{alone} --mirror-kubeconfig /nowhere/admin.conf");
    stage.comes_out_with("targets", &gone, "fail", &["/nowhere/admin.conf"]).await;
}

/// The role of `deploy/rbac.yaml` is enough in both clusters; a user without it gets the missing permissions.
async fn with_few_rights(stage: &Stage) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac.yaml");
    let text = std::fs::read_to_string(file).expect("the roles");
    let roles = text.split("\n---\n").map(|part| serde_saphyr::from_str::<Value>(part).expect("an object"));
    let role = roles.into_iter().find(|role| role["metadata"]["name"] == ROLE).expect("the role");
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": ROLE},
        "subjects": [{"apiGroup": group, "kind": "User", "name": ROLE}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
    });
    for cluster in [&stage.cluster, &stage.mirror] {
        cluster.api.create(&role).await;
        cluster.api.create(&binding).await;
    }
    let mirror = stage.mirror.kubeconfig_as(0, ROLE, None);
    let common = format!("--zone {ZONE} --resolver {RESOLVER} --mirror-kubeconfig {}", mirror.display());
    let by = |user: &str, words: &str| {
        let mut command = command(&stage.cluster, &format!("preflight dns -o json {words}"));
        command.env("KUBECONFIG", stage.cluster.kubeconfig_as(0, user, None));
        looked(words, command).1
    };
    let reader = ["`netsurgeon`: get configmaps"];
    wait_until("the role is in force", PATIENCE, async || {
        let checks = by(ROLE, &common);
        let forbidden = checks.iter().find(|check| {
            let seen = check["observed"].as_str().unwrap_or_default();
            seen.contains("forbidden") || seen.contains("not allowed")
        });
        let rights = checks.iter().find(|check| check["name"] == "dns-rights").expect("the check is listed");
        match forbidden {
            None if rights["verdict"] == "warn"
                && has_line(rights["observed"].as_str().unwrap(), &reader) =>
            {
                Ok(())
            }
            _ => Err(format!("{rights}, {forbidden:?}")),
        }
    })
    .await;
    let limited = stage.mirror.kubeconfig_as(0, "system:kube-controller-manager", None);
    let limited = format!("--zone {ZONE} --mirror-kubeconfig {}", limited.display());
    let checks = by(ROLE, &format!("--only dns-rights {limited}"));
    let rights = checks.iter().find(|check| check["name"] == "dns-rights").expect("the check is listed");
    assert_eq!(rights["verdict"], "fail", "{rights}");
    assert!(has_line(rights["observed"].as_str().unwrap(), &["mirror"]), "{rights}");
}

async fn with_servers_that_are_gone(stage: &mut Stage) {
    stage.zone.secondary.stop();
    stage.comes_out("zone-servers", "fail", &["`ns2.example.test`: ", "127.0.0.54:53"]).await;
    stage.zone.secondary.start_again().await;
    stage.comes_out("zone-servers", "pass", &["2 servers", "serial"]).await;
    stage.zone.primary.stop();
    stage.comes_out("zone-updates", "fail", &["127.0.0.53:53"]).await;
    let by_resolver = format!("--zone {ZONE} --resolver {RESOLVER}");
    stage.comes_out_with("zone-updates", &by_resolver, "unknown", &["SERVFAIL"]).await;
}
