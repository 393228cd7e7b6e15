//! The local tier: scenarios on real parts, that is, an unmodified Cluster API, real etcd, and machines made of the
//! kernel's namespaces. The scenarios of a lane share a bed. Each scenario has namespaces of its own, and leaves
//! nothing running.
//!
//! Long scenarios run only with `E2E_FULL=1`, or when they are selected by their full name.

mod account;
mod addresses;
mod away;
mod bad_input;
mod boots;
mod bring_up;
mod by_hand;
mod certificates;
mod chance;
mod changes;
mod clocks;
mod clusterctl;
mod confirmation;
mod control_planes;
mod corrections;
mod dashboard;
mod data_loss;
mod deletion;
mod departures;
mod documents;
mod domains;
mod during;
mod flags;
mod forced;
mod forgetful;
mod full;
mod gitops;
mod health;
mod idle;
mod ill;
mod in_place;
mod ipv6;
mod kills;
mod lags;
mod large;
mod last_moment;
mod lasting;
mod leases;
mod leftovers;
mod load;
mod marked;
mod missing;
mod namesakes;
mod outage;
mod own_errors;
mod pauses;
mod places;
mod power_cuts;
mod random_kills;
mod rbac;
mod records;
mod releases;
mod repair;
mod rolls;
mod scale;
mod shards;
mod shrinks;
mod stale;
mod stuck;
mod uninstalled;
mod upgrades;
mod without_faults;

use anyhow::{Context, Result, anyhow};
use documents::restores;
use e2e::bed::Bed;
use e2e::scenarios::{Scenario, caught, is_full, prepare_and_run};
use e2e::tools::{Clusterctl, Earlier, Etcd, Judge, Promtool, Release, Tools, crds_of_others};
use e2e::world::World;
use futures::future::LocalBoxFuture;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    prepare_and_run(prepare, scenarios(), |world| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start tokio")?;
        Ok(Lane { runtime, world, bed: None })
    })
}

/// Builds or downloads, outside the worlds, what only some scenarios use: other versions of etcd, clusterctl,
/// promtool, CRDs of other projects, other releases of Cluster API and of Kubernetes, and earlier states of this project.
/// The judge of histories is always built.
fn prepare(tools: &Tools, wanted: &[&str]) -> Result<()> {
    if ["rolls::versions_under_load", "flags::of_another_version"].iter().any(|name| wanted.contains(name)) {
        Etcd::ALL.into_iter().try_for_each(Etcd::ensure)?;
    }
    if wanted.contains(&"control_planes::that_roll_back") {
        Etcd::MINORS.into_iter().try_for_each(Etcd::ensure)?;
    }
    let lives_long = |name: &str| name.starts_with("rbac::") || name == "releases::kubernetes_1_33";
    let upgraded = |name: &&str| name.starts_with("control_planes::") || (is_full() && lives_long(name));
    if wanted.iter().any(upgraded) {
        Etcd::V3_7.ensure()?;
    }
    if wanted.iter().any(|name| name.starts_with("clusterctl::")) {
        Clusterctl::ensure()?;
    }
    if wanted.iter().any(|name| name.starts_with("dashboard::")) {
        Promtool::ensure()?;
    }
    if wanted.contains(&"documents::say_what_works") {
        crds_of_others()?;
    }
    for release in wanted.iter().filter_map(|name| releases::of(name)) {
        tools.clone().with_cluster_api(release)?;
    }
    for release in wanted.iter().map(|name| releases::kubernetes_of(name)) {
        tools.clone().with_kubernetes(release)?;
    }
    for commit in wanted.iter().filter_map(|name| upgrades::begins_at(name)) {
        Earlier::ensure(commit)?;
    }
    // Almost every scenario records a history.
    Judge::ensure().map(drop)
}

/// How long it may take to delete what a scenario has made.
const CLEAR: Duration = Duration::from_secs(90);

/// One world, with one bed for all scenarios that run there.
struct Lane {
    runtime: Runtime,
    world: World,
    bed: Option<Bed>,
}

impl Lane {
    /// Runs a scenario under observation, and judges the observer's record too. If the scenario fails or panics, this
    /// keeps evidence.
    fn run(&mut self, name: &str, scenario: Steps) -> Result<()> {
        let left = self.bed.take();
        self.bed = self.runtime.block_on(async {
            let simulated = is_simulated(name);
            let release = releases::of(name).map_or_else(Release::chosen, Ok)?;
            let kubernetes = releases::kubernetes_of(name);
            let world = || self.world.with_cluster_api(release)?.with_kubernetes(kubernetes);
            let earlier = upgrades::begins_at(name).map(Earlier::ensure).transpose()?;
            let fits = |bed: &Bed| {
                earlier.is_none()
                    && bed.frozen().is_some() == simulated
                    && bed.world().tools().cluster_api.release == release
                    && bed.world().tools().kubernetes == kubernetes
            };
            let mut bed = match (left.filter(fits), &earlier) {
                (Some(bed), _) => bed,
                (None, Some(earlier)) => Bed::of_earlier(&world()?, earlier).await?,
                (None, None) if simulated => Bed::simulated(&self.world).await?,
                (None, None) => Bed::start(&world()?).await?,
            };
            // Hundreds of simulated members run without an observer: only our manager could break a rule there.
            if !has_hundreds(name) {
                bed.observe(name)?;
            }
            let mark = bed.plane.mark();
            let passed = caught(scenario(&mut bed)).await;
            let observed = bed.end_observation();
            let ended = match (passed, observed) {
                (Err(error), Err(seen)) => Err(anyhow!("{error:#}; and {seen:#}")),
                (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
                (Ok(()), Ok(())) => bed.clear(CLEAR).await,
            };
            // A bed on which a scenario has failed is not used again, because nobody knows what is left on it.
            if ended.is_err()
                && let Err(missing) = bed.keep_evidence(name, mark).await
            {
                println!("  not all evidence could be kept: {missing:#}");
            }
            // A bed of an earlier state is not used again either: its machines have the etcdadm of that state.
            ended.map(|()| Some(bed).filter(|_| earlier.is_none()))
        })?;
        Ok(())
    }
}

/// Whether the scenario has hundreds of members: too many for real members to come up in reasonable time.
fn has_hundreds(scenario: &str) -> bool {
    is_full() && scenario == "own_errors::blame_no_member"
}

/// Whether machines and members are simulated: where there are hundreds of members, and in `chance::`, which runs
/// many stories.
fn is_simulated(scenario: &str) -> bool {
    has_hundreds(scenario) || scenario.starts_with("chance::")
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The bed's processes end inside the runtime that they were started in.
        let _inside = self.runtime.enter();
        self.bed = None;
    }
}

type Steps = for<'a> fn(&'a mut Bed) -> LocalBoxFuture<'a, Result<()>>;

/// Names a scenario by its path: `bring_up::three_members`.
macro_rules! scenario {
    ($module:ident :: $name:ident) => {{
        fn steps(bed: &mut Bed) -> LocalBoxFuture<'_, Result<()>> {
            Box::pin($module::$name(bed))
        }
        let name = concat!(stringify!($module), "::", stringify!($name));
        Scenario::new(name, |lane: &mut Lane| lane.run(name, steps))
    }};
}

fn scenarios() -> Vec<Scenario<Lane>> {
    vec![
        scenario!(bring_up::three_members),
        scenario!(bring_up::one_and_five_members),
        scenario!(bring_up::same_names_in_two_namespaces),
        scenario!(bring_up::documents_in_any_order),
        scenario!(kills::manager_at_random_points),
        scenario!(places::life_of_one).long(true),
        scenario!(places::life_of_three).long(true),
        scenario!(places::refusals).long(true),
        scenario!(places::deletion_in_a_rollout).long(true),
        scenario!(places::deletion_in_a_repair).long(true),
        scenario!(departures::calls_to_etcd).long(true),
        scenario!(departures::refused_reads).long(true),
        scenario!(departures::writes).long(true),
        scenario!(changes::of_the_configuration).long(true),
        scenario!(changes::beside_a_control_plane).long(true),
        scenario!(changes::without_room).long(true),
        scenario!(changes::of_the_number).long(true),
        scenario!(changes::to_more).long(true),
        // Nine clusters come up side by side, which is as much as two processors can do.
        scenario!(stale::watches_one_by_one).long(true).alone(true),
        scenario!(stale::beside_another_writer).long(true),
        scenario!(namesakes::keep_the_data).long(true),
        scenario!(lags::in_every_change).long(true),
        scenario!(lags::in_the_middle_of_changes).long(true),
        scenario!(lags::while_members_come_and_go).long(true),
        scenario!(chance::of_faults_and_changes).long(true),
        scenario!(leftovers::of_a_machine_that_is_not_made).long(true),
        scenario!(kills::two_managers_at_once),
        scenario!(kills::two_managers_through_changes).long(true),
        scenario!(kills::local_infrastructure),
        scenario!(outage::api_server_away),
        scenario!(boots::late_and_never).long(true),
        scenario!(corrections::reach_everything),
        scenario!(health::members_fail_and_come_back),
        scenario!(data_loss::of_the_only_member),
        scenario!(data_loss::of_one_of_three),
        scenario!(data_loss::of_one_of_three_in_other_ways).long(true),
        scenario!(data_loss::of_one_of_five).long(true),
        scenario!(data_loss::beside_clients).long(true),
        scenario!(data_loss::of_a_reinstalled_machine).long(true),
        scenario!(forgetful::voters_are_found).long(true),
        scenario!(missing::the_ca),
        scenario!(missing::a_member).long(true),
        scenario!(missing::the_init_secret).long(true),
        scenario!(missing::is_replaced).long(true),
        scenario!(deletion::in_the_middle),
        scenario!(deletion::when_up),
        scenario!(scale::one_to_three),
        scenario!(scale::three_to_five),
        scenario!(ipv6::whole_life).long(true),
        scenario!(large::members_join_one_by_one).long(true),
        scenario!(domains::members_are_spread),
        scenario!(domains::replacements_are_spread).long(true),
        scenario!(shrinks::three_to_one),
        scenario!(shrinks::five_to_one).long(true),
        scenario!(shrinks::a_mind_is_changed).long(true),
        scenario!(shrinks::there_and_back).long(true),
        scenario!(shrinks::beside_a_control_plane).long(true),
        scenario!(last_moment::a_voter_fails).long(true),
        scenario!(rolls::three_one_by_one),
        scenario!(rolls::beside_a_control_plane),
        scenario!(control_planes::that_roll).long(true),
        scenario!(control_planes::that_stall).long(true),
        scenario!(control_planes::that_stall_while_members_die).long(true),
        scenario!(control_planes::that_are_seen_late).long(true),
        scenario!(control_planes::that_roll_back).long(true),
        // API servers start throughout these two. Beside those of another scenario, a leader does not get the processor
        // for a second, and the stall would be the computer's.
        scenario!(control_planes::that_scales).long(true).alone(true),
        scenario!(control_planes::in_little_room).long(true).alone(true),
        scenario!(control_planes::of_five).long(true),
        scenario!(rolls::with_room_for_one),
        scenario!(rolls::without_room),
        scenario!(certificates::that_expire).long(true),
        scenario!(in_place::replaces_no_machine).long(true),
        scenario!(rolls::after_a_time).long(true),
        scenario!(rolls::five_beside_a_control_plane).long(true),
        scenario!(rolls::versions_under_load).long(true),
        scenario!(repair::of_members_that_die),
        scenario!(repair::is_called_off),
        scenario!(repair::of_two_of_five).long(true),
        scenario!(repair::by_one_that_boots_slowly).long(true),
        scenario!(repair::survives_kills).long(true),
        scenario!(flags::of_another_version).long(true),
        scenario!(stuck::a_learner).long(true),
        scenario!(certificates::that_have_expired).long(true),
        scenario!(ill::networks).long(true),
        scenario!(ill::slow_disks).long(true),
        scenario!(ill::disks).long(true),
        scenario!(ill::programs).long(true),
        scenario!(ill::data).long(true),
        scenario!(lasting::of_one_of_three).long(true),
        scenario!(lasting::of_a_quorum_and_of_all).long(true),
        scenario!(lasting::of_a_quorum_that_loses_its_data).long(true),
        scenario!(random_kills::of_members).long(true),
        scenario!(during::growth).long(true),
        scenario!(during::growth_of_one).long(true),
        scenario!(during::scale_down).long(true),
        scenario!(during::rollout).long(true),
        scenario!(during::repair).long(true),
        scenario!(power_cuts::lose_what_was_not_synced).long(true),
        scenario!(during::bring_up).long(true),
        scenario!(during::departure).long(true),
        scenario!(during::with_faults_that_end).long(true),
        scenario!(full::disk).long(true),
        scenario!(full::database).long(true),
        scenario!(forced::past_its_hook).long(true),
        scenario!(forced::without_its_infrastructure).long(true),
        scenario!(away::while_members_fail).long(true),
        scenario!(pauses::in_a_rollout).long(true),
        scenario!(pauses::of_a_repair).long(true),
        scenario!(clocks::jump_while_all_is_well).long(true),
        scenario!(clocks::jump_while_a_machine_boots).long(true),
        scenario!(leases::are_lost).long(true),
        scenario!(shards::by_watch_filter).long(true),
        scenario!(shards::by_namespace).long(true),
        scenario!(marked::by_a_health_check).long(true),
        scenario!(marked::not_for_a_missing_node).long(true),
        scenario!(without_faults::nobody_is_warned),
        scenario!(by_hand::machines_are_deleted),
        scenario!(by_hand::the_only_one_that_is_dead).long(true),
        scenario!(confirmation::is_asked_for).long(true),
        scenario!(uninstalled::manager_first),
        scenario!(addresses::given_to_another_cluster).long(true),
        scenario!(addresses::exchanged).long(true),
        scenario!(addresses::exchanged_where_members_are_replaced).long(true),
        // Hundreds of clusters need the whole computer: beside other scenarios, members would answer too late.
        scenario!(own_errors::blame_no_member).alone(is_full()),
        scenario!(own_errors::leave_nothing_open).long(true),
        scenario!(gitops::same_manifest_again),
        scenario!(idle::costs_nothing).long(true).alone(true),
        scenario!(bad_input::references),
        scenario!(bad_input::contents),
        // Other scenarios would keep members from answering in time.
        scenario!(bad_input::thousands_stored).long(true).alone(true),
        scenario!(rbac::least_privilege),
        scenario!(rbac::one_namespace),
        scenario!(rbac::watch_filter).long(true),
        scenario!(clusterctl::whole_life),
        scenario!(clusterctl::moves).long(true),
        scenario!(clusterctl::from_the_first_release).long(true),
        scenario!(upgrades::from_before).long(true),
        scenario!(dashboard::has_something_to_show).long(true),
        scenario!(documents::know_every_command),
        scenario!(documents::say_what_works).long(true),
        scenario!(restores::from_a_snapshot).long(true),
        scenario!(releases::v1_12).long(true),
        scenario!(releases::v1_13).long(true),
        scenario!(releases::v1_14_2).long(true),
        scenario!(releases::kubernetes_1_33).long(true),
    ]
}
