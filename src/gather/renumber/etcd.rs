//! Reads etcd, and a snapshot of etcd.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Looking, failed};
use crate::gather::reading::{Read, unread};
use crate::host::conntrack;
use crate::preflight::backup::{self, Backup};
use crate::preflight::etcd::Moves;
use crate::preflight::stored::{Forms, forms};
use crate::preflight::{Judged, Verdict, etcd};
use crate::renumber::hold::Hold;
use crate::session::Failure;
use crate::store::seal::Sealed;
use crate::store::snapshot::SnapshotStore;
use crate::store::{KeyRange, ReadStore as _, Record};
use crate::survey::{Era, Survey};

/// Number of rounds in which all members report the leader, and the pause between two rounds.
const ROUNDS: usize = 3;
const BETWEEN: Duration = Duration::from_millis(500);

impl Looking {
    /// Reads the leader in several rounds.
    pub(super) async fn leader(&self) -> Read<Judged> {
        let mut rounds = vec![self.read.members().await?.clone()];
        while rounds.len() < ROUNDS {
            sleep(BETWEEN).await;
            rounds.push(self.read.store()?.bare().members().await.map_err(unread)?);
        }
        Ok(etcd::leader(&rounds))
    }

    pub(super) async fn room(&self) -> Read<Judged> {
        let survey = self.survey().await?;
        let mut moves = match self.plan().await {
            Ok(plan) => {
                let moves = &plan.work.moves;
                let shadows = moves.iter().filter(|one| one.hold == Hold::Shadow).count();
                let batches = moves.len().div_ceil(plan.work.batch_size.max(1));
                Moves { external_ips: moves.len().saturating_sub(shadows), shadows, batches, bitmap: None }
            }
            Err(judged) if judged.verdict == Verdict::Pass => Moves::default(),
            Err(_) => Moves { shadows: survey.services.len(), ..Moves::default() },
        };
        if survey.era.era == Era::Bitmap {
            let ranges = survey.service_ranges().into_iter().chain([self.options.to]);
            let own = ranges.filter(|range| range.family() == self.options.to.family());
            let bits = own.map(|range| range.bitmap_capacity()).max().unwrap_or_default();
            moves.bitmap = u64::try_from(bits.div_ceil(8)).ok();
        }
        Ok(etcd::room(self.read.members().await?, &moves, conntrack::taken()))
    }

    /// Reads the storage format of the resources that netsurgeon edits.
    pub(super) async fn stored(&self) -> Read<Judged> {
        let places = [
            ("services", self.read.layout.services()),
            ("ipaddresses", self.read.layout.ip_addresses()),
            ("servicecidrs", self.read.layout.service_cidrs()),
            ("ranges", self.read.layout.ranges()),
        ];
        let (mut found, store) = (Forms::default(), self.read.store()?);
        for (what, prefix) in places {
            let mut visitor = |record: Record<'_>| {
                let opened = store.seal().map_or(Ok(None), |seal| seal.open(record.key, record.value));
                found.take(what, record.value, opened.map(|plain| plain.is_some()));
                ControlFlow::Continue(())
            };
            let range = KeyRange::prefix(prefix);
            store.bare().scan(&[range], None, &mut visitor).await.map_err(unread)?;
        }
        Ok(forms(&found))
    }

    /// Opens the given snapshot, and compares it with etcd.
    pub(super) async fn backup(&self) -> Read<Judged> {
        let Some(path) = &self.backup else { return Ok(backup::none()) };
        let newest = self.read.store()?.revision().await.map_err(unread)?.0;
        let own = Survey::identity(self.read.store()?, &self.read.layout).await.map_err(unread)?;
        let broken = |failure: Failure| {
            let judged = failed(&failure);
            Judged::fail(judged.observed, "take a new one: `etcdctl snapshot save FILE`")
        };
        let scope = [KeyRange::exact(&self.read.layout.kube_system())];
        let snapshot = open(path.clone(), scope).await.map_err(broken)?;
        let snapshot = Sealed::new(snapshot, self.read.store()?.seal().cloned());
        let of =
            Survey::identity(&snapshot, &self.read.layout).await.map_err(|error| broken(error.into()))?;
        Ok(backup::judge(&Backup {
            is_its: own.zip(of).map(|(own, of)| own == of),
            revision: snapshot.bare().newest_revision().0,
            newest,
            age: age(path).map_err(unread)?,
            has_checksum: snapshot.bare().has_checksum(),
        }))
    }
}

/// Opens the snapshot and reads the whole file, on a thread for blocking work.
async fn open(path: PathBuf, scope: [KeyRange; 1]) -> Result<SnapshotStore, Failure> {
    match spawn_blocking(move || SnapshotStore::open(&path, &scope)).await {
        Ok(opened) => Ok(opened?),
        Err(error) => Err(Failure::refused(error.to_string())),
    }
}

/// Returns the time since a file was written, in seconds.
fn age(path: &Path) -> std::io::Result<u64> {
    let written = std::fs::metadata(path)?.modified()?;
    Ok(SystemTime::now().duration_since(written).unwrap_or_default().as_secs())
}
