//! Asks a process of the plane whether it is ready.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::Process;
use crate::until::until;

/// How long any process may take to become ready, even on a busy computer.
const READY: Duration = Duration::from_secs(60);

/// Waits until `path` on a port of loopback answers 200, and gives up as soon as `process` has ended.
pub(super) async fn http_ready(process: &mut Process, port: u16, path: &str) -> Result<()> {
    let ask = async || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.lines().next().unwrap_or("no answer");
        if !status.contains(" 200 ") {
            bail!("{path} answers {status}");
        }
        Ok(())
    };
    alive_until_ready(process, ask).await
}

/// Waits until the API server answers for its own kinds, which it does before it reports that it is ready.
pub(super) async fn apiserver_answers(process: &mut Process, client: &Client) -> Result<()> {
    apiserver_gives(process, client, "/apis/apiextensions.k8s.io/v1").await
}

/// Waits until the API server says it is ready, and gives up as soon as `process` has ended.
pub(super) async fn apiserver_ready(process: &mut Process, client: &Client) -> Result<()> {
    apiserver_gives(process, client, "/readyz").await
}

async fn apiserver_gives(process: &mut Process, client: &Client, path: &str) -> Result<()> {
    let ask = async || {
        let request = http::Request::get(path).body(Vec::new())?;
        client.request_text(request).await?;
        Ok(())
    };
    alive_until_ready(process, ask).await
}

async fn alive_until_ready(process: &mut Process, ask: impl AsyncFn() -> Result<()>) -> Result<()> {
    let (name, log) = (process.name().to_owned(), process.log().to_owned());
    let ready = until(format!("{name} is ready"), READY, async || Ok(Some(ask().await?)));
    tokio::select! {
        ready = ready => ready,
        ended = process.wait() => Err(anyhow::anyhow!("{name} ended with {}", ended?)),
    }
    .with_context(|| format!("see {}", log.display()))
}
