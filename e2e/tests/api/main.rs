//! What the API server accepts, refuses, defaults and shows of our kinds. The schemas and CEL rules are tested as they
//! are installed, in a real API server. Also, that cloud-init accepts what is made of accepted objects.

mod admission;
mod alerts;
mod cloud_init;
mod config;
mod config_cases;
mod diagnosis;
mod etcd_cases;
mod examples;
mod forbidden;
mod installed;
mod kube_state_metrics;
mod kubelet;
mod malformed;
mod metrics;
mod plugin;
mod refusals;
mod served;
mod server;
mod telling;
mod updates;

use anyhow::Context;
use e2e::bed::crds;
use e2e::plane::{Plane, PlaneOptions};
use e2e::scenarios::{Durations, is_full};
use e2e::tools::{DockerProvider, KubeStateMetrics, OpenStackProvider, Promtool, Tools, crds_of_others};
use e2e::world::{World, block_on, prepare_and_run};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};
use server::Server;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

fn main() -> ExitCode {
    let prepare = |tools: &Tools| {
        Promtool::ensure()?;
        crds_of_others()?;
        if is_full() {
            KubeStateMetrics::ensure()?;
        }
        OpenStackProvider::ensure(tools)?;
        DockerProvider::ensure(tools).map(drop)
    };
    prepare_and_run(prepare, |world| {
        let mut arguments = Arguments::from_args();
        // The tests share the API server.
        arguments.test_threads = Some(1);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start tokio")?;
        let runtime = Arc::new(runtime);
        let plane: Shared = Arc::default();
        let durations: Arc<Durations> = Arc::default();
        let mut tests: Vec<Trial> = tests()
            .into_iter()
            .map(|(name, test)| {
                let (plane, world, runtime) = (plane.clone(), world.clone(), runtime.clone());
                durations.trial(name, move || {
                    let mut slot = plane.lock().unwrap_or_else(PoisonError::into_inner);
                    runtime.block_on(async { test(&server(&mut slot, &world).await?).await })
                })
            })
            .collect();
        tests.push(durations.trial("cloud_init::accepts_the_bootstrap_data", cloud_init::accepts_the_bootstrap_data));
        tests.push(durations.trial("alerts::fire_when_they_should", alerts::fire_when_they_should));
        tests.push(durations.trial(
            "examples::the_documents_of_a_file_belong_together",
            examples::the_documents_of_a_file_belong_together,
        ));
        tests.push({
            let plane = plane.clone();
            durations.trial("examples::every_document_is_accepted", move || {
                let mut slot = plane.lock().unwrap_or_else(PoisonError::into_inner);
                runtime.block_on(async {
                    // This test needs a plane of its own, and a world has room for only one.
                    drop(slot.take());
                    examples::every_document_is_accepted(&world).await
                })
            })
        });
        let conclusion = libtest_mimic::run(&arguments, tests);
        print!("{durations}");
        // The plane's processes have to end inside the runtime that started them.
        let _ = block_on(async {
            drop(plane.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        });
        Ok(conclusion.exit_code())
    })
}

type Shared = Arc<Mutex<Option<Plane>>>;
type Test = for<'a> fn(&'a Server) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// The API server, started for the first test.
async fn server(slot: &mut Option<Plane>, world: &World) -> anyhow::Result<Server> {
    if slot.is_none() {
        let crds = [crds()?, crds_of_others()?].concat();
        let options = PlaneOptions { cluster_api: false, crds, ..PlaneOptions::default() };
        *slot = Some(Plane::start(world, options).await?);
    }
    match slot {
        Some(plane) => Ok(Server::new(plane.client(), plane.kubeconfig()?, &world.tools().kubectl)),
        None => anyhow::bail!("there is no plane"),
    }
}

/// Names a test by its path: `served::defaults`.
macro_rules! test {
    ($module:ident :: $name:ident) => {{
        fn run(server: &Server) -> LocalBoxFuture<'_, anyhow::Result<()>> {
            Box::pin($module::$name(server))
        }
        (concat!(stringify!($module), "::", stringify!($name)), run as Test)
    }};
}

fn tests() -> Vec<(&'static str, Test)> {
    let mut tests = vec![
        test!(installed::every_crd_is_established),
        test!(installed::every_rule_has_a_message_and_is_judged),
        test!(config::every_folder_is_accepted),
        test!(config::objects_for_others_are_what_they_take),
        test!(config::people_may_look_or_change),
        test!(config::kubernetes_own_roles_take_ours_in),
        test!(served::one_object_is_read_in_both_versions),
        test!(served::the_documents_of_the_proposal_and_the_example_apply),
        test!(served::defaults),
        test!(served::a_null_is_no_value),
        test!(served::scale_subresource),
        test!(served::columns_answer_whether_it_is_well),
        test!(refusals::of_etcd_clusters),
        test!(refusals::of_configs_in_every_kind),
        test!(refusals::of_unknown_fields),
        test!(refusals::of_infrastructure_without_a_spec),
        test!(refusals::of_local_clusters),
        test!(malformed::the_originals_are_good),
        test!(malformed::it_is_refused_with_a_path_or_handled),
        test!(updates::of_replicas),
        test!(updates::of_configs_with_bootstrap_data),
        test!(updates::that_are_refused_change_nothing),
        test!(admission::real_endpoints_are_kept_against_the_placeholder),
        test!(admission::a_begun_etcd_is_not_deleted_without_a_word),
        test!(metrics::are_for_those_who_may_read_them),
        test!(plugin::plan_tells_what_the_api_server_refuses),
        test!(plugin::rollout_does_what_it_says),
        test!(diagnosis::doctor_says_what_is_wrong_before_and_after_an_apply),
        test!(diagnosis::doctor_judges_the_manager_of_the_namespace),
        test!(diagnosis::a_report_has_no_secret_in_it),
        test!(diagnosis::logs_say_where_to_look_without_a_manager),
        test!(diagnosis::logs_are_those_of_the_managers_pods),
        test!(telling::watch_prints_what_is_new),
        test!(telling::why_explains_what_holds_it_up),
    ];
    // One waits for the manager's back-off, and the other needs a program that takes minutes to build.
    if is_full() {
        tests.push(test!(forbidden::is_said_once_and_until_it_is_permitted));
        tests.push(test!(kube_state_metrics::shows_an_object_of_each_kind));
    }
    tests
}
