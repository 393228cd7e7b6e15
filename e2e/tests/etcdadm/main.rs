//! etcdadm alone: machines, and somebody who types. There is no management plane, and nobody who repairs anything.
//!
//! With etcd 3.6; with `E2E_FULL=1`, or when asked for by their full name, with 3.5 and 3.7 too.

mod data_loss;
mod hands;

use e2e::tools::{Etcd, Tools};
use e2e::world::{World, prepare_and_run, trial};
use futures::future::LocalBoxFuture;
use libtest_mimic::Arguments;
use std::process::ExitCode;

type Run = fn(World, Etcd) -> LocalBoxFuture<'static, anyhow::Result<()>>;

struct Story {
    name: String,
    etcd: Etcd,
    run: Run,
}

impl Story {
    fn is_wanted(&self, arguments: &Arguments) -> bool {
        self.etcd == Etcd::V3_6
            || std::env::var_os("E2E_FULL").is_some()
            || arguments.filter.as_deref() == Some(&self.name)
    }
}

fn stories() -> Vec<Story> {
    let stories: [(&str, Run); 4] = [
        ("of_the_only_member", |world, etcd| Box::pin(data_loss::of_the_only_member(world, etcd))),
        ("of_one_of_three", |world, etcd| Box::pin(data_loss::of_one_of_three(world, etcd))),
        ("of_the_first_of_three", |world, etcd| Box::pin(data_loss::of_the_first_of_three(world, etcd))),
        ("of_two_of_five", |world, etcd| Box::pin(data_loss::of_two_of_five(world, etcd))),
    ];
    let each = |etcd: Etcd| {
        let minor = match etcd {
            Etcd::V3_5 => "3_5",
            Etcd::V3_6 => "3_6",
            Etcd::V3_7 => "3_7",
        };
        stories.map(|(name, run)| Story { name: format!("etcdadm_data_loss_{name}_with_etcd_{minor}"), etcd, run })
    };
    Etcd::ALL.into_iter().flat_map(each).collect()
}

/// Makes outside the releases of etcd that are going to be run.
fn prepare(_: &Tools) -> anyhow::Result<()> {
    let arguments = Arguments::from_args();
    let wanted = |etcd: &Etcd| stories().iter().any(|story| story.etcd == *etcd && story.is_wanted(&arguments));
    Etcd::ALL.iter().filter(|etcd| wanted(etcd)).try_for_each(|etcd| etcd.ensure())
}

fn main() -> ExitCode {
    prepare_and_run(prepare, |world| {
        let mut arguments = Arguments::from_args();
        // All machines have the same addresses.
        arguments.test_threads = Some(1);
        let tests = stories().into_iter().map(|story| {
            let wanted = story.is_wanted(&arguments);
            let Story { name, etcd, run } = story;
            trial(&world, &name, move |world| run(world, etcd)).with_ignored_flag(!wanted)
        });
        Ok(libtest_mimic::run(&arguments, tests.collect()).exit_code())
    })
}
