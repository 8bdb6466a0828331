//! `netsurgeon controlplane` on manifests as kubeadm writes them, and as administrators edit them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::program::run_in;

/// Order, indentation and neighbours of the flag in the manifests of kubeadm 1.24 to 1.36, and in manifests edited by
/// hand.
const STYLES: [(&str, &str); 5] = [
    (
        "1.24",
        "    - --secure-port=6443\n    - --service-account-issuer=https://kubernetes.default.svc.cluster.local\n    - \
         --service-cluster-ip-range=10.96.0.0/16\n    - --tls-cert-file=/etc/kubernetes/pki/apiserver.crt\n",
    ),
    ("1.36", "    - --service-cluster-ip-range=10.96.0.0/16\n    - --advertise-address=192.0.2.10\n"),
    (
        "a comment",
        "    # the range of the cluster\n    - --service-cluster-ip-range=10.96.0.0/16  # since 2019\n",
    ),
    ("quotes", "    - \"--service-cluster-ip-range=10.96.0.0/16\"\n    - '--v=2'\n"),
    ("two words", "    - --service-cluster-ip-range\n    - 10.96.0.0/16\n"),
];

fn api_server(flags: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: \
         192.0.2.10:6443\n  creationTimestamp: null\n  labels: &labels\n    component: kube-apiserver\n    tier: control-plane\n  name: \
         kube-apiserver\n  namespace: kube-system\nspec:\n  containers:\n  - command:\n    - kube-apiserver\n{flags}    image: \
         registry.k8s.io/kube-apiserver:v1.36.3\n    name: kube-apiserver\n  hostNetwork: true\nstatus: {{}}\n"
    )
}

fn controller_manager(flags: &str) -> String {
    api_server(flags).replace("kube-apiserver", "kube-controller-manager")
}

/// A host with these manifests, and one manifest that is not of the control plane.
fn host(api: &str, manager: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    fs::write(manifests.join("kube-apiserver.yaml"), api).unwrap();
    fs::write(manifests.join("kube-controller-manager.yaml"), manager).unwrap();
    fs::write(
        manifests.join("etcd.yaml"),
        "kind: Pod\nspec: {containers: [{name: etcd, command: [etcd]}]}\n",
    )
    .unwrap();
    fs::write(manifests.join(".half-written.yaml"), "a: [").unwrap();
    fs::set_permissions(manifests.join("kube-apiserver.yaml"), fs::Permissions::from_mode(0o600)).unwrap();
    folder
}

fn run(folder: &Path, arguments: &str) -> (Option<i32>, Value, String) {
    let output = run_in(folder, &format!("controlplane {arguments} --manifests manifests -o json"), b"");
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), said)
}

fn set(folder: &Path, arguments: &str) -> (Option<i32>, Value, String) {
    run(folder, &format!("set-range {arguments}"))
}

fn read(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join("manifests").join(file)).unwrap()
}

#[test]
fn set_range_changes_only_the_value_in_every_style() {
    for (style, flags) in STYLES {
        let (api, manager) = (api_server(flags), controller_manager(flags));
        let folder = host(&api, &manager);
        let (code, changed, said) = set(folder.path(), "--to 10.200.0.0/16 --yes");
        assert_eq!((code, &changed["status"]), (Some(0), &json!("changed")), "{style}: {said}");
        assert_eq!(
            read(folder.path(), "kube-apiserver.yaml"),
            api.replace("10.96.0.0/16", "10.200.0.0/16"),
            "{style}"
        );
        assert_eq!(
            read(folder.path(), "kube-controller-manager.yaml"),
            manager.replace("10.96.0.0/16", "10.200.0.0/16"),
            "{style}"
        );
        let mode =
            fs::metadata(folder.path().join("manifests/kube-apiserver.yaml")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{style}");
        let entries = fs::read_dir(folder.path().join("manifests")).unwrap().count();
        assert_eq!(entries, 4, "{style}: a kubelet reads every file in that folder");
        let kept = changed["files"][1]["kept"].as_str().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(kept)).unwrap(), api, "{style}");

        let (code, again, said) = set(folder.path(), "--to 10.200.0.0/16 --yes");
        assert_eq!((code, &again["status"]), (Some(0), &json!("unchanged")), "{style}: {said}");
        let (code, _, said) = set(folder.path(), "--to 10.96.0.0/16 --yes");
        assert_eq!(code, Some(0), "{style}: {said}");
        assert_eq!(read(folder.path(), "kube-apiserver.yaml"), api, "{style}: restored");
    }
}

#[test]
fn dry_run_shows_difference_and_writes_nothing() {
    let api = api_server(STYLES[0].1);
    let folder = host(&api, &controller_manager("    - --v=2\n"));
    let output = run_in(
        folder.path(),
        "controlplane set-range --to 10.200.0.0/16,fd00:200::/112 --dry-run --manifests manifests",
        b"",
    );
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("- 18: - --service-cluster-ip-range=10.96.0.0/16"), "{out}");
    assert!(out.contains("+ 18: - --service-cluster-ip-range=10.200.0.0/16,fd00:200::/112"), "{out}");
    assert!(err.contains("`kube-controller-manager` has no Service range flag"), "{err}");
    assert_eq!(read(folder.path(), "kube-apiserver.yaml"), api);
    let (code, _, said) = set(folder.path(), "--to 10.200.0.0/16");
    assert_eq!(code, Some(1), "without a terminal there is no prompt: {said}");
    assert_eq!(read(folder.path(), "kube-apiserver.yaml"), api);
}

#[test]
fn set_range_rejects_unusable_manifests_without_change() {
    let (api, manager) = (api_server(STYLES[0].1), controller_manager(STYLES[0].1));
    for (text, reason) in [
        ("a: [".to_string(), "kube-apiserver.yaml`: it is not valid YAML"),
        (api_server("    - --v=2\n"), "`kube-apiserver` has no flag `--service-cluster-ip-range`"),
        (api_server(&STYLES[0].1.repeat(2)), "has the flag `--service-cluster-ip-range` 2 times"),
        (controller_manager(STYLES[0].1), "no manifest in `manifests` runs `kube-apiserver`"),
    ] {
        let folder = host(&text, &manager);
        let (code, _, said) = set(folder.path(), "--to 10.200.0.0/16 --yes");
        assert_eq!(code, Some(1), "{reason}: {said}");
        assert!(said.contains(reason), "{reason}: {said}");
        assert_eq!(read(folder.path(), "kube-apiserver.yaml"), text);
        assert_eq!(read(folder.path(), "kube-controller-manager.yaml"), manager);
    }
    let folder = host(&api, &manager);
    for wrong in ["10.200.0.1/16", "10.200.0.0/16,10.201.0.0/16", "x"] {
        assert_eq!(set(folder.path(), &format!("--to {wrong} --yes")).0, Some(2), "{wrong}");
    }
    let output =
        run_in(folder.path(), "controlplane set-range --to 10.200.0.0/16 --yes --manifests none", b"");
    assert_eq!(output.status.code(), Some(1));
}

/// A kubelet reads every file whose name does not start with a dot.
#[test]
fn two_manifests_of_one_component_are_reported_and_not_changed() {
    let (api, manager) = (api_server(STYLES[0].1), controller_manager(STYLES[0].1));
    for (name, text, component) in [
        ("kube-apiserver.yaml.bak", &api, "kube-apiserver"),
        ("kube-apiserver.yaml~", &api, "kube-apiserver"),
        ("copy", &api, "kube-apiserver"),
        ("kube-controller-manager.yaml.old", &manager, "kube-controller-manager"),
    ] {
        let folder = host(&api, &manager);
        let copy = folder.path().join("manifests").join(name);
        fs::write(&copy, text).unwrap();
        let (code, _, said) = set(folder.path(), "--to 10.200.0.0/16 --yes");
        assert_eq!(code, Some(1), "{name}: {said}");
        let told = said.contains(&format!("`{component}`: 2 manifests run it")) && said.contains(name);
        assert!(told && said.contains("move the copies out of this folder"), "{name}: {said}");
        let files = [&api, &manager, text];
        let read = ["kube-apiserver.yaml", "kube-controller-manager.yaml", name]
            .map(|name| read(folder.path(), name));
        assert_eq!(read.iter().collect::<Vec<_>>(), files, "{name}: nothing was written");
        let (code, shown, said) = run(folder.path(), "show --no-api");
        assert_eq!(code, Some(3), "{name}: {said}");
        let findings = shown["findings"].as_array().unwrap();
        assert!(findings.iter().any(|one| one["code"] == "duplicate-manifest"), "{name}: {findings:?}");
        fs::rename(&copy, copy.with_file_name(format!(".{name}"))).unwrap();
        let (code, _, said) = set(folder.path(), "--to 10.200.0.0/16 --yes");
        assert_eq!(code, Some(0), "{name}: {said}");
    }
}

/// Runs a script as root of its own mount namespace, in which `/etc` and `/var/lib` are empty.
fn on_another_host(folder: &Path, script: &str) -> (Option<i32>, String) {
    let script = format!(
        "set -e; mount -t tmpfs none /etc; mount -t tmpfs none /var/lib; netsurgeon={}; {script}",
        env!("CARGO_BIN_EXE_netsurgeon")
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).current_dir(folder);
    let output = command.output().expect("unshare");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// RKE2 and K3s write these files again from their own configuration when they start.
#[test]
fn generated_files_are_refused_and_the_setting_is_named() {
    let folder = host(&api_server(STYLES[0].1), &controller_manager(STYLES[0].1));
    let rke2 = "mkdir -p /etc/rancher/rke2 /var/lib/rancher/rke2/agent; cp -r manifests /var/lib/rancher/rke2/agent/pod-manifests; \
                printf 'token: x\\nservice-cidr: 10.96.0.0/16\\n' >/etc/rancher/rke2/config.yaml; cd /var/lib/rancher/rke2/agent";
    let unchanged = "|| status=$?; diff -r pod-manifests $OLDPWD/manifests >&2 || exit 99; exit $status";
    for place in ["", "--manifests pod-manifests", "--manifests /var/lib/rancher/rke2/agent/pod-manifests"] {
        let set = format!("$netsurgeon controlplane set-range --to 10.200.0.0/16 --yes {place}");
        let (code, said) = on_another_host(folder.path(), &format!("{rke2}; {set} {unchanged}"));
        assert_eq!(code, Some(1), "{place}: {said}");
        assert!(said.contains("RKE2 generates the manifests in"), "{said}");
        let setting = "RKE2: `service-cidr: 10.200.0.0/16` in /etc/rancher/rke2/config.yaml (line 2) of every server, then restart";
        assert!(said.contains(setting), "{said}");
    }
    let kubelet = "mkdir -p /var/lib/kubelet; printf 'clusterDNS: [10.96.0.10]\\n' >/var/lib/kubelet/config.yaml; \
                   $netsurgeon controlplane set-dns --to 10.200.0.10 --yes || status=$?; \
                   grep -q 10.96.0.10 /var/lib/kubelet/config.yaml || exit 99; exit $status";
    let drop_in = "mkdir -p /etc/rancher/rke2/config.yaml.d; \
                   printf 'cluster-dns: 10.96.0.10\\n' >/etc/rancher/rke2/config.yaml.d/50.yaml";
    let (code, said) = on_another_host(folder.path(), &format!("{rke2}; {drop_in}; {kubelet}"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the kubelet of RKE2 does not read `/var/lib/kubelet/config.yaml`"), "{said}");
    assert!(said.contains("in /etc/rancher/rke2/config.yaml.d/50.yaml (line 1) of every server"), "{said}");
    for (sign, named) in [
        (
            "/etc/rancher/k3s",
            "K3s: `service-cidr: 10.200.0.0/16` in /etc/rancher/k3s/config.yaml of every server",
        ),
        ("/var/lib/k0s", "k0s: `spec.network.serviceCIDR: 10.200.0.0/16` in /etc/k0s/k0s.yaml"),
    ] {
        let set = format!("mkdir -p {sign}; $netsurgeon controlplane set-range --to 10.200.0.0/16 --yes");
        let (code, said) = on_another_host(folder.path(), &set);
        assert_eq!(code, Some(2), "{sign}: {said}");
        assert!(said.contains(named), "{sign}: {said}");
    }
}

#[test]
fn show_reports_differing_ranges() {
    let folder = host(&api_server(STYLES[0].1), &controller_manager(STYLES[0].1));
    // Processes of other tests are found, too.
    let of_files = |shown: &Value| -> Vec<Value> {
        let all = shown["components"].as_array().unwrap().iter();
        all.filter(|one| one["source"] == "manifest").map(|one| one["range"].clone()).collect()
    };
    let (_, shown, said) = run(folder.path(), "show --no-api");
    assert_eq!(of_files(&shown), ["10.96.0.0/16", "10.96.0.0/16"], "{said}");
    let other = controller_manager(STYLES[0].1).replace("10.96", "10.97");
    fs::write(folder.path().join("manifests/kube-controller-manager.yaml"), other).unwrap();
    fs::write(folder.path().join("manifests/second.yaml"), api_server(STYLES[0].1).replace("10.96", "10.98"))
        .unwrap();
    let (code, shown, said) = run(folder.path(), "show --no-api");
    assert_eq!(code, Some(3), "{said}");
    let codes: Vec<&Value> = shown["findings"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert!(codes.contains(&&json!("api-server-ranges-differ")), "{codes:?}");
    assert!(codes.contains(&&json!("controller-manager-range-differs")), "{codes:?}");
}

fn set_dns(folder: &Path, arguments: &str) -> (Option<i32>, Value, String) {
    let output =
        run_in(folder, &format!("controlplane set-dns --config config.yaml -o json {arguments}"), b"");
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), said)
}

/// As kubeadm writes it, by hand on one line, dual-stack.
const KUBELETS: [&str; 3] = [
    "apiVersion: kubelet.config.k8s.io/v1beta1\nclusterDNS:\n- 10.96.0.10\nclusterDomain: cluster.local # 10.96.0.10\n",
    "# by hand\nclusterDNS: [ \"10.96.0.10\" ]   # DNS\nkind: KubeletConfiguration\n",
    "clusterDNS:\n  - 'fd00:10:96::a'\n  - 10.96.0.10\n",
];

#[test]
fn set_dns_changes_only_the_address() {
    for text in KUBELETS {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        fs::write(&config, text).unwrap();
        let (code, planned, said) = set_dns(folder.path(), "--to 10.200.0.10 --dry-run");
        assert_eq!((code, &planned["status"]), (Some(0), &json!("planned")), "{said}");
        assert_eq!(fs::read_to_string(&config).unwrap(), text);
        let (code, changed, said) = set_dns(folder.path(), "--to 10.200.0.10 --yes");
        assert_eq!((code, &changed["status"]), (Some(0), &json!("changed")), "{said}");
        assert!(said.contains("systemctl restart kubelet"), "{said}");
        assert_eq!(fs::read_to_string(&config).unwrap(), text.replacen("10.96.0.10", "10.200.0.10", 1));
        let kept = changed["files"][0]["kept"].as_str().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(kept)).unwrap(), text);
        let (code, again, said) = set_dns(folder.path(), "--to 10.200.0.10 --yes");
        assert_eq!((code, &again["status"]), (Some(0), &json!("unchanged")), "{said}");
        let (code, _, said) = set_dns(folder.path(), "--from 10.200.0.10 --to 10.96.0.10 --yes");
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(fs::read_to_string(&config).unwrap(), text, "restored");
    }
}

#[test]
fn set_dns_rejects_unusable_configuration_without_change() {
    for (text, arguments, code, reason) in [
        ("kind: KubeletConfiguration\n", "--to 10.200.0.10", 1, "`config.yaml` has no `clusterDNS`"),
        ("clusterDNS: [\n", "--to 10.200.0.10", 1, "it is not valid YAML"),
        (KUBELETS[0], "--from 10.97.0.10 --to 10.200.0.10", 1, "has `10.96.0.10`, not `10.97.0.10`"),
        (
            "clusterDNS: [10.96.0.10, 10.97.0.10]\n",
            "--to 10.200.0.10",
            2,
            "give the old address with `--from`",
        ),
        (KUBELETS[0], "--to fd00::a", 2, "give the old address with `--from`"),
        ("clusterDNS: [169.254.20.10]\n", "--to 10.200.0.10", 2, "a DNS cache on the node"),
        (
            "clusterDNS: [10.96.0.10, 10.200.0.10]\n",
            "--to 10.200.0.10",
            1,
            "remove the old address from the file by hand",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        fs::write(&config, text).unwrap();
        let (found, _, said) = set_dns(folder.path(), &format!("{arguments} --yes"));
        assert_eq!(found, Some(code), "{text}: {said}");
        assert!(said.contains(reason), "{reason}: {said}");
        assert_eq!(fs::read_to_string(&config).unwrap(), text);
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, _, said) = set_dns(folder.path(), "--to 10.200.0.10 --yes");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`config.yaml`: No such file"), "{said}");
}
