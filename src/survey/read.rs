//! Reads a survey in one scan of the store. No record is kept longer than needed.

use std::net::IpAddr;
use std::ops::ControlFlow;

use super::backends::Readers;
use super::records::{
    AddressRecord, BitmapRecord, CidrRecord, KubeadmConfig, NetworkAgent, NodeRecord, ProxyContainer,
    ServiceRecord, Survey, Unreadable,
};
use super::{Layout, SurveyError, era};
use crate::ip::ServiceCidr;
use crate::store::{Key, KeyRange, ReadStore, Record, Revision, StoreError, Visit};
use crate::wire::envelope::PROTOBUF_MAGIC;
use crate::wire::objects::{
    self, ConfigMap, Container, Encoding, Namespace, Node, Pod, RangeAllocation, ServiceCidrObject, SystemPod,
};
use crate::wire::tree;
use crate::wire::yaml::Yaml;
use crate::wire::{StoredAddress, StoredService, Text, WireError};

/// Maximum number of times that a survey is read. A survey is read again if its revision is compacted during the read. API
/// servers compact etcd every five minutes (`--etcd-compaction-interval`), so even a second read is rare.
const MOST_READS: u32 = 4;

impl Survey {
    /// Reads all objects with Service addresses at the revision `at`, or at the newest revision if `at` is `None`.
    ///
    /// Fails if a Service, IPAddress, ServiceCIDR or RangeAllocation cannot be read, for example because it is encrypted or
    /// damaged. Other unreadable objects are listed in the survey.
    pub async fn read(
        store: &dyn ReadStore,
        layout: &Layout,
        at: Option<Revision>,
    ) -> Result<Self, SurveyError> {
        Self::read_annotated(store, layout, at, None).await
    }

    /// Reads the same objects as [`Self::read`], and the value of one annotation on each Service.
    ///
    /// A compaction can remove the revision during the read. The reader then reads everything again at a new revision, unless the
    /// caller requested a revision.
    pub async fn read_annotated(
        store: &dyn ReadStore,
        layout: &Layout,
        at: Option<Revision>,
        annotation: Option<&str>,
    ) -> Result<Self, SurveyError> {
        let mut reads = 1;
        loop {
            match Self::read_once(store, layout, at, annotation).await {
                Err(SurveyError::Store(StoreError::Compacted { asked, .. }))
                    if at.is_none() && reads < MOST_READS =>
                {
                    reads = reads.saturating_add(1);
                    tracing::info!(
                        revision = asked.0,
                        "etcd compacted the revision during the read; reading again"
                    );
                }
                outcome => return outcome,
            }
        }
    }

    async fn read_once(
        store: &dyn ReadStore,
        layout: &Layout,
        at: Option<Revision>,
        annotation: Option<&str>,
    ) -> Result<Self, SurveyError> {
        let mut reader = Reader::new(layout.clone(), annotation);
        let room = |prefix: String| store.count_hint(&KeyRange::prefix(prefix)).unwrap_or_default();
        reader.survey.services.reserve_exact(room(layout.services()));
        reader.survey.addresses.reserve_exact(room(layout.ip_addresses()));
        let mut failure = None;
        let mut visitor = |record: Record<'_>| -> Visit {
            match reader.take(record) {
                Ok(()) => ControlFlow::Continue(()),
                Err(source) => {
                    failure = Some(SurveyError::Object { key: Key::from(record.key), source });
                    ControlFlow::Break(())
                }
            }
        };
        let revision = store.scan(&layout.surveyed(), at, &mut visitor).await?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if reader.survey.services.is_empty() {
            let hint = find_prefix(store).await?;
            return Err(SurveyError::NoServices { prefix: layout.prefix().to_string(), hint });
        }
        Ok(reader.finish(revision))
    }
}

impl Survey {
    /// Reads only the cluster's identity: the uid of the namespace `kube-system`.
    pub async fn identity(store: &dyn ReadStore, layout: &Layout) -> Result<Option<String>, SurveyError> {
        let key = layout.kube_system();
        let Some(entry) = store.get(&key).await? else { return Ok(None) };
        let namespace: Namespace =
            objects::decode(&entry.value).map_err(|source| SurveyError::Object { key, source })?;
        Ok(namespace.metadata.and_then(|meta| meta.uid))
    }
}

/// Searches for Services under another prefix, for the error message.
async fn find_prefix(store: &dyn ReadStore) -> Result<String, SurveyError> {
    let mut found = String::new();
    let mut visitor = |record: Record<'_>| -> Visit {
        let key = String::from_utf8_lossy(record.key);
        match key.split_once("/services/specs/") {
            Some((prefix, _)) => {
                found = format!("; found Services under `{prefix}`: give `--etcd-prefix {prefix}`");
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        }
    };
    store.scan(&[KeyRange::everything()], None, &mut visitor).await?;
    Ok(found)
}

/// A survey that is being read, and other data that the reader needs.
struct Reader {
    survey: Survey,
    prefixes: [String; 6],
    kubernetes: Key,
    backends: Readers,
    annotation: Option<String>,
}

impl Reader {
    fn new(layout: Layout, annotation: Option<&str>) -> Self {
        let prefixes = [
            layout.services(),
            layout.ip_addresses(),
            layout.service_cidrs(),
            layout.ranges(),
            layout.nodes(),
            layout.pods(),
        ];
        Self {
            kubernetes: layout.service("default", "kubernetes"),
            backends: Readers::new(&layout),
            prefixes,
            annotation: annotation.map(str::to_string),
            survey: Survey { layout, ..Survey::default() },
        }
    }

    fn finish(self, revision: Revision) -> Survey {
        let mut survey = self.survey;
        survey.revision = revision;
        survey.api_backends.sort_unstable();
        survey.api_backends.dedup();
        survey.era = era::detect(&survey.services, &survey.addresses, &survey.service_cidrs, &survey.bitmaps);
        survey
    }

    fn take(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let [services, addresses, cidrs, ranges, nodes, pods] = &self.prefixes;
        let under = |prefix: &String| record.key.starts_with(prefix.as_bytes());
        if under(services) {
            self.take_service(record)
        } else if under(addresses) {
            self.take_address(record)
        } else if under(cidrs) {
            self.take_cidr(record)
        } else if under(ranges) {
            self.take_bitmap(record)
        } else {
            let taken = if under(nodes) {
                self.take_node(record)
            } else if under(pods) {
                self.take_pod(record)
            } else if let Some(named) = self.backends.read(record.key, record.value) {
                named.map(|services| self.survey.api_backends.extend(services))
            } else {
                self.take_single(record)
            };
            if let Err(reason) = taken {
                self.survey
                    .unreadable
                    .push(Unreadable { key: Key::from(record.key), reason: reason.to_string() });
            }
            Ok(())
        }
    }

    fn take_service(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let service = StoredService::decode(record.value)?;
        // The API server's own Service has the current encoding. Other Services can still have an earlier encoding.
        let is_own = record.key == self.kubernetes.as_bytes();
        if is_own && !record.value.starts_with(PROTOBUF_MAGIC) {
            self.survey.encoding = Encoding::Json;
        }
        if let Some(wanted) = &self.annotation
            && let Some(value) = StoredService::annotation(record.value, wanted)?
        {
            self.survey.annotations.insert(Key::from(record.key), value);
        }
        self.survey.services.push(ServiceRecord::of(Key::from(record.key), record.mod_revision, service));
        Ok(())
    }

    fn take_address(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let stored = StoredAddress::decode(record.value)?;
        if self.survey.ip_address_version.is_none() {
            self.survey.ip_address_version = Some(stored.api_version.into_owned());
        }
        self.survey.addresses.push(AddressRecord {
            key: Key::from(record.key),
            create_revision: record.create_revision,
            mod_revision: record.mod_revision,
            address: stored.name.parse().ok(),
            name: Text::from(&*stored.name),
            parent: (Text::from(&*stored.parent_namespace), Text::from(&*stored.parent_name)),
            managed_by: Text::from(&*stored.managed_by),
            created: stored.created,
        });
        Ok(())
    }

    fn take_cidr(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let object: ServiceCidrObject = objects::decode(record.value)?;
        let meta = object.metadata.unwrap_or_default();
        let texts = object.spec.map(|spec| spec.cidrs).unwrap_or_default();
        self.survey.service_cidrs.push(CidrRecord {
            key: Key::from(record.key),
            name: meta.name.unwrap_or_default(),
            ranges: parse_all(&texts),
            terminating: meta.deletion_timestamp.is_some(),
        });
        Ok(())
    }

    fn take_bitmap(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let object: RangeAllocation = objects::decode(record.value)?;
        let key = Key::from(record.key);
        let name = key.to_string().rsplit('/').next().unwrap_or_default().to_string();
        self.survey.bitmaps.push(BitmapRecord {
            key,
            name,
            mod_revision: record.mod_revision,
            range: object.range.unwrap_or_default(),
            data: object.data.unwrap_or_default(),
        });
        Ok(())
    }

    fn take_node(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let node: Node = objects::decode(record.value)?;
        let spec = node.spec.unwrap_or_default();
        let mut cidrs = spec.pod_cidrs;
        cidrs.extend(spec.pod_cidr);
        let mut pod_cidrs = parse_all(&cidrs);
        pod_cidrs.sort_unstable();
        pod_cidrs.dedup();
        let status = node.status.unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let addresses = status.addresses;
        self.survey.nodes.push(NodeRecord {
            name: node.metadata.and_then(|meta| meta.name).unwrap_or_default(),
            pod_cidrs,
            addresses: addresses.iter().filter_map(|a| a.address.as_deref()?.parse().ok()).collect(),
            operating_system: info.operating_system.unwrap_or_default(),
            kubelet_version: info.kubelet_version.unwrap_or_default(),
        });
        Ok(())
    }

    fn take_pod(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let pod: Pod = objects::decode(record.value)?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        let is_on_host = pod.spec.is_some_and(|spec| spec.host_network == Some(true));
        if !has_ended {
            let is_system = record.key.starts_with(self.survey.layout.system_pods().as_bytes());
            if is_system || is_on_host {
                self.take_containers(record, is_system)?;
            }
        }
        if is_on_host {
            return Ok(());
        }
        let addresses = pod.status.unwrap_or_default().pod_ips;
        self.survey.pods.extend(addresses.iter().filter_map(|ip| ip.ip.as_deref()?.parse::<IpAddr>().ok()));
        Ok(())
    }

    /// Reads the containers of a Pod. kubeadm, kOps and RKE2 use the same container name for kube-proxy, in a DaemonSet or a
    /// static Pod in `kube-system`. Agents of network plugins are also in other namespaces.
    fn take_containers(&mut self, record: Record<'_>, is_system: bool) -> Result<(), WireError> {
        let pod: SystemPod = objects::decode(record.value)?;
        let meta = pod.metadata.unwrap_or_default();
        let (name, namespace) = (meta.name.unwrap_or_default(), meta.namespace.unwrap_or_default());
        for container in pod.spec.unwrap_or_default().containers {
            match container.name.as_deref().unwrap_or_default() {
                "kube-proxy" if is_system => self.survey.routing.proxies.push(ProxyContainer {
                    pod: name.clone(),
                    image: container.image.unwrap_or_default(),
                    arguments: container.command.into_iter().chain(container.args).collect(),
                }),
                agent if NetworkAgent::NAMES.contains(&agent) => {
                    let agent = network_agent(container, &namespace);
                    // Every node has the same agent.
                    if !self.survey.routing.agents.contains(&agent) {
                        self.survey.routing.agents.push(agent);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads a FelixConfiguration of Calico, for the whole cluster or for one node.
    fn take_felix(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let object = tree::of(record.value)?;
        let found = object.pointer("/spec/bpfEnabled").and_then(serde_json::Value::as_bool);
        let known = &mut self.survey.routing.calico_bpf;
        *known = if found == Some(true) { found } else { known.or(found) };
        Ok(())
    }

    /// Reads a BGP configuration of Calico. Custom resources are stored as JSON.
    fn take_router(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let object = tree::of(record.value)?;
        let name = object.pointer("/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
        let announced = object.pointer("/spec/serviceClusterIPs").cloned();
        self.survey.announced.extend(announced.map(|list| (name.to_string(), list)));
        Ok(())
    }

    fn take_single(&mut self, record: Record<'_>) -> Result<(), WireError> {
        if record.key == self.survey.layout.kube_system().as_bytes() {
            let namespace: Namespace = objects::decode(record.value)?;
            self.survey.cluster_id = namespace.metadata.and_then(|meta| meta.uid);
            return Ok(());
        }
        if record.key.starts_with(self.survey.layout.calico_routers().as_bytes()) {
            return self.take_router(record);
        }
        if record.key.starts_with(self.survey.layout.calico_felix().as_bytes()) {
            return self.take_felix(record);
        }
        if record.key == self.survey.layout.node_local_dns().as_bytes() {
            self.survey.has_node_local_dns = true;
            return Ok(());
        }
        let mut config: ConfigMap = objects::decode(record.value)?;
        if record.key == self.survey.layout.kube_proxy_config().as_bytes() {
            self.survey.routing.proxy_config = config.data.remove("config.conf");
        } else if record.key == self.survey.layout.cilium_config().as_bytes() {
            self.survey.routing.cilium_replacement = config.data.remove("kube-proxy-replacement");
        } else {
            let is_of_kubelets = record.key == self.survey.layout.kubelet_config().as_bytes();
            let entry = if is_of_kubelets { "kubelet" } else { "ClusterConfiguration" };
            let text = config.data.remove(entry).unwrap_or_default();
            let yaml = Yaml::parse(&text).map_err(|error| WireError::Yaml { reason: error.to_string() })?;
            if is_of_kubelets {
                self.survey.cluster_dns = listed(&yaml, &["clusterDNS"]);
            } else {
                let list = |name: &str| listed(&yaml, &["networking", name]);
                let (service_subnets, pod_subnets) = (list("serviceSubnet"), list("podSubnet"));
                self.survey.kubeadm = Some(KubeadmConfig { service_subnets, pod_subnets });
            }
        }
        Ok(())
    }
}

fn network_agent(container: Container, namespace: &str) -> NetworkAgent {
    let felix_bpf = container.env.into_iter().find(|one| one.name.as_deref() == Some("FELIX_BPFENABLED"));
    NetworkAgent {
        name: container.name.unwrap_or_default(),
        namespace: namespace.to_string(),
        arguments: container.command.into_iter().chain(container.args).collect(),
        felix_bpf: felix_bpf.and_then(|one| one.value),
    }
}

fn parse_all(texts: &[String]) -> Vec<ServiceCidr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Returns the comma-separated parts of a YAML value.
fn listed(yaml: &Yaml<'_>, path: &[&str]) -> Vec<String> {
    let parts = yaml.at(path).map(|node| yaml.parts(node)).unwrap_or_default();
    parts.into_iter().map(|(_, part)| part.to_string()).collect()
}
