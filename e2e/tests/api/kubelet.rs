//! A kubelet that only serves logs. The API server requests them from it when a client reads the logs of a Pod.

use crate::server::Server;
use anyhow::{Context, Result};
use e2e::tls::{Authority, acceptor};
use e2e::world::ADDRESS;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A kubelet that serves until it is dropped.
pub(crate) struct Kubelet {
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// The kubelet of a node, which this makes. `log` is the log of every container.
    pub(crate) async fn start(server: &Server, node: &str, log: &str) -> Result<Self> {
        let (authority, _) = Authority::create("kubelet")?;
        // The API server of these tests has no CA to verify a kubelet with, and accepts any certificate.
        let tls = acceptor(&authority.member(node, ADDRESS.parse()?)?, None, &[b"http/1.1"])?;
        let listener = TcpListener::bind((ADDRESS, 0)).await.context("listen as a kubelet")?;
        let nodes: Api<Node> = Api::all(server.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": node}}))?).await?;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": listener.local_addr()?.port()}},
        }});
        nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await?;
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let task = tokio::spawn(serve(listener, tls, log.to_owned(), asked.clone()));
        Ok(Self { asked, task })
    }

    /// The first line of each request so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one request after the other.
async fn serve(listener: TcpListener, tls: TlsAcceptor, log: String, asked: Arc<Mutex<Vec<String>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        if let Err(error) = answer(&tls, stream, &log, &asked).await {
            println!("  a request to the kubelet: {error:#}");
        }
    }
}

async fn answer(tls: &TlsAcceptor, stream: TcpStream, log: &str, asked: &Mutex<Vec<String>>) -> Result<()> {
    let mut stream = BufReader::new(tls.accept(stream).await?);
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    // Up to the empty line that ends the headers.
    let mut header = String::new();
    while stream.read_line(&mut header).await? > "\r\n".len() {
        header.clear();
    }
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(first.trim_end().to_owned());
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n", log.len());
    stream.write_all(format!("{head}Connection: close\r\n\r\n{log}").as_bytes()).await?;
    Ok(stream.shutdown().await?)
}
