//! What others have to do, and say that it is done. What can be seen from here needs nobody's word.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::certs::Certificate;
use crate::cli::output::Output;
use crate::cluster::{Cluster, served};
use crate::operation::{Answer, External, WorldError};
use crate::renumber::live::Approver;
use crate::renumber::{Renumbering, Turn};

/// How long an API server may take to present its certificate.
const LIMIT: Duration = Duration::from_secs(5);

/// Confirmed on the command line beforehand, seen, or said when asked.
pub(super) struct Confirmations<'a> {
    pub(super) output: &'a Output,
    pub(super) given: BTreeSet<String>,
    /// `None` while nobody is to ask the API.
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) work: &'a Renumbering,
}

#[async_trait]
impl Approver for Confirmations<'_> {
    async fn confirm(&self, external: &External, back: bool) -> Result<Answer, WorldError> {
        if self.given.contains(&external.name) {
            return Ok(Answer::Confirmed);
        }
        let seen = if back { None } else { self.look(&external.name).await };
        if let Some(Ok(seen)) = &seen {
            self.output.note(&format!("{}: {seen}", external.name));
            return Ok(Answer::Confirmed);
        }
        let what = external.undo.as_ref().filter(|_| back).unwrap_or(&external.what);
        self.output.note(&format!("to be done now ({}): {what}; {}", external.name, external.why));
        if let Some(Err(reason)) = seen {
            self.output.note(&format!("{}: {reason}", external.name));
        }
        Ok(match self.output.ask("Is it done?", false) {
            Ok(()) => Answer::Confirmed,
            Err(_) => Answer::Open,
        })
    }
}

impl Confirmations<'_> {
    /// Looks whether something is done, where that can be seen; what is seen, or what is missing.
    async fn look(&self, name: &str) -> Option<Result<String, String>> {
        let kubernetes = self.work.moves.iter().find(|candidate| candidate.turn == Turn::Kubernetes)?;
        let (old, new) = (kubernetes.old_address, kubernetes.new_address);
        match name {
            "certificates" => Some(self.every_certificate(&[old, new], None).await),
            "certificates-after" => {
                let seen = self.every_certificate(&[new], Some(old)).await;
                Some(
                    seen.map(|seen| {
                        format!("{seen}; if deploy pipelines are locked out: `netsurgeon unlock`")
                    }),
                )
            }
            _ => None,
        }
    }

    /// Dials every API server. Its certificate must carry these addresses, and not that one.
    async fn every_certificate(&self, with: &[IpAddr], without: Option<IpAddr>) -> Result<String, String> {
        let cluster = self.cluster.ok_or("the API is not asked")?;
        let servers = cluster.api_servers().await.map_err(|error| error.to_string())?;
        for server in &servers {
            let certificate = presented(&server.to_string()).await?;
            if let Some(missing) = with.iter().find(|address| !certificate.covers(**address)) {
                return Err(format!("the certificate of {server} does not carry `{missing}`"));
            }
            if let Some(old) = without.filter(|address| certificate.covers(*address)) {
                return Err(format!("the certificate of {server} still carries `{old}`"));
            }
        }
        let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
        Ok(format!("seen to be done, on {}", names.join(", ")))
    }
}

async fn presented(server: &str) -> Result<Certificate, String> {
    let chain = served(server, None, LIMIT).await.map_err(|error| format!("{server}: {error}"))?;
    let first = chain.into_iter().next().ok_or_else(|| format!("{server} presents no certificate"))?;
    Certificate::from_der(first).map_err(|error| format!("{server}: {error}"))
}
