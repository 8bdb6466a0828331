//! Sends requests to one name server. Except for a test of UDP itself, this module uses TCP for three reasons: every server supports TCP (RFC 7766), answers over
//! TCP are complete, and an attacker cannot forge answers by guessing ids.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{self, RData, RecordType};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{self, code, type_of};
use super::presentation::name_of;
use super::signature::Verifier;
use super::{
    AT_ONCE, Answer, Key, NameserverError, PORT, Record, RecordKind, RecordSet, SetChange, canonical,
};

/// Timeout of one answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Maximum memory for the records of a zone, in bytes. It is enough for about half a million records. In a larger zone, each name
/// needs its own query.
const MOST: usize = 64 << 20;

/// Timeout of a whole zone transfer.
const TRANSFER: Duration = Duration::from_mins(2);

type Result<T> = std::result::Result<T, NameserverError>;

/// A name server.
#[derive(Debug, Clone)]
pub struct Server {
    at: SocketAddr,
    key: Option<Key>,
}

/// A request that is signed, with an open connection. It is not sent yet.
struct Ready {
    stream: TcpStream,
    framed: Vec<u8>,
    id: u16,
    verifier: Option<Verifier>,
}

/// An update that can be sent at once, because it is signed and its connection is open.
///
/// The server rejects the update if it is sent much later. The time in the signature is then too old (RFC 8945, section 5.2.3,
/// at most five minutes), and servers close connections without a request (RFC 7766, section 6.2.3; BIND after 30 s,
/// `tcp-initial-timeout`).
pub struct Update<'s> {
    server: &'s Server,
    zone: String,
    ready: Ready,
}

impl Update<'_> {
    /// Sends the update. Fails with [`NameserverError::is_conflict`] if a set in the zone differs from the set that the change
    /// expects.
    pub async fn send(self) -> Result<()> {
        let Self { server, zone, ready } = self;
        let mut asked = server.send_ready(ready).await?;
        let answer = server.receive(&mut asked).await?;
        match answer.metadata.response_code {
            ResponseCode::NoError => Ok(()),
            _ => Err(server.refused(&format!("an update of `{zone}`"), &answer)),
        }
    }
}

/// A connection with one pending request.
struct Asked {
    stream: TcpStream,
    id: u16,
    verifier: Option<Verifier>,
}

impl Server {
    /// Returns the name server at an address. `key` signs every request. A server with several views of a zone (BIND) uses the
    /// key to select the view.
    pub fn new(at: SocketAddr, key: Option<Key>) -> Self {
        Self { at, key }
    }

    /// Returns the address of the name server.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Queries the records of a name, without recursion.
    pub async fn ask(&self, name: &str, kind: RecordKind) -> Result<Answer> {
        self.look(name, kind, false).await
    }

    /// Queries the records of a name with recursion, from a resolver.
    pub async fn resolve(&self, name: &str, kind: RecordKind) -> Result<Answer> {
        self.look(name, kind, true).await
    }

    /// Queries the records of a name with recursion over UDP, as most clients do. Only for a test of the path: the answer is not
    /// protected against forgery. The query is sent once, and `limit` is the time for its answer. Returns `None` if the answer is
    /// truncated (`TC`, RFC 1035, section 4.1.1), so that a client must ask again over TCP.
    pub async fn resolve_over_udp(
        &self,
        name: &str,
        kind: RecordKind,
        limit: Duration,
    ) -> Result<Option<Answer>> {
        let asked = message::question(name_of(name)?, type_of(kind), true);
        let (id, bytes) =
            (asked.metadata.id, asked.to_vec().map_err(|error| self.garbled(&error.to_string()))?);
        let late = |_| NameserverError::Late { at: self.at, seconds: limit.as_secs() };
        let answer = timeout(limit, self.exchange_udp(&bytes, id)).await.map_err(late)??;
        let is_whole = !answer.metadata.truncation;
        is_whole.then(|| self.answered(name, kind, &answer)).transpose()
    }

    async fn exchange_udp(&self, asked: &[u8], id: u16) -> Result<Message> {
        let any: IpAddr =
            if self.at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let ask = async {
            let socket = UdpSocket::bind((any, 0)).await?;
            socket.connect(self.at).await?;
            socket.send(asked).await?;
            let mut buffer = vec![0; usize::from(u16::MAX)];
            loop {
                let length = socket.recv(&mut buffer).await?;
                let found = Message::from_vec(buffer.get(..length).unwrap_or_default());
                if let Some(message) = found.ok().filter(|message| message.metadata.id == id) {
                    return Ok(message);
                }
            }
        };
        ask.await.map_err(|error: std::io::Error| NameserverError::Unreachable {
            at: self.at,
            reason: error.to_string(),
        })
    }

    /// Resolves a host name to its addresses, with recursion. IPv4 addresses come first.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>> {
        let mut found = Vec::new();
        for kind in [RecordKind::A, RecordKind::Aaaa] {
            let answer = self.resolve(host, kind).await?;
            found.extend(answer.of(kind).into_iter().filter_map(|text| text.parse::<IpAddr>().ok()));
        }
        Ok(found)
    }

    /// Reads the NS records of a zone from this server, which must be the primary. Returns the name servers with their names. If
    /// a name cannot be resolved, its entry is an error.
    pub async fn authorities(&self, zone: &str, resolver: &Self) -> Result<Vec<(String, Result<Self>)>> {
        let named = self.ask(zone, RecordKind::Ns).await?;
        let found = named.of(RecordKind::Ns).into_iter().map(canonical).map(async |name| {
            let server = self.address_of(&name, resolver).await.map(|address| {
                // The port and the key belong to the primary. Other servers use port 53, and do not always have the key.
                if address == self.at.ip() { self.clone() } else { Self::new((address, PORT).into(), None) }
            });
            (name, server)
        });
        Ok(stream::iter(found).buffered(AT_ONCE).collect().await)
    }

    /// Resolves the name of another server of the zone. Queries the primary first, because the primary has the names in its own
    /// zone.
    async fn address_of(&self, name: &str, resolver: &Self) -> Result<IpAddr> {
        for kind in [RecordKind::A, RecordKind::Aaaa] {
            let own = self.ask(name, kind).await.ok().filter(|answer| answer.is_authoritative);
            let answer = match own {
                Some(answer) if answer.records.is_empty() || !answer.of(kind).is_empty() => answer,
                // A CNAME can point to a name outside the zone.
                _ => resolver.resolve(name, kind).await?,
            };
            if let Some(Ok(address)) = answer.of(kind).first().map(|text| text.parse()) {
                return Ok(address);
            }
        }
        Err(NameserverError::NoAddress { name: name.to_string() })
    }

    async fn look(&self, name: &str, kind: RecordKind, recursive: bool) -> Result<Answer> {
        let asked = message::question(name_of(name)?, type_of(kind), recursive);
        self.answered(name, kind, &self.exchange(asked).await?)
    }

    fn answered(&self, name: &str, kind: RecordKind, answer: &Message) -> Result<Answer> {
        let exists = match answer.metadata.response_code {
            ResponseCode::NoError => true,
            ResponseCode::NXDomain => false,
            _ => return Err(self.refused(&format!("a query for {kind} of `{name}`"), answer)),
        };
        let records = answer.answers.iter().map(message::record).collect();
        Ok(Answer { is_authoritative: answer.metadata.authoritative, exists, records })
    }

    /// Returns the record sets of these types at a name, ordered by type. Does not return records of other names in the answer,
    /// such as the target of a CNAME. Set `recursive` if the server is a resolver.
    pub async fn sets(&self, name: &str, kinds: &[RecordKind], recursive: bool) -> Result<Vec<RecordSet>> {
        let mut found = Vec::new();
        for kind in kinds {
            let answer = self.look(name, *kind, recursive).await?;
            found.extend(answer.records_of(*kind).filter(|record| record.name == name).cloned());
        }
        Ok(RecordSet::group(&found))
    }

    /// Reads all records of a zone with a zone transfer (AXFR, RFC 5936). Returns the SOA record only once. Omits the records that
    /// a signed zone has beside the data of its users ([`RecordKind::is_of_dnssec`]).
    pub async fn transfer(&self, zone: &str) -> Result<Vec<Record>> {
        let late = |_| NameserverError::Late { at: self.at, seconds: TRANSFER.as_secs() };
        timeout(TRANSFER, self.transfer_whole(zone)).await.map_err(late)?
    }

    async fn transfer_whole(&self, zone: &str) -> Result<Vec<Record>> {
        let what = format!("a transfer of `{zone}`");
        let mut asked = self.send(message::question(name_of(zone)?, RecordType::AXFR, false)).await?;
        let (mut records, mut taken): (Vec<Record>, usize) = (Vec::new(), 0);
        loop {
            let part = self.receive(&mut asked).await?;
            if part.metadata.response_code != ResponseCode::NoError {
                return Err(self.refused(&what, &part));
            }
            for record in part.answers.iter().map(message::record) {
                if record.kind.is_of_dnssec() {
                    continue;
                }
                taken = taken.saturating_add(record.size());
                if taken > MOST {
                    return Err(self.garbled("the zone takes more than 64 MiB"));
                }
                match records.first() {
                    None if record.kind != RecordKind::Soa => {
                        return Err(self.garbled("the transfer does not start with the zone's SOA"));
                    }
                    Some(_) if record.kind == RecordKind::Soa => {
                        self.check_end(&asked)?;
                        return Ok(records);
                    }
                    _ => records.push(record),
                }
            }
            if part.answers.is_empty() {
                return Err(self.garbled("the transfer is incomplete"));
            }
        }
    }

    /// Checks with an empty update whether the server accepts updates of a zone with this key. Permissions for single names are
    /// not checked.
    pub async fn knows_us(&self, zone: &str) -> Result<()> {
        let answer = self.exchange(message::nothing(name_of(zone)?)).await?;
        match answer.metadata.response_code {
            ResponseCode::NoError => Ok(()),
            _ => Err(self.refused(&format!("an update of `{zone}`"), &answer)),
        }
    }

    /// Checks whether a name of a zone has records of its own. A query cannot show this, because a server returns the answer of a
    /// wildcard record as the record of the name. The update has only a prerequisite, and changes nothing.
    pub async fn has_name(&self, zone: &str, name: &str) -> Result<bool> {
        let answer = self.exchange(message::in_use(name_of(zone)?, name_of(name)?)).await?;
        match answer.metadata.response_code {
            ResponseCode::NoError => Ok(true),
            ResponseCode::NXDomain => Ok(false),
            _ => Err(self.refused(&format!("an update of `{zone}` without a change"), &answer)),
        }
    }

    /// Checks whether the server evaluates the changes of an update before its prerequisites, as BIND does since 9.18.11. The
    /// result of [`Self::would_change`] is conclusive only in this case. RFC 2136 specifies the opposite order.
    pub async fn looks_ahead(&self, zone: &str) -> Result<bool> {
        // No zone except the root zone contains this name. A server that checks the changes rejects a record outside its zone
        // (section 3.4.1.3).
        let outside = rr::Record::from_rdata(name_of("invalid")?, 0, RData::A(A::new(192, 0, 2, 1)));
        let answer = self.exchange(message::never(&name_of(zone)?, outside)).await?;
        Ok(answer.metadata.response_code == ResponseCode::NotZone)
    }

    /// Checks whether the server would accept a change to the records of one type at a name. The update cannot succeed, so
    /// nothing is changed (`message::never`). Fails if the server would reject the change. If the name has no records of this
    /// type, sends no update. A server that checks the prerequisites first never rejects the update ([`Self::looks_ahead`]).
    pub async fn would_change(&self, zone: &str, name: &str, kind: RecordKind) -> Result<()> {
        let asked = message::question(name_of(name)?, type_of(kind), false);
        let found = self.exchange(asked).await?;
        let is_it = |record: &&rr::Record| record.record_type() == type_of(kind);
        let Some(there) = found.answers.into_iter().find(|record| is_it(&record)) else { return Ok(()) };
        let answer = self.exchange(message::never(&name_of(zone)?, there)).await?;
        match answer.metadata.response_code {
            // The code depends on which of the two prerequisites the server checks first.
            ResponseCode::YXDomain | ResponseCode::NXDomain => Ok(()),
            _ => Err(self.refused(&format!("an update of {kind} of `{name}`"), &answer)),
        }
    }

    /// Replaces either all of the given record sets of a zone, or none. Fails with [`NameserverError::is_conflict`] if a set in
    /// the zone differs from the set that the change expects. TTLs are not compared.
    pub async fn replace(&self, zone: &str, changes: &[SetChange]) -> Result<()> {
        self.update(zone, changes).await?.send().await
    }

    /// Prepares the update of [`Self::replace`], without sending it.
    pub async fn update(&self, zone: &str, changes: &[SetChange]) -> Result<Update<'_>> {
        let ready = self.ready(message::replacement(name_of(zone)?, changes)?).await?;
        Ok(Update { server: self, zone: zone.to_string(), ready })
    }

    async fn exchange(&self, message: Message) -> Result<Message> {
        let mut asked = self.send(message).await?;
        self.receive(&mut asked).await
    }

    /// Fails if the last message of an answer was not signed.
    fn check_end(&self, asked: &Asked) -> Result<()> {
        asked.verifier.as_ref().map_or(Ok(()), Verifier::end).map_err(|reason| self.unsigned(reason))
    }

    async fn send(&self, message: Message) -> Result<Asked> {
        self.send_ready(self.ready(message).await?).await
    }

    /// Signs a request, and connects.
    async fn ready(&self, mut message: Message) -> Result<Ready> {
        let id = message.metadata.id;
        let mut verifier = None;
        if let Some(key) = &self.key {
            let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default();
            let signed = key.signer.sign_message(&message, now);
            let (signature, _) = signed.map_err(|error| self.garbled(&error.to_string()))?;
            verifier = Some(Verifier::new(&key.signer, &signature.data.mac, now));
            message.set_signature(signature);
        }
        let bytes = message.to_vec().map_err(|error| self.garbled(&error.to_string()))?;
        let length = u16::try_from(bytes.len()).map_err(|error| self.garbled(&error.to_string()))?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend(bytes);
        let stream = self.within(TcpStream::connect(self.at)).await?;
        Ok(Ready { stream, framed, id, verifier })
    }

    async fn send_ready(&self, ready: Ready) -> Result<Asked> {
        let Ready { mut stream, framed, id, verifier } = ready;
        self.within(stream.write_all(&framed)).await?;
        Ok(Asked { stream, id, verifier })
    }

    async fn receive(&self, asked: &mut Asked) -> Result<Message> {
        let read = async {
            let length = asked.stream.read_u16().await?;
            let mut bytes = vec![0; length.into()];
            asked.stream.read_exact(&mut bytes).await?;
            Ok(bytes)
        };
        let bytes = self.within(read).await?;
        let message = Message::from_vec(&bytes).map_err(|error| self.garbled(&error.to_string()))?;
        if message.metadata.id != asked.id {
            return Err(self.garbled("it is the answer to another request"));
        }
        // A server that rejects the signature cannot sign its answer (RFC 8945, section 5.3.2).
        let is_refusal = message.metadata.response_code == ResponseCode::NotAuth;
        if let (Some(verifier), false) = (&mut asked.verifier, is_refusal) {
            let is_signed = message.signature().is_some();
            verifier.accept(&bytes, is_signed).map_err(|reason| self.unsigned(reason))?;
        }
        Ok(message)
    }

    async fn within<T>(&self, work: impl Future<Output = std::io::Result<T>>) -> Result<T> {
        let (at, seconds) = (self.at, LIMIT.as_secs());
        let done = timeout(LIMIT, work).await.map_err(|_| NameserverError::Late { at, seconds })?;
        done.map_err(|error| NameserverError::Unreachable { at, reason: error.to_string() })
    }

    fn unsigned(&self, reason: String) -> NameserverError {
        let key = self.key.as_ref().map(Key::name).unwrap_or_default();
        NameserverError::Unsigned { at: self.at, key, reason }
    }

    fn refused(&self, what: &str, answer: &Message) -> NameserverError {
        NameserverError::Refused { at: self.at, what: what.to_string(), code: code(answer) }
    }

    fn garbled(&self, reason: &str) -> NameserverError {
        NameserverError::Garbled { at: self.at, reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A malicious server can send an endless number of records.
    #[tokio::test]
    async fn endless_zone_transfer_is_aborted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::new(listener.local_addr().unwrap(), None);
        let flood = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut asked).await.unwrap();
            let id = Message::from_vec(&asked).unwrap().metadata.id;
            let zone = name_of("example.com").unwrap();
            let soa = rr::rdata::SOA::new(zone.clone(), zone.clone(), 1, 1, 1, 1, 1);
            let first = rr::Record::from_rdata(zone, 60, RData::SOA(soa));
            let long = name_of(&format!("{}.example.com", ["x"; 60].join("."))).unwrap();
            let more = rr::Record::from_rdata(long, 60, RData::A(A::new(192, 0, 2, 1)));
            let framed = |records: Vec<rr::Record>| {
                let mut message = Message::response(id, hickory_proto::op::OpCode::Query);
                message.answers = records;
                let bytes = message.to_vec().unwrap();
                [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes.as_slice()].concat()
            };
            stream.write_all(&framed(vec![first])).await.unwrap();
            let part = framed(vec![more; 1000]);
            // Writes until the client closes the connection.
            while stream.write_all(&part).await.is_ok() {}
        };
        let (outcome, ()) = tokio::join!(server.transfer("example.com"), flood);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("the zone takes more than 64 MiB"), "{error}");
    }

    /// Answers each query with the records of its name and type. Queries for names that start with `failing` get SERVFAIL.
    async fn serve(records: Vec<rr::Record>, is_authoritative: bool, failing: &'static str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::new(listener.local_addr().unwrap(), None);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut bytes).await.unwrap();
                let asked = Message::from_vec(&bytes).unwrap();
                let query = asked.queries[0].clone();
                let mut answer = Message::response(asked.metadata.id, hickory_proto::op::OpCode::Query);
                answer.metadata.authoritative = is_authoritative;
                let is_asked =
                    |one: &&rr::Record| one.name == *query.name() && one.record_type() == query.query_type();
                answer.answers = records.iter().filter(is_asked).cloned().collect();
                if query.name().to_string().starts_with(failing) {
                    answer.metadata.response_code = ResponseCode::ServFail;
                }
                let bytes = answer.to_vec().unwrap();
                stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
            }
        });
        server
    }

    #[tokio::test]
    async fn primary_resolves_the_name_servers_of_its_zone() {
        let record = |name: &str, data| rr::Record::from_rdata(name_of(name).unwrap(), 60, data);
        let ns = |name: &str| record("example.com", RData::NS(rr::rdata::NS(name_of(name).unwrap())));
        let address = |name: &str, ip: &str| match ip.parse().unwrap() {
            IpAddr::V4(ip) => record(name, RData::A(ip.into())),
            IpAddr::V6(ip) => record(name, RData::AAAA(ip.into())),
        };
        let names = ["ns1.example.com", "ns2.example.net", "ns3.example.net"];
        // The resolver fails for names of the zone, like a resolver without access to an internal zone.
        let resolver = serve(vec![address(names[1], "192.0.2.2")], false, "ns1").await;
        let mut own: Vec<rr::Record> = names.iter().map(|name| ns(name)).collect();
        own.push(address(names[0], "2001:db8::1"));
        let primary = serve(own, true, "ns2").await;
        let found = primary.authorities("example.com", &resolver).await.unwrap();
        let found: Vec<_> = found
            .into_iter()
            .map(|(name, server)| (name, server.map(|server| server.at().to_string())))
            .collect();
        let none = NameserverError::NoAddress { name: names[2].to_string() };
        let expected = [Ok("[2001:db8::1]:53"), Ok("192.0.2.2:53"), Err(&none)];
        assert_eq!(found.len(), expected.len());
        for (name, at) in names.iter().zip(expected) {
            let (_, seen) = found.iter().find(|(one, _)| one == name).unwrap();
            assert_eq!(seen.as_deref(), at, "{name}");
        }
    }
}
