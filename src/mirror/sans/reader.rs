//! Reads the Certificates of the source and their issuers, and creates the plan. Writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::CERT_MANAGER;
use super::decision::decide;
use super::issuer::{FoundIssuer, IssuerFacts, IssuerRef};
use super::work::{Sans, SansAction, SansEntry};
use crate::inventory::{AT_ONCE, text};
use crate::kube_api::{ClusterError, Collection, ReadOnly};
use crate::mirror::Reference;
use crate::mirror::config::HostRule;
use crate::mirror::deployer::deployer;
use crate::operation::Plan;
use crate::session::Failure;
use crate::store::Revision;
use crate::words::first_few;

/// Let's Encrypt issues so many certificates for a registered domain in 7 days (<https://letsencrypt.org/docs/rate-limits/>, "New
/// Certificates per Registered Domain"; 2025).
const MOST_IN_A_WEEK: usize = 50;

/// The role with the permissions in the namespaces.
const ROLE: &str = "netsurgeon-mirror-sans";

/// Reads the source.
pub struct SansReader<'a> {
    source: &'a ReadOnly,
    namespaces: Vec<String>,
    hosts: Vec<HostRule>,
    wait_issued: u64,
}

/// Fails if no rule adds a name.
pub fn refuse_without_additions(hosts: &[HostRule]) -> Result<(), Failure> {
    if hosts.iter().any(|rule| rule.add.is_some()) {
        return Ok(());
    }
    Err(Failure::usage("the configuration has no rule that adds a name to a certificate")
        .hint("add one, for example `hosts: [{suffix: example.com, add: green.example.com}]`"))
}

impl<'a> SansReader<'a> {
    /// Returns a reader. `wait_issued`: how long a step waits, in seconds.
    pub fn new(source: &'a ReadOnly, namespaces: Vec<String>, hosts: &[HostRule], wait_issued: u64) -> Self {
        Self { source, namespaces, hosts: hosts.to_vec(), wait_issued }
    }

    /// Creates the plan.
    pub async fn plan(&self) -> Result<Plan<Sans>, Failure> {
        let id = self.source.identity().await?;
        let mut certificates = Vec::new();
        for namespace in &self.namespaces {
            certificates.extend(self.certificates(namespace).await?);
        }
        let issuers = self.issuers(certificates.iter().map(IssuerRef::of).collect()).await?;
        let entry = |certificate: &Value| {
            let issuer = IssuerRef::of(certificate);
            let facts = issuers.get(&issuer).unwrap_or(&IssuerFacts::Missing);
            entry(certificate, (&issuer, facts), &self.hosts)
        };
        let mut entries: Vec<SansEntry> = certificates.iter().map(entry).collect();
        let warnings = self.warnings(&certificates, &entries, &issuers);
        entries.sort_by(|one, other| one.object.cmp(&other.object));
        let work = Sans {
            namespaces: self.namespaces.clone(),
            hosts: self.hosts.clone(),
            wait_issued: self.wait_issued,
            certificates: entries,
            warnings,
        };
        Ok(Plan::new(&id, Revision(0), work))
    }

    async fn certificates(&self, namespace: &str) -> Result<Vec<Value>, Failure> {
        let collection = Collection::new(CERT_MANAGER, "Certificate", Some(namespace));
        match self.source.list_as(&collection, &Some).await {
            Ok(found) => Ok(found),
            Err(ClusterError::NotFound { .. }) => Err(Failure::refused(
                "the cluster does not serve Certificates of `cert-manager.io/v1`",
            )
            .hint("`--context` selects the source; cert-manager 1.0 or later must be installed there")),
            Err(error @ ClusterError::Forbidden { .. }) => Err(Failure::from(error)
                .hint(format!("bind the ClusterRole `{ROLE}` of deploy/rbac.yaml to this user"))),
            Err(error) => Err(error.into()),
        }
    }

    async fn issuers(
        &self,
        wanted: BTreeSet<IssuerRef>,
    ) -> Result<BTreeMap<IssuerRef, IssuerFacts>, Failure> {
        let facts = wanted.into_iter().map(async |issuer| {
            let facts = self.facts(&issuer).await?;
            Ok::<_, ClusterError>((issuer, facts))
        });
        let found: Vec<_> = stream::iter(facts).buffered(AT_ONCE).collect().await;
        Ok(found.into_iter().collect::<Result<_, _>>()?)
    }

    async fn facts(&self, issuer: &IssuerRef) -> Result<IssuerFacts, ClusterError> {
        if !issuer.is_own() {
            return Ok(IssuerFacts::External);
        }
        let Some(object) = issuer.object() else { return Ok(IssuerFacts::Missing) };
        match self.source.get(&object).await {
            Ok(Some(found)) => Ok(IssuerFacts::Found(FoundIssuer::of(&found))),
            Ok(None) | Err(ClusterError::NotFound { .. } | ClusterError::Manifest { .. }) => {
                Ok(IssuerFacts::Missing)
            }
            Err(error @ ClusterError::Forbidden { .. }) => {
                let role = issuer.namespace.as_ref().map_or("netsurgeon-mirror-source", |_| ROLE);
                let advice = format!("bind the ClusterRole `{role}` of deploy/rbac.yaml to this user");
                Ok(IssuerFacts::Unread(format!("{error}; what helps: {advice}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns what the operator must know before the start.
    fn warnings(
        &self,
        certificates: &[Value],
        entries: &[SansEntry],
        issuers: &BTreeMap<IssuerRef, IssuerFacts>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for namespace in &self.namespaces {
            if !entries.iter().any(|entry| entry.object.namespace.as_ref() == Some(namespace)) {
                found.push(format!("the namespace `{namespace}` has no Certificate"));
            }
        }
        let additions =
            || certificates.iter().zip(entries).filter(|(_, entry)| entry.action == SansAction::Add);
        let by_http: BTreeSet<String> = additions()
            .map(|(certificate, _)| IssuerRef::of(certificate))
            .filter(
                |issuer| matches!(issuers.get(issuer), Some(IssuerFacts::Found(one)) if one.has_http_solver),
            )
            .map(|issuer| issuer.to_string())
            .collect();
        if !by_http.is_empty() {
            found.push(format!(
                "these issuers have a solver for HTTP-01 challenges, which needs that DNS points the new names to the source: {}",
                first_few(&by_http.into_iter().collect::<Vec<_>>())
            ));
        }
        let acme = additions().filter(|(_, entry)| entry.is_acme).count();
        if acme > MOST_IN_A_WEEK {
            found.push(format!(
                "{acme} certificates of ACME issuers: Let's Encrypt issues {MOST_IN_A_WEEK} for a registered domain in 7 days; do it in parts (`--namespace`)"
            ));
        }
        let deployed = |who: &str| -> Vec<String> {
            let of = additions().filter(|(certificate, _)| deployer(certificate) == Some(who));
            of.map(|(_, entry)| entry.object.to_string()).collect()
        };
        for who in ["Argo CD", "Flux"] {
            let objects = deployed(who);
            if !objects.is_empty() {
                found.push(format!(
                    "{who} can remove the added names at its next run; add the names in Git too: {}",
                    first_few(&objects)
                ));
            }
        }
        found
    }
}

fn entry(certificate: &Value, (issuer, facts): (&IssuerRef, &IssuerFacts), hosts: &[HostRule]) -> SansEntry {
    let decision = decide(certificate, facts, hosts);
    let of = |path: &str| text(certificate, path).to_string();
    let (reason, detail) = decision.reason.map(|(code, detail)| (code.to_string(), detail)).unzip();
    SansEntry {
        object: Reference {
            resource: "cert-manager.io/certificates".to_string(),
            api_version: CERT_MANAGER.to_string(),
            kind: "Certificate".to_string(),
            namespace: Some(of("/metadata/namespace")),
            name: of("/metadata/name"),
        },
        uid: of("/metadata/uid"),
        action: decision.action,
        names: decision.names,
        reason,
        detail,
        issuer: issuer.to_string(),
        is_acme: matches!(facts, IssuerFacts::Found(found) if found.is_acme),
    }
}
