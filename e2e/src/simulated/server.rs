//! The server of one member: TLS with certificates on both sides, over HTTP/1.1 and HTTP/2.

use super::ensemble::{Ensemble, Refusal, State};
use super::{gateway, grpc};
use anyhow::Result;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The protocols that a member offers, in order of preference.
pub(super) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A serving member.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) tls: TlsAcceptor,
    pub(super) ensemble: Arc<Mutex<Ensemble>>,
    pub(super) id: u64,
    /// The state of the member. When its process ends, its listener and connections end too.
    pub(super) state: watch::Receiver<State>,
}

impl Server {
    /// Serves until the member ends.
    pub(super) async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut state = self.state.clone();
        loop {
            tokio::select! {
                // An error means that the member has been removed.
                _ = state.wait_for(|state| *state == State::Ended) => return,
                Ok((stream, _)) = listener.accept() => {
                    // An error means that the client has closed the connection.
                    connections.spawn(self.clone().connection(stream));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(mut self, stream: TcpStream) -> Result<()> {
        self.thawed().await;
        stream.set_nodelay(true)?;
        let stream = self.tls.accept(stream).await?;
        let by_http2 = stream.get_ref().1.alpn_protocol() == Some(PROTOCOLS[0]);
        let service = service_fn(|request| self.clone().answer(request));
        let stream = TokioIo::new(stream);
        if by_http2 {
            return Ok(http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await?);
        }
        Ok(http1::Builder::new().serve_connection(stream, service).await?)
    }

    async fn answer(mut self, request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, Infallible>>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.thawed().await;
        let mut ensemble = self.ensemble.lock().unwrap_or_else(PoisonError::into_inner);
        let by_grpc = parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == grpc::CONTENT_TYPE);
        if by_grpc {
            return called(grpc::answer(&mut ensemble, self.id, parts.uri.path(), &body));
        }
        let (status, kind, body) = gateway::answer(&ensemble, self.id, &parts.method, parts.uri.path(), &body);
        let answer = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
        Ok(answer.body(Full::from(body).boxed())?)
    }

    /// Waits until the machine is not frozen.
    async fn thawed(&mut self) {
        // An error means that the member has been removed. Then its connections end.
        let _ = self.state.wait_for(|state| *state != State::Frozen).await;
    }
}

/// The answer to a gRPC call. The code comes after the message, or in place of it.
fn called(answered: Result<Vec<u8>, Refusal>) -> Result<Response<BoxBody<Bytes, Infallible>>> {
    let answer = Response::builder().header(header::CONTENT_TYPE, grpc::CONTENT_TYPE);
    match answered {
        Ok(message) => {
            let trailers = HeaderMap::from_iter([("grpc-status".parse()?, HeaderValue::from_static("0"))]);
            let body = Full::from(message).with_trailers(std::future::ready(Some(Ok(trailers))));
            Ok(answer.body(body.boxed())?)
        }
        Err(Refusal(code, message)) => {
            let answer = answer.header("grpc-status", code).header("grpc-message", message);
            Ok(answer.body(Empty::new().boxed())?)
        }
    }
}
