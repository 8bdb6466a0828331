//! Closes, reopens and replaces the ServiceCIDR of the old range. This ServiceCIDR is closed after the flag has changed, reopened
//! in a rollback, and replaced at the end.
//!
//! A terminating ServiceCIDR allocates no address. It continues to exist while old addresses are held. The controller manager
//! deletes it once every IPAddress of the allocator in its range is also in another ServiceCIDR (`canDeleteCIDR`,
//! `servicecidrs_controller.go`, v1.36.3). Then an API server creates the missing ServiceCIDR `kubernetes` again from its flag
//! (`default_servicecidr_controller.go`, v1.36.3).
//!
//! The deletion cannot be undone. So a rollback creates another ServiceCIDR for the old range. Then the deletion of `kubernetes`
//! can complete. After that, the rollback waits until an API server with the old flag has created `kubernetes` again.

use serde_json::{Value, json};

use super::LiveEnvironment;
use super::waits::{Look, WaitStatus, is_ready};
use crate::ip::ServiceCidr;
use crate::kube_api::{MANAGED_BY, ObjectRef};
use crate::operation::StepFault;
use crate::renumber::drift::newcomers;
use crate::survey::{Era, Layout, Survey};
use crate::wire::objects::{self, RangeAllocation};

/// Name of the ServiceCIDR that API servers create from their flag.
const OWN: &str = "kubernetes";

/// Maximum number of Services that a message names.
const MOST_NAMED: usize = 5;

fn is_terminating(range: &Value) -> bool {
    range.pointer("/metadata/deletionTimestamp").is_some()
}

fn has(range: &Value, flag: &[ServiceCidr]) -> bool {
    let flag: Vec<String> = flag.iter().map(ToString::to_string).collect();
    range.pointer("/spec/cidrs") == Some(&json!(flag))
}

impl LiveEnvironment<'_> {
    fn range<'n>(&'n self, name: &'n str) -> ObjectRef<'n> {
        ObjectRef::new(&self.work.api_version, "ServiceCIDR", None, name)
    }

    /// Deletes the API servers' own ServiceCIDR unless it has these ranges.
    async fn delete_own_unless(&self, flag: &[ServiceCidr]) -> Result<(), StepFault> {
        let own = self.range(OWN);
        if let Some(range) = self.cluster.get(&own).await?
            && !has(&range, flag)
            && !is_terminating(&range)
        {
            self.look_at_guards().await?;
            self.cluster.delete(&own, range.pointer("/metadata/uid").and_then(Value::as_str)).await?;
        }
        Ok(())
    }

    /// Closes the old range, so that no new Service gets an address from it.
    pub(super) async fn close_old_range(&self) -> Result<(), StepFault> {
        self.delete_own_unless(&self.work.flag).await
    }

    /// Closes the old range, and waits until the API servers' own ServiceCIDR has the new range. The old ServiceCIDR is deleted
    /// after its last address is deleted.
    pub(super) async fn replace_range(&self) -> Result<(), StepFault> {
        self.close_old_range().await?;
        let until = "ServiceCIDR `kubernetes` has the new range and is ready";
        self.poll(until, Look::OwnRange(&self.work.flag)).await
    }

    /// Opens the old range for new Services again, if the range was closed.
    pub(super) async fn reopen_old_range(&self) -> Result<(), StepFault> {
        let (before, name) = (&self.work.flag_before, self.work.back_range_name());
        let own = self.cluster.get(&self.range(OWN)).await?;
        if !own.is_some_and(|range| has(&range, before) && !is_terminating(&range)) {
            let manifest = json!({
                "apiVersion": self.work.api_version, "kind": "ServiceCIDR",
                "metadata": {"name": name, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
                "spec": {"cidrs": before},
            });
            self.create(&manifest).await?;
            let until = format!("ServiceCIDR `{name}` is ready on every API server");
            self.poll(&until, Look::Ready(&name)).await?;
            self.delete_own_unless(before).await?;
            let until = "ServiceCIDR `kubernetes` has the old range again and is ready";
            self.poll(until, Look::OwnRange(before)).await?;
        }
        self.remove_range(&name).await
    }

    pub(super) async fn own_range_has(&self, flag: &[ServiceCidr]) -> Result<(), WaitStatus> {
        let seen = |what: String| Err(WaitStatus::Pending(what));
        let Some(range) = self.cluster.get(&self.range(OWN)).await? else {
            return seen("ServiceCIDR `kubernetes` does not exist".to_string());
        };
        if is_terminating(&range) {
            self.no_service_was_created_there().await?;
            return seen(
                "ServiceCIDR `kubernetes` is being deleted, and the controller manager has not removed its finalizer yet"
                    .to_string(),
            );
        }
        if !has(&range, flag) {
            let cidrs = range.pointer("/spec/cidrs").cloned().unwrap_or_default();
            return seen(format!(
                "ServiceCIDR `kubernetes` has {cidrs}: an API server still has that range in its flag"
            ));
        }
        if is_ready(&range) { Ok(()) } else { seen("ServiceCIDR `kubernetes` is not ready".to_string()) }
    }

    /// Fails if a Service has an address of the old range and is not part of the operation. Such a Service prevents the deletion
    /// of the range forever.
    async fn no_service_was_created_there(&self) -> Result<(), WaitStatus> {
        let survey = Survey::read(self.store, &Layout::new(&self.work.prefix), None).await;
        let survey = survey.map_err(|error| WaitStatus::Failed(StepFault::Halt(error.to_string())))?;
        let found = newcomers(self.work, &survey);
        if found.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = found.iter().take(MOST_NAMED).map(|service| service.subject()).collect();
        let more = found.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(WaitStatus::Failed(StepFault::Halt(format!(
            "Services with an address of the old range that are not part of this operation: `{}`{more}; resume the operation \
             to move them, too",
            names.join("`, `")
        ))))
    }

    /// Waits until the RangeAllocation has the range of the flag. In the bitmap era, a starting API server writes the range of
    /// its own flag (`Repair.runOnce`, `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2).
    pub(super) async fn allocation_follows(&self, back: bool) -> Result<(), StepFault> {
        let Some(bitmap) = self.work.bitmap.as_ref().filter(|_| self.work.era == Era::Bitmap) else {
            return Ok(());
        };
        let range = if back { bitmap.from.clone() } else { self.work.to.to_string() };
        let until = format!("RangeAllocation `{}` has `{range}`", bitmap.name);
        self.poll(&until, Look::Allocation(&range)).await
    }

    pub(super) async fn allocation_has(&self, range: &str) -> Result<(), WaitStatus> {
        let name = self.work.bitmap.as_ref().map_or("serviceips", |bitmap| bitmap.name.as_str());
        let key = Layout::new(&self.work.prefix).range(name);
        let entry = self.store.get(&key).await?;
        let entry =
            entry.ok_or_else(|| WaitStatus::Pending(format!("there is no RangeAllocation `{name}`")))?;
        let found: RangeAllocation = objects::decode(&entry.value)
            .map_err(|error| WaitStatus::Failed(StepFault::Halt(error.to_string())))?;
        let found = found.range.unwrap_or_default();
        if found == range {
            return Ok(());
        }
        Err(WaitStatus::Pending(format!(
            "it has `{found}`: an API server still runs with that range (`--service-cluster-ip-range`), or has not started yet"
        )))
    }

    /// Deletes the ServiceCIDR that the operation created for the new range, and waits until it is deleted.
    pub(super) async fn remove_temporary_range(&self) -> Result<(), StepFault> {
        self.remove_range(&self.work.range_name()).await
    }

    async fn remove_range(&self, name: &str) -> Result<(), StepFault> {
        self.delete(&self.range(name)).await?;
        self.is_gone(&self.range(name)).await
    }

    /// Waits until an object with a deletion timestamp is deleted.
    pub(super) async fn is_gone(&self, object: &ObjectRef<'_>) -> Result<(), StepFault> {
        self.poll(&format!("{object} is deleted"), Look::Gone(object)).await
    }
}
