//! A TCP relay that misbehaves as networks do: it can keep what the server says to itself, cut its clients'
//! connections when told so or when a client says certain words, and cut each connection after a random number of
//! bytes.

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
    /// When a client says this, it is silent before the server hears it.
    silencing: Mutex<Option<Vec<u8>>>,
    /// After how many bytes of the server's a connection is cut: somewhere in this range.
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

    /// From now on no answer reaches a client, or again each does.
    pub fn be_silent(&self, silent: bool) {
        *self.shared.silencing.lock().expect("the lock") = None;
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// No answer reaches a client from when one says these words: the server gets to hear them, and what it answers is
    /// lost.
    pub fn be_silent_from(&self, words: &str) {
        *self.shared.silencing.lock().expect("the lock") = Some(words.as_bytes().to_vec());
    }

    /// Tells whether no answer reaches a client.
    pub fn is_silent(&self) -> bool {
        self.shared.silent.load(Ordering::SeqCst)
    }

    /// Cuts the clients off; what they sent has been passed on.
    pub fn cut(&self) {
        for client in self.shared.clients.lock().expect("the lock").drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// From now on cuts each new connection after so many bytes of the server's as a random choice from the
    /// range says, or with `None` no longer. The connections that are open are cut now.
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
    /// Passes on what the server says, as far as it may be heard.
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
        // A client that was cut off leaves its server connection open until the server has answered, so
        // that the request is not cancelled.
        let _ = server.shutdown(Shutdown::Read);
    }

    /// Passes on what a client says.
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
