//! Changes of an EtcdCluster that is up, for which no Machine is replaced: a certificate for Prometheus, and how long
//! Cluster API tries to drain and delete Nodes.

use crate::bring_up::PATIENCE;
use crate::rolls::changed;
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use api::names;
use e2e::bed::{Bed, ClusterHandle, Manifests, plugin};
use e2e::tls::{Identity, connector};
use e2e::until::until;
use kube::api::DeleteParams;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Limit for one answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Three members are scraped with the metrics client Secret, and again with a new one after that Secret is deleted. All
/// Machines get deletion timeouts, and lose some of them again. A condition sums up what Cluster API reports about the
/// Machines, and `doctor` reaches the members' ports. No Machine is replaced.
pub(crate) async fn replaces_no_machine(bed: &mut Bed) -> Result<()> {
    let handle = alone(bed, Manifests::new("in-place", "demo")?).await?;
    let before = handle.etcd_machines().await?;
    let said = handle.until_condition("MachinesReady", "Unknown", "ReadyUnknown", PATIENCE).await?;
    ensure!(said.contains(&before[0]) && said.contains("Node"), "etcd's Machines have no Node: {said}");
    ensure!(
        handle.secrets().get_opt(&names::metrics_client_secret(&handle.cluster)).await?.is_none(),
        "nobody asks for it"
    );

    changed(&handle, &json!({"metricsClientSecret": true})).await?;
    let first = until_there(&handle, None).await?;
    is_scraped(&handle, &first).await?;
    handle.secrets().delete(&names::metrics_client_secret(&handle.cluster), &DeleteParams::default()).await?;
    let second = until_there(&handle, Some(&first)).await?;
    is_scraped(&handle, &second).await?;

    let timeouts = json!({"nodeDrainTimeoutSeconds": 60, "nodeVolumeDetachTimeoutSeconds": 120});
    changed(&handle, &json!({"machineTemplate": {"spec": {"deletion": timeouts}}})).await?;
    until_all_have(&handle, [60, 120, 10]).await?;
    let none = Value::Null;
    let less = json!({"nodeDrainTimeoutSeconds": none, "nodeVolumeDetachTimeoutSeconds": none,
        "nodeDeletionTimeoutSeconds": 30});
    changed(&handle, &json!({"machineTemplate": {"spec": {"deletion": less}}})).await?;
    until_all_have(&handle, [0, 0, 30]).await?;

    let kubeconfig = bed.plane.kubeconfig()?;
    let mut doctor = Command::new(plugin()?);
    doctor.args(["doctor", &handle.etcd, "--dial", "--namespace", &handle.namespace, "--kubeconfig"]).arg(kubeconfig);
    let output = tokio::task::spawn_blocking(move || doctor.output()).await??;
    let found = String::from_utf8_lossy(&output.stdout);
    for port in [names::CLIENT_PORT, names::PEER_PORT] {
        let reached = format!("{port}: this computer reaches all 3 members");
        ensure!(found.contains(&reached), "{reached}: {found}{}", String::from_utf8_lossy(&output.stderr));
    }
    ensure!(!found.contains("shows no certificate"), "{found}");
    // `doctor` has the Secret, and all machines have this computer's clock.
    ensure!(found.contains("clocks of all 3 members are within") && found.contains("  disks "), "{found}");

    let after = handle.etcd_machines().await?;
    ensure!(after == before, "the Machines were {before:?}, and are {after:?}");
    Ok(())
}

/// Waits until the Secret is there with another certificate than before, and returns the certificate and the CA.
async fn until_there(handle: &ClusterHandle, before: Option<&(Identity, String)>) -> Result<(Identity, String)> {
    let name = names::metrics_client_secret(&handle.cluster);
    until(format!("Secret {name} is there"), PATIENCE, async || {
        let certificate = handle.secret(&name, "tls.crt").await?;
        ensure!(before.is_none_or(|(before, _)| before.certificate != certificate), "it is the one from before");
        let identity = Identity { certificate, key: handle.secret(&name, "tls.key").await? };
        Ok(Some((identity, handle.secret(&name, "ca.crt").await?)))
    })
    .await
}

/// Checks that every member shows its metrics to a client that has the Secret, and to no client without it.
async fn is_scraped(handle: &ClusterHandle, (identity, authority): &(Identity, String)) -> Result<()> {
    let members = handle.status().await?.members;
    ensure!(members.len() == 3, "{members:?}");
    for member in members {
        let text = scraped(&member.client_url, authority, Some(identity)).await.context(member.client_url.clone())?;
        for series in ["etcd_server_has_leader 1", "etcd_disk_wal_fsync_duration_seconds_count"] {
            ensure!(text.contains(series), "{series} is not among the metrics of {}: {text}", member.name);
        }
        let stranger = scraped(&member.client_url, authority, None).await;
        ensure!(stranger.is_err(), "{} shows its metrics to anybody", member.name);
    }
    Ok(())
}

/// What a member answers to a request for its metrics.
async fn scraped(url: &str, authority: &str, identity: Option<&Identity>) -> Result<String> {
    let address: SocketAddr = url.trim_start_matches("https://").parse()?;
    let tls = connector(authority, identity, None)?;
    let asked = async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = tls.connect(ServerName::from(address.ip()), stream).await?;
        // HTTP 1.0, so that the answer is not in chunks, and the connection ends after it.
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(ANSWER, asked).await.context("no answer")??;
    ensure!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    Ok(answer)
}

/// Waits until all Machines have these timeouts: for draining, detaching and deleting.
async fn until_all_have(handle: &ClusterHandle, wanted: [i64; 3]) -> Result<()> {
    until(format!("the deletion timeouts are {wanted:?}"), PATIENCE, async || {
        for name in handle.etcd_machines().await? {
            let machine = handle.api("Machine").get(&name).await?;
            let fields = ["nodeDrainTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds", "nodeDeletionTimeoutSeconds"];
            let seconds =
                fields.map(|field| machine.data.pointer(&format!("/spec/deletion/{field}")).map(Value::as_i64));
            let seconds = seconds.map(|seconds| seconds.flatten().unwrap_or(0));
            ensure!(seconds == wanted, "Machine {name} has {seconds:?}");
        }
        Ok(Some(()))
    })
    .await
}
