//! The proxy between managers and etcd members.
//!
//! A rule of the kernel's packet filter redirects what this world sends to port 2379 of a machine to this proxy. For a
//! cluster that it handles, the proxy acts as the members towards the manager, with a certificate of the cluster's own
//! CA, and as the manager towards the members. It passes on as they are the requests of clients with another
//! certificate than the manager's, and connections to other clusters.
//!
//! Programs on the machines themselves, above all etcdadm, reach members directly. Behind the proxy, a member that is
//! away looks different: the connection is accepted, and then closed.

use super::etcd_call::EtcdCall;
use super::etcd_tls::{EtcdTls, is_managers};
use super::gate::{Call, Gate, Rule, Strike, Writes};
use super::manager::FaultyManager;
use super::redirect::{OWN_ADDRESS, redirect};
use super::relay::{Body, HTTP_2, Server, relay, whole};
use crate::bed::{Bed, ClusterHandle, first_address};
use crate::packet_filter::FilterRule;
use crate::simulated;
use crate::world::{ADDRESS, PREFIX_LENGTH};
use anyhow::{Context, Result};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use kube::ResourceExt;
use kube::api::ListParams;
use local_infrastructure::machine::Machines;
use rustix::net::sockopt::ip_original_dst;
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// A running proxy in front of all members of a bed. There can be only one at a time.
pub struct EtcdProxy {
    watched: Arc<Watched>,
    task: JoinHandle<()>,
    _redirect: FilterRule,
}

/// The clusters that the proxy handles, by namespace.
struct Watched {
    machines: Machines,
    /// Whether machines are simulated: then only the API server knows their addresses.
    simulated: bool,
    clusters: Mutex<BTreeMap<String, Arc<Cluster>>>,
}

struct Cluster {
    handle: ClusterHandle,
    gate: Arc<Gate<EtcdCall>>,
}

/// The calls of one manager to the etcd of one cluster.
pub struct EtcdCalls(Arc<Gate<EtcdCall>>);

impl EtcdProxy {
    /// Starts the proxy, without a cluster to handle.
    ///
    /// # Errors
    /// When packets cannot be redirected here.
    pub async fn start(bed: &Bed) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.context("listen")?;
        let simulated = bed.frozen().is_some();
        let network = if simulated { simulated::SUBNET.to_owned() } else { format!("{ADDRESS}/{PREFIX_LENGTH}") };
        let redirect = redirect(listener.local_addr()?.port(), &network)?;
        let watched = Arc::new(Watched { machines: bed.machines.clone(), simulated, clusters: Mutex::default() });
        let task = tokio::spawn({
            let watched = watched.clone();
            async move {
                loop {
                    let Ok((stream, _)) = listener.accept().await else { continue };
                    // An error means that one side has closed the connection, or that a fault has.
                    tokio::spawn(watched.clone().serve(stream));
                }
            }
        });
        Ok(Self { watched, task, _redirect: redirect })
    }

    /// Applies these rules to the requests of `manager` to the members of a cluster, which must be the only one of its
    /// namespace. Call this before the cluster comes up.
    #[must_use]
    pub fn between(&self, manager: &FaultyManager, handle: &ClusterHandle, rules: Vec<Rule<EtcdCall>>) -> EtcdCalls {
        let gate = Arc::new(Gate::new(manager.victim(), rules));
        let cluster = Arc::new(Cluster { handle: handle.clone(), gate: gate.clone() });
        let mut clusters = self.watched.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.insert(handle.namespace.clone(), cluster);
        EtcdCalls(gate)
    }
}

impl Drop for EtcdProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EtcdCalls {
    /// Adds a rule; earlier rules take precedence. For a call by gRPC, [`super::Fault::Answer`] has a gRPC code.
    pub fn add(&self, rule: Rule<EtcdCall>) {
        self.0.add(rule);
    }

    /// All writes until now.
    #[must_use]
    pub fn writes(&self) -> Writes<EtcdCall> {
        self.0.writes()
    }

    /// The faults that have happened until now.
    #[must_use]
    pub fn strikes(&self) -> Vec<Strike<EtcdCall>> {
        self.0.strikes()
    }
}

impl Watched {
    /// Serves one connection until it ends.
    async fn serve(self: Arc<Self>, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let member = ip_original_dst(&stream).context("a connection that was not redirected")?;
        let mut server = connect(member).await?;
        let Some((machine, cluster)) = self.cluster_at(*member.ip()).await else {
            copy_bidirectional(&mut stream, &mut server).await?;
            return Ok(());
        };
        let tls = EtcdTls::of(&cluster.handle, *member.ip()).await?;
        let stream = tls.acceptor.accept(stream).await?;
        // Only a living process makes a handshake, so this connection belongs to the present life.
        let life = cluster.gate.life();
        let gate = is_managers(stream.get_ref().1.peer_certificates()).then(|| cluster.gate.clone());
        let protocol = stream.get_ref().1.alpn_protocol().filter(|protocol| *protocol == HTTP_2);
        let server = tls.connector(protocol)?.connect(ServerName::from(IpAddr::from(*member.ip())), server).await?;
        relay(stream, server, |server, request| handle(gate.clone(), life, machine.clone(), server, request)).await
    }

    /// Name and cluster of the machine with an address, if the proxy handles the cluster.
    async fn cluster_at(&self, address: Ipv4Addr) -> Option<(String, Arc<Cluster>)> {
        if self.simulated {
            return self.cluster_of_simulated(&address.to_string()).await;
        }
        let machines = self.machines.list().ok()?;
        let machine = machines.iter().find(|machine| machine.address() == address)?;
        let clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.get(&machine.spec().namespace).map(|cluster| (machine.spec().name.clone(), cluster.clone()))
    }

    async fn cluster_of_simulated(&self, address: &str) -> Option<(String, Arc<Cluster>)> {
        let clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for cluster in clusters.into_values() {
            let Ok(machines) = cluster.handle.api("LocalMachine").list(&ListParams::default()).await else { continue };
            let found = machines.items.iter().find(|machine| first_address(machine) == Some(address));
            if let Some(machine) = found {
                return Some((machine.name_any(), cluster));
            }
        }
        None
    }
}

/// Connects to a member from the address whose packets are not redirected.
async fn connect(member: SocketAddrV4) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((OWN_ADDRESS, 0)))?;
    let stream = socket.connect(member.into()).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn handle(
    gate: Option<Arc<Gate<EtcdCall>>>,
    life: u32,
    machine: String,
    server: Server,
    request: Request<Incoming>,
) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = match gate {
        // A fault before the call is one before any of it is sent.
        Some(_) => whole(body.collect().await?.to_bytes()),
        // A watch goes on asking.
        None => body.boxed_unsync(),
    };
    let call = EtcdCall::of(parts.uri.path(), &machine);
    let by_manager = gate.is_some();
    let by_grpc = parts.headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind == GRPC);
    let send = async {
        let (parts, body) = server.send(Request::from_parts(parts, body)).await?.into_parts();
        let mut failure = grpc_failure(&parts.headers);
        let body = match by_manager && call.is_write() {
            // The member has answered only when the whole body is there.
            true => {
                let body = body.collect().await?;
                failure = failure.or_else(|| grpc_failure(body.trailers()?));
                body.map_err(|never| match never {}).boxed_unsync()
            }
            false => body.boxed_unsync(),
        };
        Ok((failure.unwrap_or(parts.status.as_u16()), Ok(Response::from_parts(parts, body))))
    };
    match gate {
        Some(gate) => gate.pass(life, &call, send, |code| instead(code, by_grpc)).await?,
        None => send.await?.1,
    }
}

/// The content type of gRPC.
const GRPC: &str = "application/grpc";
/// The header or trailer with gRPC's own code. The HTTP status of a call that failed is 200.
const GRPC_STATUS: &str = "grpc-status";

/// The code of a call by gRPC that failed.
fn grpc_failure(headers: &HeaderMap) -> Option<u16> {
    headers.get(GRPC_STATUS)?.to_str().ok()?.parse().ok().filter(|code| *code != 0)
}

/// An answer in a member's place: with a gRPC code by gRPC, with an HTTP status from the gateway.
fn instead(code: u16, by_grpc: bool) -> Result<Response<Body>> {
    let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
    let answer = match by_grpc {
        true => Response::builder()
            .header(http::header::CONTENT_TYPE, GRPC)
            .header(GRPC_STATUS, code)
            .header("grpc-message", "the test bed answers"),
        false => Response::builder().status(StatusCode::from_u16(code)?),
    };
    Ok(answer.body(body)?)
}
