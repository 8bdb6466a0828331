//! A proxy in front of MiniStack that refuses requests as Route 53 does, and MiniStack does not. Its threads end with the process.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A running proxy.
pub struct Proxy {
    /// Its URL.
    pub url: String,
    counts: Arc<Counts>,
}

/// Numbers of requests.
#[derive(Default)]
struct Counts {
    all: AtomicUsize,
    refused: AtomicUsize,
}

/// The code and the text of an error.
type Refusal = (&'static str, String);

impl Proxy {
    /// Starts one at an address that refuses nothing.
    pub fn counting(at: SocketAddr, server: SocketAddr) -> Self {
        Self::start(at, server, |_| None)
    }

    /// Starts one at an address that refuses two of three requests with `Throttling`.
    pub fn throttling(at: SocketAddr, server: SocketAddr) -> Self {
        let count = AtomicUsize::new(0);
        Self::start(at, server, move |_| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            (!number.is_multiple_of(3)).then(|| ("Throttling", "Rate exceeded".to_owned()))
        })
    }

    /// Starts one at an address that refuses changes of one name, as a policy with a condition on the names does: if one change of
    /// a request is denied, none is made.
    pub fn denying(at: SocketAddr, server: SocketAddr, name: &str) -> Self {
        let denied = format!("<Name>{name}");
        Self::start(at, server, move |request| {
            request.contains(&denied).then(|| ("AccessDenied", "not authorized to perform this".to_owned()))
        })
    }

    /// Starts one at an address that refuses changes after which sets of one name and type are partly weighted. Route 53 does so:
    /// all sets of one name and type have the same routing policy (Developer Guide, "Choosing a routing policy").
    pub fn of_one_policy(at: SocketAddr, server: SocketAddr) -> Self {
        Self::start(at, server, move |request| {
            let mut sets = Vec::new();
            for change in blocks(request, "Change") {
                let (set, is_deleted) = (Set::of(change), first(change, "Action") == Some("DELETE"));
                if sets.is_empty() {
                    sets = present(server, request.split_whitespace().nth(1).expect("a path"));
                }
                sets.retain(|other| *other != set);
                sets.extend((!is_deleted).then_some(set));
            }
            let mixed = sets.iter().find(|set| {
                let is_other = |other: &&Set| (&other.name, &other.kind) == (&set.name, &set.kind);
                set.id.is_none() && sets.iter().filter(is_other).count() > 1
            })?;
            let text = format!("RRSet with DNS name {}, type {}: other RRSets exist", mixed.name, mixed.kind);
            Some(("InvalidChangeBatch", text))
        })
    }

    fn start(
        at: SocketAddr,
        server: SocketAddr,
        judge: impl Fn(&str) -> Option<Refusal> + Send + Sync + 'static,
    ) -> Self {
        let (counts, judge) = (Arc::new(Counts::default()), Arc::new(judge));
        let counted = counts.clone();
        let listener = TcpListener::bind(at).unwrap_or_else(|error| panic!("{at}: {error}"));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (judge, counts) = (judge.clone(), counted.clone());
                std::thread::spawn(move || pass(client, server, judge.as_ref(), &counts));
            }
        });
        Self { url: format!("http://{at}"), counts }
    }

    /// How many requests there were.
    pub fn all(&self) -> usize {
        self.counts.all.load(Ordering::SeqCst)
    }

    /// How many requests it has refused.
    pub fn refused(&self) -> usize {
        self.counts.refused.load(Ordering::SeqCst)
    }
}

/// A record set, without its values.
#[derive(PartialEq)]
struct Set {
    name: String,
    kind: String,
    id: Option<String>,
}

impl Set {
    fn of(xml: &str) -> Self {
        let text = |tag| first(xml, tag).map(str::to_owned);
        let (name, kind) = (text("Name").expect("a name"), text("Type").expect("a type"));
        Self { name: name.trim_end_matches('.').to_owned(), kind, id: text("SetIdentifier") }
    }
}

/// The record sets of a zone, by the path of a request that changes them.
fn present(server: SocketAddr, path: &str) -> Vec<Set> {
    let mut stream = TcpStream::connect(server).expect("a connection");
    let request =
        format!("GET {}?maxitems=300 HTTP/1.0\r\nHost: {server}\r\n\r\n", path.trim_end_matches('/'));
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let sets: Vec<Set> = blocks(&answer, "ResourceRecordSet").map(Set::of).collect();
    assert!(!sets.is_empty(), "{answer}");
    sets
}

/// The contents of elements with this name, which do not contain each other.
fn blocks<'x>(xml: &'x str, tag: &str) -> impl Iterator<Item = &'x str> {
    let (start, end) = (format!("<{tag}>"), format!("</{tag}>"));
    xml.split(&start.clone())
        .skip(1)
        .map(move |rest| rest.split(&end).next().unwrap_or_default())
        .collect::<Vec<_>>()
        .into_iter()
}

fn first<'x>(xml: &'x str, tag: &str) -> Option<&'x str> {
    blocks(xml, tag).next()
}

/// Passes one request on, or refuses it. The connection is then closed.
fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    judge: &dyn Fn(&str) -> Option<Refusal>,
    counts: &Counts,
) -> std::io::Result<()> {
    let request = read(&mut client)?;
    counts.all.fetch_add(1, Ordering::SeqCst);
    if let Some((code, text)) = judge(&request) {
        counts.refused.fetch_add(1, Ordering::SeqCst);
        let body = format!(
            "<?xml version=\"1.0\"?><ErrorResponse xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><Error>\
             <Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>\
             <RequestId>1</RequestId></ErrorResponse>"
        );
        let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/xml\r\nConnection: close\r\n";
        return client.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }
    let mut upstream = TcpStream::connect(server)?;
    upstream.write_all(request.replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes())?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    client.write_all(&answer)
}

/// Reads one request.
fn read(client: &mut TcpStream) -> std::io::Result<String> {
    let (mut request, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let count = client.read(&mut bytes)?;
        request.extend_from_slice(&bytes[..count]);
        let text = String::from_utf8_lossy(&request);
        let is_whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            body.len() >= length.map_or(0, |length| length.trim().parse().expect("a length"))
        });
        if is_whole {
            return Ok(text.into_owned());
        }
        assert!(count > 0, "a whole request: {text}");
    }
}
