//! Reads what is in a cluster and in a DNS zone, for checks and for the plans of every kind of operation.
//!
//! [`ClusterReader`] reads the objects of a cluster, and [`zone::Zone`] reads a zone. Each reads a part once, on first use. The
//! other modules interpret objects without I/O, for example which nodes accept a Pod, and which webhooks are called.

pub mod autoscalers;
pub mod budgets;
pub mod certificate_requests;
pub mod drain;
pub mod drain_room;
mod etcd_host;
pub mod external_dns;
pub mod external_dns_reader;
pub mod host_object;
pub mod host_ports;
pub mod installer;
pub mod kinds;
pub mod namespaces;
pub mod network_plugins;
pub mod network_settings;
pub mod node_fit;
pub mod outside_owner;
pub mod plugin_reader;
pub mod pod;
pub mod pod_templates;
pub mod pod_webhooks;
pub mod published_hosts;
mod quantity;
mod read_error;
mod reader;
pub mod resources;
mod retention;
pub mod selectors;
mod server_state;
pub mod service;
pub mod used_ranges;
pub mod version;
pub mod webhook_backends;
pub mod webhooks;
pub mod zone;
mod zone_service;

use serde_json::Value;

pub use read_error::{Read, ReadError, unread, unread_by};
use reader::listed_by;
pub use reader::{
    AT_ONCE, ClusterReader, Connections, Permission, Rights, Route, listed, objects, own_routes,
};
pub use retention::Retained;
pub use server_state::ServerState;
pub use zone_service::{KeyFile, ZoneService, read_key};

/// Returns the string at a path of an object, for example `/metadata/name`; empty if there is none.
pub fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list at a path of an object, for example `/spec/rules`; empty if there is none.
pub fn list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the namespace and the name of an object, as text.
pub fn subject(object: &Value) -> String {
    format!("`{}/{}`", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
