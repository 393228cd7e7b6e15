//! A proxy between the controller and the API server. It makes the watch of Secrets lag for as long as a scenario
//! wants.

use crate::stage::SOON;
use anyhow::{Context, Result};
use futures::stream::unfold;
use http::{Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use std::net::Ipv4Addr;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The proxy. It listens until it is dropped.
pub(crate) struct LaggingSecrets {
    /// A client for the controller.
    pub(crate) client: Client,
    state: State,
    task: JoinHandle<()>,
}

type State = watch::Sender<Events>;

/// What happens to the events of Secrets.
#[derive(PartialEq)]
enum Events {
    Pass,
    /// They are held back, and none has arrived yet.
    AreHeldBack,
    /// One has arrived and waits, as do all events after it.
    Wait,
}

impl LaggingSecrets {
    /// Starts a proxy that passes everything on to `server`, until something is held back.
    pub(crate) async fn start(server: Client) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address: Uri = format!("http://{}", listener.local_addr()?).parse()?;
        let state = State::new(Events::Pass);
        let states = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, state) = (server.clone(), states.clone());
                let service = service_fn(move |request| pass(server.clone(), state.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { client: Client::try_from(Config::new(address))?, state, task })
    }

    /// Holds back all events of Secrets until [`Self::release`]. Reads pass.
    pub(crate) fn hold(&self) {
        self.state.send_replace(Events::AreHeldBack);
    }

    /// Waits until an event is held back.
    pub(crate) async fn lags(&self) -> Result<()> {
        let mut state = self.state.subscribe();
        let waits = state.wait_for(|state| *state == Events::Wait);
        timeout(SOON, waits).await.context("no event of a Secret has come")??;
        Ok(())
    }

    /// Passes on everything that was held back.
    pub(crate) fn release(&self) {
        self.state.send_replace(Events::Pass);
    }
}

impl Drop for LaggingSecrets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    server: Client,
    state: State,
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, kube::Error>>> {
    let lags = is_watch_of_secrets(request.uri());
    let (mut parts, body) = request.into_parts();
    // The header names this proxy.
    parts.headers.remove(header::HOST);
    let body = Body::from(body.collect().await?.to_bytes());
    let answer = server.send(Request::from_parts(parts, body)).await?;
    Ok(answer.map(|body| if lags { held_back(body, state) } else { body.boxed_unsync() }))
}

fn is_watch_of_secrets(uri: &Uri) -> bool {
    uri.path().ends_with("/secrets") && uri.query().is_some_and(|query| query.contains("watch=true"))
}

fn held_back(body: Body, state: State) -> UnsyncBoxBody<Bytes, kube::Error> {
    let pieces = unfold((body, state), |(mut body, state)| async move {
        let piece = body.frame().await?;
        state.send_if_modified(|state| {
            let waits = *state == Events::AreHeldBack;
            if waits {
                *state = Events::Wait;
            }
            waits
        });
        state.subscribe().wait_for(|state| *state == Events::Pass).await.ok()?;
        Some((piece, (body, state)))
    });
    StreamBody::new(pieces).boxed_unsync()
}
