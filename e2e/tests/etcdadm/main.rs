//! etcdadm alone: machines, and a person who types. There is no management plane, so nothing is repaired automatically.
//!
//! The tests run with etcd 3.6. With `E2E_FULL=1`, or when their full name is given, they also run with 3.5 and 3.7,
//! and with five members.

mod data_loss;
mod hands;
mod judge;
mod load;

use e2e::scenarios::{Scenario, prepare_and_run};
use e2e::tools::{Etcd, Judge, Tools};
use e2e::world::World;
use futures::future::LocalBoxFuture;
use std::process::ExitCode;

type Run = fn(World, Etcd) -> LocalBoxFuture<'static, anyhow::Result<()>>;

/// The longest story.
const OF_FIVE: &str = "data_loss_of_two_of_five";

const STORIES: [(&str, Run); 5] = [
    ("data_loss_of_the_only_member", |world, etcd| Box::pin(data_loss::of_the_only_member(world, etcd))),
    ("data_loss_of_one_of_three", |world, etcd| Box::pin(data_loss::of_one_of_three(world, etcd))),
    ("data_loss_of_the_first_of_three", |world, etcd| Box::pin(data_loss::of_the_first_of_three(world, etcd))),
    (OF_FIVE, |world, etcd| Box::pin(data_loss::of_two_of_five(world, etcd))),
    ("load_survives_faults", |world, etcd| Box::pin(load::survives_faults(world, etcd))),
];

fn name(story: &str, etcd: Etcd) -> String {
    let minor = match etcd {
        Etcd::V3_5 => "3_5",
        Etcd::V3_6_10 => "3_6_10",
        Etcd::V3_6 => "3_6",
        Etcd::V3_7 => "3_7",
    };
    format!("etcdadm_{story}_with_etcd_{minor}")
}

/// Makes, outside, the releases of etcd for the selected stories, and the judge.
fn prepare(_: &Tools, wanted: &[&str]) -> anyhow::Result<()> {
    let is_run = |etcd: &Etcd| STORIES.iter().any(|(story, _)| wanted.contains(&name(story, *etcd).as_str()));
    Etcd::MINORS.into_iter().filter(is_run).try_for_each(|etcd| etcd.ensure())?;
    Judge::ensure().map(drop)
}

fn main() -> ExitCode {
    let each = |etcd: Etcd| {
        STORIES.into_iter().map(move |(story, run)| {
            let scenario = Scenario::of_a_world(&name(story, etcd), move |world| run(world, etcd));
            scenario.long(etcd != Etcd::V3_6 || story == OF_FIVE)
        })
    };
    let mut scenarios: Vec<_> = Etcd::MINORS.into_iter().flat_map(each).collect();
    scenarios.push(Scenario::of_a_world("judge_finds_a_lost_write", judge::finds_a_lost_write));
    prepare_and_run(prepare, scenarios, Ok)
}
