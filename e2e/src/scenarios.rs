//! Scenarios in several worlds at once.
//!
//! Scenarios mostly wait, and in one world they share ports and addresses. So the test program starts itself several
//! times, each time in a world of its own: a *lane*. A lane reads the names of scenarios, runs one after the other, and
//! answers how each ended. The next scenario goes to a free lane.

mod durations;
mod lane;
mod lanes;
mod panics;

pub use durations::Durations;
pub use panics::caught;

use crate::evidence::keep_left;
use crate::plane::take_left;
use crate::tools::Tools;
use crate::world::{World, block_on, enter_or_run};
use anyhow::{Context, Result, ensure};
use lanes::Lanes;
use libtest_mimic::{Arguments, Completion, Trial};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// How many worlds there are. If unset, as many as this computer has processors, but at most [`MOST`].
const WORLDS: &str = "E2E_WORLDS";
/// The default limit: more worlds need more memory than a test should take without being told to.
const MOST: usize = 4;
/// Runs every scenario, including those that take minutes.
const FULL: &str = "E2E_FULL";
/// Lets sweeps try every place instead of a sample.
const EVERY_PLACE: &str = "E2E_EVERY_PLACE";
/// Decides what scenarios otherwise leave to chance.
const SEED: &str = "E2E_SEED";

type Run<S> = Box<dyn Fn(&mut S) -> Result<()>>;

/// One test, which runs in a lane. The scenarios of one lane share an `S`.
pub struct Scenario<S> {
    name: String,
    run: Run<S>,
    long: bool,
    alone: bool,
}

impl<S> Scenario<S> {
    /// A scenario that is part of every run, and that other scenarios beside it do not disturb.
    pub fn new(name: impl Into<String>, run: impl Fn(&mut S) -> Result<()> + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run), long: false, alone: false }
    }

    /// The scenario takes minutes. It runs with `E2E_FULL=1`, or when its full name is given.
    #[must_use]
    pub fn long(self, long: bool) -> Self {
        Self { long, ..self }
    }

    /// The scenario measures something that other scenarios would disturb. It runs after them, with nothing beside it.
    #[must_use]
    pub fn alone(self, alone: bool) -> Self {
        Self { alone, ..self }
    }

    fn is_wanted(&self, arguments: &Arguments) -> bool {
        !self.long || is_full() || arguments.filter.as_deref() == Some(&self.name)
    }

    /// Whether it is wanted, and the arguments do not leave it out.
    fn is_run(&self, arguments: &Arguments) -> bool {
        self.is_wanted(arguments) && !arguments.is_filtered_out(&Trial::test(&self.name, || Ok(())))
    }
}

impl Scenario<World> {
    /// A scenario that makes everything it needs, with logs in a directory of its own name. If it fails or panics, the
    /// logs of its machines are kept there, and every object of its [`LastingPlane`](crate::plane::LastingPlane).
    pub fn of_a_world<F>(name: &str, scenario: impl Fn(World) -> F + 'static) -> Self
    where
        F: Future<Output = Result<()>>,
    {
        let logs = name.to_owned();
        Self::new(name, move |world: &mut World| {
            let world = world.with_logs(&logs)?;
            block_on(async {
                let ended = caught(scenario(world.clone())).await;
                // The plane ends here in any case: the next scenario starts its own.
                let plane = take_left();
                if ended.is_err()
                    && let Err(missing) = keep_left(&world, plane.as_ref()).await
                {
                    println!("  not all evidence could be kept: {missing:#}");
                }
                ended
            })
        })
    }
}

/// Whether scenarios may take as much time as they can use: `E2E_FULL` is set.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

/// Whether sweeps try every place, which takes hours: `E2E_EVERY_PLACE` is set.
#[must_use]
pub fn tries_every_place() -> bool {
    std::env::var_os(EVERY_PLACE).is_some()
}

/// Why the scenario that runs in this lane cannot show anything here.
static SKIPPED: Mutex<Option<String>> = Mutex::new(None);

/// Marks the calling scenario as one that cannot show anything on this computer. If it ends without an error, it is
/// listed as ignored for this reason, and not as passed.
pub fn skip(reason: &str) {
    *SKIPPED.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
}

/// The seed of everything that a scenario leaves to chance: `E2E_SEED`, or a random one. Scenarios print it, so that a
/// run can be repeated.
///
/// # Errors
/// When `E2E_SEED` is not a number.
pub fn seed() -> Result<u64> {
    match std::env::var(SEED) {
        Ok(seed) => seed.parse().context("E2E_SEED is a number"),
        Err(_) => Ok(rand::random()),
    }
}

/// The `main` of a test program: runs the scenarios that the arguments select. `share` makes what the scenarios of one
/// lane share.
pub fn run<S>(scenarios: Vec<Scenario<S>>, share: impl FnOnce(World) -> Result<S>) -> ExitCode {
    prepare_and_run(|_, _| Ok(()), scenarios, share)
}

/// The same, but calls `prepare` outside first, with the names of the scenarios that will run. It makes what they need
/// beyond the real parts.
pub fn prepare_and_run<S>(
    prepare: impl FnOnce(&Tools, &[&str]) -> Result<()>,
    scenarios: Vec<Scenario<S>>,
    share: impl FnOnce(World) -> Result<S>,
) -> ExitCode {
    if lane::is_this_process() {
        return enter_or_run(|world| report(share(world).and_then(|shared| lane::serve(&scenarios, shared))));
    }
    report(in_lanes(prepare, scenarios))
}

/// Whether this process reads the names of the scenarios to run from its standard input.
pub(crate) fn are_read_from_stdin() -> bool {
    lane::is_this_process()
}

fn report(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("Error: {error:#}");
        ExitCode::FAILURE
    })
}

fn in_lanes<S>(
    prepare: impl FnOnce(&Tools, &[&str]) -> Result<()>,
    mut scenarios: Vec<Scenario<S>>,
) -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    scenarios.sort_by_key(|scenario| scenario.alone);
    if !arguments.list {
        let run = scenarios.iter().filter(|scenario| scenario.is_run(&arguments));
        let run: Vec<&str> = run.map(|scenario| scenario.name.as_str()).collect();
        prepare(&Tools::ensure()?, &run)?;
    }
    let worlds = worlds()?;
    arguments.test_threads = Some(worlds);
    let lanes = Arc::new(Lanes::new(worlds));
    let trial = |scenario: &Scenario<S>| {
        let (lanes, name, alone) = (lanes.clone(), scenario.name.clone(), scenario.alone);
        let test = move || match lanes.run(&name, alone) {
            Ok(None) => Ok(Completion::Completed),
            Ok(Some(reason)) => Ok(Completion::ignored_with(reason)),
            Err(error) => Err(format!("{error:#}").into()),
        };
        Trial::ignorable_test(&scenario.name, test).with_ignored_flag(!scenario.is_wanted(&arguments))
    };
    let trials = scenarios.iter().map(trial).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    lanes.end();
    if !arguments.list {
        print!("{}", lanes.durations());
    }
    Ok(conclusion.exit_code())
}

fn worlds() -> Result<usize> {
    let Some(chosen) = std::env::var_os(WORLDS) else {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        return Ok(processors.min(MOST));
    };
    let number = chosen.to_str().and_then(|text| text.parse().ok()).context(format!("{WORLDS} is not a number"))?;
    ensure!(number > 0, "{WORLDS} must be at least 1");
    Ok(number)
}
