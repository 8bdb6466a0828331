//! Address arithmetic of Service ranges: pure functions, no I/O.
//!
//! A [`ServiceCidr`] computes what the API server's allocators derive from a range (first address, capacity,
//! static band, offsets); [`remap`] computes the new address for every old one.

mod cidr;
mod items;
pub mod remap;

pub use cidr::{CidrError, Family, ServiceCidr, as_flag, is_link_local};
pub use items::{Item, Items};
