//! What stands between a client and an API server, and meets a trouble at a given write: the client is killed, an answer is
//! lost, a request arrives late, or somebody else was faster. It speaks HTTP/1.1 without TLS to the client, on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens at which write, counted from 1 over all gates since the last [`Troubles::arm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// The client is killed before its request arrives.
    KilledBefore(usize),
    /// It is killed when the server has carried it out.
    KilledAfter(usize),
    /// It is killed, and its request arrives when [`Troubles::deliver`] is called.
    KilledAndLate(usize),
    /// The request does not arrive, and the client is not told.
    LostBefore(usize),
    /// It is carried out, and the client is not told.
    LostAfter(usize),
    /// Somebody else changes the object just before.
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

/// A request that was kept back.
struct Late {
    client: Client,
    asked: Asked,
}

/// The troubles of all gates of a test.
pub struct Troubles {
    trouble: Mutex<Trouble>,
    writes: AtomicUsize,
    /// Ways of all writes, with their methods.
    seen: Mutex<Vec<String>>,
    late: Mutex<Vec<Late>>,
    killed: watch::Sender<bool>,
}

impl Troubles {
    /// Returns none for now.
    pub fn none() -> Arc<Self> {
        Arc::new(Self {
            trouble: Mutex::new(Trouble::None),
            writes: AtomicUsize::new(0),
            seen: Mutex::default(),
            late: Mutex::default(),
            killed: watch::Sender::new(false),
        })
    }

    /// Chooses the next trouble, and counts from 0 again.
    pub fn arm(&self, trouble: Trouble) {
        *self.trouble.lock().expect("the lock") = trouble;
        self.writes.store(0, Ordering::SeqCst);
        self.seen.lock().expect("the lock").clear();
        self.killed.send_replace(false);
    }

    /// How many writes there were since.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// What was written since, as in `PUT /api/v1/…`.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("the lock").clone()
    }

    /// Waits until the client is to be killed.
    pub async fn killed(&self) {
        self.killed.subscribe().wait_for(|killed| *killed).await.expect("the sender lives");
    }

    /// Lets what was kept back arrive; returns the status of each answer.
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

    /// What a kubeconfig for it says.
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

/// Reads a request; `None` when the client is gone.
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

/// What the client hears; `None`: nothing, and its connection is closed.
async fn answer(asked: Asked, client: &Client, troubles: &Troubles) -> Option<(u16, Vec<u8>)> {
    if *troubles.killed.borrow() {
        return None;
    }
    if asked.method == Method::GET {
        return Some(asked.forward(client).await);
    }
    let number = troubles.writes.fetch_add(1, Ordering::SeqCst) + 1;
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

    /// Changes the object that a request is about, if it is there.
    async fn touch(&self, client: &Client) {
        if self.method == Method::POST {
            return;
        }
        let change: Value = json!({"metadata": {"annotations": {"touched": "by somebody else"}}});
        let (method, content_type) = (Method::PATCH, "application/merge-patch+json".to_string());
        let path = self.path.clone();
        Self { method, path, content_type, body: change.to_string().into_bytes() }.forward(client).await;
    }
}
