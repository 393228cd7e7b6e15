//! One client's connections to etcd. Every request goes to one endpoint and is sent once, so that its possible effects
//! are known.

use super::record::Outcome;
use super::request::{Range, Request};
use super::response::Response;
use super::wire;
use crate::plane::workload::EtcdAccess;
use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use etcd_cluster_controller::observation::host::host_of;
use std::collections::HashMap;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a member may take to accept a connection. If it does not, nothing is sent to it.
const CONNECT: Duration = Duration::from_secs(1);
/// How long a client waits for an answer. etcd itself gives up after about seven seconds.
const ANSWER: Duration = Duration::from_secs(3);
/// How often a silent connection is probed, and how long the other side may take to answer that.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(2));
/// etcd's error if a lease does not exist.
pub(super) const LOST_LEASE: &str = "etcdserver: requested lease not found";
/// etcd's errors for a request that it certainly has not carried out, and will not.
const REFUSALS: [&str; 5] = [
    "etcdserver: rpc not supported for learner",
    "etcdserver: too many requests",
    LOST_LEASE,
    "etcdserver: lease already exists",
    "etcdserver: mvcc: database space exceeded",
];

/// Connections with one identity. Each is made when it is first needed.
pub struct Session {
    access: EtcdAccess,
    clients: HashMap<String, Client>,
    require_leader: bool,
}

/// What is sent: a request, or a read of the member's own copy.
enum Asked<'a> {
    Request(&'a Request),
    OwnCopy(&'a Range),
}

impl Asked<'_> {
    async fn send(&self, client: &mut Client) -> Result<Response, Error> {
        match self {
            Self::Request(request) => wire::send(client, request).await,
            Self::OwnCopy(range) => wire::read(client, range, true).await,
        }
    }

    fn is_read(&self) -> bool {
        match self {
            Self::Request(request) => request.is_read(),
            Self::OwnCopy(_) => true,
        }
    }
}

impl Session {
    /// A session without any connection yet. It does not use the endpoints of `access`.
    pub fn new(access: &EtcdAccess) -> Self {
        Self { access: access.clone(), clients: HashMap::new(), require_leader: false }
    }

    /// A session for watches: a member without a leader ends them.
    pub(super) fn for_watches(access: &EtcdAccess) -> Self {
        Self { require_leader: true, ..Self::new(access) }
    }

    /// Makes a request, and returns its outcome.
    pub async fn ask(&mut self, endpoint: &str, request: &Request) -> Outcome {
        self.outcome(endpoint, &Asked::Request(request)).await
    }

    /// Reads the member's own copy, which may be old. A record that has this as the answer to a
    /// [`Range`](crate::history::request::Request::Range), which is linearizable, is false, and the judge has to find
    /// that.
    pub async fn read_own_copy(&mut self, endpoint: &str, range: &Range) -> Outcome {
        self.outcome(endpoint, &Asked::OwnCopy(range)).await
    }

    async fn outcome(&mut self, endpoint: &str, asked: &Asked<'_>) -> Outcome {
        let mut client = match self.connect(endpoint).await {
            Ok(client) => client,
            // Nothing was sent.
            Err(error) => return Outcome::Failed(format!("{endpoint}: {error}")),
        };
        let error = match timeout(ANSWER, asked.send(&mut client)).await {
            Ok(Ok(response)) => return Outcome::Ok(response),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
        };
        if REFUSALS.iter().any(|refusal| error.contains(refusal)) {
            return Outcome::Failed(format!("{endpoint}: {error}"));
        }
        // Whatever is wrong with the connection, the next request gets a new one.
        self.clients.remove(endpoint);
        let error = format!("{endpoint}: {error}");
        // A read has no effect, whether it is answered or not.
        if asked.is_read() { Outcome::Failed(error) } else { Outcome::Unknown(error) }
    }

    /// The connection to `endpoint`. The library connects only when it sends something, and does not distinguish a
    /// failure to connect from a failed request. So this function first finds out whether the endpoint accepts
    /// connections.
    pub(super) async fn connect(&mut self, endpoint: &str) -> Result<Client, String> {
        if let Some(client) = self.clients.get(endpoint) {
            return Ok(client.clone());
        }
        let address = endpoint.split_once("://").map_or(endpoint, |(_, address)| address).trim_end_matches('/');
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no connection within {} s", CONNECT.as_secs())),
        }
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
            .with_require_leader(self.require_leader);
        if endpoint.starts_with("https://") {
            let tls = TlsOptions::new()
                .domain_name(host_of(endpoint).unwrap_or_default())
                .ca_certificate(Certificate::from_pem(&self.access.ca))
                .identity(Identity::from_pem(&self.access.certificate, &self.access.key));
            options = options.with_tls(tls);
        }
        let client = Client::connect([endpoint], Some(options)).await.map_err(|error| error.to_string())?;
        self.clients.insert(endpoint.to_owned(), client.clone());
        Ok(client)
    }

    /// Forgets the connection to `endpoint`.
    pub(super) fn forget(&mut self, endpoint: &str) {
        self.clients.remove(endpoint);
    }
}
