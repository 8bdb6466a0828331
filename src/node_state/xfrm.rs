//! Reads the IPsec states and policies of this network namespace, without keys (`include/uapi/linux/xfrm.h`, Linux 6.12).

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::links::ip;
use super::model::{Part, XfrmPolicy, XfrmState};
use super::{list, socket_of};
use crate::host::kernel::KernelPart;
use crate::host::netlink::{Family, attribute, big32, native, native32};

/// Message types `XFRM_MSG_GETSA` and `XFRM_MSG_GETPOLICY`.
const GET_STATE: u16 = 0x12;
const GET_POLICY: u16 = 0x15;
/// Sizes of `xfrm_usersa_info` and `xfrm_userpolicy_info`.
const STATE: usize = 224;
const POLICY: usize = 168;
/// Attributes: `XFRMA_TMPL` and `XFRMA_MARK`.
const TEMPLATE: u16 = 5;
const MARK: u16 = 21;
/// Address families.
const V4: u16 = 2;
const V6: u16 = 10;

pub(super) fn states() -> Part<XfrmState> {
    match socket_of(KernelPart::Xfrm, Family::Xfrm) {
        Ok(socket) => list(Ok(socket), GET_STATE, &[Vec::new()], state),
        Err(part) => part,
    }
}

pub(super) fn policies() -> Part<XfrmPolicy> {
    match socket_of(KernelPart::Xfrm, Family::Xfrm) {
        Ok(socket) => list(Ok(socket), GET_POLICY, &[Vec::new()], policy),
        Err(part) => part,
    }
}

fn state(body: &[u8]) -> Option<XfrmState> {
    // After the selector of 56 bytes: destination, SPI, protocol, source.
    let family = native(body.get(212..214)?);
    Some(XfrmState {
        from: address(body.get(80..96)?, family)?,
        to: address(body.get(56..72)?, family)?,
        spi: big32(body.get(72..)?)?,
        protocol: *body.get(76)?,
        request_id: native32(body.get(208..)?)?,
        mark: mark(body.get(STATE..)?),
    })
}

fn policy(body: &[u8]) -> Option<XfrmPolicy> {
    // The selector: destination, source, ports, family, prefix lengths.
    let family = native(body.get(40..42)?);
    let attributes = body.get(POLICY..)?;
    // An `xfrm_user_tmpl`: destination, SPI, protocol, family, source.
    let template = attribute(attributes, TEMPLATE).and_then(|template| {
        let family = native(template.get(24..26)?);
        Some((address(template.get(28..44)?, family)?, address(template.get(..16)?, family)?))
    });
    Some(XfrmPolicy {
        from: IpNetwork::new(address(body.get(16..32)?, family)?, *body.get(43)?).ok()?,
        to: IpNetwork::new(address(body.get(..16)?, family)?, *body.get(42)?).ok()?,
        direction: *body.get(160)?,
        blocks: *body.get(161)? == 1,
        mark: mark(attributes),
        template,
    })
}

fn mark(attributes: &[u8]) -> Option<(u32, u32)> {
    let bytes = attribute(attributes, MARK)?;
    Some((native32(bytes)?, native32(bytes.get(4..)?)?))
}

/// Reads an `xfrm_address_t`. Its family is 0 in a selector for any address.
fn address(bytes: &[u8], family: u16) -> Option<IpAddr> {
    match family {
        V6 => ip(bytes),
        V4 | 0 => ip(bytes.get(..4)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (state(&bytes), policy(&bytes));
        }
    }
}
