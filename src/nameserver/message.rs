//! Builds requests to name servers, and parses their answers into [`Record`]s.

use hickory_proto::op::{Message, OpCode, Query, ResponseCode, UpdateMessage as _};
use hickory_proto::rr::rdata::tsig::TsigError;
use hickory_proto::rr::rdata::{CNAME, TXT};
use hickory_proto::rr::{self, DNSClass, Name, RData, RecordType};

use super::presentation::{name_of, quoted, spelled, strings};
use super::{NameserverError, Record, RecordKind, RecordSet, SetChange};

/// Parses the records of an encoded answer (RFC 1035, section 4.1), without the other checks of a [`super::Server`]. Returns
/// `None` if the bytes are not a DNS message. Only for tests.
pub fn answers(bytes: &[u8]) -> Option<Vec<Record>> {
    Some(Message::from_vec(bytes).ok()?.answers.iter().map(record).collect())
}

/// Returns a query for the records of a name. If `recursive` is set, the query requests recursion from a resolver.
pub(super) fn question(name: Name, kind: RecordType, recursive: bool) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = recursive;
    message.add_query(Query::query(name, kind));
    message
}

/// Returns an update for a zone, without any change.
pub(super) fn nothing(zone: Name) -> Message {
    let mut message = Message::query();
    message.metadata.op_code = OpCode::Update;
    message.metadata.recursion_desired = false;
    message.add_zone(Query::query(zone, RecordType::SOA));
    message
}

/// Returns an update for a zone that can never succeed. Its prerequisites contradict each other: the zone's own name must be in
/// use and not in use (RFC 2136, sections 2.4.4 and 2.4.5). Even if it succeeded, it would change nothing, because it only adds
/// the record `there`, which already exists (section 3.4.2.2).
pub(super) fn never(zone: &Name, there: rr::Record) -> Message {
    let mut message = nothing(zone.clone());
    for class in [DNSClass::ANY, DNSClass::NONE] {
        let mut prerequisite = rr::Record::update0(zone.clone(), 0, RecordType::ANY);
        prerequisite.dns_class = class;
        message.add_pre_requisite(prerequisite);
    }
    message.add_update(there);
    message
}

/// Returns an update without any change, with the prerequisite that a name is in use (RFC 2136, section 2.4.4). A wildcard record
/// does not make a name in use.
pub(super) fn in_use(zone: Name, name: Name) -> Message {
    let mut message = nothing(zone);
    let mut prerequisite = rr::Record::update0(name, 0, RecordType::ANY);
    prerequisite.dns_class = DNSClass::ANY;
    message.add_pre_requisite(prerequisite);
    message
}

/// Returns an update that replaces all given record sets. If a present set differs from the expected set, the update changes
/// nothing. The prerequisites contain the data of the expected sets (RFC 2136, sections 2.4.2 and 2.4.3). They cannot contain
/// TTLs.
pub(super) fn replacement(zone: Name, changes: &[SetChange]) -> Result<Message, NameserverError> {
    let mut message = nothing(zone);
    for (name, kind) in changes.iter().filter_map(SetChange::of) {
        let mut all = rr::Record::update0(name_of(name)?, 0, type_of(kind));
        all.dns_class = DNSClass::ANY;
        let of_this = |change: &&SetChange| change.of() == Some((name, kind));
        if let Some(from) = changes.iter().find(of_this).and_then(|change| change.from.as_ref()) {
            for mut record in records(from)? {
                record.ttl = 0;
                message.add_pre_requisite(record);
            }
            message.add_update(all);
        } else {
            all.dns_class = DNSClass::NONE;
            message.add_pre_requisite(all);
        }
    }
    // A name cannot have a CNAME and other records. Therefore, the update adds the new sets after it deletes all old sets.
    for to in changes.iter().filter_map(|change| change.to.as_ref()) {
        for record in records(to)? {
            message.add_update(record);
        }
    }
    Ok(message)
}

/// Returns the records of a set. Their name has the case that the server uses.
fn records(set: &RecordSet) -> Result<Vec<rr::Record>, NameserverError> {
    let name = name_of(set.spelling.as_ref().unwrap_or(&set.name))?;
    let record = |data: &String| Ok(rr::Record::from_rdata(name.clone(), set.ttl, parsed(set.kind, data)?));
    set.data.iter().map(record).collect()
}

/// Parses the data of a record, in the format that [`data`] returns.
fn parsed(kind: RecordKind, data: &str) -> Result<RData, NameserverError> {
    let bad = |reason: String| NameserverError::Data { kind, data: data.to_string(), reason };
    Ok(match kind {
        RecordKind::A => {
            RData::A(data.parse().map_err(|error: std::net::AddrParseError| bad(error.to_string()))?)
        }
        RecordKind::Aaaa => {
            RData::AAAA(data.parse().map_err(|error: std::net::AddrParseError| bad(error.to_string()))?)
        }
        RecordKind::Cname => RData::CNAME(CNAME(name_of(data)?)),
        RecordKind::Txt => {
            let strings =
                strings(data).ok_or_else(|| bad("it is not a list of strings in quotes".to_string()))?;
            RData::TXT(TXT::from_bytes(strings.iter().map(Vec::as_slice).collect()))
        }
        RecordKind::Ns | RecordKind::Soa | RecordKind::Other(_) => {
            return Err(bad("netsurgeon does not change this type".to_string()));
        }
    })
}

/// Returns the response code as text, with the TSIG error if the server rejects the signature.
pub(super) fn code(message: &Message) -> String {
    let words = match message.metadata.response_code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::FormErr => "FORMERR",
        ResponseCode::ServFail => "SERVFAIL",
        ResponseCode::NXDomain => "NXDOMAIN",
        ResponseCode::NotImp => "NOTIMP",
        ResponseCode::Refused => "REFUSED",
        ResponseCode::YXDomain => "YXDOMAIN",
        ResponseCode::YXRRSet => "YXRRSET",
        ResponseCode::NXRRSet => "NXRRSET",
        ResponseCode::NotAuth => "NOTAUTH",
        ResponseCode::NotZone => "NOTZONE",
        other => return other.to_string(),
    };
    let error = message.signature().and_then(|signature| signature.data.error.as_ref());
    let said = match error {
        Some(TsigError::BadSig) => " BADSIG",
        Some(TsigError::BadKey) => " BADKEY",
        Some(TsigError::BadTime) => " BADTIME",
        Some(TsigError::BadTrunc) => " BADTRUNC",
        Some(TsigError::Unknown(_)) | None => "",
    };
    format!("{words}{said}")
}

/// Converts a record of an answer to a [`Record`].
pub(super) fn record(record: &rr::Record) -> Record {
    let kind = match record.record_type() {
        RecordType::A => RecordKind::A,
        RecordType::AAAA => RecordKind::Aaaa,
        RecordType::CNAME => RecordKind::Cname,
        RecordType::NS => RecordKind::Ns,
        RecordType::SOA => RecordKind::Soa,
        RecordType::TXT => RecordKind::Txt,
        other => RecordKind::Other(other.into()),
    };
    Record::new(&spelled(&record.name), kind, record.ttl, data(&record.data))
}

fn data(data: &RData) -> String {
    match data {
        RData::CNAME(name) => spelled(name),
        RData::NS(name) => spelled(name),
        RData::SOA(soa) => {
            let (primary, who) = (spelled(&soa.mname), spelled(&soa.rname));
            let times = format!("{} {} {} {}", soa.refresh, soa.retry, soa.expire, soa.minimum);
            format!("{primary} {who} {} {times}", soa.serial)
        }
        RData::TXT(text) => quoted(&text.txt_data),
        other => other.to_string(),
    }
}

/// Returns the DNS record type of a [`RecordKind`].
pub(super) fn type_of(kind: RecordKind) -> RecordType {
    match kind {
        RecordKind::A => RecordType::A,
        RecordKind::Aaaa => RecordType::AAAA,
        RecordKind::Cname => RecordType::CNAME,
        RecordKind::Ns => RecordType::NS,
        RecordKind::Soa => RecordType::SOA,
        RecordKind::Txt => RecordType::TXT,
        RecordKind::Other(number) => RecordType::from(number),
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, TXT};
    use hickory_proto::serialize::binary::BinEncodable as _;

    use super::*;

    #[test]
    fn trial_update_has_contradicting_prerequisites() {
        let zone = name_of("example.com").unwrap();
        let there = rr::Record::from_rdata(zone.clone(), 60, RData::A(A::new(192, 0, 2, 1)));
        let read = Message::from_vec(&never(&zone, there).to_vec().unwrap()).unwrap();
        assert_eq!(read.op_code, OpCode::Update);
        let classes: Vec<DNSClass> = read.answers.iter().map(|record| record.dns_class).collect();
        assert_eq!(classes, [DNSClass::ANY, DNSClass::NONE]);
        assert!(read.answers.iter().all(|record| record.name == zone));
        assert!(read.answers.iter().all(|record| record.record_type() == RecordType::ANY));
        assert_eq!(read.authorities.len(), 1, "RFC 2136 has updates where answers have authorities");
    }

    #[test]
    fn replacement_deletes_every_old_set_before_it_adds_new_ones() {
        let set = |kind, data: &[&str]| {
            let data = data.iter().map(ToString::to_string).collect();
            RecordSet::new("www.example.com", kind, 60, data)
        };
        let old = [set(RecordKind::Cname, &["old.example.net"])];
        let new = [
            set(RecordKind::A, &["192.0.2.1", "192.0.2.2"]),
            set(RecordKind::Txt, &["\"heritage=external-dns\""]),
        ];
        let changes = SetChange::between(&old, &new);
        let message = replacement(name_of("example.com").unwrap(), &changes).unwrap();
        let read = Message::from_vec(&message.to_vec().unwrap()).unwrap();
        // In an update (RFC 2136), the answer section has the prerequisites, and the authority section has the changes.
        let told = |records: &[rr::Record]| -> Vec<String> {
            let one =
                |record: &rr::Record| format!("{} {} {}", record.dns_class, record.record_type(), record.ttl);
            records.iter().map(one).collect()
        };
        assert_eq!(told(&read.answers), ["NONE A 0", "IN CNAME 0", "NONE TXT 0"]);
        assert_eq!(told(&read.authorities), ["ANY CNAME 0", "IN A 60", "IN A 60", "IN TXT 60"]);
        for kind in [RecordKind::Soa, RecordKind::Ns, RecordKind::Other(33)] {
            assert!(parsed(kind, "x").is_err(), "{kind} is never changed");
        }
        assert!(
            parsed(RecordKind::A, "2001:db8::1").is_err() && parsed(RecordKind::Aaaa, "192.0.2.1").is_err()
        );
    }

    #[test]
    fn records_keep_every_byte() {
        let name = name_of("A-Web.Example.com").unwrap();
        let texts = TXT::from_bytes(vec![b"part one ", b"\xff\"", b""]);
        let stored = rr::Record::from_rdata(name, 300, RData::TXT(texts));
        let read = record(&stored);
        assert_eq!(
            (read.name.as_str(), read.spelling.as_deref()),
            ("a-web.example.com", Some("A-Web.Example.com"))
        );
        assert_eq!((read.kind, read.ttl), (RecordKind::Txt, 300));
        assert_eq!(read.data, r#""part one " "\255\"" """#);
        let alias = RData::CNAME(CNAME(name_of("LB-Blue.Example.net").unwrap()));
        let alias = rr::Record::from_rdata(name_of("www.example.com").unwrap(), 60, alias);
        assert_eq!((record(&alias).data.as_str(), record(&alias).spelling), ("LB-Blue.Example.net", None));
        for stored in [stored, alias] {
            let bytes = |record: &rr::Record| record.to_bytes().unwrap();
            let again = records(&RecordSet::group(&[record(&stored)])[0]).unwrap();
            assert_eq!(again.iter().map(bytes).collect::<Vec<_>>(), [bytes(&stored)]);
        }
        assert!(parsed(RecordKind::Txt, "heritage=external-dns").is_err());
    }
}
