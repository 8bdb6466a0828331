//! How the old address of a Service goes on answering until nothing uses it any more.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::survey::ServiceRecord;

/// The way in which an old address is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// As an external IP of the Service itself, with `externalTrafficPolicy: Local`, under which kube-proxy
    /// treats traffic of Pods and nodes as it treats a ClusterIP's: all endpoints, source address kept.
    ExternalIp,
    /// As the ClusterIP of a second Service with the same ports and the same selector or, where there is none, copies of
    /// the endpoints.
    Shadow,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExternalIp => "external-ip",
            Self::Shadow => "shadow",
        })
    }
}

/// What was chosen for a Service, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// This hold.
    Hold(Hold, &'static str),
    /// The hold that is asked for does not work.
    Refuse(&'static str),
}

/// Chooses the hold for a Service by what it is, and by what the operator asks for. That the cluster's data plane
/// can do it must be checked on the live cluster.
///
/// `no_external_ip`: why the cluster's data plane can hold nothing by an external IP.
pub fn choose(service: &ServiceRecord, asked: Option<Hold>, no_external_ip: Option<&'static str>) -> Choice {
    let spec = &service.spec;
    let shadow_because = if service.kind() != "ClusterIP" {
        Some("its traffic policy and external IPs mean something to node ports and load balancers")
    } else if !spec.external_ips.is_empty() {
        Some("it has external IPs of its own, whose traffic policy must not change")
    } else if spec.internal_traffic_policy.as_deref() == Some("Local") {
        Some("`internalTrafficPolicy: Local` does not apply to external IPs")
    } else {
        no_external_ip
    };
    match shadow_because {
        None if asked == Some(Hold::Shadow) => Choice::Hold(Hold::Shadow, "asked for"),
        Some(reason) if asked == Some(Hold::ExternalIp) => Choice::Refuse(reason),
        None => Choice::Hold(Hold::ExternalIp, "a ClusterIP Service without external IPs"),
        Some(reason) => Choice::Hold(Hold::Shadow, reason),
    }
}
