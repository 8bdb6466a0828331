//! A gate between a client and an API server, which causes a fault at a given write: the client is killed, an answer is lost, a
//! request arrives late, or another client was faster. It serves HTTP/1.1 without TLS to the client, on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The fault and the write at which it happens, counted from 1 over all gates since the last [`Troubles::arm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No fault.
    None,
    /// The client is killed before its request arrives.
    KilledBefore(usize),
    /// The client is killed after the server has executed the request.
    KilledAfter(usize),
    /// The client is killed, and its request arrives when [`Troubles::deliver`] is called.
    KilledAndLate(usize),
    /// The request does not arrive, and the client gets no answer.
    LostBefore(usize),
    /// The request is executed, and the client gets no answer.
    LostAfter(usize),
    /// Another client changes the object just before.
    Touched(usize),
}

impl Trouble {
    fn at(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::KilledBefore(at)
            | Self::KilledAfter(at)
            | Self::KilledAndLate(at)
            | Self::LostBefore(at)
            | Self::LostAfter(at)
            | Self::Touched(at) => Some(at),
        }
    }
}

/// A delayed request.
struct Late {
    client: Client,
    asked: Asked,
}

/// The faults of all gates of a test.
pub struct Troubles {
    trouble: Mutex<Trouble>,
    /// Only writes whose paths contain this are counted.
    counted: &'static str,
    writes: AtomicUsize,
    /// Number of reads with such a path.
    reads: AtomicUsize,
    /// Bytes in the bodies of these writes.
    bytes: AtomicUsize,
    /// Methods and paths of all writes.
    seen: Mutex<Vec<String>>,
    late: Mutex<Vec<Late>>,
    killed: watch::Sender<bool>,
    /// The words of a write, after which the answer to the next read is held back.
    held_after: Mutex<Option<&'static [&'static str]>>,
    held: watch::Sender<Held>,
}

/// Whether an answer is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// The write was seen, so the answer to the next read will be held back.
    Next,
    Answer,
}

impl Troubles {
    /// Returns a state without a fault.
    pub fn none() -> Arc<Self> {
        Self::of("")
    }

    /// Returns a state without a fault, which counts only writes whose paths contain a text.
    pub fn of(counted: &'static str) -> Arc<Self> {
        Arc::new(Self {
            trouble: Mutex::new(Trouble::None),
            counted,
            writes: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            seen: Mutex::default(),
            late: Mutex::default(),
            killed: watch::Sender::new(false),
            held_after: Mutex::default(),
            held: watch::Sender::new(Held::Nothing),
        })
    }

    /// Holds back the answer to the first read after a write with these words, as if the client slept before it got the answer.
    pub fn hold_after(&self, words: &'static [&'static str]) {
        *self.held_after.lock().expect("the lock") = Some(words);
    }

    /// Waits until the answer is held back.
    pub async fn holds(&self) {
        self.held.subscribe().wait_for(|held| *held == Held::Answer).await.expect("the sender exists");
    }

    /// Lets the client have the answer.
    pub fn release(&self) {
        self.held.send_replace(Held::Nothing);
    }

    /// Remembers a write after which an answer is held back.
    fn note(&self, asked: &Asked) {
        let body = String::from_utf8_lossy(&asked.body);
        let mut held_after = self.held_after.lock().expect("the lock");
        if held_after.is_some_and(|words| words.iter().all(|word| body.contains(word))) {
            *held_after = None;
            self.held.send_replace(Held::Next);
        }
    }

    /// Selects the next fault, and counts from 0 again.
    pub fn arm(&self, trouble: Trouble) {
        *self.trouble.lock().expect("the lock") = trouble;
        self.writes.store(0, Ordering::SeqCst);
        self.reads.store(0, Ordering::SeqCst);
        self.bytes.store(0, Ordering::SeqCst);
        self.seen.lock().expect("the lock").clear();
        self.killed.send_replace(false);
    }

    /// Returns the number of writes since then.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// Returns the number of reads since then.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes in the bodies of these writes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Returns the writes since then, as in `PUT /api/v1/…`.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("the lock").clone()
    }

    /// Waits until the client is to be killed.
    pub async fn killed(&self) {
        self.killed.subscribe().wait_for(|killed| *killed).await.expect("the sender exists");
    }

    /// Delivers the delayed requests; returns the status of each answer.
    pub async fn deliver(&self) -> Vec<u16> {
        let late = std::mem::take(&mut *self.late.lock().expect("the lock"));
        let mut codes = Vec::new();
        for Late { client, asked } in late {
            codes.push(asked.forward(&client).await.0);
        }
        codes
    }
}

/// A gate before one API server. It closes when the runtime of its test ends.
pub struct ApiGate {
    url: String,
}

#[derive(Debug, Clone)]
struct Asked {
    method: Method,
    path: String,
    content_type: String,
    body: Vec<u8>,
}

impl ApiGate {
    /// Opens a gate before the server of a client.
    pub async fn open(client: Client, troubles: &Arc<Troubles>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let troubles = troubles.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (client, troubles) = (client.clone(), troubles.clone());
                tokio::spawn(async move { serve(connection, client, &troubles).await });
            }
        });
        Self { url }
    }

    /// The text of a kubeconfig for it.
    pub fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "gate",
            "contexts": [{"name": "gate", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {}}],
        })
        .to_string()
    }
}

async fn serve(connection: TcpStream, client: Client, troubles: &Troubles) {
    let mut connection = BufReader::new(connection);
    while let Some(asked) = read(&mut connection).await {
        let Some((code, body)) = answer(asked, &client, troubles).await else { return };
        let head = format!(
            "HTTP/1.1 {code} status\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let written = async {
            connection.write_all(head.as_bytes()).await?;
            connection.write_all(&body).await
        };
        if written.await.is_err() {
            return;
        }
    }
}

/// Reads a request; `None` when the client has closed the connection.
async fn read(connection: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    connection.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.parse().ok()?, words.next()?.to_string());
    let (mut length, mut content_type) = (0, String::new());
    loop {
        let mut header = String::new();
        connection.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().expect("a length"),
            "content-type" => content_type = value.to_string(),
            "transfer-encoding" => panic!("this gate does not read chunks"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    Some(Asked { method, path, content_type, body })
}

/// The answer for the client; `None`: no answer, and its connection is closed.
async fn answer(asked: Asked, client: &Client, troubles: &Troubles) -> Option<(u16, Vec<u8>)> {
    if *troubles.killed.borrow() {
        return None;
    }
    if asked.method == Method::GET || !asked.path.contains(troubles.counted) {
        if asked.path.contains(troubles.counted) {
            troubles.reads.fetch_add(1, Ordering::SeqCst);
        }
        let is_held = asked.path.contains(troubles.counted) && *troubles.held.borrow() == Held::Next;
        let answer = asked.forward(client).await;
        if is_held {
            let mut held = troubles.held.subscribe();
            troubles.held.send_replace(Held::Answer);
            held.wait_for(|held| *held == Held::Nothing).await.expect("the sender exists");
        }
        return Some(answer);
    }
    troubles.note(&asked);
    let number = troubles.writes.fetch_add(1, Ordering::SeqCst) + 1;
    troubles.bytes.fetch_add(asked.body.len(), Ordering::SeqCst);
    troubles.seen.lock().expect("the lock").push(format!("{} {}", asked.method, asked.path));
    let trouble = *troubles.trouble.lock().expect("the lock");
    if trouble.at() != Some(number) {
        return Some(asked.forward(client).await);
    }
    match trouble {
        Trouble::KilledBefore(_) => drop(troubles.killed.send_replace(true)),
        Trouble::KilledAfter(_) => {
            asked.forward(client).await;
            troubles.killed.send_replace(true);
        }
        Trouble::KilledAndLate(_) => {
            troubles.late.lock().expect("the lock").push(Late { client: client.clone(), asked });
            troubles.killed.send_replace(true);
        }
        Trouble::LostAfter(_) => drop(asked.forward(client).await),
        Trouble::Touched(_) => {
            asked.touch(client).await;
            return Some(asked.forward(client).await);
        }
        Trouble::None | Trouble::LostBefore(_) => {}
    }
    None
}

impl Asked {
    async fn forward(&self, client: &Client) -> (u16, Vec<u8>) {
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header("Content-Type", &self.content_type)
            .header("Accept", "application/json")
            .body(Body::from(self.body.clone()))
            .expect("the request is well formed");
        let answer = client.send(request).await.expect("the API server answers");
        let code = answer.status().as_u16();
        (code, answer.into_body().collect_bytes().await.expect("a body").to_vec())
    }

    /// Changes the object of a request, if it exists.
    async fn touch(&self, client: &Client) {
        if self.method == Method::POST {
            return;
        }
        let change: Value = json!({"metadata": {"annotations": {"touched": "by another client"}}});
        let (method, content_type) = (Method::PATCH, "application/merge-patch+json".to_string());
        let path = self.path.clone();
        Self { method, path, content_type, body: change.to_string().into_bytes() }.forward(client).await;
    }
}
