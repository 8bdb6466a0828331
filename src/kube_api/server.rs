//! Connects to each API server of the cluster separately.
//!
//! API servers share etcd, but not their caches: one API server may have received a change before another API server. A step that
//! depends on a change must therefore check every API server. netsurgeon connects to each API server at its advertised address,
//! with the credentials of the kubeconfig.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::GetParams;
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::connection::{Call, Connection};
use super::endpoints::SERVICE_NAME;
use super::error::excerpt;
use super::{Cluster, ClusterError, ObjectRef};

/// The address and port that an API server advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiServer {
    /// Advertised IP address.
    pub address: IpAddr,
    /// Advertised port.
    pub port: u16,
}

impl fmt::Display for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// The version of an API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Version of the program, for example `v1.36.3`.
    pub git: String,
    /// Emulated version, for example `1.33`; `None` for API servers older than 1.33, which do not support emulation.
    pub emulated: Option<String>,
}

/// The Lease that an API server renews while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiServerLease {
    /// Name of the Lease.
    pub name: String,
    /// Host name that the API server reports.
    pub host: String,
    /// Time of the last renewal, by the API server's clock.
    pub renewed: Option<OffsetDateTime>,
    /// How long the Lease is valid after a renewal.
    pub duration: time::Duration,
}

impl ApiServerLease {
    /// Returns whether the Lease expired before the newest renewal of all Leases. API servers delete expired Leases.
    pub fn has_expired(&self, newest: Option<OffsetDateTime>) -> bool {
        let expires = self.renewed.and_then(|renewed| renewed.checked_add(self.duration));
        expires.is_none_or(|expires| newest.is_some_and(|newest| newest > expires))
    }

    fn of(lease: &Lease) -> Self {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let host = lease.metadata.labels.as_ref().and_then(|labels| labels.get(HOST)).cloned();
        let spec = lease.spec.as_ref();
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.as_nanosecond());
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        Self {
            host: host.unwrap_or_else(|| name.clone()),
            name,
            renewed: renewed.and_then(|time| OffsetDateTime::from_unix_timestamp_nanos(time).ok()),
            duration: time::Duration::seconds(seconds.into()),
        }
    }
}

/// Labels of the Leases of API servers (`pkg/controlplane/apiserver/server.go`, v1.36.3; since 1.26).
const IDENTITY: &str = "apiserver.kubernetes.io/identity=kube-apiserver";
const HOST: &str = "kubernetes.io/hostname";
/// The host name that the certificate of every API server covers.
const NAME: &str = "kubernetes.default.svc";

impl Cluster {
    /// Lists the Leases of API servers. Each API server renews its Lease every 10 s and deletes it at a normal shutdown. The
    /// Lease of a killed or suspended API server stays for an hour. Before Kubernetes 1.26 these Leases do not exist.
    pub async fn api_server_leases(&self) -> Result<Vec<ApiServerLease>, ClusterError> {
        let leases = self.objects::<Lease>(Some("kube-system"), Some(IDENTITY)).await?;
        Ok(leases.iter().map(ApiServerLease::of).collect())
    }

    /// Lists the API servers that accept requests now, from the endpoints of the Service `default/kubernetes`. Each API server
    /// adds its own address. The address is removed when the API server stops or has not renewed its entry for 15 s
    /// (`pkg/controlplane/reconcilers/lease.go` and `instance.go`, v1.36.3).
    ///
    /// Uses only the EndpointSlice with the name `kubernetes`, which all API servers write (`endpointsadapter.go` in the same
    /// folder). Other clients can create more EndpointSlices with the same label.
    pub async fn api_servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        let selector = format!("{SERVICE_NAME}=kubernetes");
        let slices = self.objects::<EndpointSlice>(Some("default"), Some(&selector)).await?;
        let theirs = slices.iter().filter(|slice| slice.metadata.name.as_deref() == Some("kubernetes"));
        let mut servers: Vec<ApiServer> = theirs.flat_map(of_slice).collect();
        servers.sort_unstable();
        servers.dedup();
        if servers.is_empty() {
            return Err(ClusterError::NotReady {
                server: self.server().to_string(),
                reason:
                     "EndpointSlice `kubernetes` in namespace `default` has no endpoint. Every API server adds itself a \
                      moment after it starts (unless it has `--endpoint-reconciler-type=none`)"
                        .to_string(),
            });
        }
        Ok(servers)
    }

    /// Returns a client for one API server. The server's certificate must cover `kubernetes.default.svc` (`GetAPIServerAltNames`,
    /// `cmd/kubeadm/app/util/pkiutil/pki_helpers.go`, v1.36.3), or the host name in the kubeconfig.
    ///
    /// A certificate for the IP address alone is not enough, because any client that writes EndpointSlices can choose the
    /// address. For example, a kubelet can have a certificate of the cluster's CA for the address of its node
    /// (`kubernetes.io/kubelet-serving`). This kubelet would then receive the credentials.
    pub async fn dial(&self, server: ApiServer) -> Result<ApiServerClient, ClusterError> {
        let own = self.connection.config();
        let host =
            own.cluster_url.host().filter(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().is_err());
        let known = own.tls_server_name.as_deref().or(host);
        match (self.dial_as(server, NAME).await, known) {
            (Err(ClusterError::Untrusted { .. }), Some(name)) => self.dial_as(server, name).await,
            (outcome, _) => outcome,
        }
    }

    async fn dial_as(&self, server: ApiServer, name: &str) -> Result<ApiServerClient, ClusterError> {
        let mut config = self.connection.config().clone();
        let scheme = config.cluster_url.scheme_str().unwrap_or("https").to_string();
        let url = format!("{scheme}://{server}/");
        config.cluster_url = url.parse().map_err(|error| ClusterError::Configuration {
            what: format!("the API server's address `{url}`"),
            reason: format!("{error}"),
        })?;
        config.tls_server_name = Some(name.to_string());
        let connection = self.connection.beside(config)?;
        let client = ApiServerClient { server, connection: Arc::new(connection) };
        client.version().await.map_err(|error| match error {
            ClusterError::Untrusted { server, reason } => ClusterError::Untrusted {
                server,
                reason: format!(
                    "{reason}; it must cover `{NAME}`, or the `tls-server-name` of the kubeconfig"
                ),
            },
            other => other,
        })?;
        Ok(client)
    }
}

fn of_slice(slice: &EndpointSlice) -> Vec<ApiServer> {
    let port_of = |port: &EndpointPort| u16::try_from(port.port?).ok();
    let Some(port) = slice.ports.iter().flatten().find_map(port_of) else { return Vec::new() };
    let is_ready = |endpoint: &&Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let addresses =
        slice.endpoints.iter().flatten().filter(is_ready).flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| address.parse().ok()).map(|address| ApiServer { address, port }).collect()
}

/// A client for one API server. Cheap to clone.
#[derive(Clone)]
pub struct ApiServerClient {
    server: ApiServer,
    connection: Arc<Connection>,
}

impl ApiServerClient {
    /// Returns the address of the API server.
    pub fn server(&self) -> ApiServer {
        self.server
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns the API server's time from the header of one answer, rounded down to whole seconds; `None` without an answer.
    pub async fn time(&self) -> Option<OffsetDateTime> {
        self.connection.once(&Call::read("/version").ok()?, self.connection.timeout()).await.ok()?.date
    }

    /// Checks once whether the API server is ready (`/readyz`). The error names the failed checks.
    pub async fn ready(&self) -> Result<(), ClusterError> {
        let call = Call::read("/readyz")?;
        let limit = self.connection.timeout();
        let answer = self.connection.once(&call, limit).await;
        let answer = answer.map_err(|fault| self.connection.error(&call, &fault))?;
        match answer.code {
            200 => Ok(()),
            401 | 403 => self.connection.request(&call).await.map(drop),
            _ => Err(ClusterError::NotReady {
                server: self.connection.server().to_string(),
                reason: excerpt(&answer.body),
            }),
        }
    }

    /// Reads an object from the cache of this API server, once the cache has reached a revision (0 means any revision).
    /// Controllers that use this API server receive the same state. Returns `None` if the object is not in the cache.
    ///
    /// Fails if the cache does not reach the revision within 3 s; the failure may be transient (`blockTimeout`,
    /// `apiserver/pkg/storage/cacher/watch_cache.go`, v1.36.3). The revision must come from an object of the same kind, such as
    /// the object's own `resourceVersion`. The cache might never reach the revision of an object of another kind. For a single
    /// object `resourceVersion` always means "not older than"; `resourceVersionMatch` is for lists.
    pub async fn get_not_older(
        &self,
        object: &ObjectRef<'_>,
        revision: i64,
    ) -> Result<Option<Value>, ClusterError> {
        self.connection.get(object, &GetParams::at(&revision.to_string())).await
    }

    /// Returns the feature gates of the API server, from the metric `kubernetes_feature_enabled`
    /// (`component-base/metrics/prometheus/feature/metrics.go`, v1.36.3).
    pub async fn feature_gates(&self) -> Result<BTreeMap<String, bool>, ClusterError> {
        let answer = self.connection.request(&Call::read("/metrics")?).await?;
        Ok(gates(&String::from_utf8_lossy(&answer.body)))
    }

    /// Returns the version of this API server.
    pub async fn version(&self) -> Result<Version, ClusterError> {
        version(&self.connection).await
    }
}

impl Cluster {
    /// Returns the size of the largest etcd database that the API server uses, in bytes, from the metric
    /// `apiserver_storage_size_bytes` (Kubernetes 1.28 and later, `apiserver/pkg/storage/etcd3/metrics/metrics.go`, v1.36.3). `None`
    /// if there is no such metric.
    pub async fn storage_size(&self) -> Result<Option<u64>, ClusterError> {
        let answer = self.connection.request(&Call::read("/metrics")?).await?;
        Ok(storage_size(&String::from_utf8_lossy(&answer.body)))
    }

    /// Returns the version of the API server that answers the request.
    pub async fn version(&self) -> Result<Version, ClusterError> {
        version(&self.connection).await
    }

    /// Returns the issuer of ServiceAccounts' tokens, a URL (OpenID Connect Discovery 1.0, section 4.2;
    /// `pkg/serviceaccount/openidmetadata.go`, v1.36.3).
    pub async fn token_issuer(&self) -> Result<String, ClusterError> {
        let found: Discovery =
            self.connection.json(&Call::read("/.well-known/openid-configuration")?).await?;
        Ok(found.issuer)
    }

    /// Returns the keys of ServiceAccounts' tokens, a JSON Web Key Set (RFC 7517; `pkg/serviceaccount/openidmetadata.go`, v1.36.3).
    pub async fn token_keys(&self) -> Result<Value, ClusterError> {
        self.connection.json(&Call::read("/openid/v1/jwks")?).await
    }
}

/// The discovery document of an issuer.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

async fn version(connection: &Connection) -> Result<Version, ClusterError> {
    let Info { git_version, emulation_major, emulation_minor, .. } =
        connection.json(&Call::read("/version")?).await?;
    if git_version.is_empty() {
        return Err(ClusterError::Answer {
            server: connection.server().to_string(),
            subject: "`/version`".to_string(),
            reason: "it has no `gitVersion`".to_string(),
        });
    }
    let emulated =
        emulation_major.zip(emulation_minor).filter(|(major, minor)| !major.is_empty() && !minor.is_empty());
    Ok(Version { git: git_version, emulated: emulated.map(|(major, minor)| format!("{major}.{minor}")) })
}

/// Parses lines such as `kubernetes_feature_enabled{name="X",stage="BETA"} 1`.
fn gates(metrics: &str) -> BTreeMap<String, bool> {
    let gate = |line: &str| {
        let rest = line.strip_prefix("kubernetes_feature_enabled{")?;
        let (labels, value) = rest.rsplit_once("} ")?;
        let (_, name) = labels.split_once("name=\"")?;
        let (name, _) = name.split_once('"')?;
        Some((name.to_string(), value.trim().starts_with('1')))
    };
    metrics.lines().filter_map(gate).collect()
}

/// Parses lines such as `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 5.7344e+06`.
fn storage_size(metrics: &str) -> Option<u64> {
    let size = |line: &str| {
        let (_, value) = line.strip_prefix("apiserver_storage_size_bytes")?.rsplit_once(' ')?;
        let value: f64 = value.parse().ok()?;
        format!("{value:.0}").parse::<u64>().ok()
    };
    metrics.lines().filter_map(size).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gates_are_read_from_metrics() {
        let metrics = "# TYPE kubernetes_feature_enabled gauge\n\
            kubernetes_feature_enabled{name=\"MultiCIDRServiceAllocator\",stage=\"BETA\"} 0\n\
            kubernetes_feature_enabled{name=\"APIListChunking\",stage=\"\"} 1\nother{name=\"x\"} 1\n";
        let expected =
            [("APIListChunking".to_string(), true), ("MultiCIDRServiceAllocator".to_string(), false)];
        assert_eq!(gates(metrics), BTreeMap::from(expected));
    }

    #[test]
    fn storage_size_is_read_from_metrics() {
        let metrics = "# TYPE apiserver_storage_size_bytes gauge\n\
            apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} 5.7344e+06\n\
            apiserver_storage_size_bytes{storage_cluster_id=\"etcd-1\"} 4096\n";
        assert_eq!(storage_size(metrics), Some(5_734_400));
        assert_eq!(storage_size("apiserver_storage_objects{resource=\"pods\"} 3\n"), None);
    }

    #[test]
    fn ready_endpoints_are_api_servers() {
        let slice = json!({
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["192.0.2.10"], "conditions": {"ready": true}},
                {"addresses": ["192.0.2.11"], "conditions": {"ready": false}},
                {"addresses": ["2001:db8::1"]},
            ],
        });
        let of = |slice| of_slice(&serde_json::from_value(slice).unwrap());
        let names: Vec<String> = of(slice).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["192.0.2.10:6443", "[2001:db8::1]:6443"]);
        assert_eq!(of(json!({"addressType": "IPv4", "endpoints": []})), []);
    }
}
