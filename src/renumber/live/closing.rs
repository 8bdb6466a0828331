//! The end of the old range: the API servers' own ServiceCIDR is made anew from their flag, and the temporary
//! one goes.
//!
//! A ServiceCIDR that is being deleted goes once the controller manager sees no address of it that is the
//! allocator's and in no other ServiceCIDR (`servicecidrs_controller.go`, v1.36.3), and an API server makes
//! `kubernetes` again from its flag when it misses it (`default_servicecidr_controller.go`, v1.36.3).

use serde_json::{Value, json};

use super::LiveWorld;
use super::waits::NotYet;
use crate::cluster::ObjectRef;
use crate::operation::{Wait, WorldError};
use crate::renumber::steps::word;
use crate::survey::{Era, Layout};
use crate::wire::objects::{self, RangeAllocation};

/// The ServiceCIDR that API servers make from their flag.
const OWN: &str = "kubernetes";

impl LiveWorld<'_> {
    fn own_range(&self) -> ObjectRef<'_> {
        ObjectRef::new(&self.work.api_version, "ServiceCIDR", None, OWN)
    }

    /// Whether a ServiceCIDR has the ranges of the new flag.
    fn is_new(&self, range: &Value) -> bool {
        let flag: Vec<String> = self.work.flag.iter().map(ToString::to_string).collect();
        range.pointer("/spec/cidrs") == Some(&json!(flag))
    }

    /// Deletes the API servers' own ServiceCIDR while it has the old range, and waits for the new one.
    pub(super) async fn close_old_range(&self) -> Result<(), WorldError> {
        if let Some(range) = self.cluster.get(&self.own_range()).await? {
            let text = |path: &str| range.pointer(path).and_then(Value::as_str);
            if !self.is_new(&range) && text("/metadata/deletionTimestamp").is_none() {
                self.cluster.delete(&self.own_range(), text("/metadata/uid")).await?;
            }
        }
        let until = "ServiceCIDR `kubernetes` has the new range and is ready".to_string();
        self.wait_for(&Wait { name: word::RANGE_REPLACED.into(), until, batch: None }).await
    }

    /// Waits until the RangeAllocation has the range of the flag: where there is nothing but a bitmap, an API server
    /// that starts writes it for its own flag (`Repair.runOnce`,
    /// `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2).
    pub(super) async fn allocation_follows(&self, back: bool) -> Result<(), WorldError> {
        let Some(bitmap) = self.work.bitmap.as_ref().filter(|_| self.work.era == Era::Bitmap) else {
            return Ok(());
        };
        let range = if back { bitmap.from.clone() } else { self.work.to.to_string() };
        let until = format!("RangeAllocation `{}` has `{range}`", bitmap.name);
        let name = if back { word::ALLOCATION_BACK } else { word::ALLOCATION };
        self.wait_for(&Wait { name: name.into(), until, batch: None }).await
    }

    pub(super) async fn allocation_has(&self, range: &str) -> Result<(), NotYet> {
        let name = self.work.bitmap.as_ref().map_or("serviceips", |bitmap| bitmap.name.as_str());
        let key = Layout::new(&self.work.prefix).range(name);
        let entry = self.store.get(&key).await?;
        let entry = entry.ok_or_else(|| NotYet::Seen(format!("there is no RangeAllocation `{name}`")))?;
        let found: RangeAllocation =
            objects::decode(&entry.value).map_err(|error| NotYet::Never(WorldError(error.to_string())))?;
        let found = found.range.unwrap_or_default();
        if found == range {
            return Ok(());
        }
        Err(NotYet::Seen(format!(
            "it has `{found}`: an API server has the other flag, or has not started yet"
        )))
    }

    pub(super) async fn range_is_replaced(&self) -> Result<(), NotYet> {
        let seen = |what: String| Err(NotYet::Seen(what));
        let Some(range) = self.cluster.get(&self.own_range()).await? else {
            return seen("ServiceCIDR `kubernetes` does not exist".to_string());
        };
        if range.pointer("/metadata/deletionTimestamp").is_some() {
            return seen(
                "ServiceCIDR `kubernetes` is being deleted: a Service has an address of it, or the controller \
                 manager has not looked yet"
                    .to_string(),
            );
        }
        if !self.is_new(&range) {
            let cidrs = range.pointer("/spec/cidrs").cloned().unwrap_or_default();
            return seen(format!("ServiceCIDR `kubernetes` has {cidrs}: an API server has the old flag"));
        }
        let conditions = range.pointer("/status/conditions").and_then(Value::as_array);
        let is_ready = |condition: &Value| {
            condition.get("type") == Some(&json!("Ready")) && condition.get("status") == Some(&json!("True"))
        };
        if conditions.is_some_and(|conditions| conditions.iter().any(is_ready)) {
            return Ok(());
        }
        seen("ServiceCIDR `kubernetes` is not ready".to_string())
    }

    /// Deletes the ServiceCIDR that the operation made, and waits until it is gone.
    pub(super) async fn remove_temporary_range(&self) -> Result<(), WorldError> {
        let name = self.work.range_name();
        self.delete(&ObjectRef::new(&self.work.api_version, "ServiceCIDR", None, &name)).await?;
        let until = format!("ServiceCIDR `{name}` is gone");
        self.wait_for(&Wait { name: word::TEMPORARY_GONE.into(), until, batch: None }).await
    }

    pub(super) async fn temporary_is_gone(&self) -> Result<(), NotYet> {
        let name = self.work.range_name();
        let object = ObjectRef::new(&self.work.api_version, "ServiceCIDR", None, &name);
        match self.cluster.get(&object).await? {
            None => Ok(()),
            Some(_) => Err(NotYet::Seen(format!("{object} is being deleted"))),
        }
    }
}
