//! Events about Services, as `kubectl describe` shows them.

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::format_description;

use super::{Cluster, ClusterError};

/// An event about a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEvent {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Uid of the Service.
    pub uid: String,
    /// Reason of the event in CamelCase, for programs, for example `Renumbered`.
    pub reason: &'static str,
    /// Action of the event, in CamelCase.
    pub action: &'static str,
    /// Message of the event, for people.
    pub note: String,
    /// Id of the operation.
    pub operation: String,
    /// Name of the host that runs netsurgeon.
    pub host: String,
    /// Time of the event.
    pub time: OffsetDateTime,
    /// Hexadecimal digits that make the event's name unique among the events of the Service.
    pub unique: String,
}

impl ServiceEvent {
    /// Returns the event as an API object that `ValidateEventCreate` accepts (`pkg/apis/core/validation/events.go`, v1.36.3).
    fn manifest(&self) -> Value {
        const MOST_NOTE: usize = 1024;
        const MOST_INSTANCE: usize = 128;
        let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                // The name of a Service has at most 63 characters, the name of an event at most 253.
                "name": format!("{}.{}", self.name, self.unique),
                "namespace": self.namespace,
                "annotations": {"netsurgeon.io/operation": self.operation},
            },
            "eventTime": micro_time(self.time),
            "type": "Normal",
            "reason": self.reason,
            "action": self.action,
            "note": cut(&self.note, MOST_NOTE),
            "regarding": {
                "apiVersion": "v1", "kind": "Service",
                "namespace": self.namespace, "name": self.name, "uid": self.uid,
            },
            "reportingController": "netsurgeon.io/netsurgeon",
            "reportingInstance": cut(&format!("netsurgeon-{}", self.host), MOST_INSTANCE),
        })
    }
}

/// Formats a time as a `MicroTime` of the API (`apimachinery/pkg/apis/meta/v1/micro_time.go`, v1.36.3).
pub(super) fn micro_time(time: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    time.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_default()
}

impl Cluster {
    /// Creates an event. The API server deletes it after an hour (`--event-ttl`).
    pub async fn announce(&self, event: &ServiceEvent) -> Result<(), ClusterError> {
        self.create(&event.manifest()).await.map(drop)
    }
}
