//! The whole loop with Docker: unmodified Cluster API with its docker infrastructure, systemd in the machines, and real
//! etcd. One bed serves all scenarios. Each scenario has a namespace of its own, and Clusters whose names no other
//! scenario uses, because names of containers are unique in the daemon.
//!
//! Some scenarios run only with `E2E_FULL=1`, or when their full name is given.

mod by_hand;
mod clusters;
mod data_loss;
mod deletion;
mod departure;
mod etcd;
mod faults;
mod freezing;
mod gate;
mod gitops;
mod life;
mod older;
mod outsider;
mod pauses;
mod reboots;
mod released;
mod road;
mod writes;

use anyhow::{Context, anyhow};
use e2e::docker::{DockerBed, ManagerImage, Parts};
use e2e::own_release::OwnRelease;
use e2e::plane::Mark;
use e2e::scenarios::{Durations, caught};
use e2e::tools::{Clusterctl, Etcd, Judge, Release, Tools};
use e2e::world::{World, prepare_and_run};
use futures::future::LocalBoxFuture;
use libtest_mimic::Arguments;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

fn main() -> ExitCode {
    prepare_and_run(prepare, |world| {
        let mut arguments = Arguments::from_args();
        // Scenarios share the bed, and some of them take parts of it away for a while.
        arguments.test_threads = Some(1);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start tokio")?;
        let runtime = Arc::new(runtime);
        let bed: Shared = Arc::default();
        let durations: Arc<Durations> = Arc::default();
        let tests = scenarios()
            .into_iter()
            .map(|scenario| {
                let (bed, world, runtime) = (bed.clone(), world.clone(), runtime.clone());
                let wanted = scenario.is_wanted(&arguments);
                let test = durations.trial(scenario.name, move || {
                    let mut slot = bed.lock().unwrap_or_else(PoisonError::into_inner);
                    runtime.block_on(in_a_clean_bed(&mut slot, &world, &scenario))
                });
                test.with_ignored_flag(!wanted)
            })
            .collect();
        let conclusion = libtest_mimic::run(&arguments, tests);
        print!("{durations}");
        let left = bed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(left) = left {
            runtime.block_on(left.stop()).context("the bed does not end")?;
        }
        Ok(conclusion.exit_code())
    })
}

/// How long it may take to delete what a scenario has made.
const CLEAR: Duration = Duration::from_secs(120);

type Shared = Arc<Mutex<Option<DockerBed>>>;

struct Scenario {
    name: &'static str,
    run: for<'a> fn(&'a mut DockerBed) -> LocalBoxFuture<'a, anyhow::Result<()>>,
    /// Whether it runs by default.
    core: bool,
    /// The release of Cluster API that it runs on.
    release: Release,
}

impl Scenario {
    fn is_wanted(&self, arguments: &Arguments) -> bool {
        self.core || e2e::scenarios::is_full() || arguments.filter.as_deref() == Some(self.name)
    }
}

/// Makes, outside, what the selected scenarios need.
fn prepare(tools: &Tools) -> anyhow::Result<()> {
    let arguments = Arguments::from_args();
    let wanted: Vec<Scenario> = scenarios().into_iter().filter(|scenario| scenario.is_wanted(&arguments)).collect();
    for release in [Release::V1_14, Release::V1_12] {
        if wanted.iter().any(|scenario| scenario.release == release) {
            Parts::prepare(&tools.clone().with_cluster_api(release)?)?;
        }
    }
    if wanted.iter().any(|scenario| scenario.name == "life::of_one_etcd") {
        // The image of machines contains every release that has been built.
        Etcd::V3_7.ensure()?;
    }
    if wanted.iter().any(|scenario| scenario.name == "faults::one_after_the_other") {
        Judge::ensure()?;
    }
    if wanted.iter().any(|scenario| scenario.name == "life::of_a_control_plane") {
        Parts::prepare_previous_nodes(tools)?;
    }
    if wanted.iter().any(|scenario| scenario.name == "released::images_run") {
        // If this fails, it fails only its own scenario, which then finds no release.
        if let Err(error) = OwnRelease::make(tools) {
            eprintln!("released::images_run is going to fail: {error:#}");
        }
    }
    if wanted.iter().any(|scenario| scenario.name == "outsider::installs_a_release") {
        ManagerImage::make()?;
        Clusterctl::ensure()?;
    }
    Ok(())
}

/// Runs one scenario, in the bed of the one before if there is one. What happens to etcd meanwhile is judged as well.
/// Afterwards, the bed is as it was before, or there is none.
async fn in_a_clean_bed(
    slot: &mut Option<DockerBed>,
    world: &World,
    Scenario { name, run, release, .. }: &Scenario,
) -> anyhow::Result<()> {
    let mut bed = match slot.take() {
        Some(bed) if bed.world().tools().cluster_api.release == *release => bed,
        other => {
            if let Some(other) = other {
                other.stop().await?;
            }
            DockerBed::start(&world.with_cluster_api(*release)?).await?
        }
    };
    let mark = bed.plane.mark();
    let passed = match bed.observe(name) {
        Ok(()) => caught(run(&mut bed)).await,
        Err(error) => Err(error),
    };
    let observed = bed.end_observation();
    let result = match (passed, observed) {
        (Err(error), Err(seen)) => Err(anyhow!("{error:#}; and {seen:#}")),
        (passed, observed) => passed.and(observed),
    };
    if result.is_err() {
        keep_evidence(&bed, name, mark).await;
    }
    match bed.clear(CLEAR).await {
        Ok(()) => *slot = Some(bed),
        // The bed is not used again, because the scenario may have left anything behind.
        Err(error) => {
            println!("{name}: after it, {error:#}");
            if result.is_ok() {
                keep_evidence(&bed, name, mark).await;
            }
            match bed.remove_traces().await {
                Ok(removed) => println!("{name}: removed by force: {}", removed.join(", ")),
                Err(error) => println!("{name}: removing by force: {error:#}"),
            }
            bed.stop().await?;
            result?;
            return Err(error);
        }
    }
    result
}

/// Keeps what clearing the bed would remove.
async fn keep_evidence(bed: &DockerBed, name: &str, mark: Mark) {
    if let Err(missing) = bed.keep_evidence(name, mark).await {
        println!("{name}: not all evidence could be kept: {missing:#}");
    }
}

/// Names a scenario by its path: `etcd::three_members`.
macro_rules! scenario {
    ($module:ident :: $name:ident, core: $core:literal) => {
        scenario!($module::$name, core: $core, on: V1_14)
    };
    ($module:ident :: $name:ident, core: $core:literal, on: $release:ident) => {{
        fn run(bed: &mut DockerBed) -> LocalBoxFuture<'_, anyhow::Result<()>> {
            Box::pin($module::$name(bed))
        }
        let name = concat!(stringify!($module), "::", stringify!($name));
        Scenario { name, run, core: $core, release: Release::$release }
    }};
}

fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(etcd::three_members, core: true),
        scenario!(gate::hook_away, core: true),
        scenario!(gate::races, core: true),
        scenario!(gate::control_plane_first, core: true),
        scenario!(road::one_control_plane, core: true),
        scenario!(road::three_control_planes, core: false),
        scenario!(road::of_the_proposal, core: false),
        scenario!(life::of_an_etcd_that_grows, core: true),
        scenario!(life::of_an_etcd_that_rolls, core: false),
        scenario!(life::of_one_etcd, core: false),
        scenario!(life::of_a_control_plane, core: false),
        scenario!(pauses::from_the_beginning, core: true),
        scenario!(pauses::on_the_way_up, core: false),
        scenario!(pauses::when_up, core: false),
        scenario!(deletion::on_the_way_up, core: true),
        scenario!(deletion::when_broken, core: true),
        scenario!(deletion::managers_away, core: false),
        scenario!(reboots::of_etcds_machines, core: true),
        scenario!(reboots::of_a_whole_cluster, core: false),
        scenario!(data_loss::of_the_only_member, core: false),
        scenario!(data_loss::of_one_of_three, core: false),
        scenario!(data_loss::of_one_of_five, core: false),
        scenario!(faults::one_after_the_other, core: false),
        scenario!(freezing::of_a_busy_machine, core: false),
        scenario!(gitops::same_manifest_again, core: false),
        scenario!(by_hand::two_of_three_machines, core: false),
        scenario!(released::images_run, core: false),
        scenario!(outsider::installs_a_release, core: false),
        // Last, because it needs another bed.
        scenario!(older::one_control_plane, core: false, on: V1_12),
    ]
}
