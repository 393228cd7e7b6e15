//! The proxy between a manager and the API server.
//!
//! Each connection of the manager has its own connection to the API server. The proxy passes the manager's credentials
//! on as they are, so that the audit log names the manager.

use super::answer;
use super::api_call::{ApiCall, Verb};
use super::gate::{Call, Gate};
use super::relay::{Body, Server, relay, whole};
use super::watches::Watches;
use crate::tls::{self, Identity};
use anyhow::{Context, Result};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
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
    /// The manager's kubeconfig, which leads to the proxy.
    pub(super) kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

/// The configuration of a proxy.
pub(super) struct Setup<'a> {
    /// The manager's kubeconfig.
    pub(super) kubeconfig: &'a Path,
    /// Directory of the API server's own certificate and key, `tls.crt` and `tls.key`. The proxy uses them too.
    pub(super) certificates: &'a Path,
    /// Where to write the kubeconfig for the proxy.
    pub(super) own_kubeconfig: PathBuf,
    /// The only namespace that the manager sees. `None`: all of them.
    pub(super) namespace: Option<String>,
    /// Numbers the requests and lets faults happen to them.
    pub(super) gate: Arc<Gate<ApiCall>>,
    /// Holds back watches.
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
    /// Listens on a free port of the loopback interface.
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
                // An error means that the manager or the server has closed the connection, or that a fault has.
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
    /// Serves one connection of the manager until it ends.
    async fn serve(self: Arc<Self>, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let stream = self.acceptor.accept(stream).await?;
        // Only a living process makes a handshake, so this connection belongs to the present life.
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
            let (parts, body) = server.send(Request::from_parts(parts, whole(body))).await?.into_parts();
            let body = match &call {
                // The server has answered only when the whole body is there.
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
