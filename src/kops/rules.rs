//! The table of fields that identify a cluster: what happens to each in the specification of the mirror, and why.
//!
//! Taken from the types of kOps 1.37 (`pkg/apis/kops/v1alpha2`, `v1alpha3`), from the table "API Changes" in its
//! `docs/cluster_spec.md`, and from its validation. Both spellings of a field are in one row. To add a field, add a row.

use super::rule::{Demand, Old, On, Rule, Treatment};

const fn row(
    on: On,
    paths: &'static [&'static str],
    treatment: Treatment,
    old: Old,
    reason: &'static str,
) -> Rule {
    Rule { on, paths, treatment, old, reason }
}

const fn demand(what: &'static str, example: &'static str) -> Demand {
    Demand { what, example }
}

const NEVER_BOTH: &str = "nodes and load balancers of two clusters cannot share it";

/// The rows. The first row that matches a field applies.
pub const RULES: &[Rule] = &[
    // Identity.
    row(On::Cluster, &["metadata.name"], Treatment::Name, Old::Plain, "the name identifies the cluster"),
    row(
        On::All,
        &["metadata.labels.*"],
        Treatment::Name,
        Old::Plain,
        "kOps finds the cluster of a document by this label",
    ),
    row(
        On::All,
        &[
            "metadata.creationTimestamp",
            "metadata.generation",
            "metadata.uid",
            "metadata.resourceVersion",
            "metadata.selfLink",
            "metadata.managedFields",
        ],
        Treatment::Removed,
        Old::Plain,
        "kOps sets it for the new object",
    ),
    row(
        On::All,
        &["metadata.annotations.kubectl~kubernetes~io/last-applied-configuration"],
        Treatment::Removed,
        Old::Plain,
        "it contains the whole object of the source",
    ),
    row(On::All, &["status"], Treatment::Removed, Old::Plain, "it is the state of the source"),
    // Stores.
    row(
        On::Cluster,
        &["spec.configBase", "spec.configStore.base"],
        Treatment::NameOr(demand("the folder of the mirror in a state store", "s3://STATE-STORE/{name}")),
        Old::Store,
        "with the same path, kOps would change the state of the source",
    ),
    row(
        On::Cluster,
        &["spec.configStore"],
        Treatment::NameOr(demand("the folder of the mirror in a state store", "s3://STATE-STORE/{name}")),
        Old::Store,
        "with the same path, kOps would change the state of the source",
    ),
    row(
        On::Cluster,
        &["spec.keyStore", "spec.configStore.keypairs"],
        Treatment::NameOr(demand(
            "the folder for the private keys of the mirror",
            "s3://STATE-STORE/{name}/pki",
        )),
        Old::Store,
        "with the same path, both clusters would have one certificate authority",
    ),
    row(
        On::Cluster,
        &["spec.secretStore", "spec.configStore.secrets"],
        Treatment::NameOr(demand(
            "the folder for the secrets of the mirror",
            "s3://STATE-STORE/{name}/secrets",
        )),
        Old::Store,
        "with the same path, both clusters would change the same secrets",
    ),
    row(
        On::Cluster,
        &["spec.etcdClusters[].backups.backupStore"],
        Treatment::NameOr(demand(
            "the folder for the etcd backups of the mirror",
            "s3://STATE-STORE/{name}/backups/etcd/ETCD-NAME",
        )),
        Old::Store,
        "etcd-manager reads restore commands in this folder, and would write backups over those of the source",
    ),
    // Tokens of ServiceAccounts.
    row(
        On::Cluster,
        &["spec.serviceAccountIssuerDiscovery.discoveryStore"],
        Treatment::NameOr(demand(
            "a public store for the OIDC documents of the mirror",
            "s3://OIDC-STORE/{name}",
        )),
        Old::Store,
        "the mirror would write its keys over those of the source, so AWS would reject every token of the source",
    ),
    row(
        On::Cluster,
        &["spec.serviceAccountIssuerDiscovery.discoveryService.url"],
        Treatment::NameOr(demand(
            "the discovery service of the mirror",
            "https://discovery.example.com/{name}",
        )),
        Old::Store,
        "both clusters would publish their keys at one address",
    ),
    row(
        On::Cluster,
        &["spec.kubeAPIServer.serviceAccountIssuer"],
        Treatment::NameOr(demand(
            "the issuer of the mirror's tokens",
            "https://OIDC-STORE.s3.us-east-1.amazonaws.com/{name}",
        )),
        Old::Store,
        "with one issuer, no verifier can tell the tokens of both clusters apart",
    ),
    row(
        On::Cluster,
        &["spec.kubeAPIServer.serviceAccountJWKSURI"],
        Treatment::NameOr(demand(
            "the address of the mirror's token keys",
            "https://OIDC-STORE.s3.us-east-1.amazonaws.com/{name}/openid/v1/jwks",
        )),
        Old::Store,
        "it is the address of the source's keys, which do not verify tokens of the mirror",
    ),
    row(
        On::Cluster,
        &["spec.kubeAPIServer.additionalServiceAccountIssuers"],
        Treatment::Removed,
        Old::Id,
        "the mirror has new keys, so no token of a former issuer is valid there",
    ),
    // DNS names.
    row(
        On::Cluster,
        &["spec.masterPublicName", "spec.api.publicName"],
        Treatment::NameOr(demand("the DNS name of the mirror's API", "api.{name}")),
        Old::Id,
        "kOps would point the name of the source's API to the mirror",
    ),
    row(
        On::Cluster,
        &["spec.masterInternalName"],
        Treatment::NameOr(demand("the internal DNS name of the mirror's API", "api.internal.{name}")),
        Old::Id,
        "kOps would point the internal name of the source's API to the mirror",
    ),
    row(
        On::Cluster,
        &["spec.additionalSans[]", "spec.api.additionalSANs[]"],
        Treatment::NameOrWarn(
            "the certificate of the mirror's API covers it, which is needed only if this name will point to the mirror",
        ),
        Old::Plain,
        "the certificate of the mirror's API has the names of the mirror",
    ),
    row(
        On::Cluster,
        &["spec.topology.bastion.bastionPublicName", "spec.networking.topology.bastion.publicName"],
        Treatment::NameOr(demand("the DNS name of the mirror's bastion", "bastion.{name}")),
        Old::Id,
        "kOps would point the name of the source's bastion to the mirror",
    ),
    // Network.
    row(
        On::Cluster,
        &["spec.networkID", "spec.networking.networkID"],
        Treatment::RemovedInNewVpc,
        Old::Id,
        "the mirror gets a VPC of its own; `--set` names an existing one, and `--same-vpc` keeps it",
    ),
    row(
        On::Cluster,
        &["spec.networkCIDR", "spec.networking.networkCIDR"],
        Treatment::GivenInNewVpc(demand("the range of the mirror's VPC", "10.1.0.0/16")),
        Old::Range,
        "VPCs with overlapping ranges cannot be peered",
    ),
    row(
        On::Cluster,
        &["spec.additionalNetworkCIDRs[]", "spec.networking.additionalNetworkCIDRs[]"],
        Treatment::GivenInNewVpc(demand("a second range of the mirror's VPC, or `none`", "10.2.0.0/16")),
        Old::Range,
        "VPCs with overlapping ranges cannot be peered",
    ),
    row(
        On::Cluster,
        &["spec.subnets[].cidr", "spec.networking.subnets[].cidr"],
        Treatment::Given(demand("the range of the mirror's subnet in its VPC", "10.1.32.0/19")),
        Old::Range,
        "a subnet has a range of its own",
    ),
    row(
        On::Cluster,
        &["spec.subnets[].ipv6CIDR", "spec.networking.subnets[].ipv6CIDR"],
        Treatment::RemovedInNewVpc,
        Old::Range,
        "the IPv6 range belongs to the VPC of the source",
    ),
    row(
        On::Cluster,
        &["spec.subnets[].id", "spec.networking.subnets[].id"],
        Treatment::Removed,
        Old::Id,
        "kOps creates subnets for the mirror; `--set` names existing ones, for all subnets or for none",
    ),
    row(
        On::Cluster,
        &["spec.subnets[].egress", "spec.networking.subnets[].egress"],
        Treatment::RemovedIf(&["nat-", "eipalloc-", "i-"]),
        Old::Id,
        "the NAT gateway, instance or Elastic IP belongs to the source; kOps creates one for the mirror",
    ),
    row(
        On::Cluster,
        &["spec.subnets[].publicIP", "spec.networking.subnets[].publicIP"],
        Treatment::Removed,
        Old::Id,
        "the Elastic IP belongs to the source",
    ),
    row(
        On::Cluster,
        &["spec.subnets[].additionalRoutes", "spec.networking.subnets[].additionalRoutes"],
        Treatment::RemovedInNewVpc,
        Old::Plain,
        "peerings and gateways are attached to the VPC of the source",
    ),
    row(
        On::Cluster,
        &["spec.subnets[].name", "spec.networking.subnets[].name", "spec.api.loadBalancer.subnets[].name"],
        Treatment::Name,
        Old::Plain,
        "the name of a subnet follows the name of the cluster",
    ),
    row(
        On::Group,
        &["spec.subnets[]"],
        Treatment::Name,
        Old::Plain,
        "the name of a subnet follows the name of the cluster",
    ),
    row(
        On::Cluster,
        &["spec.nonMasqueradeCIDR", "spec.networking.nonMasqueradeCIDR"],
        Treatment::Range,
        Old::Plain,
        "if the VPCs are peered, the range of Pods and Services must differ from that of the source",
    ),
    row(
        On::Cluster,
        &["spec.podCIDR", "spec.networking.podCIDR", "spec.kubeControllerManager.clusterCIDR"],
        Treatment::Range,
        Old::Plain,
        "if Pods are routed between the VPCs, their ranges must differ",
    ),
    row(
        On::Cluster,
        &["spec.serviceClusterIPRange", "spec.networking.serviceClusterIPRange"],
        Treatment::Range,
        Old::Plain,
        "if Services are routed between the VPCs, their ranges must differ",
    ),
    // Load balancers.
    row(
        On::Cluster,
        &[
            "spec.api.loadBalancer.subnets[].allocationId",
            "spec.api.loadBalancer.subnets[].allocationID",
            "spec.api.loadBalancer.subnets[].privateIPv4Address",
        ],
        Treatment::Removed,
        Old::Id,
        "the fixed address belongs to the load balancer of the source",
    ),
    row(
        On::Cluster,
        &["spec.api.loadBalancer.sslCertificate"],
        Treatment::Given(demand(
            "the ARN of a certificate for the mirror's API name, or `none`",
            "arn:aws:acm:us-east-1:111122223333:certificate/...",
        )),
        Old::Id,
        "the certificate covers the API name of the source",
    ),
    row(
        On::Cluster,
        &["spec.api.loadBalancer.accessLog.bucket"],
        Treatment::Kept,
        Old::Plain,
        "the access logs of both load balancers are in one bucket",
    ),
    row(
        On::Cluster,
        &["spec.api.loadBalancer.accessLog.bucketPrefix"],
        Treatment::Name,
        Old::Plain,
        "the access logs of the mirror get a folder of their own",
    ),
    row(
        On::Cluster,
        &["spec.api.loadBalancer.securityGroupOverride"],
        Treatment::Given(demand(
            "a security group for the mirror's API load balancer, or `none`",
            "sg-0123456789abcdef0",
        )),
        Old::Id,
        "kOps adds its rules to this security group, so it would change the group of the source",
    ),
    row(
        On::Group,
        &["spec.securityGroupOverride"],
        Treatment::Given(demand(
            "a security group for the mirror's nodes, or `none`",
            "sg-0123456789abcdef0",
        )),
        Old::Id,
        "kOps adds its rules to this security group, so it would change the group of the source",
    ),
    row(
        On::Cluster,
        &[
            "spec.api.loadBalancer.additionalSecurityGroups[]",
            "spec.topology.bastion.loadBalancer.additionalSecurityGroups[]",
            "spec.networking.topology.bastion.loadBalancer.additionalSecurityGroups[]",
            "spec.cloudConfig.elbSecurityGroup",
            "spec.cloudProvider.aws.elbSecurityGroup",
        ],
        Treatment::Kept,
        Old::Plain,
        "a security group of the user; it can be used only in its own VPC",
    ),
    row(
        On::Group,
        &["spec.additionalSecurityGroups[]"],
        Treatment::Kept,
        Old::Plain,
        "a security group of the user; it can be used only in its own VPC",
    ),
    row(
        On::Group,
        &[
            "spec.externalLoadBalancers[].loadBalancerName",
            "spec.externalLoadBalancers[].targetGroupArn",
            "spec.externalLoadBalancers[].targetGroupARN",
        ],
        Treatment::Removed,
        Old::Id,
        NEVER_BOTH,
    ),
    row(
        On::Group,
        &["spec.externalLoadBalancers"],
        Treatment::Removed,
        Old::Plain,
        "nodes of the mirror would receive the traffic of the source's load balancer",
    ),
    // Tags.
    row(
        On::All,
        &["spec.cloudLabels.*"],
        Treatment::Name,
        Old::Plain,
        "autoscalers and cloud controllers of the source would claim resources of the mirror by this tag",
    ),
    row(
        On::Group,
        &["spec.nodeLabels.*"],
        Treatment::Name,
        Old::Plain,
        "the label names the cluster of the node",
    ),
    row(
        On::Cluster,
        &[
            "spec.nodeTerminationHandler.managedASGTag",
            "spec.cloudProvider.aws.nodeTerminationHandler.managedASGTag",
        ],
        Treatment::NameOr(demand(
            "the tag of the mirror's autoscaling groups",
            "kubernetes.io/cluster/{name}",
        )),
        Old::Id,
        "the termination handler of one cluster would act on nodes of the other",
    ),
    // Names in components.
    row(
        On::Cluster,
        &["spec.authentication.aws.clusterID"],
        Treatment::NameOr(demand("an id of the mirror for aws-iam-authenticator", "{name}")),
        Old::Id,
        "with one id, a token for one cluster is valid in the other",
    ),
    row(
        On::Cluster,
        &[
            "spec.kubeControllerManager.clusterName",
            "spec.cloudControllerManager.clusterName",
            "spec.cloudConfig.openstack.blockStorage.clusterName",
            "spec.cloudProvider.openstack.blockStorage.clusterName",
        ],
        Treatment::NameOr(demand("the name of the mirror in the cloud", "{name}")),
        Old::Plain,
        "cloud resources are tagged with this name",
    ),
    row(
        On::Cluster,
        &["spec.networking.cilium.clusterName"],
        Treatment::NameOr(demand("the name of the mirror in a mesh of clusters", "mirror")),
        Old::Plain,
        "two clusters of a mesh must have different names",
    ),
    // Kept on purpose.
    row(
        On::Group,
        &["spec.iam.profile"],
        Treatment::Kept,
        Old::Plain,
        "a shared instance profile; its policy must allow the mirror's state store",
    ),
    row(
        On::Cluster,
        &["spec.externalPolicies.*[]"],
        Treatment::Kept,
        Old::Plain,
        "a policy of the user; it must allow the resources of the mirror",
    ),
    row(On::Cluster, &["spec.sshKeyName"], Treatment::Kept, Old::Plain, "both clusters have one SSH key"),
    // What current versions of kOps refuse.
    row(
        On::Cluster,
        &["spec.gossipConfig", "spec.dnsControllerGossipConfig"],
        Treatment::Removed,
        Old::Plain,
        "kOps 1.37 has no gossip DNS",
    ),
    row(
        On::Cluster,
        &[
            "spec.kubelet.networkPluginName",
            "spec.masterKubelet.networkPluginName",
            "spec.controlPlaneKubelet.networkPluginName",
        ],
        Treatment::Outdated(&[]),
        Old::Plain,
        "Kubernetes 1.24 removed this flag of the kubelet; remove the field with the value `none`",
    ),
    row(
        On::Group,
        &["spec.kubelet.networkPluginName"],
        Treatment::Outdated(&[]),
        Old::Plain,
        "Kubernetes 1.24 removed this flag of the kubelet; remove the field with the value `none`",
    ),
    row(
        On::Cluster,
        &["spec.iam.legacy"],
        Treatment::Outdated(&["true"]),
        Old::Plain,
        "kOps no longer creates the former IAM permissions; set `false`",
    ),
    row(
        On::Cluster,
        &["spec.api.loadBalancer.class"],
        Treatment::Outdated(&["Classic"]),
        Old::Plain,
        "kOps 1.37 has no classic load balancer for the API; set `Network`",
    ),
    row(
        On::Cluster,
        &["spec.containerRuntime"],
        Treatment::Outdated(&["docker"]),
        Old::Plain,
        "Kubernetes 1.24 removed the Docker runtime; set `containerd`",
    ),
];
