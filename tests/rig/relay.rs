//! A TCP relay that misbehaves as networks do: it can drop the server's answers, cut its clients' connections on request or when
//! a client sends certain words, and cut each connection after a random number of bytes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rand::Rng;

/// The relay. Its threads end with the test's process, or with their connections.
pub struct Relay {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    silent: AtomicBool,
    /// When a client sends this, the relay is silent before the server gets it.
    silencing: Mutex<Option<Vec<u8>>>,
    /// After how many bytes from the server a connection is cut: somewhere in this range.
    cuts: Mutex<Option<Range<usize>>>,
    /// How many connections were cut after their random number of bytes.
    cut: AtomicUsize,
    clients: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Starts a relay on loopback to a server, given as `HOST:PORT`.
    pub fn start(server: &str) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), server)
    }

    /// Starts a relay that listens at an address of the calling thread's network namespace, and connects from
    /// there.
    pub fn start_at(address: IpAddr, server: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("the address has a free port");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let shared = Arc::new(Shared::default());
        let relay = Self { address, shared: shared.clone() };
        let server = server.to_string();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                shared.clients.lock().expect("the lock").push(client.try_clone().expect("a socket's handle"));
                let (from_client, to_server) = (client.try_clone(), upstream.try_clone());
                let asked = shared.clone();
                std::thread::spawn(move || {
                    asked.pass_requests(from_client.expect("a handle"), to_server.expect("a handle"));
                });
                let shared = shared.clone();
                std::thread::spawn(move || shared.pass_answers(upstream, client));
            }
        });
        relay
    }

    /// The address to connect to, as `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From now on no answer reaches a client, or each does again.
    pub fn be_silent(&self, silent: bool) {
        *self.shared.silencing.lock().expect("the lock") = None;
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// No answer reaches a client from the moment at which one sends these words: the server gets them, and its answer is lost.
    pub fn be_silent_from(&self, words: &str) {
        *self.shared.silencing.lock().expect("the lock") = Some(words.as_bytes().to_vec());
    }

    /// Whether no answer reaches a client.
    pub fn is_silent(&self) -> bool {
        self.shared.silent.load(Ordering::SeqCst)
    }

    /// Cuts the clients off; bytes that they sent have been passed on.
    pub fn cut(&self) {
        for client in self.shared.clients.lock().expect("the lock").drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// From now on cuts each new connection after a random number of the server's bytes in this range, or with `None` no longer.
    /// Open connections are cut now.
    pub fn cut_after(&self, bytes: Option<Range<usize>>) {
        *self.shared.cuts.lock().expect("the lock") = bytes;
        self.cut();
    }

    /// Returns how many connections were cut after a random number of bytes.
    pub fn cuts(&self) -> usize {
        self.shared.cut.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// Passes on the server's answers, unless the relay is silent.
    fn pass_answers(&self, mut server: TcpStream, mut client: TcpStream) {
        let cuts = self.cuts.lock().expect("the lock").clone();
        let mut left = cuts.map_or(usize::MAX, |range| rand::rng().random_range(range));
        let mut buffer = [0; 16384];
        while let Ok(length) = server.read(&mut buffer) {
            if length == 0 {
                break;
            }
            let heard = length.min(left);
            let swallow = self.silent.load(Ordering::SeqCst);
            if !swallow && client.write_all(&buffer[..heard]).is_err() {
                break;
            }
            left -= heard;
            if left == 0 {
                self.cut.fetch_add(1, Ordering::SeqCst);
                let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
            }
        }
        // A client that was cut off leaves its server connection open until the server has answered, so that the request is not
        // cancelled.
        let _ = server.shutdown(Shutdown::Read);
    }

    /// Passes on the requests of a client.
    fn pass_requests(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut buffer = [0; 16384];
        while let Ok(length) = client.read(&mut buffer) {
            self.heed(&buffer[..length]);
            if length == 0 || server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Read);
    }

    fn heed(&self, said: &[u8]) {
        let mut silencing = self.silencing.lock().expect("the lock");
        if silencing.as_ref().is_some_and(|words| said.windows(words.len()).any(|part| part == words)) {
            *silencing = None;
            self.silent.store(true, Ordering::SeqCst);
        }
    }
}
