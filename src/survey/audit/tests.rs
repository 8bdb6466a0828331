//! Tests each rule with one broken cluster. `tests/it` has a test with a real, healthy cluster.

use super::*;
use crate::ip::ServiceCidr;
use crate::store::{Key, Revision};
use crate::survey::{
    AddressRecord, BitmapRecord, CidrRecord, EraEvidence, KubeadmConfig, NodeRecord, ServiceRecord,
};
use crate::wire::bitmap::Bitmap;
use crate::wire::objects::{ALLOCATOR, MOVING, NETSURGEON};
use crate::wire::{Pairs, ServicePort, ServiceSpec};

fn service(name: &str, address: &str) -> ServiceRecord {
    let spec = ServiceSpec {
        cluster_ip: Some(address.into()),
        cluster_ips: vec![address.into()],
        ..ServiceSpec::default()
    };
    ServiceRecord {
        key: Key::from(format!("/registry/services/specs/default/{name}")),
        mod_revision: Revision(1),
        namespace: "default".into(),
        name: name.into(),
        uid: name.into(),
        labels: Pairs::default(),
        is_being_deleted: false,
        finalizers: Vec::new(),
        spec,
        addresses: address.parse().into_iter().collect(),
    }
}

fn object(address: &str, parent: &str) -> AddressRecord {
    AddressRecord {
        key: Key::from(format!("/registry/ipaddresses/{address}")),
        create_revision: Revision(1),
        mod_revision: Revision(1),
        name: address.into(),
        address: address.parse().ok(),
        parent: ("default".into(), parent.into()),
        managed_by: ALLOCATOR.into(),
        created: Some(1_795_247_950),
    }
}

fn bitmap(name: &str, range: &str, capacity: u64, bits: &[u64]) -> BitmapRecord {
    let mut bitmap = Bitmap::empty(capacity);
    for bit in bits {
        assert!(bitmap.set(*bit, true));
    }
    BitmapRecord {
        key: Key::from(format!("/registry/ranges/{name}")),
        name: name.into(),
        mod_revision: Revision(1),
        range: range.into(),
        data: bitmap.to_bytes(),
    }
}

/// Returns a survey without errors, in the dual-write era, so that every rule applies. In the range 10.96.0.0/24, Service
/// kubernetes has .1 and Service web has .7.
fn healthy() -> Survey {
    Survey {
        revision: Revision(9),
        era: EraEvidence { era: Era::DualWrite, because: String::new(), bitmap_is_leftover: false },
        services: vec![service("kubernetes", "10.96.0.1"), service("web", "10.96.0.7")],
        addresses: vec![object("10.96.0.1", "kubernetes"), object("10.96.0.7", "web")],
        ip_address_version: Some("networking.k8s.io/v1".into()),
        service_cidrs: vec![CidrRecord {
            key: Key::from("/registry/servicecidrs/kubernetes"),
            name: "kubernetes".into(),
            ranges: vec!["10.96.0.0/24".parse().unwrap()],
            terminating: false,
        }],
        bitmaps: vec![bitmap("serviceips", "10.96.0.0/24", 254, &[0, 6])],
        nodes: vec![NodeRecord {
            name: "n1".into(),
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            addresses: vec!["192.0.2.10".parse().unwrap()],
            operating_system: "linux".into(),
            kubelet_version: "v1.36.3".into(),
        }],
        pods: vec!["10.244.0.5".parse().unwrap()],
        ..Survey::default()
    }
}

/// Returns the codes of the findings after one change to the survey.
fn codes(break_it: impl FnOnce(&mut Survey)) -> Vec<String> {
    let mut survey = healthy();
    break_it(&mut survey);
    audit(&survey).into_iter().map(|f| format!("{} {}", f.code, f.subject)).collect()
}

#[test]
fn healthy_cluster_has_no_findings() {
    assert_eq!(codes(|_| {}), Vec::<String>::new());
}

#[test]
fn services_are_checked() {
    assert_eq!(
        codes(|s| s.services[1].spec.cluster_ip = Some("10.96.0.8".into())),
        ["cluster-ip-mismatch Service default/web"]
    );
    assert_eq!(
        codes(|s| {
            s.services.push(service("thief", "10.96.0.7"));
        }),
        ["duplicate-address Service default/thief", "ip-address-wrong-reference IPAddress 10.96.0.7"]
    );
    assert_eq!(
        codes(|s| {
            s.services[1] = service("web", "10.97.0.7");
            s.addresses[1] = object("10.97.0.7", "web");
            s.bitmaps[0] = bitmap("serviceips", "10.96.0.0/24", 254, &[0]);
        }),
        ["address-out-of-range Service default/web"]
    );
    // A label alone does not show that netsurgeon manages a Service. If an operation's journal lists the Service, its address is
    // expected.
    let mut survey = healthy();
    let mut shadow = service("netsurgeon-hold-1", "10.95.0.7");
    shadow.labels.insert("app.kubernetes.io/managed-by", NETSURGEON);
    survey.services.push(shadow);
    let found = |ours: &Ours| -> Vec<&str> {
        audit_beside(ours, &survey).iter().map(|finding| finding.code).collect()
    };
    let stranger = found(&Ours::default());
    assert!(
        stranger.contains(&"labelled-stranger") && stranger.contains(&"address-out-of-range"),
        "{stranger:?}"
    );
    let services = || [("default".into(), "netsurgeon-hold-1".into())].into();
    let ours = found(&Ours { services: services(), ..Ours::default() });
    assert_eq!(ours, ["held-address", "kept-by-operation"]);
    let told = audit_beside(&Ours { services: services(), ..Ours::default() }, &survey);
    let says = |finding: &Finding| finding.message == "an unfinished operation keeps 1 Service";
    assert!(told.iter().any(says), "{told:?}");
    // A shadow can share the address of its own Service, but not of another Service. A shadow does not hide other duplicates.
    for (others, is_known) in [(&["web"][..], true), (&["stranger"], false), (&["web", "stranger"], false)] {
        let mut survey = survey.clone();
        survey.services.retain(|service| service.name != "web");
        survey.services.extend(others.iter().map(|name| service(name, "10.95.0.7")));
        for _ in 0..survey.services.len() {
            survey.services.rotate_left(1);
            let kept = [("10.95.0.7".parse().unwrap(), ("default".into(), "web".into()))].into();
            let ours = Ours { services: services(), addresses: kept, ..Ours::default() };
            let found = audit_beside(&ours, &survey);
            let has = found.iter().any(|finding| finding.code == "duplicate-address");
            assert_eq!(has, !is_known, "{others:?}: {found:?}");
        }
    }
    assert_eq!(
        codes(|s| s.services[1].spec.cluster_ips.push("x".into())),
        ["address-invalid Service default/web"]
    );
    assert_eq!(
        codes(|s| {
            s.services[0] = service("kubernetes", "10.96.0.2");
            s.addresses[0] = object("10.96.0.2", "kubernetes");
            s.bitmaps[0] = bitmap("serviceips", "10.96.0.0/24", 254, &[1, 6]);
        }),
        ["kubernetes-not-first Service default/kubernetes"]
    );
}

#[test]
fn services_with_unfinished_deletion_are_reported() {
    let mut survey = healthy();
    survey.services[1].finalizers = vec![MOVING.into()];
    survey.services[1].is_being_deleted = true;
    let found = |ours: &Ours, survey: &Survey| -> Vec<&str> {
        audit_beside(ours, survey).iter().map(|finding| finding.code).collect()
    };
    assert_eq!(found(&Ours::default(), &survey), ["moving-finalizer"]);
    let moves = [("10.200.0.7".parse().unwrap(), ("default".into(), "web".into()))].into();
    let ours = Ours { addresses: moves, ..Ours::default() };
    assert_eq!(found(&ours, &survey), [""; 0]);
    // The Service no longer has a finalizer, but still exists.
    survey.services[1].finalizers.clear();
    assert_eq!(found(&ours, &survey), ["deletion-unfinished"]);
    survey.services[1].finalizers = vec!["example.com/other".into()];
    assert_eq!(found(&Ours::default(), &survey), [""; 0]);
}

#[test]
fn bit_kept_by_an_operation_is_not_reported() {
    let mut survey = healthy();
    survey.bitmaps[0] = bitmap("serviceips", "10.96.0.0/24", 254, &[0, 6, 8, 9]);
    let kept = [("10.96.0.9".parse().unwrap(), ("default".into(), "web".into()))].into();
    let ours = Ours { addresses: kept, ..Ours::default() };
    let findings = audit_beside(&ours, &survey);
    let found: Vec<(&str, &str)> = findings.iter().map(|it| (it.code, it.subject.as_str())).collect();
    assert_eq!(found, [("bit-without-service", "RangeAllocation serviceips 10.96.0.10")]);
}

#[test]
fn ip_addresses_are_checked() {
    assert_eq!(codes(|s| drop(s.addresses.remove(1))), ["ip-address-missing Service default/web"]);
    assert_eq!(
        codes(|s| s.addresses.push(object("10.96.0.9", "gone"))),
        ["ip-address-orphan IPAddress 10.96.0.9"]
    );
    assert_eq!(
        codes(|s| s.addresses.push(object("10.96.0.9", "web"))),
        ["ip-address-wrong-reference IPAddress 10.96.0.9"]
    );
    assert_eq!(
        codes(|s| s.addresses[1].managed_by = "me".into()),
        ["ip-address-wrong-label IPAddress 10.96.0.7"]
    );
    assert_eq!(
        codes(|s| s.addresses.push(object("nonsense", "web"))),
        ["ip-address-invalid IPAddress nonsense"]
    );
}

#[test]
fn bitmaps_are_checked() {
    let with =
        |bits: &'static [u64]| codes(move |s| s.bitmaps[0] = bitmap("serviceips", "10.96.0.0/24", 254, bits));
    assert_eq!(with(&[0, 6, 9]), ["bit-without-service RangeAllocation serviceips 10.96.0.10"]);
    assert_eq!(with(&[0]), ["service-without-bit Service default/web"]);
    assert_eq!(
        codes(|s| s.bitmaps[0] = bitmap("serviceips", "10.97.0.0/24", 254, &[])),
        ["bitmap-range-differs RangeAllocation serviceips"]
    );
    assert_eq!(codes(|s| s.bitmaps[0].data = vec![1; 40]), ["bitmap-unreadable RangeAllocation serviceips"]);
    assert_eq!(
        codes(|s| {
            s.era = EraEvidence { era: Era::Objects, because: String::new(), bitmap_is_leftover: true };
            s.bitmaps[0].data = Vec::new();
        }),
        ["bitmap-leftover RangeAllocation serviceips"]
    );
    assert_eq!(
        codes(|s| {
            s.era.era = Era::Bitmap;
            s.bitmaps.clear();
            s.services.clear();
        })
        .first()
        .map(String::as_str),
        Some("bitmap-missing RangeAllocation serviceips")
    );
}

#[test]
fn node_ports_are_checked() {
    let with = |bits: &'static [u64], ports: &'static [i32]| {
        codes(move |s| {
            s.bitmaps.push(bitmap("servicenodeports", "30000-32767", 2768, bits));
            for (service, port) in s.services.iter_mut().zip(ports) {
                service.spec.ports.push(ServicePort { node_port: Some(*port), ..ServicePort::default() });
            }
        })
    };
    assert_eq!(with(&[5], &[30005]), Vec::<String>::new());
    assert_eq!(with(&[5], &[]), ["bit-without-node-port RangeAllocation servicenodeports 30005"]);
    assert_eq!(with(&[], &[30005]), ["node-port-without-bit Service default/kubernetes"]);
    assert_eq!(with(&[5], &[30005, 30005]), ["duplicate-node-port Service default/web"]);
    assert_eq!(with(&[], &[29999]), ["node-port-out-of-range Service default/kubernetes"]);
}

#[test]
fn ranges_are_checked() {
    let range = |text: &str| -> ServiceCidr { text.parse().unwrap() };
    assert_eq!(
        codes(|s| s.service_cidrs.push(CidrRecord {
            key: Key::from("k"),
            name: "more".into(),
            ranges: vec![range("10.96.0.0/20")],
            terminating: false,
        })),
        ["ranges-overlap ServiceCIDR more"]
    );
    assert_eq!(
        codes(|s| s.nodes[0].pod_cidrs.push(range("10.96.0.128/25"))),
        ["range-overlaps-network range 10.96.0.0/24"]
    );
    assert_eq!(
        codes(|s| s.pods.push("10.96.0.99".parse().unwrap())),
        ["range-overlaps-network range 10.96.0.0/24"]
    );
    assert_eq!(
        codes(|s| s.kubeadm =
            Some(KubeadmConfig { service_subnets: vec!["10.97.0.0/16".into()], pod_subnets: Vec::new() })),
        ["kubeadm-config-differs ConfigMap kube-system/kubeadm-config"]
    );
}

#[test]
fn kubelet_config_must_have_the_address_of_the_dns() {
    let told = |address: &str| {
        codes(|s| {
            s.services[1].namespace = "kube-system".into();
            s.services[1].name = "kube-dns".into();
            s.addresses[1].parent = ("kube-system".into(), "kube-dns".into());
            s.services[1].spec.external_ips = vec!["10.97.0.10".into()];
            s.cluster_dns = vec![address.to_string()];
        })
    };
    for good in ["10.96.0.7", "10.97.0.10", "169.254.20.10"] {
        assert_eq!(told(good), Vec::<String>::new(), "{good}");
    }
    assert_eq!(told("10.98.0.10"), ["kubelet-config-differs ConfigMap kube-system/kubelet-config"]);
}

#[test]
fn full_range_and_full_static_band_are_reported() {
    let fill = |count: u64| {
        codes(move |s| {
            s.services.truncate(1);
            s.addresses.truncate(1);
            for n in 1..count {
                let address = format!("10.96.0.{}", n + 1);
                s.services.push(service(&format!("s{n}"), &address));
                s.addresses.push(object(&address, &format!("s{n}")));
            }
            let bits: Vec<u64> = (0..count).collect();
            s.bitmaps[0] = bitmap("serviceips", "10.96.0.0/24", 254, &bits);
        })
    };
    assert_eq!(fill(15), Vec::<String>::new());
    assert_eq!(fill(16), ["static-band-exhausted range 10.96.0.0/24"]);
    assert_eq!(fill(254), ["range-exhausted range 10.96.0.0/24"]);
}
