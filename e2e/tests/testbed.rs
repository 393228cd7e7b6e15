//! The test bed itself: the world is apart from the host, and the plane in it does what a management cluster does.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::plane::{Plane, PlaneOptions};
use e2e::world::{self, World, trial};

fn main() -> ExitCode {
    world::enter_or_run(|world| {
        let mut arguments = libtest_mimic::Arguments::from_args();
        // All of them use the same ports.
        arguments.test_threads = Some(1);
        let tests = vec![trial(&world, "plane_is_ready_in_time", plane_is_ready_in_time)];
        libtest_mimic::run(&arguments, tests).exit_code()
    })
}

async fn plane_is_ready_in_time(world: World) -> Result<()> {
    let started = Instant::now();
    let plane = Plane::start(&world, PlaneOptions::default()).await?;
    let took = started.elapsed();
    for (step, duration) in plane.timings() {
        println!("{step}: {:.1} s", duration.as_secs_f32());
    }
    println!("ready after {:.1} s", took.as_secs_f32());
    ensure!(took < Duration::from_secs(15), "ready after {took:?}");
    plane.stop().await
}
