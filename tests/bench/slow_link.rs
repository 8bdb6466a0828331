//! A TCP relay with a delay, like a link to a far cluster. Each direction delays every byte by the same time, and does not limit the
//! bandwidth. The handshake of a connection is not delayed.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Starts a relay to a server, `HOST:PORT`. Returns its address. Its threads end with this process, or with their connections.
pub fn start(server: &str, one_way: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = server.to_string();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(&server) else { continue };
            for end in [&client, &upstream] {
                end.set_nodelay(true).expect("a socket");
            }
            let (other_client, other_upstream) = (client.try_clone(), upstream.try_clone());
            pass(client, other_upstream.expect("a handle"), one_way);
            pass(upstream, other_client.expect("a handle"), one_way);
        }
    });
    address
}

/// Passes the bytes of one direction on, each after its delay.
fn pass(mut from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver): (Sender<(Instant, Vec<u8>)>, _) = channel();
    std::thread::spawn(move || write(to, &receiver));
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length) = from.read(&mut buffer) {
            if length == 0 || sender.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    });
}

fn write(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    for (due, bytes) in receiver {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
