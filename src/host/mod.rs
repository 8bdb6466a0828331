//! What this machine knows and no API tells. Read only.

pub mod conntrack;
