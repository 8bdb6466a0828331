//! A TCP proxy that can lose answers: it passes everything on until it is told to keep what the server
//! says to itself, and cuts its clients' connections when told so.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The proxy. Its threads end with the test's process, or with their connections.
pub struct Proxy {
    address: String,
    silent: Arc<AtomicBool>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Starts a proxy of a server, given as `HOST:PORT`.
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let silent = Arc::new(AtomicBool::new(false));
        let clients = Arc::new(Mutex::new(Vec::new()));
        let proxy = Self { address, silent: silent.clone(), clients: clients.clone() };
        let server = server.to_string();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                clients.lock().expect("the lock").push(client.try_clone().expect("a socket's handle"));
                let (from_client, to_server) = (client.try_clone(), upstream.try_clone());
                std::thread::spawn(move || {
                    pass(from_client.expect("a handle"), to_server.expect("a handle"), None);
                });
                let silent = silent.clone();
                std::thread::spawn(move || pass(upstream, client, Some(&silent)));
            }
        });
        proxy
    }

    /// The address to connect to, as `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From now on no answer reaches a client, or again each does.
    pub fn be_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }

    /// Cuts the clients off; what they sent has been passed on.
    pub fn cut(&self) {
        for client in self.clients.lock().expect("the lock").drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, silent: Option<&AtomicBool>) {
    let mut buffer = [0; 16384];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            break;
        }
        let swallow = silent.is_some_and(|silent| silent.load(Ordering::SeqCst));
        if !swallow && to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // A client that was cut off leaves its server connection open until the server has answered, so
    // that the request is not cancelled.
    let _ = from.shutdown(Shutdown::Read);
}
