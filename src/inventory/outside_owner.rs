//! Controllers that own things outside of their cluster by a name in their options: instances of ExternalDNS, and AWS load balancer
//! controllers. If two clusters have the same name, each takes the things of the other for its own (kubernetes-sigs/external-dns#1588,
//! kubernetes-sigs/aws-load-balancer-controller#426).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use serde::Deserialize as _;
use serde_json::Value;

use super::external_dns::{Controller, argument};
use crate::kube_api::accessors::subject;

/// A controller that owns things outside of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideOwner {
    /// Its Deployment, as `` `NAMESPACE/NAME` ``.
    pub subject: String,
    /// What it is.
    pub controller: &'static str,
    /// The option with the name.
    pub option: &'static str,
    /// The name; `None` if the Deployment does not contain it.
    pub name: Option<String>,
    /// What the controller owns.
    pub things: &'static str,
}

/// Start of the name of its image.
const BALANCERS: &str = "aws-load-balancer-controller";

impl OutsideOwner {
    /// Returns the controller of a Deployment, from its JSON, like [`of`](Self::of).
    pub fn of_json(deployment: &Value) -> Option<Self> {
        Self::of(&Deployment::deserialize(deployment).ok()?)
    }

    /// Returns the controller of a Deployment that has replicas; `None` if it is no such controller.
    pub fn of(deployment: &Deployment) -> Option<Self> {
        let spec = deployment.spec.as_ref().filter(|spec| spec.replicas != Some(0))?;
        if let Some(found) = Controller::all(std::slice::from_ref(deployment)).into_iter().next() {
            let (option, things) = ("--txt-owner-id", "DNS records");
            // Without a registry, it records no owner and deletes every record that has no object.
            let name = if found.registry.as_deref() == Some("noop") { None } else { found.owner };
            return Some(Self { subject: found.subject, controller: "ExternalDNS", option, name, things });
        }
        let is_it = |container: &&Container| {
            let image = container.image.as_deref().and_then(|image| image.rsplit('/').next());
            image.is_some_and(|image| image.starts_with(BALANCERS))
        };
        let container = spec.template.spec.as_ref()?.containers.iter().find(is_it)?;
        let name = argument(container, "cluster-name").filter(|name| !name.contains("$("));
        let (controller, option) = ("the AWS load balancer controller", "--cluster-name");
        Some(Self { subject: subject(deployment), controller, option, name, things: "load balancers" })
    }
}

/// The controllers of two clusters that own things outside of both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerComparison {
    /// Pairs of controllers with the same name, for people.
    pub equal: Vec<String>,
    /// Controllers that cannot be compared, because a Deployment does not contain the name: why, and the Deployment.
    pub unknown: Vec<(String, String)>,
}

impl OwnerComparison {
    /// What helps.
    pub const REMEDY: &str = "give the controller of the mirror another name in this option; if both cannot meet, because they use other \
                              DNS zones or other accounts: `--equal-owners allow`";

    /// Compares the controllers of the source and of the mirror.
    pub fn of(source: &[OutsideOwner], mirror: &[OutsideOwner]) -> Self {
        let mut found = Self::default();
        for (one, other) in source.iter().flat_map(|one| mirror.iter().map(move |other| (one, other))) {
            let OutsideOwner { subject, controller, option, name, things } = one;
            if *controller != other.controller {
                continue;
            }
            match (name, &other.name) {
                (Some(name), Some(same)) if name == same => found.equal.push(format!(
                    "{controller} of the source ({subject}) and of the mirror ({}) have the same `{option}={name}`, so each can delete the \
                     {things} of the other",
                    other.subject
                )),
                (Some(_), Some(_)) => {}
                (None, _) => found.unknown.push(Self::unknown(one, "source")),
                (_, None) => found.unknown.push(Self::unknown(other, "mirror")),
            }
        }
        found
    }

    fn unknown(owner: &OutsideOwner, cluster: &str) -> (String, String) {
        let OutsideOwner { subject, controller, option, things, .. } = owner;
        let why = format!(
            "the Deployment of {controller} in the {cluster} does not contain its `{option}`; with the same value in both clusters, each can \
             delete the {things} of the other"
        );
        (why, subject.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(name: &str, image: &str, args: &Value) -> Option<OutsideOwner> {
        let container = json!({"name": "a", "image": image, "args": args});
        let spec = json!({"selector": {}, "template": {"spec": {"containers": [container]}}});
        let deployment = json!({"metadata": {"namespace": "dns", "name": name}, "spec": spec});
        OutsideOwner::of_json(&deployment)
    }

    #[test]
    fn equal_names_are_found() {
        let dns = |name: &str, id: &str| {
            owner(name, "x/external-dns:1", &json!([format!("--txt-owner-id={id}")])).unwrap()
        };
        let balancers =
            |name: &str, args: Value| owner(name, "x/aws-load-balancer-controller:v2", &args).unwrap();
        assert_eq!(owner("web", "nginx", &json!(["--cluster-name=blue"])), None);
        let source = [dns("one", "blue"), balancers("lbc", json!(["--cluster-name", "blue"]))];
        let equal = |mirror: &[OutsideOwner]| OwnerComparison::of(&source, mirror).equal;
        assert_eq!(
            equal(&[dns("two", "green"), balancers("lbc", json!(["--cluster-name=green"]))]),
            Vec::<String>::new()
        );
        assert_eq!(equal(&[balancers("lbc", json!(["--cluster-name=blue"]))]).len(), 1);
        assert_eq!(
            equal(&[dns("two", "blue")]),
            [
                "ExternalDNS of the source (`dns/one`) and of the mirror (`dns/two`) have the same `--txt-owner-id=blue`, so each can delete the \
              DNS records of the other"
            ]
        );
        let untold = balancers("lbc", json!(["--cluster-name=$(NAME)"]));
        let found = OwnerComparison::of(&source, std::slice::from_ref(&untold));
        assert_eq!((found.equal.len(), found.unknown.len()), (0, 1), "{found:?}");
        assert!(found.unknown[0].0.contains("in the mirror"), "{found:?}");
    }
}
