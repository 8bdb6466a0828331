"""Creates what two clusters have in an AWS account, for tests of `netsurgeon mirror parity`.

Usage: two_clusters.py SOURCE_ISSUER MIRROR_ISSUER [DIFFERENCE...]

Without differences, the mirror (green) has everything that the source (blue) has. Each name of a difference leaves one thing out. Prints the
ids of the instances as JSON.
"""

import json
import sys

import boto3

SOURCE_ISSUER, MIRROR_ISSUER = sys.argv[1:3]
DIFFERENCES = set(sys.argv[3:])
KNOWN = {
    "address", "boundary", "cache", "clients", "database", "deny", "hops", "inline", "office", "provider",
    "registry", "reports", "web",
}
assert DIFFERENCES <= KNOWN, DIFFERENCES - KNOWN
SIDES = {"blue": SOURCE_ISSUER, "green": MIRROR_ISSUER}

ec2 = boto3.client("ec2")
iam = boto3.client("iam")
account = boto3.client("sts").get_caller_identity()["Account"]


def has(side, difference):
    """Whether a cluster has a thing: the source has all."""
    return side == "blue" or difference not in DIFFERENCES


def cluster(side):
    return f"{side}.example.com"


def tagged(kind, side, name):
    tags = [{"Key": "Name", "Value": name}, {"Key": "KubernetesCluster", "Value": cluster(side)}]
    return [{"ResourceType": kind, "Tags": tags}]


def arn(kind, name):
    return f"arn:aws:iam::{account}:{kind}/{name}"


def document(*statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(actions, resources="*", **more):
    return {"Effect": "Allow", "Action": actions, "Resource": resources, **more}


def by_service(service):
    return {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}


def managed(name, *statements):
    return iam.create_policy(PolicyName=name, PolicyDocument=document(*statements))["Policy"]["Arn"]


# The network, shared by both clusters, with one subnet and one NAT gateway for each.
vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
subnets, nat_addresses = {}, {}


def nat_gateway(subnet):
    address = ec2.allocate_address(Domain="vpc")
    gateway = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address["AllocationId"])["NatGateway"]
    return gateway["NatGatewayId"], address["PublicIp"]


shared_gateway = None
for number, side in enumerate(SIDES, start=1):
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone="eu-west-1a")
    subnets[side] = subnet["Subnet"]["SubnetId"]
    if side == "blue" or "address" in DIFFERENCES:
        shared_gateway = nat_gateway(subnets[side])
    gateway, nat_addresses[side] = shared_gateway
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway)
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnets[side])


def group(name, side=None):
    more = {"TagSpecifications": tagged("security-group", side, name)} if side else {}
    made = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc, **more)
    return made["GroupId"]


def let_in(target, port, peer, last=None):
    permission = {"IpProtocol": "tcp", "FromPort": port, "ToPort": last or port}
    if port == -1:
        permission = {"IpProtocol": "-1"}
    if peer.startswith("sg-"):
        permission["UserIdGroupPairs"] = [{"GroupId": peer}]
    else:
        permission["IpRanges"] = [{"CidrIp": peer}]
    ec2.authorize_security_group_ingress(GroupId=target, IpPermissions=[permission])


nodes = {side: group(f"nodes.{cluster(side)}", side) for side in SIDES}
masters = {side: group(f"masters.{cluster(side)}", side) for side in SIDES}
# The group of a load balancer that the source's controllers created: the mirror's create their own.
balancer = group("k8s-elb-blue", "blue")
let_in(balancer, 443, "0.0.0.0/0")
for side in SIDES:
    let_in(nodes[side], -1, nodes[side])
    let_in(nodes[side], -1, masters[side])
    let_in(masters[side], 443, nodes[side])
    if has(side, "office"):
        let_in(nodes[side], 30000, "192.0.2.0/24", 32767)
let_in(nodes["blue"], 31000, balancer)

# What the clusters use: a database by group, a cache by address, and a group that instances need for a file system.
database, cache, clients, files = group("database"), group("cache"), group("clients"), group("files")
let_in(files, 2049, clients)
for side in SIDES:
    if has(side, "database"):
        let_in(database, 5432, nodes[side])
    if has(side, "cache"):
        number = list(SIDES).index(side) + 1
        let_in(cache, 6379, f"10.0.{number}.0/24")
for target, what in [(database, "RDSNetworkInterface"), (cache, "ElastiCache shop-001")]:
    ec2.create_network_interface(SubnetId=subnets["blue"], Groups=[target], Description=what)

# Roles of nodes.
registry = managed("registry-read", allow(["ecr:GetAuthorizationToken", "ecr:BatchGetImage"]))
bounds = managed("bounds", allow("*"))
for side in SIDES:
    for kind in ["nodes", "masters"]:
        name = f"{kind}.{cluster(side)}"
        more = {"PermissionsBoundary": bounds} if kind == "nodes" and has(side, "boundary") else {}
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(by_service("ec2.amazonaws.com")), **more)
        statements = [allow("ec2:Describe*"), allow(["s3:GetObject"], f"arn:aws:s3:::store/{cluster(side)}/*")]
        if side == "green":
            # The same rights in other words.
            statements = [allow(["EC2:describe*"]), allow("s3:Get*", [f"arn:aws:s3:::store/{cluster(side)}/*"])]
        if kind == "nodes" and has(side, "inline"):
            statements.append(allow("sqs:SendMessage", "arn:aws:sqs:*:*:orders"))
        if kind == "nodes" and side == "green" and "deny" in DIFFERENCES:
            statements.append({"Effect": "Deny", "Action": "s3:DeleteObject", "Resource": "*"})
        iam.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=document(*statements))
        if kind == "nodes" and has(side, "registry"):
            iam.attach_role_policy(RoleName=name, PolicyArn=registry)
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


# Roles of Pods.
def by_issuer(issuer, subject):
    condition = {"StringEquals": {f"{issuer}:sub": subject, f"{issuer}:aud": "sts.amazonaws.com"}}
    principal = {"Federated": arn("oidc-provider", issuer)}
    return {
        "Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRoleWithWebIdentity", "Condition": condition,
    }


for side, issuer in SIDES.items():
    if has(side, "provider"):
        iam.create_open_id_connect_provider(
            Url=f"https://{issuer}", ClientIDList=["sts.amazonaws.com"], ThumbprintList=["0" * 40])
def by_nodes(difference):
    trusted = [arn("role", f"nodes.{cluster(side)}") for side in SIDES if has(side, difference)]
    return {"Effect": "Allow", "Principal": {"AWS": trusted}, "Action": "sts:AssumeRole"}


# On its way from kiam to tokens: both work.
web = [by_issuer(issuer, "system:serviceaccount:shop:web") for side, issuer in SIDES.items() if has(side, "web")]
iam.create_role(RoleName="shop-web", AssumeRolePolicyDocument=document(*web, by_nodes("web")))
iam.create_role(RoleName="reports", AssumeRolePolicyDocument=document(by_nodes("reports")))

# Instances.
instances, image = {}, ec2.describe_images()["Images"][0]["ImageId"]
for side in SIDES:
    instances[side] = {}
    for kind, own, count in [("masters", masters[side], 1), ("nodes", nodes[side], 2)]:
        groups = [own, clients] if kind == "nodes" and has(side, "clients") else [own]
        hops = 2 if kind == "masters" or has(side, "hops") else 1
        options = {"HttpTokens": "optional", "HttpPutResponseHopLimit": hops, "HttpEndpoint": "enabled"}
        # One by one: of several, moto gives the instance profile only to the first.
        made = [
            ec2.run_instances(
                ImageId=image, MinCount=1, MaxCount=1, SubnetId=subnets[side], SecurityGroupIds=groups,
                IamInstanceProfile={"Name": f"{kind}.{cluster(side)}"}, MetadataOptions=options,
                TagSpecifications=tagged("instance", side, f"{kind}.{cluster(side)}"))
            for _ in range(count)
        ]
        instances[side][kind] = [one["Instances"][0]["InstanceId"] for one in made]
print(json.dumps({"instances": instances, "database": database, "nat": nat_addresses}))
