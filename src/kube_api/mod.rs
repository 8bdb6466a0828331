//! A client for the Kubernetes API, with only the functions that netsurgeon needs.
//!
//! ```text
//! Cluster ─ the API server of the kubeconfig: create, get, list, apply, delete; identity; nodes
//!   ├ ApiServers, each dialled at its own address: readiness, caches, gates   (server)
//!   ├ clock: the time of the API server, for dates and waits                  (clock)
//!   ├ barrier: waits until every kube-proxy has applied all earlier writes    (barrier)
//!   └ trial: which nodes route external IPs                                    (external_ips)
//! Probe ─ HTTP requests to programs outside the API                            (probe)
//! ```
//!
//! The crates `kube` and `k8s-openapi` implement the API; no other module uses `kube`. Objects that are read have the types of
//! `k8s-openapi`; objects that are written are JSON. Every request has a deadline and a descriptive error.

mod access;
pub mod accessors;
mod allocator;
mod answer;
mod barrier;
mod chain;
mod clock;
mod connection;
mod dial;
mod discovery;
mod endpoints;
mod error;
mod event;
mod exec;
mod external_ips;
mod field_apply;
mod guarded_change;
mod health;
mod kinds;
mod lease;
mod lists;
mod node;
mod node_proxy;
mod objects;
mod options;
mod presented_certificate;
mod probe;
mod proxy;
mod read_only;
mod replay;
mod resource;
mod server;
mod shell;
mod trial;
mod yaml_escapes;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Namespace;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

pub use access::User;
pub use answer::Tried;
pub use barrier::{Barrier, BarrierError, BarrierRoute, Crossed, Passage, SilentNode, passing, sentinel};
pub use clock::Clock;
pub use dial::dial;
pub use discovery::ServedKinds;
pub use endpoints::SliceChange;
pub use error::ClusterError;
pub use event::ServiceEvent;
pub use exec::PodCommand;
pub use external_ips::{ExternalIpTrial, ExternalIpsTried};
pub use field_apply::{FieldApply, Replaces};
pub use guarded_change::GuardedChange;
pub use kinds::ServedKind;
pub use lease::{Lease, LeaseState};
pub use lists::{Pages, with_kind};
pub use node::Node;
pub use objects::Typed;
pub use options::ClusterOptions;
pub use presented_certificate::presented_certificate;
pub use probe::{Probe, Response, escaped};
pub use proxy::ProxyFault;
pub use read_only::ReadOnly;
pub use replay::Replay;
pub use resource::{Collection, ObjectRef};
pub use server::{ApiServer, ApiServerClient, ApiServerLease, Version};

use connection::Connection;

/// Name and value of the label of every object that netsurgeon creates in a cluster.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "netsurgeon");

/// A client for the API of one cluster, at the API server that the kubeconfig names. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    connection: Arc<Connection>,
    /// Names of the sentinels that barriers of this process wait for.
    sentinels: Arc<Mutex<BTreeSet<String>>>,
}

impl Cluster {
    /// Finds the API server, and checks that it answers and accepts the credentials.
    pub async fn connect(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let connection = Connection::new(options.config().await?, options.timeout)?;
        let cluster = Self { connection: Arc::new(connection), sentinels: Arc::default() };
        cluster.identity().await?;
        Ok(cluster)
    }

    /// Returns the URL of the API server, for headings and errors.
    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// Returns the clock of the API server. [`Self::connect`] has already read it, unless a proxy removes the time from answers.
    pub fn clock(&self) -> &Clock {
        self.connection.clock()
    }

    /// Returns whether the kubeconfig disables the verification of certificates (`insecure-skip-tls-verify`).
    pub fn is_unverified(&self) -> bool {
        self.connection.config().accept_invalid_certs
    }

    /// Returns the CA certificates that the kubeconfig trusts, as DER. The list is empty if the kubeconfig trusts the CAs of this
    /// machine.
    pub fn authorities(&self) -> Result<Vec<Vec<u8>>, ClusterError> {
        let config = self.connection.config();
        let Some(file) = &config.root_cert_file else {
            return Ok(config.root_cert.clone().unwrap_or_default());
        };
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let read = read.map_err(|error| ClusterError::Configuration {
            what: format!("the authorities in `{}`", file.display()),
            reason: error.to_string(),
        })?;
        Ok(read.into_iter().map(|one| one.to_vec()).collect())
    }

    /// Returns the identity of the cluster: the uid of the namespace `kube-system`, which exists as long as the cluster.
    pub async fn identity(&self) -> Result<String, ClusterError> {
        let namespace =
            self.object::<Namespace>(None, "kube-system").await?.ok_or_else(|| ClusterError::NotFound {
                subject: "Namespace `kube-system`".to_string(),
                reason: "every cluster has this namespace".to_string(),
            })?;
        namespace.metadata.uid.ok_or_else(|| ClusterError::Answer {
            server: self.server().to_string(),
            subject: "Namespace `kube-system`".to_string(),
            reason: "it has no `metadata.uid`".to_string(),
        })
    }
}
