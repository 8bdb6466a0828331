//! Facts about objects that several checks use, for example which nodes accept a Pod, and which webhooks are called.

pub mod cni_agents;
pub mod cni_settings;
pub mod copied;
pub mod drain;
pub mod etcd_host;
pub mod etcd_members;
pub mod exposed;
pub mod external_dns;
pub mod host_ports;
pub mod kept;
pub mod nodes;
pub mod placing;
pub mod pointing;
pub mod published;
pub mod quantity;
pub mod room;
pub mod selectors;
pub mod templates;
pub mod version;
pub mod webhooks;
