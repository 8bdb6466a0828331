//! Zone transfers as bytes (AXFR, RFC 5936), and a relay that signs only some of their messages, which RFC 8945, section 5.3.1,
//! permits. It stands for name servers that do so: BIND signs every message.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::rdata::tsig::{TSIG, TsigAlgorithm, make_tsig_record, signed_bitmessage_to_buf};
use hickory_proto::rr::{Name, Record, RecordType, TSigner};
use hickory_proto::serialize::binary::BinEncodable as _;

/// Of the types that a signed zone has beside the data of its users: RRSIG, NSEC, DNSKEY, CDS, CDNSKEY, and the private type in
/// which BIND keeps the state of its keys.
const OF_DNSSEC: [u16; 6] = [46, 47, 48, 59, 60, 65534];

fn signer((name, secret): (&str, &str)) -> TSigner {
    let secret = STANDARD.decode(secret).expect("base64");
    TSigner::new(secret, TsigAlgorithm::HmacSha256, Name::from_ascii(name).expect("a name"), 300)
        .expect("a key")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn send(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    let length = u16::try_from(message.len()).expect("a length");
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// The messages of an answer up to its end: for a transfer, up to the second SOA.
fn answer(stream: &mut TcpStream, is_transfer: bool) -> Vec<Vec<u8>> {
    let (mut messages, mut starts) = (Vec::new(), 0);
    while let Ok(message) = receive(stream) {
        let parsed = Message::from_vec(&message).expect("a message");
        starts += parsed.answers.iter().filter(|record| record.record_type() == RecordType::SOA).count();
        let is_end = !is_transfer || starts > 1 || parsed.answers.is_empty();
        messages.push(message);
        if is_end {
            break;
        }
    }
    messages
}

/// The records that a server transfers, sorted, each as text that shows all of its bytes. Without the SOA.
fn transferred(
    server: SocketAddr,
    zone: &str,
    key: (&str, &str),
    is_kept: impl Fn(u16) -> bool,
) -> Vec<String> {
    let mut question = Message::query();
    question.add_query(Query::query(Name::from_ascii(zone).expect("a name"), RecordType::AXFR));
    let (signature, _) = signer(key).sign_message(&question, now()).expect("a signature");
    question.set_signature(signature);
    let mut stream = TcpStream::connect(server).expect("a connection");
    send(&mut stream, &question.to_vec().expect("a message")).expect("the server reads");
    let messages = answer(&mut stream, true);
    let records = messages.iter().flat_map(|message| Message::from_vec(message).expect("a message").answers);
    let records = records.filter(|record| record.record_type() != RecordType::SOA);
    let mut texts: Vec<String> = records
        .filter(|record| is_kept(record.record_type().into()))
        .map(|record| text_of(&record))
        .collect();
    texts.sort();
    texts
}

fn text_of(record: &Record) -> String {
    let labels: Vec<String> = record.name.iter().map(|label| label.escape_ascii().to_string()).collect();
    let data = record.data.to_bytes().expect("data");
    format!("{}. {} {} {}", labels.join("."), record.ttl, record.record_type(), data.escape_ascii())
}

/// The records of the zone's users.
pub fn user_records(server: SocketAddr, zone: &str, key: (&str, &str)) -> Vec<String> {
    transferred(server, zone, key, |kind| !OF_DNSSEC.contains(&kind))
}

/// The number of signatures in the zone (RRSIG).
pub fn signatures(server: SocketAddr, zone: &str, key: (&str, &str)) -> usize {
    transferred(server, zone, key, |kind| kind == 46).len()
}

/// Which messages of a transfer the relay signs. It always signs the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signs {
    /// One of so many, and the last.
    OneOf(usize),
    /// Only the first.
    First,
    /// One of a hundred, and the last. It changes a byte of a message without a signature after it has signed the next one.
    Forged,
}

/// Starts a relay to a name server, and returns its address. Its threads end with the test's process.
pub fn relay(server: SocketAddr, key: (&str, &str), signs: Signs) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let signer = signer(key);
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let Ok(asked) = receive(&mut client) else { continue };
            let question = Message::from_vec(&asked).expect("a message");
            let is_transfer = question.queries.iter().any(|query| query.query_type() == RecordType::AXFR);
            let mut upstream = TcpStream::connect(server).expect("a connection");
            send(&mut upstream, &asked).expect("the server reads");
            let messages = answer(&mut upstream, is_transfer);
            let messages = match question.signature() {
                Some(signature) if is_transfer => {
                    signed_again(&signer, &signature.data.mac, &messages, signs)
                }
                _ => messages,
            };
            for message in messages {
                // The client closes the connection when it refuses a message.
                let _ = send(&mut client, &message);
            }
        }
    });
    address
}

/// Replaces the signatures of the messages.
fn signed_again(signer: &TSigner, request: &[u8], messages: &[Vec<u8>], signs: Signs) -> Vec<Vec<u8>> {
    let (mut previous, mut unsigned, mut out) = (request.to_vec(), Vec::new(), Vec::new());
    for (number, message) in messages.iter().enumerate() {
        // Without its signature, and without the time and the fudge that a digest has at its end.
        let (stripped, _) = signed_bitmessage_to_buf(message, None, false).expect("a signed message");
        let stripped = &stripped[..stripped.len() - 8];
        let is_last = number + 1 == messages.len();
        let is_signed = match signs {
            Signs::OneOf(count) => number % count == 0 || is_last,
            Signs::First => number == 0,
            Signs::Forged => number % 100 == 0 || is_last,
        };
        if !is_signed {
            unsigned.extend_from_slice(stripped);
            out.push(stripped.to_vec());
            continue;
        }
        let id = u16::from_be_bytes([stripped[0], stripped[1]]);
        let stub = TSIG::new(signer.algorithm().clone(), now(), 300, Vec::new(), id, None, Vec::new());
        let digested = if number == 0 {
            signer.encode_response_tbs(&previous, stripped, &stub).expect("a digest")
        } else {
            let length = u16::try_from(previous.len()).expect("a length").to_be_bytes();
            let (time, fudge) = (stub.time.to_be_bytes(), stub.fudge.to_be_bytes());
            [length.as_slice(), &previous, &unsigned, stripped, &time[2..], &fudge].concat()
        };
        let mac = signer.sign(&digested).expect("a signature");
        let record = make_tsig_record(signer.signer_name().clone(), stub.set_mac(mac.clone()));
        let mut whole = [stripped, record.to_bytes().expect("a record").as_slice()].concat();
        let additional = u16::from_be_bytes([whole[10], whole[11]]) + 1;
        whole[10..12].copy_from_slice(&additional.to_be_bytes());
        out.push(whole);
        (previous, unsigned) = (mac, Vec::new());
    }
    if signs == Signs::Forged {
        let at = out.len() / 2;
        *out[at].last_mut().expect("a byte") ^= 1;
    }
    out
}
