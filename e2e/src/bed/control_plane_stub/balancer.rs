//! A load balancer before the API servers of a control plane. Connections to its one address go to API servers that are
//! ready.

use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A running load balancer. Dropping it ends all connections.
pub(super) struct Balancer {
    port: u16,
    ready: Ready,
    task: JoinHandle<()>,
}

/// Ports on loopback that connections may go to.
type Ready = Arc<Mutex<Vec<u16>>>;

impl Balancer {
    /// Begins to listen on a port of loopback.
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for clients")?;
        let port = listener.local_addr().context("the port that clients come to")?.port();
        let ready = Ready::default();
        let task = tokio::spawn(serve(listener, ready.clone()));
        Ok(Self { port, ready, task })
    }

    /// The port that clients connect to.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Sends new connections to these ports. Open connections stay as they are.
    pub(super) fn lead_to(&self, ports: Vec<u16>) {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = ports;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, ready: Ready) {
    let mut connections = JoinSet::new();
    let mut turn = 0;
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        // If no API server is ready, the client's connection is closed.
        if let Some(port) = pick(&ready, turn) {
            connections.spawn(relay(client, port));
        }
        turn += 1;
    }
}

fn pick(ready: &Ready, turn: usize) -> Option<u16> {
    let ports = ready.lock().unwrap_or_else(PoisonError::into_inner);
    ports.get(turn.checked_rem(ports.len())?).copied()
}

async fn relay(mut client: TcpStream, port: u16) {
    if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        // Either side may end the connection at any time.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A server that answers every connection with this text, and its port.
    async fn says(text: &'static str) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                client.write_all(text.as_bytes()).await.unwrap();
            }
        });
        port
    }

    #[tokio::test]
    async fn connections_go_round_and_nowhere_if_nobody_is_ready() {
        let balancer = Balancer::start().await.unwrap();
        let heard = async || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, balancer.port())).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        };
        assert_eq!(heard().await, "");
        balancer.lead_to(vec![says("a").await, says("b").await]);
        let mut all = [heard().await, heard().await];
        all.sort();
        assert_eq!(all, ["a", "b"]);
    }
}
