//! Servers that send each client its source address and the server's name.
//!
//! The protocol: a byte from the client, a line from the server, as in `10.244.1.3 web-1`. After [`ONCE`] the server closes the
//! connection, so that the client's port is free again; after [`AGAIN`] it waits for the next byte. A datagram with any content
//! is answered with the line.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use super::namespace::{Namespace, Worker};

/// The port of the servers, TCP and UDP, IPv4 and IPv6.
pub const PORT: u16 = 8080;

/// Requests an answer and the end of the connection.
pub const ONCE: u8 = b'1';

/// Requests an answer.
pub const AGAIN: u8 = b'+';

/// How many connections may wait while the machine is busy.
const BACKLOG: u32 = 4096;

/// How long to wait after a connection could not be accepted, as for lack of file handles.
const PAUSE: Duration = Duration::from_millis(10);

/// Starts a server in a namespace. It listens when this returns, and answers with that name.
pub fn serve(namespace: &Namespace, name: &str) -> Worker {
    let name = name.to_owned();
    let (tell, told) = channel();
    let worker = namespace.work(&format!("echo {name}"), async move |mut stopped| {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT);
        let listener = TcpSocket::new_v6().and_then(|socket| {
            // The server may be started again, while connections of the previous one wait for their end.
            socket.set_reuseaddr(true)?;
            socket.bind(any)?;
            socket.listen(BACKLOG)
        });
        let listener = listener.expect("the port is free");
        let socket = UdpSocket::bind(any).await.expect("the port is free");
        let _ = tell.send(());
        tokio::select! {
            _ = stopped.changed() => {}
            () = accept(&listener, &name) => {}
            () = answer_datagrams(&socket, &name) => {}
        }
    });
    told.recv().expect("the server reports that it listens");
    worker
}

async fn accept(listener: &TcpListener, name: &str) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => drop(tokio::spawn(answer(stream, line(client, name)))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(mut stream: TcpStream, line: String) {
    while let Ok(request) = stream.read_u8().await {
        if stream.write_all(line.as_bytes()).await.is_err() || request == ONCE {
            break;
        }
    }
}

async fn answer_datagrams(socket: &UdpSocket, name: &str) {
    let mut buffer = [0; 64];
    loop {
        // An error here belongs to an earlier answer.
        if let Ok((_, client)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(line(client, name).as_bytes(), client).await;
        }
    }
}

fn line(client: SocketAddr, name: &str) -> String {
    format!("{} {name}\n", client.ip().to_canonical())
}
