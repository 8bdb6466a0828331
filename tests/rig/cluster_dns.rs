//! The DNS server of a cluster with real nodes: CoreDNS as a Deployment behind the Service `kube-system/kube-dns`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::image::COREDNS;
use super::namespace::Namespace;
use super::process::wait_until;

/// How long it may take until it is ready; a few seconds on an idle machine.
const STARTUP: Duration = Duration::from_mins(2);

/// How long to wait for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// No names outside of the cluster: it has no other network.
const CONFIGURATION: &str = ".:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
    }
    prometheus :9153
    cache 30
    loop
    reload
    loadbalance
}
";

impl Cluster {
    /// Returns the address of the Service `kube-dns`: the tenth of the first range.
    pub fn dns_address(&self) -> IpAddr {
        let first = self.service_cidrs().split(',').next().unwrap_or_default();
        match first.split('/').next().unwrap_or_default().parse().expect("a CIDR starts with an address") {
            IpAddr::V4(base) => Ipv4Addr::from_bits(base.to_bits() + 10).into(),
            IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits() + 10).into(),
        }
    }

    /// Starts CoreDNS with so many replicas, and waits until they are ready.
    pub async fn start_dns(&self, replicas: u8) {
        for object in self.dns_objects(replicas) {
            self.api.create(&object).await;
        }
        wait_until("CoreDNS is ready", STARTUP, async || {
            let deployment = self.api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns").await;
            let status = &deployment["status"];
            if status["readyReplicas"] == replicas { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Asks the Service `kube-dns` from inside a namespace for the IPv4 address of a name.
    pub fn resolve(&self, namespace: &Namespace, name: &str) -> Result<IpAddr, String> {
        let (server, name) = (SocketAddr::new(self.dns_address(), 53), name.to_owned());
        namespace.within(move || ask(server, &name).map_err(|error| error.to_string()))
    }

    fn dns_objects(&self, replicas: u8) -> [Value; 6] {
        let metadata = json!({"namespace": "kube-system", "name": "coredns"});
        let labels = json!({"k8s-app": "kube-dns"});
        let role = json!([{"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]);
        let container = json!({
            "name": "coredns", "image": COREDNS, "args": ["-conf", "/etc/coredns/Corefile"],
            "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}, {"name": "dns-tcp", "containerPort": 53}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
        });
        [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "system:coredns"}, "rules": role}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "system:coredns"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "coredns"}]}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"Corefile": CONFIGURATION}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "kube-system", "name": "kube-dns", "labels": labels},
                "spec": {"selector": labels, "clusterIP": self.dns_address().to_string(), "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "kube-system", "name": "coredns", "labels": labels},
                "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels},
                    "spec": {"serviceAccountName": "coredns", "dnsPolicy": "Default", "containers": [container],
                        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}]}}}}),
        ]
    }
}

fn ask(server: SocketAddr, name: &str) -> Result<IpAddr, Box<dyn std::error::Error>> {
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(Name::from_ascii(format!("{name}."))?, RecordType::A));
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.send_to(&query.to_vec()?, server)?;
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer)?;
    let answer = Message::from_vec(&buffer[..length])?;
    let address = answer.answers.iter().find_map(|record| match &record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        _ => None,
    });
    address.ok_or_else(|| format!("{answer:?}").into())
}
