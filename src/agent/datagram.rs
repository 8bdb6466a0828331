//! The datagrams of the test, and their answers.
//!
//! ```text
//! request  "NSG1" | token (16) | key (8) | number (4) | padding to at least 200 bytes
//! answer   "NSG1" | token (16) | key (8) | number (4) | source address (16, IPv4-mapped) | port (2) | length of the name (1) | name
//! ```
//!
//! Numbers have the byte order of the network. An answer is shorter than any request, so an agent does not amplify traffic.

use std::net::{IpAddr, Ipv6Addr};

/// The length of a token, in bytes.
pub const TOKEN_LENGTH: usize = 16;
/// The shortest request, in bytes.
pub(super) const SHORTEST: usize = 200;
const MAGIC: &[u8; 4] = b"NSG1";
/// The longest name in an answer, in bytes, so that an answer is never longer than the shortest request.
const LONGEST_NAME: usize = 120;

/// The part that a request and its answer have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) token: [u8; TOKEN_LENGTH],
    /// Which series of datagrams this one belongs to. The receiver does not count datagrams of the series 0.
    pub(super) key: u64,
    /// The place of the datagram in its series.
    pub(super) number: u32,
}

impl Head {
    fn bytes(self) -> Vec<u8> {
        [MAGIC.as_slice(), &self.token, &self.key.to_be_bytes(), &self.number.to_be_bytes()].concat()
    }

    /// Returns the head of a datagram and the rest; `None` if it is not a datagram of the test.
    pub(super) fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let rest = datagram.strip_prefix(MAGIC)?;
        let (token, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let head = Self { token: *token, key: u64::from_be_bytes(*key), number: u32::from_be_bytes(*number) };
        Some((head, rest))
    }

    /// Returns a request of so many bytes, and at least of [`SHORTEST`].
    pub(super) fn request(self, length: usize) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.resize(length.max(SHORTEST), 0);
        bytes
    }

    /// Returns the answer of an agent that saw this source.
    pub(super) fn answer(self, name: &str, source: (IpAddr, u16)) -> Vec<u8> {
        let address = match source.0 {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        let name: Vec<u8> = name.bytes().take(LONGEST_NAME).collect();
        let length = u8::try_from(name.len()).unwrap_or_default();
        [self.bytes(), address.octets().to_vec(), source.1.to_be_bytes().to_vec(), vec![length], name]
            .concat()
    }
}

/// Returns the name of the agent and the source that it saw, from the rest of an answer.
pub(super) fn answer_of(rest: &[u8]) -> Option<(String, IpAddr)> {
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let (_port, rest) = rest.split_first_chunk::<2>()?;
    let (length, name) = rest.split_first()?;
    let name = name.get(..usize::from(*length))?;
    Some((String::from_utf8_lossy(name).into_owned(), IpAddr::from(Ipv6Addr::from(*address)).to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_and_answer_are_parsed() {
        let head = Head { token: [7; 16], key: 9, number: 11 };
        let request = head.request(0);
        assert_eq!(request.len(), SHORTEST);
        assert_eq!(Head::parse(&request).unwrap().0, head);
        for source in ["10.0.0.1", "fd00::1"].map(|text| text.parse::<IpAddr>().unwrap()) {
            let answer = head.answer(&"x".repeat(300), (source, 80));
            assert!(answer.len() <= SHORTEST, "an answer does not amplify");
            let (found, rest) = Head::parse(&answer).unwrap();
            assert_eq!((found, answer_of(rest).unwrap()), (head, ("x".repeat(120), source)));
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for bytes in [&b""[..], b"NSG1", b"GET / HTTP/1.0\r\n\r\n", &[0; 400]] {
            assert!(Head::parse(bytes).is_none());
        }
        assert!(answer_of(&[0; 18]).is_none());
        assert!(answer_of(&[9; 19]).is_none());
    }
}
