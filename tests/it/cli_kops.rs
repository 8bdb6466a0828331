//! `netsurgeon mirror kops`: the program on whole files.

use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::program::{run_in, told};

/// A small source with a script that names it.
const BLUE: &str = "apiVersion: kops.k8s.io/v1alpha2
kind: Cluster
metadata:
  creationTimestamp: \"2022-05-01T08:00:00Z\"
  name: blue.example.com
spec:
  configBase: s3://state/blue.example.com # the state
  hooks:
  - manifest: |
      ExecStart=/opt/join blue.example.com --token canary-of-a-hook
    name: join.service
  networkCIDR: 172.20.0.0/16
  networking:
    weave: {}
  sshKeyName: ops
  subnets:
  - cidr: 172.20.32.0/19
    id: subnet-0123456789abcdef0
    name: a
    type: Public
    zone: us-east-1a
---
apiVersion: kops.k8s.io/v1alpha2
kind: InstanceGroup
metadata:
  labels:
    kops.k8s.io/cluster: blue.example.com
  name: nodes
spec:
  additionalSecurityGroups: [sg-0123456789abcdef0]
  instanceMetadata: {httpPutResponseHopLimit: 1}
  role: Node
  subnets: [a]
";

const GIVEN: &str = "mirror kops blue.yaml --name green.example.com --set networking=cilium --set networkCIDR=10.1.0.0/16 --set \
                     subnets.a.cidr=10.1.32.0/19 --replace blue.example.com=green.example.com";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("blue.yaml"), BLUE).expect("a file");
    folder
}

fn tell_in(folder: &Path, arguments: &str) -> String {
    told(&run_in(folder, arguments, b""))
}

#[test]
fn all_reasons_are_printed_at_once_and_nothing_is_written() {
    let folder = folder();
    let text = tell_in(folder.path(), "mirror kops blue.yaml --name green.example.com --out green.yaml");
    assert_snapshot!(text, @r"
    --- stderr
    error: there is no specification of the mirror yet, for 4 reasons; nothing was written
      blue.yaml:12:3: missing: the range of the mirror's VPC, for example `--set networkCIDR=10.1.0.0/16`: VPCs with overlapping ranges cannot be peered
      blue.yaml:17:5: missing: the range of the mirror's subnet in its VPC, for example `--set subnets.a.cidr=10.1.32.0/19`: a subnet has a range of its own
      blue.yaml:14:5: networking.weave: kOps no longer has Weave, and the project is archived; choose the mirror's network plug-in, for example `--set networking=cilium` or `--set networking=calico`
      blue.yaml:10:27: hooks.join.service.manifest: it contains `blue.example.com`, the name of the source
    hint: to change a text everywhere: `--replace TEXT=TEXT`; or change it in the file
    hint: to accept a text that is right for the mirror: `--allow-old TEXT`
    --- exit status 1
    ");
    assert!(!folder.path().join("green.yaml").exists());
}

#[test]
fn specification_is_printed_with_what_to_decide() {
    assert_snapshot!(tell_in(folder().path(), GIVEN), @r"
    --- stdout
    apiVersion: kops.k8s.io/v1alpha2
    kind: Cluster
    metadata:
      name: green.example.com
    spec:
      configBase: s3://state/green.example.com # the state
      hooks:
      - manifest: |
          ExecStart=/opt/join green.example.com --token canary-of-a-hook
        name: join.service
      networkCIDR: 10.1.0.0/16
      networking:
        cilium: {}
      sshKeyName: ops
      subnets:
      - cidr: 10.1.32.0/19
        name: a
        type: Public
        zone: us-east-1a
    ---
    apiVersion: kops.k8s.io/v1alpha2
    kind: InstanceGroup
    metadata:
      labels:
        kops.k8s.io/cluster: green.example.com
      name: nodes
    spec:
      additionalSecurityGroups: [sg-0123456789abcdef0]
      instanceMetadata: {httpPutResponseHopLimit: 1}
      role: Node
      subnets: [a]
    --- stderr
    note: blue.yaml:30:30: ig/nodes.additionalSecurityGroups.0: `sg-0123456789abcdef0` stays: a security group of the user; it can be used only in its own VPC
    note: decide: certificate authority: kOps creates a new one for the mirror, so kubeconfigs of the source do not work there
      `kops export kubeconfig --name green.example.com --admin`
    note: decide: secrets in the store: no specification contains them; create those that the source has
      `kops get secrets --name blue.example.com`
      `kops create secret dockerconfig -f FILE --name green.example.com`
    note: decide: security groups: a security group works only in its own VPC; and databases allow the groups of the source, so add those of the mirror
      `aws ec2 describe-security-groups --filters Name=tag:KubernetesCluster,Values=green.example.com`
    note: decide: network plug-in: `cilium` starts with the defaults of kOps: check MTU, encryption, kube-proxy, and the network policies
      `netsurgeon preflight cni --to cilium`
    blue.example.com -> green.example.com: 9 changes
    --- exit status 0
    ");
}

#[test]
fn difference_names_field_values_and_reason() {
    let text = tell_in(folder().path(), &format!("{GIVEN} --diff"));
    assert!(!text.contains("canary-of-a-hook"), "{text}");
    assert_snapshot!(text.split("--- stderr").next().expect("stdout"), @r"
    --- stdout
    --- blue.example.com
    +++ green.example.com
    @@ blue.yaml:4:3 metadata.creationTimestamp: kOps sets it for the new object
    - 2022-05-01T08:00:00Z
    @@ blue.yaml:5:3 metadata.name: the name identifies the cluster
    - blue.example.com
    + green.example.com
    @@ blue.yaml:7:3 configBase: with the same path, kOps would change the state of the source
    - s3://state/blue.example.com
    + s3://state/green.example.com
    @@ blue.yaml:9:5 hooks.join.service.manifest: a part of the value, with `--replace`
    - blue.example.com
    + green.example.com
    @@ blue.yaml:12:3 networkCIDR: VPCs with overlapping ranges cannot be peered
    - 172.20.0.0/16
    + 10.1.0.0/16
    @@ blue.yaml:14:5 networking.weave: kOps no longer has Weave, and the project is archived
    - weave
    + cilium
    @@ blue.yaml:17:5 subnets.a.cidr: a subnet has a range of its own
    - 172.20.32.0/19
    + 10.1.32.0/19
    @@ blue.yaml:18:5 subnets.a.id: kOps creates subnets for the mirror; `--set` names existing ones, for all subnets or for none
    - subnet-0123456789abcdef0
    @@ blue.yaml:27:5 ig/nodes.metadata.labels.kops.k8s.io/cluster: kOps finds the cluster of a document by this label
    - blue.example.com
    + green.example.com
    ");
}

#[test]
fn specification_is_read_from_stdin_and_written_to_files() {
    let folder = folder();
    let from_stdin = run_in(folder.path(), &GIVEN.replace("blue.yaml", "-"), BLUE.as_bytes());
    let output = run_in(folder.path(), &format!("{GIVEN} --out green.yaml"), b"");
    assert_eq!((output.status.code(), from_stdin.status.code()), (Some(0), Some(0)));
    assert!(output.stdout.is_empty());
    let written = std::fs::read(folder.path().join("green.yaml")).expect("a file");
    assert_eq!(written, from_stdin.stdout);
    std::fs::create_dir(folder.path().join("mirror")).expect("a folder");
    let output = run_in(folder.path(), &format!("{GIVEN} --out mirror -o json"), b"");
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&shown["version"], &shown["yaml"]), (&Value::from(1), &Value::Null));
    assert_eq!(shown["files"][0], "mirror/blue.yaml");
    assert_eq!(shown["changes"][0]["at"], "blue.yaml:4:3");
    assert_eq!(std::fs::read(folder.path().join("mirror/blue.yaml")).expect("a file"), written);
    for place in [".", "blue.yaml"] {
        let output = run_in(folder.path(), &format!("{GIVEN} --out {place}"), b"");
        assert_eq!(output.status.code(), Some(2), "{place}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("blue.yaml")).expect("a file"), BLUE);
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_position() {
    let folder = tempfile::tempdir().expect("a folder");
    for (text, expected) in [
        ("kind: Cluster\n\tname: x\n", "bad.yaml:2:1: it is not valid YAML: a tab in the indentation"),
        (&*BLUE.replace("weave: {}", "weave: &w {}"), "bad.yaml:14:15: an anchor, an alias or a tag"),
        (&*BLUE.replace("InstanceGroup", "Pod"), "bad.yaml:24:7: the kind `Pod` is not known"),
    ] {
        std::fs::write(folder.path().join("bad.yaml"), text).expect("a file");
        let output = run_in(folder.path(), "mirror kops bad.yaml --name green.example.com", b"");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected) && output.stdout.is_empty(), "{expected}: {said}");
    }
    let output = run_in(folder.path(), "mirror kops none.yaml --name green.example.com", b"");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read `none.yaml`"));
    let output = run_in(folder.path(), "mirror kops bad.yaml --name green.example.com --set x", b"");
    assert_eq!(output.status.code(), Some(2));
}
