//! The loop on real parts: an unmodified Cluster API, machines of namespaces, real etcd. One bed serves all scenarios;
//! each has namespaces of its own and leaves nothing running.
//!
//! Some scenarios are run only with `E2E_FULL=1`, or when they are asked for by their full name.

mod addresses;
mod bad_input;
mod boots;
mod bring_up;
mod by_hand;
mod confirmation;
mod corrections;
mod data_loss;
mod deletion;
mod gitops;
mod health;
mod idle;
mod kills;
mod missing;
mod outage;
mod own_errors;
mod rbac;
mod records;
mod scale;
mod uninstalled;
mod without_faults;

use e2e::bed::Bed;
use e2e::world::{block_on, enter_or_run};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

fn main() -> ExitCode {
    enter_or_run(|world| {
        let mut arguments = Arguments::from_args();
        // They share the bed, and some of them take parts of it away for a while.
        arguments.test_threads = Some(1);
        let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
            return ExitCode::FAILURE;
        };
        let runtime = Arc::new(runtime);
        let bed: Shared = Arc::default();
        let tests = scenarios()
            .into_iter()
            .map(|(name, scenario)| {
                let (bed, world, runtime) = (bed.clone(), world.clone(), runtime.clone());
                let wanted = !LONG.contains(&name)
                    || std::env::var_os("E2E_FULL").is_some()
                    || arguments.filter.as_deref() == Some(name);
                let test = Trial::test(name, move || {
                    let mut slot = bed.lock().unwrap_or_else(PoisonError::into_inner);
                    let result = runtime.block_on(async {
                        let mut bed = match slot.take() {
                            Some(bed) => bed,
                            None => Bed::start(&world).await?,
                        };
                        scenario(&mut bed).await?;
                        bed.clear(CLEAR).await?;
                        // One that a scenario has failed on is not used again: who knows what it has left undone.
                        *slot = Some(bed);
                        Ok(())
                    });
                    result.map_err(|error: anyhow::Error| format!("{error:#}").into())
                });
                test.with_ignored_flag(!wanted)
            })
            .collect();
        let conclusion = libtest_mimic::run(&arguments, tests);
        // Its processes end inside the runtime that they were started in.
        let left = bed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = block_on(async move {
            drop(left);
            Ok(())
        });
        conclusion.exit_code()
    })
}

/// How long it may take to delete what a scenario has made.
const CLEAR: Duration = Duration::from_secs(90);

type Shared = Arc<Mutex<Option<Bed>>>;
type Scenario = for<'a> fn(&'a mut Bed) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// Names a scenario by its path: `bring_up::three_members`.
macro_rules! scenario {
    ($module:ident :: $name:ident) => {{
        fn run(bed: &mut Bed) -> LocalBoxFuture<'_, anyhow::Result<()>> {
            Box::pin($module::$name(bed))
        }
        (concat!(stringify!($module), "::", stringify!($name)), run as Scenario)
    }};
}

/// Those that take minutes.
const LONG: [&str; 2] = ["data_loss::of_one_of_three_in_other_ways", "data_loss::of_one_of_five"];

fn scenarios() -> Vec<(&'static str, Scenario)> {
    vec![
        scenario!(bring_up::three_members),
        scenario!(bring_up::one_and_five_members),
        scenario!(bring_up::same_names_in_two_namespaces),
        scenario!(bring_up::documents_in_any_order),
        scenario!(kills::manager_at_random_points),
        scenario!(kills::two_managers_at_once),
        scenario!(kills::local_infrastructure),
        scenario!(outage::api_server_away),
        scenario!(boots::late_and_never),
        scenario!(corrections::reach_everything),
        scenario!(health::members_fail_and_come_back),
        scenario!(data_loss::of_the_only_member),
        scenario!(data_loss::of_one_of_three),
        scenario!(data_loss::of_one_of_three_in_other_ways),
        scenario!(data_loss::of_one_of_five),
        scenario!(missing::the_ca),
        scenario!(missing::a_member),
        scenario!(deletion::in_the_middle),
        scenario!(deletion::when_up),
        scenario!(scale::one_to_three),
        scenario!(scale::three_to_five),
        scenario!(without_faults::nobody_is_warned),
        scenario!(by_hand::machines_are_deleted),
        scenario!(confirmation::is_asked_for),
        scenario!(uninstalled::manager_first),
        scenario!(addresses::given_to_another_cluster),
        scenario!(own_errors::blame_no_member),
        scenario!(gitops::same_manifest_again),
        scenario!(idle::costs_nothing),
        scenario!(bad_input::references),
        scenario!(bad_input::contents),
        scenario!(rbac::least_privilege),
    ]
}
