//! Reads the ExternalDNS instances of a cluster, and the host names that they can publish.

use std::collections::BTreeSet;

use super::external_dns::{Controller, annotations};
use super::published_hosts::{PublishedHost, published_hosts};
use super::{ClusterReader, Read, ReadError, unread};

/// The instances of ExternalDNS in a cluster.
pub struct Instances {
    /// The instances.
    pub found: Vec<Controller>,
    /// Deployments that look like ExternalDNS, but are not trusted, as text.
    pub ignored: Vec<String>,
}

/// Resources from which ExternalDNS reads names.
const SOURCES: [(&str, &str); 4] = [
    ("networking.k8s.io", "ingresses"),
    ("", "services"),
    ("gateway.networking.k8s.io", "httproutes"),
    ("externaldns.k8s.io", "dnsendpoints"),
];

/// Maximum number of service accounts to check. Each user can create Deployments that look like ExternalDNS.
const MOST_ACCOUNTS: usize = 50;

impl ClusterReader {
    /// Finds the instances of ExternalDNS: the named Deployments (`option`), or the Deployments that look like ExternalDNS and whose
    /// service account is allowed to list the sources of names in all namespaces. A user who is allowed to change only one namespace
    /// cannot give this permission to a service account, so such a user cannot set owners or waiting times of a cutover.
    pub async fn external_dns(&self, (named, option): (&[String], &str)) -> Read<Instances> {
        let deployments = self.objects().await?;
        if !named.is_empty() {
            let (found, missing) = Controller::named(&deployments, named);
            return match missing.first() {
                None => Ok(Instances { found, ignored: Vec::new() }),
                Some(missing) => Err(ReadError::fault(
                    format!("there is no Deployment `{missing}`"),
                    format!("give the Deployment of ExternalDNS as NAMESPACE/NAME: `{option}`"),
                )),
            };
        }
        let all = Controller::all(&deployments);
        let accounts: BTreeSet<&(String, String)> = all.iter().map(|one| &one.account).collect();
        if accounts.len() > MOST_ACCOUNTS {
            return Err(ReadError::fault(
                format!(
                    "more than {MOST_ACCOUNTS} service accounts have a Deployment that looks like ExternalDNS"
                ),
                format!("name the Deployment of ExternalDNS as NAMESPACE/NAME: `{option}`"),
            ));
        }
        let cluster = self.cluster()?;
        let mut trusted = BTreeSet::new();
        for account in accounts {
            let (namespace, name) = account;
            let user = format!("system:serviceaccount:{namespace}:{name}");
            let group = format!("system:serviceaccounts:{namespace}");
            let groups = ["system:serviceaccounts", group.as_str(), "system:authenticated"];
            for source in SOURCES {
                if cluster.may_somebody((&user, &groups), "list", source).await.map_err(unread)? {
                    trusted.insert(account.clone());
                    break;
                }
            }
        }
        let (found, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| trusted.contains(&one.account));
        Ok(Instances { found, ignored: others.into_iter().map(|one| one.subject).collect() })
    }

    /// Returns the host names of the cluster. `controllers`: the instances of ExternalDNS, whose annotations contain host names.
    pub async fn published_hosts(&self, controllers: &[Controller]) -> Read<Vec<PublishedHost>> {
        let group = "gateway.networking.k8s.io";
        let (ingresses, services) = (self.objects().await?, self.objects().await?);
        let mut routes = Vec::new();
        for (kind, versions) in ROUTES {
            for version in versions {
                if let Some(found) = self.list_if_served(&format!("{group}/{version}"), kind).await? {
                    routes.push((kind, found));
                    break;
                }
            }
        }
        let gateways = self.list_if_served(&format!("{group}/v1"), "Gateway").await?.unwrap_or_default();
        Ok(published_hosts(&ingresses, &services, &routes, &gateways, &annotations(controllers)))
    }
}

/// Routes of the Gateway API, with the versions that are served first. A `TCPRoute` or `UDPRoute` has a name only in an annotation.
const ROUTES: [(&str, &[&str]); 5] = [
    ("HTTPRoute", &["v1"]),
    ("GRPCRoute", &["v1"]),
    ("TLSRoute", &["v1", "v1alpha3", "v1alpha2"]),
    ("TCPRoute", &["v1alpha2"]),
    ("UDPRoute", &["v1alpha2"]),
];
