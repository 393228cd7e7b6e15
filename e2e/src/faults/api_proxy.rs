//! The proxy between a manager and the API server.
//!
//! Each connection of the manager has one of its own to the API server. The manager's credentials are passed on as they are,
//! so that the audit log names it.

use super::answer;
use super::api_call::{ApiCall, Verb};
use super::gate::{Call, Gate};
use super::relay::{Body, Server, relay};
use super::watches::Watches;
use crate::tls::{self, Identity};
use anyhow::{Context, Result};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A running proxy. It listens until it is dropped.
pub(super) struct ApiProxy {
    /// For the manager.
    pub(super) kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

/// Where a proxy stands, and what goes through it.
pub(super) struct Setup<'a> {
    /// The manager's kubeconfig.
    pub(super) kubeconfig: &'a Path,
    /// Directory of the API server's own certificate and key, `tls.crt` and `tls.key`, which the proxy shows as well.
    pub(super) certificates: &'a Path,
    /// Where to write the kubeconfig for the proxy.
    pub(super) own_kubeconfig: PathBuf,
    /// The only namespace that the manager is shown. `None`: all of them.
    pub(super) namespace: Option<String>,
    /// Where requests get their number and their fault.
    pub(super) gate: Arc<Gate<ApiCall>>,
    /// Where watches are held back.
    pub(super) watches: Watches,
}

struct Proxy {
    server: String,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    namespace: Option<String>,
    gate: Arc<Gate<ApiCall>>,
    watches: Watches,
}

impl ApiProxy {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// When the kubeconfig or the certificates cannot be used.
    pub(super) async fn start(setup: Setup<'_>) -> Result<Self> {
        let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
        let mut kubeconfig: Value = serde_json::from_str(&read(setup.kubeconfig)?).context("a kubeconfig")?;
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a kubeconfig that names no server");
        let (server, authority) = (text(&cluster["server"])?, text(&cluster["certificate-authority"])?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen")?;
        cluster["server"] = json!(format!("https://{}", listener.local_addr()?));
        fs::write(&setup.own_kubeconfig, kubeconfig.to_string()).context("write a kubeconfig")?;
        let own = Identity {
            certificate: read(&setup.certificates.join("tls.crt"))?,
            key: read(&setup.certificates.join("tls.key"))?,
        };
        let proxy = Arc::new(Proxy {
            server: server.trim_start_matches("https://").to_owned(),
            acceptor: tls::acceptor(&own, None, &[])?,
            connector: tls::connector(&read(Path::new(&authority))?, None, None)?,
            namespace: setup.namespace,
            gate: setup.gate,
            watches: setup.watches,
        });
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // One that ends with an error is one that the manager or the server has closed, or a fault.
                tokio::spawn(proxy.clone().serve(stream));
            }
        });
        Ok(Self { kubeconfig: setup.own_kubeconfig, task })
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// One connection of the manager, to its end.
    async fn serve(self: Arc<Self>, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let stream = self.acceptor.accept(stream).await?;
        // Only a process that lives makes a handshake.
        let life = self.gate.life();
        let server = TcpStream::connect(&self.server).await?;
        server.set_nodelay(true)?;
        let server = self.connector.connect(ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST)), server).await?;
        relay(stream, server, |server, request| self.clone().handle(life, server, request)).await
    }

    async fn handle(self: Arc<Self>, life: u32, server: Server, request: Request<Incoming>) -> Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let call = ApiCall::of(&parts.method, &parts.uri).map(|call| call.with_name_of(&body));
        if let (Some(call), Some(namespace)) = (&call, &self.namespace)
            && let Some(confined) = call.confined(&parts.uri, namespace)
        {
            parts.uri = confined.parse::<Uri>()?;
        }
        let send = async {
            let (parts, body) = server.send(Request::from_parts(parts, Full::new(body))).await?.into_parts();
            let body = match &call {
                // Only when all of it is there has the server answered.
                Some(call) if call.is_write() => body.collect().await?.map_err(|never| match never {}).boxed_unsync(),
                Some(call) if call.verb == Verb::Watch => self.watches.follow(call.resource.clone(), body),
                _ => body.boxed_unsync(),
            };
            Ok((parts.status.as_u16(), Ok(Response::from_parts(parts, body))))
        };
        match &call {
            Some(call) => self.gate.pass(life, call, send, answer::status).await?,
            None => send.await?.1,
        }
    }
}
