//! Reads the input of the checks of general requirements: zones of etcd, Secrets at rest, permissions, SSH, and images.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};

use super::reading::{Read, Reading, unread};
use crate::kube_api::Node;
use crate::preflight::hardening::{self, POWERS, Requester, Secrets};
use crate::preflight::{Judged, zones};
use crate::store::{KeyRange, ReadStore as _, Record};

/// Number of concurrent connections to nodes. If a firewall drops packets, each connection waits for its time limit.
const CONNECTIONS: usize = 1024;

impl Reading {
    pub(super) async fn zones(&self) -> Read<Judged> {
        Ok(zones::zones(self.members().await?, self.nodes().await?))
    }

    pub(super) async fn secrets(&self) -> Read<Judged> {
        let mut found = Secrets::default();
        self.each_secret(|record| found.take(record.value)).await?;
        Ok(hardening::secrets(found))
    }

    pub(super) async fn authorization(&self) -> Read<Judged> {
        let cluster = self.cluster()?;
        let asked = Requester::ALL.into_iter().flat_map(|who| POWERS.iter().map(move |power| (who, power)));
        let answers = asked.map(async |(who, (verb, resource))| {
            let may = cluster.may_somebody(who.user(), verb, *resource).await;
            may.map(|may| may.then(|| (who, format!("{verb} {}", resource.1))))
        });
        let mut may = Vec::new();
        for answer in join_all(answers).await {
            may.extend(answer.map_err(unread)?);
        }
        Ok(hardening::authorization(&may))
    }

    pub(super) async fn ssh(&self) -> Read<Judged> {
        let nodes: Vec<Node> = self.nodes().await?.iter().map(Node::of).collect();
        let asked = nodes.iter().map(async |node| {
            let address = node.speaks_ssh().await?;
            Some(format!("`{}` ({address})", node.name))
        });
        let open: Vec<_> = stream::iter(asked).buffered(CONNECTIONS).collect().await;
        Ok(hardening::ssh(&open.into_iter().flatten().collect::<Vec<_>>(), nodes.len()))
    }

    pub(super) async fn images(&self) -> Read<Judged> {
        let pods = self.pods().await?;
        let mut secrets = BTreeSet::new();
        self.each_secret(|record| {
            let key = String::from_utf8_lossy(record.key);
            let mut parts = key.rsplit('/');
            if let (Some(name), Some(namespace)) = (parts.next(), parts.next()) {
                secrets.insert((namespace.to_string(), name.to_string()));
            }
        })
        .await?;
        Ok(hardening::images(pods, &secrets))
    }

    /// Reads the stored Secrets from etcd. This needs no API permission, and decrypts no Secret.
    async fn each_secret(&self, mut take: impl FnMut(Record<'_>) + Send) -> Read<()> {
        let range = KeyRange::prefix(self.layout.secrets());
        let mut visitor = |record: Record<'_>| {
            take(record);
            ControlFlow::Continue(())
        };
        self.store()?.bare().scan(&[range], None, &mut visitor).await.map_err(unread)?;
        Ok(())
    }
}
