//! A connection to a manager, a connection to a server, and the requests between them.

use anyhow::Result;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::{client, server as tls_server};

/// The body of a request or an answer, passed on as it arrives.
pub(super) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// A body that is there as a whole.
pub(super) fn whole(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The name of HTTP/2 in ALPN.
pub(super) const HTTP_2: &[u8] = b"h2";

/// The server's side of a connection.
#[derive(Clone)]
pub(super) enum Server {
    /// HTTP/1.1: one request after the other.
    One(Arc<Mutex<http1::SendRequest<Body>>>),
    /// HTTP/2.
    Many(http2::SendRequest<Body>),
}

impl Server {
    /// Sends a request, and returns the answer when its head has arrived.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>> {
        match self {
            Self::One(server) => {
                let mut server = server.lock().await;
                server.ready().await?;
                Ok(server.send_request(request).await?)
            }
            Self::Many(server) => {
                let mut server = server.clone();
                server.ready().await?;
                Ok(server.send_request(request).await?)
            }
        }
    }
}

/// Answers all requests of a connection with `handle`, until one side ends the connection. An error of `handle` ends
/// the connection as well; with HTTP/2, it ends only the request's stream. Both sides have to speak the same version of
/// HTTP.
///
/// # Errors
/// When the connection ends in the middle of a request or an answer.
pub(super) async fn relay<F>(
    manager: tls_server::TlsStream<TcpStream>,
    server: client::TlsStream<TcpStream>,
    handle: impl Fn(Server, Request<Incoming>) -> F,
) -> Result<()>
where
    F: Future<Output = Result<Response<Body>>> + Send + 'static,
{
    let is_http2 = manager.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let (manager, server) = (TokioIo::new(manager), TokioIo::new(server));
    // If the server closes its side, everything that it sent before is still passed on.
    if is_http2 {
        let (sender, server) = http2::handshake(TokioExecutor::new(), server).await?;
        let service = service_fn(|request| handle(Server::Many(sender.clone()), request));
        let http2 = server::conn::http2::Builder::new(TokioExecutor::new());
        let mut manager = pin!(http2.serve_connection(manager, service));
        tokio::select! {
            ended = manager.as_mut() => return Ok(ended?),
            _ = server => manager.as_mut().graceful_shutdown(),
        }
        return Ok(manager.await?);
    }
    let (sender, server) = http1::handshake(server).await?;
    let sender = Arc::new(Mutex::new(sender));
    let service = service_fn(|request| handle(Server::One(sender.clone()), request));
    let mut manager = pin!(server::conn::http1::Builder::new().serve_connection(manager, service));
    tokio::select! {
        ended = manager.as_mut() => return Ok(ended?),
        _ = server => manager.as_mut().graceful_shutdown(),
    }
    Ok(manager.await?)
}
