//! API servers of workload clusters that run here: whether they are ready.

use super::probe::PERIOD;
use super::record::{ApiServer, Event};
use super::recorder::Recorder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// An API server that has not answered by then is not ready.
const DEADLINE: Duration = Duration::from_secs(1);

/// A running API server, and a way to it.
pub(super) struct Server {
    /// Its name, its Cluster and its endpoints.
    pub(super) told: ApiServer,
    pub(super) kubeconfig: PathBuf,
}

impl Server {
    /// Asks it forever.
    pub(super) async fn follow(self, recorder: Recorder) {
        let client = match client(&self.kubeconfig).await {
            Ok(client) => client,
            Err(error) => return recorder.note(Event::Note { text: format!("{}: {error:#}", self.told.name) }),
        };
        let mut rounds = interval(PERIOD);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            rounds.tick().await;
            let asked = async {
                let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
                client.request_text(request).await.ok()
            };
            let ready = matches!(timeout(DEADLINE, asked).await, Ok(Some(_)));
            recorder.note(Event::ApiServer(ApiServer { ready: Some(ready), ..self.told.clone() }));
        }
    }
}

/// A client by a kubeconfig. It belongs to the runtime that it was made in.
pub(super) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
