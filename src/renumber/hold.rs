//! Holds: how the old address of a Service continues to answer while clients still use the address.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::survey::ServiceRecord;

/// How an old address is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// The old address is an external IP of the Service itself, with `externalTrafficPolicy: Local`. kube-proxy then routes
    /// traffic from Pods and nodes like traffic to a ClusterIP: it uses all endpoints, and keeps the source address.
    ExternalIp,
    /// The old address is the ClusterIP of a second Service with the same ports. The second Service has the same selector or, if
    /// there is no selector, copies of the endpoints.
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

/// The hold that was chosen for a Service, or the reason why the requested hold does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The chosen hold, and the reason for this choice.
    Hold(Hold, &'static str),
    /// The requested hold does not work. Contains the reason.
    Refuse(&'static str),
}

/// Chooses the hold for a Service from its spec and the operator's request. This function does not check whether the cluster's
/// data plane supports the hold, because that check needs the live cluster.
///
/// `no_external_ip` is the reason why the cluster's data plane cannot hold addresses by external IPs; `None` if the data plane
/// can hold addresses by external IPs.
pub fn choose(service: &ServiceRecord, asked: Option<Hold>, no_external_ip: Option<&'static str>) -> Choice {
    let spec = &service.spec;
    let shadow_because = if service.kind() != "ClusterIP" {
        Some("NodePort or LoadBalancer: its traffic policy must not change")
    } else if !spec.external_ips.is_empty() {
        Some("it has its own external IPs, and their traffic policy must not change")
    } else if spec.internal_traffic_policy.as_deref() == Some("Local") {
        Some("`internalTrafficPolicy: Local` does not apply to external IPs")
    } else {
        no_external_ip
    };
    match shadow_because {
        None if asked == Some(Hold::Shadow) => Choice::Hold(Hold::Shadow, "requested with `--hold`"),
        Some(reason) if asked == Some(Hold::ExternalIp) => Choice::Refuse(reason),
        None => Choice::Hold(Hold::ExternalIp, "a ClusterIP Service without external IPs"),
        Some(reason) => Choice::Hold(Hold::Shadow, reason),
    }
}
