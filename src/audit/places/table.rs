//! The kinds of places: when each breaks, its meaning and its remedy. docs/audit.md has the same table.
//!
//! Sources: Kubernetes v1.36.3 where a file is named, otherwise the documentation of the program.

use super::Place;
use crate::audit::Severity::{BreaksAtNextRestart, BreaksAtRetirement, Cosmetic};

macro_rules! places {
    ($($name:ident = $code:literal, $severity:ident, $meaning:literal, $remedy:literal;)*) => {
        $(pub(super) static $name: Place = Place { code: $code, severity: $severity, meaning: $meaning, remedy: $remedy };)*

        /// All kinds of places.
        pub static PLACES: &[&Place] = &[$(&$name),*];
    };
}

places! {
    SERVICE_ADDRESS = "service-address", BreaksAtRetirement,
        "the Service itself has an address of the old range",
        "move it: `netsurgeon renumber plan --to CIDR`, or `netsurgeon operation resume ID` if it was created meanwhile";
    EXTERNAL_IP = "service-external-ip", BreaksAtRetirement,
        "an external IP of the old range: a hold of an old address, or set by hand",
        "if `netsurgeon renumber verify` does not know it, remove it from the Service once it is unused";
    EXTERNAL_NAME = "service-external-name", BreaksAtRetirement,
        "`spec.externalName` of the Service points to an old address",
        "set `spec.externalName` to the name of the other Service";
    LOAD_BALANCER = "service-load-balancer", BreaksAtRetirement,
        "a load balancer is configured with the old range: allowed sources, or its address",
        "put the new range or address there";
    PUBLISHED_STATUS = "published-status", BreaksAtRetirement,
        "a controller has published an old address as the entry point, and external DNS may have copied it",
        "check that the controller writes it again; restart it if it does not";
    ADDRESS_OBJECT = "ip-address-object", Cosmetic,
        "the record that an address is allocated; it is deleted with the Service that has it",
        "nothing, if its Service exists; `netsurgeon ranges check` finds those without one";
    SERVICE_CIDR = "service-cidr", BreaksAtNextRestart,
        "API servers allocate addresses of the old range",
        "run `netsurgeon renumber retire`, which removes it; remove it by hand only if no Service has an address of it";
    RANGE_ALLOCATION = "range-allocation", BreaksAtNextRestart,
        "the bitmap of Kubernetes 1.33 and earlier is that of the old range; a leftover from 1.34 on",
        "before 1.34: `netsurgeon ranges rewrite --to CIDR`; later it can stay or be deleted";
    KUBEADM_CONFIG = "kubeadm-config", BreaksAtNextRestart,
        "the next `kubeadm upgrade` gives API servers the old range again, and fails on the address of the cluster's DNS",
        "`kubectl -n kube-system edit configmap kubeadm-config`: `networking.serviceSubnet`, and `certSANs` once the old address is retired";
    KUBELET_CONFIG = "kubelet-config", BreaksAtNextRestart,
        "kubelets that join or are upgraded give Pods the old address of the cluster's DNS",
        "`kubectl -n kube-system edit configmap kubelet-config`: `clusterDNS`";
    COREFILE = "corefile", BreaksAtRetirement,
        "a name server queries an old address, or answers reverse lookups of the old range only",
        "put the new address, and the reverse zone of the new range, into the Corefile";
    NODE_LOCAL_DNS = "node-local-dns", BreaksAtRetirement,
        "NodeLocal DNSCache listens on, or queries, the old address of the cluster's DNS",
        "put the new address beside the old one, and recreate its Pods; remove the old one before retirement only when no Pod uses it";
    KUBE_PROXY_CONFIG = "kube-proxy-config", BreaksAtNextRestart,
        "kube-proxy is configured with the old range (`ipvs.excludeCIDRs`, `clusterCIDR`)",
        "`kubectl -n kube-system edit configmap kube-proxy`, then restart its Pods";
    ANNOUNCED = "announced-range", BreaksAtRetirement,
        "the old range is announced to routers; if it is the only one, clients outside cannot reach the new one",
        "announce both until the old one is retired, then the new one";
    NETWORK_CONFIG = "network-plugin", BreaksAtNextRestart,
        "the network plugin is configured with the old range: routes, masquerading or policies omit the new one",
        "put the new range into its configuration and restart its Pods";
    NO_PROXY = "no-proxy", BreaksAtRetirement,
        "traffic to the old range bypasses the HTTP proxy; traffic to the new one does not, unless it is listed there, too",
        "put the new range beside the old one and restart what has the variable";
    RANGE_FLAG = "service-range-flag", BreaksAtNextRestart,
        "an API server or a controller manager has the old range in its flag",
        "`netsurgeon controlplane set-range CIDR` on its host";
    NETWORK_POLICY = "network-policy", BreaksAtRetirement,
        "a policy names the old range, and not the new one",
        "put the new range beside the old one, or select Pods";
    WEBHOOK_URL = "webhook-url", BreaksAtRetirement,
        "API servers call an old address; with `failurePolicy: Fail` they refuse writes when it stops answering",
        "name the Service in `clientConfig.service`, or put the new address into the URL";
    ENDPOINTS = "endpoints", BreaksAtRetirement,
        "a Service without a selector points to an old address",
        "put the new address into the source of these endpoints";
    HOST_ALIAS = "host-alias", BreaksAtRetirement,
        "`/etc/hosts` of the containers has a name for an old address",
        "put the new address there, or better, use the name of the Service";
    DNS_CONFIG = "pod-dns-config", BreaksAtRetirement,
        "the Pod queries an old address for names",
        "put the new address of the cluster's DNS there, or set `dnsPolicy` to `ClusterFirst`";
    ARGUMENTS = "arguments", BreaksAtRetirement,
        "a container has it in its arguments",
        "put the name of the Service, or the new address, there";
    ENVIRONMENT = "environment", BreaksAtRetirement,
        "a container has it in its environment",
        "put the name of the Service, or the new address, there";
    MESH_RANGES = "mesh-ranges", BreaksAtRetirement,
        "the service mesh routes by the old range; traffic to the new one takes another path",
        "put the new range beside the old one, and recreate the Pods";
    LAST_APPLIED_ADDRESS = "last-applied-address", BreaksAtNextRestart,
        "the manifest of this Service requests its old address: applied again, it is refused, because the address of a Service cannot change",
        "remove `clusterIP` and `clusterIPs` from the manifest, or put the new address there";
    LAST_APPLIED = "last-applied", BreaksAtNextRestart,
        "the manifest of this object has it: applied again, it restores it",
        "change the manifest at its source";
    MANAGED_FIELDS = "managed-fields", Cosmetic,
        "the record of field owners names it; no component acts on it",
        "nothing";
    REVISION = "controller-revision", Cosmetic,
        "an earlier revision of a DaemonSet or StatefulSet, which a rollback would restore",
        "nothing, unless you use `kubectl rollout undo`";
    ANNOTATION = "annotation", BreaksAtRetirement,
        "an annotation has it; its meaning depends on the reader of the annotation",
        "find the source of the annotation, and change the address there";
    CONFIG_MAP = "config-map", BreaksAtRetirement,
        "a program's configuration has it",
        "put the name of the Service, or the new address, there, and restart what reads it";
    SECRET = "secret", BreaksAtRetirement,
        "a Secret has it (its content is not shown)",
        "check that key: put the name of the Service, or the new address, there, and restart what reads it";
    CUSTOM_RESOURCE = "custom-resource", BreaksAtRetirement,
        "a custom resource has it; its meaning depends on its controller",
        "find the source of the object, and change the address there";
    STATUS = "status", Cosmetic,
        "a controller reports it in a status",
        "nothing, if the controller writes it again";
    OTHER = "other", BreaksAtRetirement,
        "an object has it",
        "find out its purpose";
    STARTED_ENVIRONMENT = "started-before-the-move", BreaksAtRetirement,
        "the environment of a container is created at its start, and this one started before the Service moved",
        "restart the Pod before the old addresses are retired";
    STARTED_RESOLVER = "resolver-before-the-move", BreaksAtRetirement,
        "`resolv.conf` is created with the Pod, and this one was created before the cluster's DNS moved",
        "delete the Pod, so that it is recreated, once its kubelet gives the new address";
    CNI_FILE = "cni-file", BreaksAtRetirement,
        "the network plugin reaches the API by it: without it no Pod can start on this node",
        "restart the plugin's DaemonSet after `default/kubernetes` has moved, and check that it wrote the file again";
    STATIC_POD = "static-pod", BreaksAtNextRestart,
        "a static Pod has it in its manifest",
        "`netsurgeon controlplane set-range CIDR` for the range; anything else by hand";
    KUBECONFIG = "kubeconfig", BreaksAtRetirement,
        "a component of this host reaches the API by it",
        "put the address of the control plane there, not that of the Service";
    KUBELET_FILE = "kubelet-file", BreaksAtRetirement,
        "the kubelet gives new Pods the old address of the cluster's DNS",
        "`netsurgeon controlplane set-dns ADDRESS`, then restart the kubelet";
    DISTRIBUTION_FILE = "distribution-file", BreaksAtNextRestart,
        "K3s or RKE2 starts its control plane with it",
        "put the new range (`service-cidr`) and the new address (`cluster-dns`) there, the same on every server";
    RESOLVER = "host-resolver", BreaksAtRetirement,
        "this host queries an old address for names",
        "put the new address of the cluster's DNS there";
    SANDBOX = "sandbox-resolver", BreaksAtRetirement,
        "a running Pod queries an old address for names",
        "delete the Pod, so that it is recreated, once its kubelet gives the new address";
    HOST_FILE = "host-file", BreaksAtRetirement,
        "a file of this host has it",
        "put the new address or range there, and restart what reads it";
    PROCESS = "process-environment", BreaksAtRetirement,
        "a running process has it in its environment, which stays as it was at its start",
        "restart its Pod or unit";
}
