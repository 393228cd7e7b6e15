//! A witness that writes and reads all the time, which the judge checks, and counts the voters, with etcd's own client
//! over every running member.

use crate::load::LowLoad;
use anyhow::{Context, Result, bail, ensure};
use api::names;
use e2e::bed::{Bed, ClusterHandle};
use local_infrastructure::machine::Machines;
use serde::Deserialize;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Time between two reads of the member list.
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Witness {
    load: LowLoad,
    votes: Counting,
}

/// Counts the voters until it is stopped or dropped.
struct Counting {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Votes>>,
}

/// What the member lists have shown: how many were read, the fewest voters on one, and the longest time between two.
struct Votes {
    looks: usize,
    fewest: usize,
    longest: Duration,
}

impl Witness {
    pub(super) async fn start(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        let etcd = Etcd::of(bed, handle).await?;
        let load = LowLoad::begin(bed, handle).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { etcd.count(&stop).await }
        });
        Ok(Self { load, votes: Counting { stop, task } })
    }

    /// Stops the witness. Checks that the judge finds nothing wrong, that every list had at least `voters` voters and
    /// the machines of a quorum of them ran, and that the members could be listed again within `stall`.
    pub(super) async fn stop(mut self, voters: usize, stall: Duration) -> Result<()> {
        self.votes.stop.store(true, Ordering::Relaxed);
        let votes = (&mut self.votes.task).await?.context("the votes")?;
        println!(
            "  {} looks at the members, at least {} voters, at most {:.1} s between two",
            votes.looks,
            votes.fewest,
            votes.longest.as_secs_f32()
        );
        ensure!(votes.fewest >= voters, "there were {} voters once", votes.fewest);
        ensure!(votes.looks >= 10, "that shows little");
        ensure!(votes.longest <= stall, "for {:.1} s no member gave a list", votes.longest.as_secs_f32());
        self.load.judged().await
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// etcd's own client, with the client certificate of the API servers.
struct Etcd {
    etcdctl: PathBuf,
    certificates: PathBuf,
    machines: Machines,
    namespace: String,
    members: String,
}

impl Etcd {
    async fn of(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        let authority = handle.secret(&names::ca_secret(&handle.cluster), "tls.crt").await?;
        let client = names::staged_apiserver_client_secret(&handle.cluster);
        let (certificate, key) = (handle.secret(&client, "tls.crt").await?, handle.secret(&client, "tls.key").await?);
        let certificates = bed.world().state("witness")?.join(&handle.namespace);
        fs::create_dir_all(&certificates)?;
        for (file, text) in [("ca.crt", authority), ("client.crt", certificate), ("client.key", key)] {
            fs::write(certificates.join(file), text)?;
        }
        Ok(Self {
            etcdctl: bed.world().tools().etcdctl.clone(),
            certificates,
            machines: bed.machines.clone(),
            namespace: handle.namespace.clone(),
            members: format!("{}-", handle.etcd),
        })
    }

    /// Runs etcdctl over all members whose machines run, and returns what it prints.
    async fn run(&self, arguments: &[&str]) -> Result<String> {
        let machines = self.machines.list()?;
        let ours = machines.iter().filter(|machine| {
            machine.spec().namespace == self.namespace && machine.spec().name.starts_with(&self.members)
        });
        let running = ours.filter(|machine| machine.is_running());
        let endpoints: Vec<String> = running.map(|machine| format!("https://{}:2379", machine.address())).collect();
        ensure!(!endpoints.is_empty(), "no machine of {} runs", self.namespace);
        let file = |name: &str| self.certificates.join(name);
        let mut command = Command::new(&self.etcdctl);
        command.arg("--endpoints").arg(endpoints.join(","));
        command.arg("--cacert").arg(file("ca.crt")).arg("--cert").arg(file("client.crt"));
        command.arg("--key").arg(file("client.key")).args(["--command-timeout=2s", "--dial-timeout=1s"]);
        let output = command.args(arguments).output().await.context("run etcdctl")?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Lists the members by linearizable reads until it is stopped. Fails if the machines of less than a quorum of the
    /// voters run.
    async fn count(&self, stop: &AtomicBool) -> Result<Votes> {
        let mut votes = Votes { looks: 0, fewest: usize::MAX, longest: Duration::ZERO };
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if let Ok(answer) = self.run(&["member", "list", "--write-out=json"]).await {
                let list: List = serde_json::from_str(&answer).context("etcdctl's answer")?;
                let voters: Vec<String> =
                    list.members.into_iter().filter(|member| !member.learner).map(|member| member.name).collect();
                let runs = |name: &&String| self.machines.get(&self.namespace, name).is_ok_and(|m| m.is_running());
                let alive: Vec<&String> = voters.iter().filter(runs).collect();
                if alive.len() < voters.len() / 2 + 1 {
                    bail!("quorum was lost: {voters:?} vote, of their machines run {alive:?}");
                }
                votes.looks += 1;
                votes.fewest = votes.fewest.min(voters.len());
                votes.longest = votes.longest.max(last.elapsed());
                last = Instant::now();
            }
            tokio::time::sleep(INTERVAL).await;
        }
        votes.longest = votes.longest.max(last.elapsed());
        Ok(votes)
    }
}

#[derive(Deserialize)]
struct List {
    members: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "isLearner")]
    learner: bool,
}
