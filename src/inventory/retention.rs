//! In which form objects stay in memory. An object is much larger in memory than in etcd, and any tenant can create many objects. So
//! Pods and Services have types without the unused fields, and code that reads a dropped field does not compile. The
//! other kinds lose only `metadata.managedFields`.

use k8s_openapi::Metadata;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass, NetworkPolicy};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::kube_api::Typed;

/// A type in which objects stay in memory.
pub trait Retained: Metadata<Ty = ObjectMeta> + Sized {
    /// The type of the whole object.
    type Object: Typed;

    /// Drops the unused fields.
    fn of(object: Self::Object) -> Self;
}

macro_rules! without_managed_fields {
    ($($kind:ty),* $(,)?) => {$(
        impl Retained for $kind {
            type Object = Self;

            fn of(mut object: Self) -> Self {
                object.metadata.managed_fields = None;
                object
            }
        }
    )*};
}

without_managed_fields! {
    CertificateSigningRequest, CronJob, DaemonSet, Deployment, Ingress, IngressClass, Job, MutatingWebhookConfiguration, Namespace,
    NetworkPolicy, Node, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget, PriorityClass, RuntimeClass, ServiceAccount,
    StatefulSet, StorageClass, ValidatingWebhookConfiguration,
}
