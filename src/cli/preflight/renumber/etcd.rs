//! What is asked of etcd.

use super::{Looking, Read, unread};
use crate::preflight::{Judged, etcd};
use crate::store::etcd::Member;

impl Looking {
    pub(super) async fn members(&self) -> Read<&Vec<Member>> {
        let members = self.members.get_or_init(async || self.store()?.members().await.map_err(unread)).await;
        members.as_ref().map_err(Clone::clone)
    }

    pub(super) async fn alarms(&self) -> Read<Judged> {
        let raised = self.store()?.alarms().await.map_err(unread)?;
        Ok(etcd::alarms(self.members().await?, &raised))
    }
}
