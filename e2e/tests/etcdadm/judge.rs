//! The judge finds a fault that is made on purpose: an etcd gets an older copy of its data back, and nothing prevents
//! that.

use anyhow::{Context, Result, ensure};
use e2e::bed::get;
use e2e::history::{History, Load, MemberData};
use e2e::plane::workload::EtcdAccess;
use e2e::process::{Command, Process, output};
use e2e::until::until;
use e2e::world::World;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// The port on which etcd listens.
const PORT: u16 = 2379;
/// How long etcd may take to start.
const STARTS: Duration = Duration::from_secs(30);
/// Time between two events, so that there are writes between them.
const WHILE: Duration = Duration::from_secs(1);

/// A judge that accepts such a history would be useless.
pub(crate) async fn finds_a_lost_write(world: World) -> Result<()> {
    let data = world.state("plain-etcd")?.join("data");
    let saved = data.with_file_name("saved");
    let mut etcd = start(&world, &data).await?;
    let access = EtcdAccess {
        endpoints: vec![format!("http://127.0.0.1:{PORT}")],
        ca: String::new(),
        certificate: String::new(),
        key: String::new(),
    };
    let load = Load { clients: 1, ..Load::default() };

    let history = History::begin(&world, "all-kept", &access, load).await?;
    sleep(WHILE).await;
    etcd.kill().await?;
    copy(&data, &saved)?;
    restart(&mut etcd).await?;
    sleep(WHILE).await;
    let record = history.end().await?;
    println!("  {}", record.figures());
    let verdict = record.judge(&members(&data))?;
    println!("  {verdict}");

    // etcd is not empty now, so a history must not begin.
    let refused = History::begin(&world, "not-empty", &access, load).await.err().context("it is empty")?;
    ensure!(format!("{refused:#}").contains("not empty"), "{refused:#}");

    etcd.kill().await?;
    fs::remove_dir_all(&data)?;
    restart(&mut etcd).await?;
    let history = History::begin(&world, "put-back", &access, load).await?;
    sleep(WHILE).await;
    etcd.kill().await?;
    fs::remove_dir_all(&saved)?;
    copy(&data, &saved)?;
    restart(&mut etcd).await?;
    sleep(WHILE).await;
    etcd.kill().await?;
    fs::remove_dir_all(&data)?;
    copy(&saved, &data)?;
    restart(&mut etcd).await?;
    sleep(WHILE).await;
    let record = history.end().await?;
    println!("  {}", record.figures());
    for logs in [members(&data), Vec::new()] {
        let found = record.judge_finds("linearization", &logs).context("lost writes")?;
        println!("  lost writes are found: {found}");
    }
    Ok(())
}

async fn start(world: &World, data: &Path) -> Result<Process> {
    let (client, peer) = (format!("http://127.0.0.1:{PORT}"), "http://127.0.0.1:2380");
    let etcd = Command::new("plain-etcd", &world.tools().etcd, world.logs())
        .arg("--name=plain")
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=plain={peer}"))
        .spawn()?;
    answers().await?;
    Ok(etcd)
}

async fn restart(etcd: &mut Process) -> Result<()> {
    etcd.restart().await?;
    answers().await
}

async fn answers() -> Result<()> {
    until("etcd answers", STARTS, async || get(PORT, "/health").await.map(|_| Some(()))).await
}

fn members(data: &Path) -> Vec<MemberData> {
    vec![MemberData { name: "plain".to_owned(), data: PathBuf::from(data) }]
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let cp = ["--archive", "--sparse=always", "--no-target-directory"];
    output(std::process::Command::new("cp").args(cp).arg(from).arg(to)).map(drop)
}
