//! Reads the addresses that the probes of a test need: of its Services, of the API servers, and names.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use super::objects::Settings;
use super::round::Targets;
use crate::kube_api::{Cluster, ClusterError};

/// The port of an API server, if neither the Service nor its endpoints name one.
const HTTPS: u16 = 443;

/// Returns the targets without names.
pub(super) async fn targets(cluster: &Cluster, services: &[Value]) -> Result<Targets, ClusterError> {
    let api: Option<Service> = cluster.object(Some("default"), "kubernetes").await?;
    let spec = api.as_ref().and_then(|api| api.spec.as_ref());
    let port = spec
        .and_then(|spec| spec.ports.iter().flatten().next())
        .and_then(|port| u16::try_from(port.port).ok());
    let port = port.unwrap_or(HTTPS);
    let api = spec.into_iter().flat_map(|spec| cluster_ips(spec.cluster_ips.as_deref()));
    let [service, local] = [0, 1].map(|place| service_of(services.get(place)));
    Ok(Targets {
        service,
        local,
        api: api.map(|address| SocketAddr::new(address, port)).collect(),
        api_servers: api_servers(cluster).await?,
        names: Vec::new(),
        name_servers: Vec::new(),
    })
}

/// Returns the addresses of the API servers: the endpoints of the Service `default/kubernetes`.
pub(super) async fn api_servers(cluster: &Cluster) -> Result<Vec<SocketAddr>, ClusterError> {
    let slices: Vec<EndpointSlice> =
        cluster.objects(Some("default"), Some("kubernetes.io/service-name=kubernetes")).await?;
    let servers = slices.iter().flat_map(|slice| {
        let ports = slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok());
        let port = ports.into_iter().next().unwrap_or(HTTPS);
        let addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| endpoint.addresses.iter());
        addresses.filter_map(move |address| Some(SocketAddr::new(address.parse().ok()?, port)))
    });
    Ok(servers.collect())
}

/// Returns the ClusterIPs and the node port of a Service.
fn service_of(service: Option<&Value>) -> (Vec<IpAddr>, Option<u16>) {
    let Some(service) = service else { return (Vec::new(), None) };
    let addresses = service.pointer("/spec/clusterIPs").and_then(Value::as_array);
    let addresses = addresses.into_iter().flatten().filter_map(|address| address.as_str()?.parse().ok());
    let port = service.pointer("/spec/ports/0/nodePort").and_then(Value::as_u64);
    (addresses.collect(), port.and_then(|port| u16::try_from(port).ok()))
}

fn cluster_ips(addresses: Option<&[String]>) -> Vec<IpAddr> {
    addresses.into_iter().flatten().filter_map(|address| address.parse().ok()).collect()
}

/// Returns the names that Pods must be able to resolve: that of the API server, that of the own Service, and further ones.
pub(super) fn names(
    targets: &Targets,
    settings: &Settings,
    domain: &str,
    further: &[String],
) -> Vec<(String, Vec<IpAddr>)> {
    let api: Vec<IpAddr> = targets.api.iter().map(SocketAddr::ip).collect();
    let own = format!("{}.{}.svc.{domain}", settings.service_name("all"), settings.namespace);
    let further = further.iter().map(|name| (name.clone(), Vec::new()));
    let of_cluster = [(format!("kubernetes.default.svc.{domain}"), api), (own, targets.service.0.clone())];
    of_cluster.into_iter().chain(further).collect()
}
