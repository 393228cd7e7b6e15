//! API servers of workload clusters that run in this world: whether they are ready.

use super::probe::PERIOD;
use super::record::{ApiServer, Event};
use super::recorder::Recorder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// An API server that has not answered by then is not ready.
const DEADLINE: Duration = Duration::from_secs(1);

/// Reports API servers that run in this world to the observer. Clones report to the same observer.
#[derive(Clone)]
pub struct Servers(UnboundedSender<News>);

/// What is reported.
pub(super) enum News {
    Runs(Server),
    Uses(ApiServer),
    HasEnded(String),
}

/// A running API server, and its kubeconfig.
pub(super) struct Server {
    /// Its name, its Cluster and its endpoints.
    told: ApiServer,
    kubeconfig: PathBuf,
}

impl Servers {
    /// A sender of reports, and the receiver for the other end.
    pub(super) fn channel() -> (Self, UnboundedReceiver<News>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Reports that an API server runs and uses these endpoints. From now on it is asked whether it is ready.
    pub fn runs(&self, server: ApiServer, kubeconfig: &Path) {
        self.tell(News::Runs(Server { told: server, kubeconfig: kubeconfig.to_owned() }));
    }

    /// Reports that an API server uses these endpoints. The scenario only pretends that it runs, so it cannot be asked.
    pub fn uses(&self, server: ApiServer) {
        self.tell(News::Uses(server));
    }

    /// Reports that the API server of this name has ended, and no longer uses any endpoints.
    pub fn has_ended(&self, name: &str) {
        self.tell(News::HasEnded(name.to_owned()));
    }

    fn tell(&self, news: News) {
        // If the observer's thread has ended, stopping the observer returns the reason.
        let _ = self.0.send(news);
    }
}

/// Follows all API servers that are reported, forever.
pub(super) async fn follow(mut news: UnboundedReceiver<News>, recorder: Recorder) {
    let mut followed: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    while let Some(told) = news.recv().await {
        match told {
            News::Runs(server) => {
                let name = server.told.name.clone();
                followed.insert(name, tokio::spawn(server.follow(recorder.clone())));
            }
            News::Uses(server) => recorder.note(Event::ApiServer(server)),
            News::HasEnded(name) => {
                // The task records nothing after this, because it runs on this same thread.
                if let Some(task) = followed.remove(&name) {
                    task.abort();
                }
                recorder.note(Event::Gone { what: "apiServer".to_owned(), name });
            }
        }
    }
    std::future::pending::<()>().await;
}

impl Server {
    /// Asks the API server forever whether it is ready.
    async fn follow(self, recorder: Recorder) {
        recorder.note(Event::ApiServer(self.told.clone()));
        let client = match client(&self.kubeconfig).await {
            Ok(client) => client,
            Err(error) => return recorder.note(Event::note(format!("{}: {error:#}", self.told.name))),
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

/// A client for a kubeconfig. It can be used only in the runtime that it was made in.
pub(super) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test]
    async fn one_that_has_ended_is_gone_from_the_record() {
        let directory = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(&directory.path().join("record.jsonl")).unwrap();
        let (servers, news) = Servers::channel();
        let server = ApiServer { name: "a/c (port 1)".to_owned(), ..ApiServer::default() };
        let story = async {
            servers.runs(server.clone(), &directory.path().join("no-kubeconfig"));
            sleep(Duration::from_millis(50)).await;
            servers.has_ended(&server.name);
            sleep(Duration::from_millis(50)).await;
        };
        tokio::select! {
            () = follow(news, recorder.clone()) => {}
            () = story => {}
        }
        let lines = recorder.lines().unwrap();
        let gone = Event::Gone { what: "apiServer".to_owned(), name: server.name.clone() };
        assert_eq!(lines.first().map(|line| &line.event), Some(&Event::ApiServer(server)));
        assert_eq!(lines.last().map(|line| &line.event), Some(&gone));
    }
}
