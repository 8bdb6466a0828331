//! Address arithmetic for Service ranges, as pure functions without I/O.
//!
//! [`ServiceCidr`] computes the values that the API server's allocators derive from a range (first address, capacity, static
//! band, offsets). [`remap`] computes a new address for every old address.

mod cidr;
mod items;
pub mod remap;

pub use cidr::{CidrError, Family, ServiceCidr, as_flag, is_link_local};
pub use items::{Item, Items};
