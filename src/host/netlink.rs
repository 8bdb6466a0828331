//! Reads lists from the kernel over netlink: requests with the flag `NLM_F_DUMP`, and the parts of the answers.
//!
//! A message consists of a `nlmsghdr`, a header of its family and attributes (`include/uapi/linux/netlink.h`, Linux 6.12). A list
//! request changes nothing. But a request to a part of the kernel that is not loaded makes the kernel load a module. So callers
//! first check with [`super::kernel`] that the part is loaded.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink, XFRM};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto, socket_with,
};

/// Size of a `nlmsghdr`, and of a `nfgenmsg`, in bytes.
pub const HEADER: usize = 16;
pub const GENERIC: usize = 4;

/// Flags of a list request: `NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH`.
const DUMP: u16 = 0x301;
/// Flag of a single request: `NLM_F_REQUEST | NLM_F_ACK`.
const SINGLE: u16 = 0x5;
/// Flag of an answer: the list changed while the kernel sent it (`NLM_F_DUMP_INTR`).
const INTERRUPTED: u16 = 0x10;
/// Message types of every family: `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Mask that removes the flags from an attribute's type.
const TYPE: u16 = 0x3fff;

/// Size of the receive buffer. The kernel sends no larger parts of a list (`NLMSG_GOODSIZE` and `netlink_dump`, 32 KiB).
const BUFFER: usize = 256 << 10;
/// Time in which the kernel must send the next part of a list.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time in which the kernel must send a whole list.
const WHOLE: Duration = Duration::from_mins(1);
/// How often a list is read that changes meanwhile.
const TRIES: usize = 5;

/// Which part of the kernel answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Links, addresses, routes, rules, traffic control.
    Route,
    /// nftables and IP sets.
    Netfilter,
    /// IPsec.
    Xfrm,
}

/// A message without its `nlmsghdr`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The message type.
    pub kind: u16,
    /// The header of the family and the attributes.
    pub body: Vec<u8>,
}

/// A list of messages.
#[derive(Debug, Default)]
pub struct List {
    /// The messages, up to the limit.
    pub messages: Vec<Message>,
    /// Why messages are missing.
    pub gap: Option<String>,
}

/// A netlink socket in the network namespace of the thread that opened it.
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket.
    pub fn open(family: Family) -> io::Result<Self> {
        // `NETLINK_ROUTE` is 0.
        let protocol = match family {
            Family::Route => None,
            Family::Netfilter => Some(NETFILTER),
            Family::Xfrm => Some(XFRM),
        };
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Reads a list. `most` limits the number of messages. A list that changes meanwhile is read again.
    pub fn list(&mut self, kind: u16, body: &[u8], most: usize) -> io::Result<List> {
        for _ in 1..TRIES {
            let (list, is_consistent) = self.list_once(kind, body, most)?;
            if is_consistent {
                return Ok(list);
            }
        }
        let (mut list, is_consistent) = self.list_once(kind, body, most)?;
        if !is_consistent {
            list.gap.get_or_insert_with(|| "the list changed each time it was read".to_string());
        }
        Ok(list)
    }

    fn list_once(&mut self, kind: u16, body: &[u8], most: usize) -> io::Result<(List, bool)> {
        self.send(kind, DUMP, body)?;
        let (mut list, mut is_consistent) = (List::default(), true);
        let start = Instant::now();
        loop {
            if start.elapsed() > WHOLE {
                return Err(io::Error::other("the kernel sends the list too slowly"));
            }
            let received = self.receive()?;
            for (kind, flags, body) in self.answers(&received) {
                is_consistent &= flags & INTERRUPTED == 0;
                match kind {
                    DONE => {
                        // A list can end with an error (`netlink_dump_done`).
                        return failure(body).map_or(Ok((list, is_consistent)), Err);
                    }
                    ERROR => {
                        if let Some(error) = failure(body) {
                            return Err(error);
                        }
                    }
                    _ if list.messages.len() < most => {
                        list.messages.push(Message { kind, body: body.to_vec() });
                    }
                    _ => list.gap = Some(format!("there are more than {most}")),
                }
            }
        }
    }

    /// Sends a request for one object and returns the answer; `None` if the answer is only an acknowledgement.
    pub fn one(&mut self, kind: u16, body: &[u8]) -> io::Result<Option<Message>> {
        self.send(kind, SINGLE, body)?;
        let mut found = None;
        loop {
            let received = self.receive()?;
            for (kind, _, body) in self.answers(&received) {
                if kind == ERROR || kind == DONE {
                    return failure(body).map_or(Ok(found), Err);
                }
                found = Some(Message { kind, body: body.to_vec() });
            }
        }
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(body.len().saturating_add(HEADER)).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(body);
        sendto(&self.socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    /// Receives a part of an answer. Ignores messages of other processes, whose sender is not 0.
    fn receive(&self) -> io::Result<Vec<u8>> {
        loop {
            let mut buffer = vec![0; BUFFER];
            let received = recvfrom(&self.socket, buffer.as_mut_slice(), RecvFlags::TRUNC);
            let (length, sender) = match received {
                Ok((_, length, sender)) => (length, sender),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(io::Error::other("the kernel does not answer")),
                Err(error) => return Err(error.into()),
            };
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            if sender.is_some_and(|sender| sender.pid() != 0) {
                continue;
            }
            if length > buffer.len() {
                return Err(io::Error::other("the kernel sent a message that is too long"));
            }
            buffer.truncate(length);
            return Ok(buffer);
        }
    }

    /// Returns type, flags and body of each message that answers the last request.
    fn answers<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = (u16, u16, &'b [u8])> + use<'b> {
        let sequence = self.sequence;
        messages(bytes).filter_map(move |message| {
            let is_answer = message.get(8..12) == Some(&sequence.to_ne_bytes());
            let kind = native(message.get(4..6)?);
            let flags = native(message.get(6..8)?);
            is_answer.then_some((kind, flags, message.get(HEADER..)?))
        })
    }
}

/// Returns the error in the body of a `NLMSG_ERROR` or `NLMSG_DONE`, which starts with a negative number.
fn failure(body: &[u8]) -> Option<io::Error> {
    let code = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    (code < 0).then(|| io::Error::from_raw_os_error(code.saturating_neg()))
}

/// Splits bytes into messages with their `nlmsghdr`.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (message, rest) = part(bytes, 4)?;
        bytes = rest;
        Some(message)
    })
}

/// Returns type and value of each attribute. An attribute has a length, a type and a value.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (one, rest) = part(bytes, 2)?;
        bytes = rest;
        Some((native(one.get(2..4)?) & TYPE, one.get(4..)?))
    })
}

/// Finds an attribute and returns its value.
pub fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Returns the text in the attribute, without the zero byte at its end. Bytes that are not UTF-8 are replaced.
pub fn text(bytes: &[u8], wanted: u16) -> Option<String> {
    attribute(bytes, wanted).map(text_of)
}

/// Returns the text before the first zero byte.
pub fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Reads a number in the byte order of the machine.
pub fn native(bytes: &[u8]) -> u16 {
    bytes.try_into().map(u16::from_ne_bytes).unwrap_or_default()
}

/// Reads a number in the byte order of the machine.
pub fn native32(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.try_into().map(u32::from_ne_bytes).ok()
}

/// Reads a number in network byte order.
pub fn big32(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.try_into().map(u32::from_be_bytes).ok()
}

/// Encodes an attribute.
pub fn encode(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len().saturating_add(4)).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Splits off the first part of the bytes. A part starts with its own length, a number of `width` bytes. The next part is aligned
/// to four bytes.
fn part(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let length = match width {
        2 => usize::from(native(bytes.get(..2)?)),
        _ => usize::try_from(native32(bytes)?).ok()?,
    };
    let one = bytes.get(..length).filter(|one| one.len() >= 4)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((one, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_split() {
        let bytes = [encode(1, b"eth0\0"), encode(2 | 0x8000, &encode(7, &[1, 2, 3, 4]))].concat();
        assert_eq!(text(&bytes, 1).as_deref(), Some("eth0"));
        let nested = attribute(&bytes, 2).unwrap();
        assert_eq!(attribute(nested, 7).and_then(big32), Some(0x0102_0304));
        assert_eq!(attribute(&bytes, 3), None);
    }

    #[test]
    fn links_of_this_machine_are_listed() {
        let mut route = Netlink::open(Family::Route).unwrap();
        // RTM_GETLINK with an empty `ifinfomsg`.
        let links = route.list(18, &[0; 16], 1000).unwrap();
        let names: Vec<_> = links.messages.iter().filter_map(|one| text(one.body.get(16..)?, 3)).collect();
        assert!(names.contains(&"lo".to_string()), "{names:?}");
        assert_eq!(links.gap, None);
        let short = route.list(18, &[0; 16], 0).unwrap();
        assert!(short.messages.is_empty() && short.gap.is_some(), "{short:?}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(messages(&bytes).count() < 200);
            prop_assert!(attributes(&bytes).count() < 200);
            let _ = (text_of(&bytes), failure(&bytes));
        }
    }
}
