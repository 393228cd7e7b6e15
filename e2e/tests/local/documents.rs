//! Runs the commands that the pages tell people to type, from the blocks of the pages and from their text: page by
//! page, in the order of the page, each page on a cluster of its own.

mod judged;
pub(crate) mod restores;
mod shell;
mod stage;
mod table;
mod typed;

use anyhow::{Context, Result};
use e2e::bed::Bed;
use e2e::tools::crds_of_others;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use stage::Stage;
use std::time::Instant;
use table::Fate;
use typed::{Typed, typed};

/// The label of the manager's Deployments.
const MANAGER: &str = "app.kubernetes.io/name=cluster-api-provider-etcdadm";

/// Every command of every page is in the table. The other scenario runs it, or the table says why not.
pub(crate) async fn know_every_command(_bed: &mut Bed) -> Result<()> {
    let typed = typed()?;
    let run = typed.iter().filter(|typed| !matches!(typed.fate, Fate::Excused(_))).count();
    println!("  {} commands, {run} of them are run", typed.len());
    Ok(())
}

/// Every command that can run here does what its page says.
pub(crate) async fn say_what_works(bed: &mut Bed) -> Result<()> {
    let typed = typed()?;
    // Some pages tell the reader to apply objects for operators of other projects.
    bed.plane.apply_crds(&crds_of_others()?).await?;
    without_installed_managers(bed).await?;
    let mut stages = 0;
    for page in typed.chunk_by(|one, next| one.page == next.page) {
        stages += of_a_page(bed, page, stages).await.with_context(|| page[0].page.clone())?;
    }
    println!("  {} commands on {stages} clusters", typed.len());
    Ok(())
}

/// Deletes the managers' Deployments that other scenarios have installed on this bed. None of their Pods runs here, and
/// `doctor` would find that fault.
async fn without_installed_managers(bed: &Bed) -> Result<()> {
    let everywhere: Api<Deployment> = Api::all(bed.client());
    for manager in everywhere.list(&ListParams::default().labels(MANAGER)).await?.items {
        let deployments: Api<Deployment> = Api::namespaced(bed.client(), &manager.namespace().unwrap_or_default());
        deployments.delete(&manager.name_any(), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Runs the commands of one page, and returns how many clusters they took. `before` is how many were made earlier.
async fn of_a_page(bed: &Bed, page: &[Typed], before: usize) -> Result<usize> {
    let mut made = 0;
    let mut stage: Option<Stage> = None;
    for Typed { page, command, fate } in page {
        let first = command.lines().next().unwrap_or_default();
        if let Fate::Excused(why) = fate {
            println!("  {page} is not run: {first} ({why})");
            continue;
        }
        if matches!(fate, Fate::Afresh)
            && let Some(spent) = stage.take()
        {
            spent.end(bed).await?;
        }
        if stage.is_none() {
            stage = Some(Stage::set(bed, before + made).await?);
            made += 1;
        }
        let stage = stage.as_ref().context("a stage was set")?;
        let begun = Instant::now();
        stage.run(bed, command, *fate).await.with_context(|| command.clone())?;
        println!("  {page} {:>5.1} s  {first}", begun.elapsed().as_secs_f32());
    }
    match stage {
        Some(stage) => stage.end(bed).await.map(|()| made),
        None => Ok(made),
    }
}
