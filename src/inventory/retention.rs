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

/// Makes a type with some fields of an object stand for this object.
macro_rules! trimmed {
    ($trimmed:ident, $object:ident) => {
        impl k8s_openapi::Resource for $trimmed {
            const API_VERSION: &'static str = $object::API_VERSION;
            const GROUP: &'static str = $object::GROUP;
            const KIND: &'static str = $object::KIND;
            const URL_PATH_SEGMENT: &'static str = $object::URL_PATH_SEGMENT;
            const VERSION: &'static str = $object::VERSION;
            type Scope = <$object as k8s_openapi::Resource>::Scope;
        }

        impl k8s_openapi::Metadata for $trimmed {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl $crate::inventory::Retained for $trimmed {
            type Object = $object;

            fn of(object: $object) -> Self {
                object.into()
            }
        }
    };
}

pub(super) use trimmed;

without_managed_fields! {
    CertificateSigningRequest, CronJob, DaemonSet, Deployment, Ingress, IngressClass, Job, MutatingWebhookConfiguration, Namespace,
    NetworkPolicy, Node, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget, PriorityClass, RuntimeClass, ServiceAccount,
    StatefulSet, StorageClass, ValidatingWebhookConfiguration,
}
