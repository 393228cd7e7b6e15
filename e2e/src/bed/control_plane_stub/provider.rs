//! The provider of a control plane. In each turn it reads the object, takes the next step, and reports.

use super::balancer::Balancer;
use super::rollout::{Behaviour, Known, Next, next};
use super::status::status;
use super::{KIND, Seen};
use crate::bed::ClusterHandle;
use crate::bed::observed::ObservedServers;
use crate::plane::workload::{PORT, Workload, WorkloadApiServer};
use anyhow::Result;
use api::names::{PAUSED_ANNOTATION, PLACEHOLDER_ENDPOINT, apiserver_client_secret};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Time between two turns.
const PERIOD: Duration = Duration::from_millis(250);
/// The port of the next API server. All API servers of a program have different ports, so none has to wait until
/// another has ended.
static NEXT_PORT: AtomicU16 = AtomicU16::new(PORT + 1);

/// An API server of the control plane.
struct Server {
    api: WorkloadApiServer,
    hangs: bool,
    ready: bool,
}

/// The provider of a control plane.
pub(super) struct Provider {
    handle: ClusterHandle,
    workload: Workload,
    balancer: Balancer,
    observed: ObservedServers,
    orders: watch::Receiver<Behaviour>,
    wanted: usize,
    /// Oldest first.
    servers: Vec<Server>,
    started: usize,
}

impl Provider {
    pub(super) fn new(
        handle: ClusterHandle,
        workload: Workload,
        balancer: Balancer,
        observed: ObservedServers,
        orders: watch::Receiver<Behaviour>,
    ) -> Self {
        Self { handle, workload, balancer, observed, orders, wanted: 0, servers: Vec::new(), started: 0 }
    }

    /// Takes turns until the object is gone, and sends the state after each of them.
    pub(super) async fn run(mut self, seen: watch::Sender<Seen>) {
        loop {
            let trouble = match self.turn().await {
                Ok(Some(())) => None,
                Ok(None) => return,
                Err(error) => Some(format!("{error:#}")),
            };
            seen.send_replace(Seen {
                wanted: self.wanted,
                servers: self.servers.iter().map(|server| server.api.endpoints.clone()).collect(),
                ready: self.servers.iter().filter(|server| server.ready).count(),
                started: self.started,
                trouble,
            });
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Takes one turn. `None` if the object is gone.
    async fn turn(&mut self) -> Result<Option<()>> {
        let Some(object) = self.handle.api(KIND).get_opt(&self.handle.control_plane).await? else { return Ok(None) };
        if object.annotations().contains_key(PAUSED_ANNOTATION) {
            return Ok(Some(()));
        }
        let wanted = object.data.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or_default();
        self.wanted = usize::try_from(wanted)?;
        let endpoints = endpoints(&object);
        // The list is empty as long as etcd has no endpoints.
        if !endpoints.is_empty() {
            self.go_on(&endpoints).await?;
        }
        self.report(&object, &endpoints).await?;
        Ok(Some(()))
    }

    async fn go_on(&mut self, endpoints: &[String]) -> Result<()> {
        let behaviour = *self.orders.borrow();
        for server in &mut self.servers {
            if server.hangs && behaviour != Behaviour::Fails {
                server.api.thaw()?;
                server.hangs = false;
            }
            server.ready = !server.hangs && server.api.is_ready().await?;
        }
        self.lead_to_those_that_are_ready();
        match next(&self.known(endpoints), self.wanted, behaviour) {
            Next::Wait => Ok(()),
            Next::Start => self.start(endpoints, behaviour == Behaviour::Fails).await,
            Next::Stop(place) => self.stop(place).await,
        }
    }

    /// Starts an API server. Without the client Secret, which is the gate, this fails.
    async fn start(&mut self, endpoints: &[String], hangs: bool) -> Result<()> {
        let client = apiserver_client_secret(&self.handle.cluster);
        let etcd = self.handle.access(endpoints.to_vec(), &client).await?;
        let api = self.workload.launch(&etcd, NEXT_PORT.fetch_add(1, Ordering::Relaxed)).await?;
        if hangs {
            api.freeze()?;
        }
        self.observed.runs(&api);
        self.started += 1;
        self.servers.push(Server { api, hangs, ready: false });
        Ok(())
    }

    /// Ends an API server. First the load balancer sends no more connections to it. Its endpoints are in use until it
    /// has ended.
    async fn stop(&mut self, place: usize) -> Result<()> {
        let server = self.servers.remove(place);
        self.lead_to_those_that_are_ready();
        let port = server.api.port;
        server.api.stop().await?;
        self.observed.has_ended(port);
        Ok(())
    }

    fn lead_to_those_that_are_ready(&self) {
        let ready = self.servers.iter().filter(|server| server.ready);
        self.balancer.lead_to(ready.map(|server| server.api.port).collect());
    }

    fn known(&self, endpoints: &[String]) -> Vec<Known> {
        let known = |server: &Server| Known { old: server.api.endpoints != endpoints, ready: server.ready };
        self.servers.iter().map(known).collect()
    }

    /// Writes the status, for the spec that was read, if the status has changed.
    async fn report(&mut self, object: &DynamicObject, endpoints: &[String]) -> Result<()> {
        let before = &object.data["status"];
        let generation = object.metadata.generation.unwrap_or_default();
        let status = status(generation, &self.known(endpoints), before, now());
        let mut fields = status.as_object().into_iter().flatten();
        if fields.any(|(name, value)| before[name] != *value) {
            let patch = Patch::Merge(json!({"status": status}));
            let control_planes = self.handle.api(KIND);
            control_planes.patch_status(&self.handle.control_plane, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

/// The endpoints in the spec, without the placeholder.
fn endpoints(object: &DynamicObject) -> Vec<String> {
    let found = object.data.pointer("/spec/etcd/external/endpoints").and_then(Value::as_array);
    let urls = found.into_iter().flatten().filter_map(Value::as_str);
    urls.filter(|url| *url != PLACEHOLDER_ENDPOINT).map(str::to_owned).collect()
}

#[expect(clippy::disallowed_methods, reason = "a condition says when it has changed")]
fn now() -> Timestamp {
    Timestamp::now()
}
