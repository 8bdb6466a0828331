//! The kinds of places, each with when it will be felt, what it means and what to do. docs/audit.md has the same codes.
//!
//! Sources: Kubernetes v1.36.3 where a file is named, else the documentation of the program in question.

use super::Place;
use crate::audit::Severity::{BreaksAtNextRestart, BreaksAtRetirement, Cosmetic};

macro_rules! places {
    ($($name:ident = $code:literal, $severity:ident, $meaning:literal, $remedy:literal;)*) => {
        $(pub(super) static $name: Place = Place { code: $code, severity: $severity, meaning: $meaning, remedy: $remedy };)*

        /// All of them.
        pub static PLACES: &[&Place] = &[$(&$name),*];
    };
}

places! {
    SERVICE_ADDRESS = "service-address", BreaksAtRetirement,
        "the Service itself has an address of the old range",
        "move it: `netsurgeon renumber plan --to CIDR`, or `netsurgeon operation resume ID` if it was born meanwhile";
    EXTERNAL_IP = "service-external-ip", BreaksAtRetirement,
        "an external IP of the old range: a hold of an old address, or one that somebody set by hand",
        "if `netsurgeon renumber verify` does not know it, take it out of the Service when nothing uses it any more";
    EXTERNAL_NAME = "service-external-name", BreaksAtRetirement,
        "the name of the Service stands for an old address",
        "let `spec.externalName` be the name of the other Service";
    LOAD_BALANCER = "service-load-balancer", BreaksAtRetirement,
        "a load balancer is told of the old range: whom it lets in, or which address it has",
        "put the new range or address there";
    PUBLISHED_STATUS = "published-status", BreaksAtRetirement,
        "a controller has published an old address as the way in, which external DNS may have taken over",
        "see that the controller writes it anew; restart it if it does not";
    ADDRESS_OBJECT = "ip-address-object", Cosmetic,
        "the record that an address is given away; it goes with the Service that has it",
        "nothing, if it goes with its Service; `netsurgeon ranges check` finds those without one";
    SERVICE_CIDR = "service-cidr", BreaksAtNextRestart,
        "API servers give addresses of the old range away",
        "`netsurgeon renumber retire` removes it; by hand only when no Service has an address of it";
    RANGE_ALLOCATION = "range-allocation", BreaksAtNextRestart,
        "the bitmap of Kubernetes 1.33 and earlier is that of the old range; a leftover from 1.34 on",
        "before 1.34: `netsurgeon ranges rewrite --to CIDR`; later it can stay or be deleted";
    KUBEADM_CONFIG = "kubeadm-config", BreaksAtNextRestart,
        "the next `kubeadm upgrade` gives API servers the old range again, and fails on the address of the cluster's DNS",
        "`kubectl -n kube-system edit configmap kubeadm-config`: `networking.serviceSubnet`, and `certSANs` once the old address is retired";
    KUBELET_CONFIG = "kubelet-config", BreaksAtNextRestart,
        "kubelets that join or are upgraded tell Pods the old address of the cluster's DNS",
        "`kubectl -n kube-system edit configmap kubelet-config`: `clusterDNS`";
    COREFILE = "corefile", BreaksAtRetirement,
        "a name server asks an old address, or answers reverse lookups of the old range alone",
        "put the new address, and the reverse zone of the new range, into the Corefile";
    NODE_LOCAL_DNS = "node-local-dns", BreaksAtRetirement,
        "NodeLocal DNSCache listens at, or asks, the old address of the cluster's DNS",
        "put the new address beside the old one, and let its Pods be made anew; take the old one out before retirement only when no Pod uses it";
    KUBE_PROXY_CONFIG = "kube-proxy-config", BreaksAtNextRestart,
        "kube-proxy is told of the old range (`ipvs.excludeCIDRs`, `clusterCIDR`)",
        "`kubectl -n kube-system edit configmap kube-proxy`, then restart its Pods";
    ANNOUNCED = "announced-range", BreaksAtRetirement,
        "routers are told of the old range; if of it alone, nobody outside reaches the new one",
        "announce both until the old one is retired, then the new one";
    NETWORK_CONFIG = "network-plugin", BreaksAtNextRestart,
        "the network plugin is told of the old range: routes, masquerading or policies leave the new one out",
        "put the new range into its configuration and restart its Pods";
    NO_PROXY = "no-proxy", BreaksAtRetirement,
        "what goes to the old range goes past the HTTP proxy; to the new one it does not, unless it stands there, too",
        "put the new range beside the old one and restart what has the variable";
    RANGE_FLAG = "service-range-flag", BreaksAtNextRestart,
        "an API server or a controller manager is told the old range",
        "`netsurgeon controlplane set-range CIDR` on its host";
    NETWORK_POLICY = "network-policy", BreaksAtRetirement,
        "a policy is about the old range; it says nothing about the new one",
        "put the new range beside the old one, or select Pods";
    WEBHOOK_URL = "webhook-url", BreaksAtRetirement,
        "API servers call an old address; with `failurePolicy: Fail` they refuse writes when it answers no more",
        "name the Service in `clientConfig.service`, or put the new address into the URL";
    ENDPOINTS = "endpoints", BreaksAtRetirement,
        "a Service without a selector leads to an old address",
        "put the new address into whatever makes these endpoints";
    HOST_ALIAS = "host-alias", BreaksAtRetirement,
        "`/etc/hosts` of the containers has a name for an old address",
        "put the new address there, or better, use the name of the Service";
    DNS_CONFIG = "pod-dns-config", BreaksAtRetirement,
        "the Pod asks an old address for names",
        "put the new address of the cluster's DNS there, or let `dnsPolicy` be `ClusterFirst`";
    ARGUMENTS = "arguments", BreaksAtRetirement,
        "a container is started with it",
        "put the name of the Service, or the new address, there";
    ENVIRONMENT = "environment", BreaksAtRetirement,
        "a container has it in its environment",
        "put the name of the Service, or the new address, there";
    MESH_RANGES = "mesh-ranges", BreaksAtRetirement,
        "the service mesh decides by the old range; traffic to the new one takes another way",
        "put the new range beside the old one, and let the Pods be made anew";
    LAST_APPLIED_ADDRESS = "last-applied-address", BreaksAtNextRestart,
        "the manifest that this Service was applied from asks for its old address: applied again it is refused (`may not change once set`)",
        "take `clusterIP` and `clusterIPs` out of the manifest, or put the new address there";
    LAST_APPLIED = "last-applied", BreaksAtNextRestart,
        "the manifest that this object was applied from has it: applied again it brings it back",
        "change the manifest where it is kept";
    MANAGED_FIELDS = "managed-fields", Cosmetic,
        "the record of who set which field names it; nothing acts by it",
        "nothing";
    REVISION = "controller-revision", Cosmetic,
        "an earlier revision of a DaemonSet or StatefulSet, which a rollback would bring back",
        "nothing, unless `kubectl rollout undo` is to be used";
    ANNOTATION = "annotation", BreaksAtRetirement,
        "an annotation has it; what that means is up to whoever reads the annotation",
        "look who writes it, and change it there";
    CONFIG_MAP = "config-map", BreaksAtRetirement,
        "a program's configuration has it",
        "put the name of the Service, or the new address, there, and restart what reads it";
    SECRET = "secret", BreaksAtRetirement,
        "a Secret has it (its content is not told)",
        "look at that key, put the name of the Service, or the new address, there, and restart what reads it";
    CUSTOM_RESOURCE = "custom-resource", BreaksAtRetirement,
        "a custom resource has it; what that means is up to its controller",
        "look who writes it, and change it there";
    STATUS = "status", Cosmetic,
        "a controller has seen it",
        "nothing, if the controller writes it anew";
    OTHER = "other", BreaksAtRetirement,
        "an object has it",
        "look what it is for";
    STARTED_ENVIRONMENT = "started-before-the-move", BreaksAtRetirement,
        "the environment of a container is made when it starts, and this one started before the Service moved",
        "restart the Pod before the old addresses are retired";
    STARTED_RESOLVER = "resolver-before-the-move", BreaksAtRetirement,
        "`resolv.conf` is made with the Pod, and this one was made before the cluster's DNS moved",
        "delete the Pod, so that it is made anew, once its kubelet tells the new address";
    CNI_FILE = "cni-file", BreaksAtRetirement,
        "the network plugin reaches the API by it: without it no Pod can start on this node",
        "restart the plugin's DaemonSet after `default/kubernetes` has moved, and see that it wrote the file anew";
    STATIC_POD = "static-pod", BreaksAtNextRestart,
        "a static Pod is started with it",
        "`netsurgeon controlplane set-range CIDR` for the range; anything else by hand";
    KUBECONFIG = "kubeconfig", BreaksAtRetirement,
        "a component of this host reaches the API by it",
        "put the address of the control plane there, not that of the Service";
    KUBELET_FILE = "kubelet-file", BreaksAtRetirement,
        "the kubelet tells new Pods the old address of the cluster's DNS",
        "`netsurgeon controlplane set-dns ADDRESS`, then restart the kubelet";
    DISTRIBUTION_FILE = "distribution-file", BreaksAtNextRestart,
        "K3s or RKE2 starts its control plane with it",
        "put the new range (`service-cidr`) and the new address (`cluster-dns`) there, the same on every server";
    RESOLVER = "host-resolver", BreaksAtRetirement,
        "this host asks an old address for names",
        "put the new address of the cluster's DNS there";
    SANDBOX = "sandbox-resolver", BreaksAtRetirement,
        "a running Pod asks an old address for names",
        "delete the Pod, so that it is made anew, once its kubelet tells the new address";
    HOST_FILE = "host-file", BreaksAtRetirement,
        "a file of this host has it",
        "put the new address or range there, and restart what reads it";
    PROCESS = "process-environment", BreaksAtRetirement,
        "a running process has it in its environment, which stays as it was when it started",
        "restart the Pod, or the unit, that it belongs to";
}
