//! Checks that several commands use. Each command gives its own reason why the check matters.

pub mod api;
pub mod api_servers;
pub mod api_versions;
pub mod authorization;
pub mod clocks;
pub mod etcd_alarms;
pub mod etcd_members;
pub mod etcd_space;
pub mod etcd_versions;
pub mod gitops;
pub mod images;
pub mod secrets_at_rest;
pub mod ssh;
pub mod zones;
