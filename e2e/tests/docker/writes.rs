//! A user who writes to a cluster all the time.

use anyhow::{Context, Result, ensure};
use e2e::docker::Workload;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time between two writes.
const INTERVAL: Duration = Duration::from_millis(200);
/// After this an answer does not count any more.
const LATE: Duration = Duration::from_secs(5);

/// Writes until it is stopped. A write that fails is made again under the next name.
pub(crate) struct Writer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<(BTreeSet<String>, Duration)>,
    maps: Api<ConfigMap>,
}

impl Writer {
    /// Begins. `name` is what all that it writes is called after.
    pub(crate) fn start(workload: &Workload, name: &'static str) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let maps: Api<ConfigMap> = Api::namespaced(workload.client(), "kube-system");
        let api = maps.clone();
        let task = tokio::spawn(async move {
            let (mut written, mut last, mut longest) = (BTreeSet::new(), Instant::now(), Duration::ZERO);
            for number in 0_u32.. {
                let metadata = ObjectMeta { name: Some(format!("{name}-{number}")), ..ObjectMeta::default() };
                let map = ConfigMap { metadata, ..ConfigMap::default() };
                if let Ok(Ok(made)) = tokio::time::timeout(LATE, api.create(&PostParams::default(), &map)).await {
                    written.insert(made.name_any());
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                tokio::select! {
                    _ = &mut stopped => break,
                    () = tokio::time::sleep(INTERVAL) => (),
                }
            }
            (written, longest.max(last.elapsed()))
        });
        Self { stop, task, maps }
    }

    /// Ends. Everything that was acknowledged is there, and there was no longer time without an acknowledgement than `gap`.
    pub(crate) async fn stop(self, gap: Duration) -> Result<()> {
        // It may have ended by itself only by a panic, which the next line tells.
        let _ = self.stop.send(());
        let (written, longest) = self.task.await.context("the writer")?;
        let found = self.maps.list(&ListParams::default()).await.context("list what was written")?;
        let found: BTreeSet<String> = found.iter().map(ResourceExt::name_any).collect();
        let lost: Vec<&String> = written.difference(&found).collect();
        println!("  {} writes, at most {:.1} s between two", written.len(), longest.as_secs_f32());
        ensure!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        ensure!(longest <= gap, "for {:.1} s nothing could be written", longest.as_secs_f32());
        Ok(())
    }
}
