//! What `kubectl etcdcluster plan` forecasts for a rollout, and what the rollout then does.

use crate::bring_up::PATIENCE;
use anyhow::{Context, Result, bail, ensure};
use e2e::bed::{Bed, ClusterHandle, plugin};
use e2e::plane::{Mark, users};
use e2e::until::until;
use serde_json::{Value, json};
use std::process::Command;

/// A rollout, as it was forecast or as it was carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rollout {
    /// Machines that are replaced, and Machines that are made, in their order.
    replaced: Vec<String>,
    made: Vec<String>,
    /// The highest number of Machines at a time, without those that are being deleted.
    peak: usize,
    /// How often the control plane is told.
    told: usize,
}

impl Rollout {
    /// Whether these Machines are replaced, each once, and no others.
    pub(super) fn replaces(&self, old: &[String]) -> bool {
        let mut replaced = self.replaced.clone();
        replaced.sort();
        replaced == old && self.made.len() == old.len()
    }
}

/// Asks the plugin what another spec would do.
pub(super) async fn foretold(bed: &Bed, handle: &ClusterHandle, spec: &Value) -> Result<Rollout> {
    // The leader's Machine goes last, so the plugin has to know the leader.
    until(format!("a member of {} leads", handle.etcd), PATIENCE, async || {
        Ok(handle.status().await?.members.iter().any(|member| member.leader).then_some(()))
    })
    .await?;
    let manifest = json!({"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
        "metadata": {"name": handle.etcd, "namespace": handle.namespace}, "spec": spec});
    let file = bed.world().state(&format!("plan-{}", handle.namespace))?.join("etcd.yaml");
    std::fs::write(&file, manifest.to_string()).with_context(|| format!("write {}", file.display()))?;
    let mut plan = Command::new(plugin()?);
    plan.args(["plan", "--filename"]).arg(&file).arg("--kubeconfig").arg(bed.plane.kubeconfig()?);
    let output = tokio::task::spawn_blocking(move || plan.output()).await??;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", said.trim_end());
    read(&said).with_context(|| format!("the plugin says {said}"))
}

fn read(said: &str) -> Result<Rollout> {
    let row = |what: &str| {
        let found = said.lines().find_map(|line| line.trim_start().strip_prefix(what));
        found.map(str::trim).with_context(|| format!("it does not say {what:?}"))
    };
    let names = |text: &str| {
        let names = text.trim_end_matches(" (in this order)").split(", ");
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let peak = row("Machines at the peak")?.split([',', ' ']).next().unwrap_or_default();
    let told = match row("control plane")? {
        "does not roll out" => 0,
        "rolls out once" => 1,
        "rolls out twice" => 2,
        other => bail!("the control plane {other}"),
    };
    let peak = peak.parse().with_context(|| format!("{peak:?} Machines"))?;
    Ok(Rollout { replaced: names(row("replaced")?), made: names(row("made")?), peak, told })
}

/// What we have done since `mark`, by the API server's audit log. `before`: how many Machines there were then.
pub(super) fn done(bed: &Bed, handle: &ClusterHandle, mark: Mark, before: usize) -> Result<Rollout> {
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER).done_in(&handle.namespace);
    let ours = ours.filter(|request| !request.uri.contains("dryRun=All"));
    let tells = ours.verb("patch").resource("kubeadmcontrolplanes");
    let told = tells.filter(|patch| patch.body.pointer("/spec/kubeadmConfigSpec").is_some()).len();
    let mut done = Rollout { replaced: Vec::new(), made: Vec::new(), peak: before, told };
    for request in ours.resource("machines").iter() {
        match request.verb.as_str() {
            "create" => done.made.push(request.name.clone()),
            "delete" => done.replaced.push(request.name.clone()),
            _ => {}
        }
        done.peak = done.peak.max((before + done.made.len()).saturating_sub(done.replaced.len()));
    }
    Ok(done)
}
