//! `watch`: the output of `status`, printed again at every change.

use crate::connection::{Connection, Options};
use crate::reader::{Reader, dynamic, etcds, now};
use crate::report::Report;
use crate::screen::Screen;
use crate::snapshot::{Objects, Snapshot};
use crate::text::Times;
use crate::tree;
use anyhow::{Result, bail};
use api::{EtcdCluster, EtcdadmConfig, names};
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use kube::api::{Api, DynamicObject};
use kube::discovery::ApiResource;
use kube::runtime::reflector::{Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Changes that come within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How often the ages on a terminal are updated. This costs the API server nothing.
const TICK: Duration = Duration::from_secs(1);

/// Arguments of `watch`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the EtcdCluster. Without it, all of the namespace are shown in short
    pub name: Option<String>,
    /// Show those of all namespaces
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub all_namespaces: bool,
}

/// Shows the status until Ctrl-C.
///
/// # Errors
/// When the EtcdCluster does not exist, or the first reads are refused.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let Connection { client, namespace } = options.connect().await?;
    let reader = Reader::new(client).await?;
    if let Some(name) = &arguments.name {
        reader.etcd(&namespace, name).await?;
    }
    let scope = Some(namespace.as_str()).filter(|_| !arguments.all_namespaces);
    let mut watched = Watched::begin(&reader, scope, arguments.name.as_deref());
    let mut screen = Screen::default();
    let shown = tokio::select! {
        shown = show(&mut watched, &mut screen, arguments.name.is_some()) => shown,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    let left = screen.leave();
    match shown.and_then(|()| Ok(left?)) {
        // Nobody reads any further.
        Err(error) if error.downcast_ref().is_some_and(|error: &io::Error| error.kind() == ErrorKind::BrokenPipe) => {}
        other => other?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(watched: &mut Watched, screen: &mut Screen, is_one: bool) -> Result<()> {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Nothing is shown until every kind has been listed once.
    let mut due: Option<Instant> = None;
    loop {
        tokio::select! {
            event = watched.events.next() => {
                let Some(event) = event else { bail!("the watches have ended") };
                watched.note(event);
                if watched.is_complete() {
                    due = due.or_else(|| Some(Instant::now() + TOGETHER));
                } else if let Some(problem) = watched.problem() {
                    bail!("{problem}");
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                screen.show(&watched.lines(screen.is_terminal(), is_one))?;
            }
            _ = ticks.tick(), if screen.is_terminal() && watched.is_complete() && due.is_none() => {
                due = Some(Instant::now());
            }
        }
    }
}

/// An event of a watch: a change, or what is wrong with the watch.
type Event = (Kind, Result<(), watcher::Error>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    EtcdClusters,
    Machines,
    Clusters,
    EtcdadmConfigs,
}

/// What the watches have shown so far.
struct Watched {
    etcds: Store<EtcdCluster>,
    machines: Store<DynamicObject>,
    clusters: Store<DynamicObject>,
    configs: Store<DynamicObject>,
    events: SelectAll<BoxStream<'static, Event>>,
    problems: BTreeMap<Kind, String>,
}

impl Watched {
    fn begin(reader: &Reader, scope: Option<&str>, name: Option<&str>) -> Self {
        let mut events = SelectAll::new();
        let configs = ApiResource::erase::<EtcdadmConfig>(&());
        let by_label = match name {
            Some(name) => format!("{}={name}", names::ETCD_CLUSTER_LABEL),
            None => names::ETCD_CLUSTER_LABEL.to_owned(),
        };
        let of_etcd = watcher::Config::default().labels(&by_label);
        let this_one = name.map(|name| watcher::Config::default().fields(&format!("metadata.name={name}")));
        let writer = Writer::new(());
        let etcds_store = writer.as_reader();
        let etcds = etcds(&reader.client, scope);
        events.push(stream(Kind::EtcdClusters, etcds, this_one.unwrap_or_default(), writer));
        let mut watch = |kind: Kind, resource: &ApiResource, config: watcher::Config| {
            let writer = Writer::new(resource.clone());
            let store = writer.as_reader();
            events.push(stream(kind, dynamic(&reader.client, scope, resource), config, writer));
            store
        };
        let machines = watch(Kind::Machines, &reader.machines, of_etcd.clone());
        let configs = watch(Kind::EtcdadmConfigs, &configs, of_etcd);
        let clusters = watch(Kind::Clusters, &reader.clusters, watcher::Config::default());
        Self { etcds: etcds_store, machines, clusters, configs, events, problems: BTreeMap::new() }
    }

    fn note(&mut self, (kind, event): Event) {
        match event {
            Ok(()) => {
                self.problems.remove(&kind);
            }
            Err(error) => {
                self.problems.insert(kind, format!("the watch of {kind:?} is tried again: {}", root_cause(&error)));
            }
        }
    }

    fn has_listed(&self, kind: Kind) -> bool {
        match kind {
            Kind::EtcdClusters => self.etcds.wait_until_ready().now_or_never().is_some(),
            Kind::Machines => self.machines.wait_until_ready().now_or_never().is_some(),
            Kind::Clusters => self.clusters.wait_until_ready().now_or_never().is_some(),
            Kind::EtcdadmConfigs => self.configs.wait_until_ready().now_or_never().is_some(),
        }
    }

    /// Whether there is enough to show. Without Clusters and configs less is known, but most of it is still worth
    /// showing.
    fn is_complete(&self) -> bool {
        let is_known = |kind: Kind| self.has_listed(kind) || self.problems.contains_key(&kind);
        [Kind::EtcdClusters, Kind::Machines].into_iter().all(|kind| self.has_listed(kind))
            && [Kind::Clusters, Kind::EtcdadmConfigs].into_iter().all(is_known)
    }

    /// Why the first list is missing.
    fn problem(&self) -> Option<&String> {
        let needed = [Kind::EtcdClusters, Kind::Machines].into_iter().filter(|kind| !self.has_listed(*kind));
        needed.filter_map(|kind| self.problems.get(&kind)).next()
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        let all = |store: &Store<DynamicObject>| store.state().iter().map(|object| (**object).clone()).collect();
        let objects = Objects {
            etcds: self.etcds.state().iter().map(|etcd| (**etcd).clone()).collect(),
            machines: all(&self.machines),
            clusters: all(&self.clusters),
            configs: all(&self.configs),
            unread: self.problems.values().cloned().collect(),
        };
        objects.snapshots(now())
    }

    fn lines(&self, is_terminal: bool, is_one: bool) -> Vec<String> {
        let snapshots = self.snapshots();
        if snapshots.is_empty() {
            return vec![if is_one { "It is gone.".to_owned() } else { "There is no EtcdCluster.".to_owned() }];
        }
        let draw = |snapshot: &Snapshot| {
            let times = if is_terminal { Times::Ages(snapshot.now) } else { Times::Points };
            let report = Report::new(snapshot);
            if is_one { tree::lines(&report, times) } else { tree::block(&report, times) }
        };
        snapshots.iter().flat_map(draw).collect()
    }
}

fn root_cause(error: &watcher::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A watch that fills a store, and reports each change.
fn stream<K>(kind: Kind, api: Api<K>, config: watcher::Config, writer: Writer<K>) -> BoxStream<'static, Event>
where
    K: kube::Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let events = watcher(api, config).default_backoff().reflect(writer);
    events.map(move |event| (kind, event.map(drop))).boxed()
}
