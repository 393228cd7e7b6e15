//! Which members the observer asks: every member of every EtcdCluster, as soon as its address is known, and for as long
//! as a Machine or a member list has the address.

use super::disk::Disks;
use super::names::client_url;
use super::probe::{PERIOD, Probe};
use super::processes;
use super::record::Event;
use super::recorder::Recorder;
use super::secrets::Secrets;
use super::state::State;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// With more members than this, each is asked less often, so that the observer does not become a load of its own.
const MEMBERS_A_ROUND: usize = 40;
/// If a round comes this late, the observer was held up. The record says so.
const LATE: Duration = Duration::from_millis(400);
/// Rounds between two looks at the processes.
const ROUNDS_A_LOOK: u64 = 10;

/// Members that are asked, by EtcdCluster and client URL, with the Cluster that their credentials come from.
type Targets = BTreeMap<(String, String), String>;

pub(super) struct Fleet {
    pub(super) secrets: Secrets,
    pub(super) disks: Disks,
    pub(super) recorder: Recorder,
}

impl Fleet {
    /// Asks all members that are known, forever.
    ///
    /// # Errors
    /// When a member is no longer asked: its last answer would seem to last.
    pub(super) async fn run(self) -> Result<()> {
        let mut asked: BTreeMap<(String, String), (String, AbortOnDrop)> = BTreeMap::new();
        let stride = Arc::new(AtomicU64::new(1));
        let begun = Instant::now();
        let mut rounds = interval(PERIOD);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut last = begun;
        let mut round = 0_u64;
        loop {
            rounds.tick().await;
            let between = last.elapsed();
            last = Instant::now();
            if between >= LATE {
                let millis = u64::try_from(between.as_millis()).unwrap_or(u64::MAX);
                self.recorder.note(Event::Late { millis });
            }
            if round.is_multiple_of(ROUNDS_A_LOOK) {
                processes::look(&self.recorder);
            }
            if let Some(((_, url), _)) = asked.iter().find(|(_, (_, probe))| probe.0.is_finished()) {
                bail!("{url} is no longer asked");
            }
            let wanted = targets(&self.recorder.state());
            let members = u64::try_from(wanted.len().div_ceil(MEMBERS_A_ROUND)).unwrap_or(1);
            stride.store(members.max(1), Ordering::Relaxed);
            asked.retain(|target, (cluster, _)| {
                let stays = wanted.get(target) == Some(cluster);
                if !stays {
                    self.recorder
                        .note(Event::Gone { what: "member".to_owned(), name: format!("{} {}", target.0, target.1) });
                }
                stays
            });
            for (target, cluster) in wanted {
                let (etcd, url) = target.clone();
                asked.entry(target).or_insert_with(|| {
                    let probe = Probe {
                        etcd,
                        cluster: cluster.clone(),
                        url,
                        secrets: self.secrets.clone(),
                        disks: self.disks.clone(),
                        recorder: self.recorder.clone(),
                        stride: stride.clone(),
                    };
                    // All members are asked at the same moments.
                    let next = begun + PERIOD * u32::try_from(round + 1).unwrap_or(u32::MAX);
                    (cluster, AbortOnDrop(tokio::spawn(probe.run(next)).abort_handle()))
                });
            }
            round += 1;
        }
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The members with a known address, from their Machine or from another member's list.
fn targets(state: &State) -> Targets {
    let mut targets = Targets::new();
    // The Cluster hook labels an EtcdCluster; before that, it belongs to the Cluster that names it.
    let naming: BTreeMap<&String, &String> = state.clusters.values().map(|it| (&it.etcd, &it.name)).collect();
    for (name, view) in &state.etcds {
        let labelled = Some(&view.object.cluster).filter(|cluster| !cluster.is_empty());
        let Some(cluster) = labelled.or_else(|| naming.get(name).copied()) else { continue };
        let machines = state.machines.values().filter(|machine| machine.etcd == *name);
        let addresses = machines.flat_map(|machine| machine.addresses.iter().map(|address| client_url(address)));
        let listed = view.list.iter().flat_map(|member| member.urls.iter().cloned());
        let urls: BTreeSet<String> = addresses.chain(listed).collect();
        targets.extend(urls.into_iter().map(|url| ((name.clone(), url), cluster.clone())));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::record::{Cluster, Etcd, Line, Machine};

    #[test]
    fn members_are_asked_before_the_hook_has_labelled_their_etcd_cluster() {
        let (mut state, etcd) = (State::default(), "a/e".to_owned());
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let addresses = vec!["10.0.0.1".to_owned()];
        let machine = Machine { name: "a/m".to_owned(), etcd: etcd.clone(), addresses, ..Machine::default() };
        state.apply(&Line { at, event: Event::Etcd(Etcd { name: etcd.clone(), ..Etcd::default() }) });
        state.apply(&Line { at, event: Event::Machine(machine) });
        assert!(targets(&state).is_empty());
        let cluster = Cluster { name: "a/c".to_owned(), etcd: etcd.clone(), ..Cluster::default() };
        state.apply(&Line { at, event: Event::Cluster(cluster) });
        let wanted = ((etcd, "https://10.0.0.1:2379".to_owned()), "a/c".to_owned());
        assert_eq!(targets(&state), Targets::from([wanted]));
    }
}
