//! The kinds of places: when an old address in such a place causes a failure, what the address means, and what to do.
//! docs/audit.md has the same table.
//!
//! The statements come from the documentation of the program that uses the place.

use super::Place;
use crate::audit::Severity::{BreaksAtNextRestart, BreaksAtRetirement, Cosmetic};

macro_rules! places {
    ($($name:ident = $code:literal, $severity:ident, $meaning:literal, $remedy:literal;)*) => {
        $(#[doc = concat!("The kind of place `", $code, "`.")]
        pub static $name: Place = Place { code: $code, severity: $severity, meaning: $meaning, remedy: $remedy };)*

        /// All kinds of places.
        pub static PLACES: &[&Place] = &[$(&$name),*];
    };
}

places! {
    SERVICE_ADDRESS = "service-address", BreaksAtRetirement,
        "the Service itself has an address of the old range",
        "move the Service: `netsurgeon renumber plan --to CIDR`, or `netsurgeon operation resume ID` if the Service was created during that operation";
    EXTERNAL_IP = "service-external-ip", BreaksAtRetirement,
        "an external IP in the old range: it holds an old address, or was set by hand",
        "if `netsurgeon renumber verify` does not recognize it, remove the external IP from the Service once no client uses it";
    EXTERNAL_NAME = "service-external-name", BreaksAtRetirement,
        "`spec.externalName` of the Service points to an old address",
        "set `spec.externalName` to the DNS name of the Service that the old address belongs to";
    LOAD_BALANCER = "service-load-balancer", BreaksAtRetirement,
        "a load balancer is configured with an old address or range, as its own address or in its allowed sources",
        "configure the load balancer with the new range or address";
    PUBLISHED_STATUS = "published-status", BreaksAtRetirement,
        "a controller has published an old address as the entry point, and external DNS may have copied it",
        "check that the controller publishes the new address; restart it if it does not";
    ADDRESS_OBJECT = "ip-address-object", Cosmetic,
        "the object that records the allocation of an address; it is deleted together with its Service",
        "nothing, if its Service exists; `netsurgeon ranges check` finds objects without a Service";
    SERVICE_CIDR = "service-cidr", BreaksAtNextRestart,
        "API servers still allocate addresses from the old range",
        "run `netsurgeon renumber retire`, which removes the ServiceCIDR; remove the ServiceCIDR by hand only if no Service has an address in its range";
    RANGE_ALLOCATION = "range-allocation", BreaksAtNextRestart,
        "the allocation bitmap (Kubernetes 1.33 and earlier) still covers the old range; from 1.34 on, no component reads the bitmap, unless an API server emulates an older version",
        "a renumbering changes it; after the renumbering, before 1.34: `netsurgeon ranges rewrite --to CIDR`; from 1.34 on: keep it or delete it";
    KUBEADM_CONFIG = "kubeadm-config", BreaksAtNextRestart,
        "the next `kubeadm upgrade` gives API servers the old range again, and fails on the address of the cluster's DNS",
        "once the old address is retired, `kubectl -n kube-system edit configmap kubeadm-config`: `certSANs`, and `networking.serviceSubnet` if no renumbering has changed it";
    KUBELET_CONFIG = "kubelet-config", BreaksAtNextRestart,
        "kubelets that join or are upgraded give Pods the old address of the cluster's DNS",
        "a renumbering changes it; without one, `kubectl -n kube-system edit configmap kubelet-config`: `clusterDNS`";
    COREFILE = "corefile", BreaksAtRetirement,
        "a name server queries an old address, or answers reverse lookups only for the old range",
        "add the new address and the reverse zone of the new range to the Corefile";
    NODE_LOCAL_DNS = "node-local-dns", BreaksAtRetirement,
        "NodeLocal DNSCache listens on, or queries, the old address of the cluster's DNS",
        "add the new address next to the old address, and recreate the Pods of NodeLocal DNSCache; before retirement, remove the old address only if no Pod uses it";
    KUBE_PROXY_CONFIG = "kube-proxy-config", BreaksAtNextRestart,
        "kube-proxy is configured with the old range (`ipvs.excludeCIDRs`, `clusterCIDR`)",
        "`kubectl -n kube-system edit configmap kube-proxy`, then restart the Pods of kube-proxy";
    ANNOUNCED = "announced-range", BreaksAtRetirement,
        "the old range is announced to routers; if no other range is announced, clients outside the cluster cannot reach the new range",
        "announce both ranges until the old one is retired, then only the new one";
    NETWORK_CONFIG = "network-plugin", BreaksAtNextRestart,
        "the network plugin is configured with the old range: routes, masquerading or policies omit the new one",
        "add the new range to the configuration of the network plugin, and restart the Pods of the plugin";
    NO_PROXY = "no-proxy", BreaksAtRetirement,
        "traffic to the old range bypasses the HTTP proxy; traffic to the new range uses the proxy, unless the new range is listed as well",
        "add the new range next to the old one, and restart the programs that use the variable";
    RANGE_FLAG = "service-range-flag", BreaksAtNextRestart,
        "an API server or a controller manager runs with the old range (`--service-cluster-ip-range`)",
        "when the renumbering asks for it, `netsurgeon controlplane set-range --to CIDR` on the host of this component";
    NETWORK_POLICY = "network-policy", BreaksAtRetirement,
        "a policy contains the old range but not the new one",
        "add the new range next to the old one, or use Pod selectors";
    WEBHOOK_URL = "webhook-url", BreaksAtRetirement,
        "API servers call an old address; with `failurePolicy: Fail` API servers reject writes when this address stops answering",
        "reference the Service in `clientConfig.service`, or use the new address in the URL";
    ENDPOINTS = "endpoints", BreaksAtRetirement,
        "a Service without a selector points to an old address",
        "change the address at the source of these endpoints";
    HOST_ALIAS = "host-alias", BreaksAtRetirement,
        "`/etc/hosts` in the containers maps a name to an old address",
        "use the new address or, better, the name of the Service";
    DNS_CONFIG = "pod-dns-config", BreaksAtRetirement,
        "the Pod uses an old address as a name server",
        "use the new address of the cluster's DNS, or set `dnsPolicy` to `ClusterFirst`";
    ARGUMENTS = "arguments", BreaksAtRetirement,
        "a container's arguments contain an old address or range",
        "use the name of the Service, or the new address";
    ENVIRONMENT = "environment", BreaksAtRetirement,
        "a container's environment contains an old address or range",
        "use the name of the Service, or the new address";
    MESH_RANGES = "mesh-ranges", BreaksAtRetirement,
        "the service mesh routes traffic by the old range; traffic to the new range takes another path",
        "add the new range next to the old one, and recreate the Pods";
    LAST_APPLIED_ADDRESS = "last-applied-address", BreaksAtNextRestart,
        "the manifest of this Service requests the old address: the API server rejects the manifest when you apply it again, because the address of a Service is immutable",
        "remove `clusterIP` and `clusterIPs` from the manifest, or change them to the new address";
    LAST_APPLIED = "last-applied", BreaksAtNextRestart,
        "the manifest of this object contains an old address or range, and restores that value when you apply the manifest again",
        "change the manifest at its source";
    MANAGED_FIELDS = "managed-fields", Cosmetic,
        "the record of field managers contains an old address or range; no component acts on this record",
        "nothing";
    REVISION = "controller-revision", Cosmetic,
        "an earlier revision of a DaemonSet or StatefulSet contains an old address or range; `kubectl rollout undo` would restore this value",
        "nothing, unless you use `kubectl rollout undo`";
    ANNOTATION = "annotation", BreaksAtRetirement,
        "an annotation contains an old address or range; the effect depends on the component that reads the annotation",
        "find the source of the annotation, and change the address there";
    CONFIG_MAP = "config-map", BreaksAtRetirement,
        "a program's configuration contains an old address or range",
        "use the name of the Service, or the new address, and restart the programs that read it";
    SECRET = "secret", BreaksAtRetirement,
        "a Secret contains an old address or range (the content of the Secret is not shown)",
        "check the named key of the Secret: use the name of the Service, or the new address, and restart the programs that read the Secret";
    CUSTOM_RESOURCE = "custom-resource", BreaksAtRetirement,
        "a custom resource contains an old address or range; the effect depends on the controller of the resource",
        "find the source of the object, and change the address there";
    STATUS = "status", Cosmetic,
        "a controller reports an old address or range in a status",
        "nothing, if the controller updates the status";
    OTHER = "other", BreaksAtRetirement,
        "an object contains an old address or range",
        "find out what the object uses this address or range for";
    STARTED_ENVIRONMENT = "started-before-the-move", BreaksAtRetirement,
        "the environment of a container is set when it starts, and this container started before the Service moved",
        "restart the Pod before the old addresses are retired";
    STARTED_RESOLVER = "resolver-before-the-move", BreaksAtRetirement,
        "`resolv.conf` is created with the Pod, and this Pod was created before the cluster's DNS moved",
        "once the kubelet has the new address, delete the Pod so that it is recreated";
    CNI_FILE = "cni-file", BreaksAtRetirement,
        "the network plugin is configured with an old address or range; if it reaches the API at this address, no Pod can start on this node once the address stops answering",
        "restart the plugin's DaemonSet after `default/kubernetes` has moved, and check that it rewrote the file";
    STATIC_POD = "static-pod", BreaksAtNextRestart,
        "the manifest of a static Pod contains an old address or range",
        "when the renumbering asks for it, `netsurgeon controlplane set-range --to CIDR` for the range; change anything else by hand";
    KUBECONFIG = "kubeconfig", BreaksAtRetirement,
        "a component on this host is configured with an old address or range, for example to reach the API",
        "use the address of the control plane, not the address of the Service";
    KUBELET_FILE = "kubelet-file", BreaksAtRetirement,
        "the kubelet gives new Pods the old address of the cluster's DNS",
        "once the cluster's DNS has moved, `netsurgeon controlplane set-dns --to ADDRESS`, then restart the kubelet";
    DISTRIBUTION_FILE = "distribution-file", BreaksAtNextRestart,
        "K3s or RKE2 starts its control plane with an old address or range",
        "set the new range (`service-cidr`) and the new address (`cluster-dns`), the same on every server";
    RESOLVER = "host-resolver", BreaksAtRetirement,
        "this host uses an old address as a name server",
        "use the new address of the cluster's DNS as the name server";
    SANDBOX = "sandbox-resolver", BreaksAtRetirement,
        "a running Pod uses an old address as a name server",
        "once the kubelet has the new address, delete the Pod so that it is recreated";
    HOST_FILE = "host-file", BreaksAtRetirement,
        "a file on this host contains an old address or range",
        "use the new address or range, and restart the programs that read the file";
    PROCESS = "process-environment", BreaksAtRetirement,
        "the environment of a running process contains an old address or range, and does not change until the process restarts",
        "once the Services have moved, restart its Pod or unit";
}
