//! What the scenarios of one world share: a management plane, until one of them fails or needs a plane to itself.

use anyhow::{Context, Result};
use e2e::plane::Plane;
use e2e::scenarios::caught;
use e2e::world::World;
use futures::future::LocalBoxFuture;
use tokio::runtime::{Builder, Runtime};

use crate::stage::{Stage, start_plane};

pub(crate) type Steps = for<'a> fn(&'a mut Stage) -> LocalBoxFuture<'a, Result<()>>;

/// Which plane a scenario runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// A plane that other scenarios use before and after. A scenario changes nothing outside its namespace, except CRDs
    /// of kinds that no other scenario uses.
    Shared,
    /// A plane that no other scenario uses, before or after.
    Own,
}

/// One world, with one plane for all scenarios that share it.
pub(crate) struct Lane {
    runtime: Runtime,
    world: World,
    plane: Option<Plane>,
}

impl Lane {
    pub(crate) fn new(world: World) -> Result<Self> {
        let runtime = Builder::new_multi_thread().enable_all().build().context("start tokio")?;
        Ok(Self { runtime, world, plane: None })
    }

    /// Runs a scenario. If it fails or panics, its evidence is kept and its plane is not used again, because the
    /// scenario may have left anything behind.
    pub(crate) fn run(&mut self, name: &str, on: On, steps: Steps) -> Result<()> {
        let left = self.plane.take();
        self.plane = self.runtime.block_on(async {
            let plane = match left {
                Some(plane) if on == On::Shared => plane,
                left => {
                    if let Some(plane) = left {
                        plane.stop().await?;
                    }
                    start_plane(&self.world).await?
                }
            };
            let mark = plane.mark();
            let mut stage = Stage::on(plane, self.world.with_logs(name)?, name).await?;
            let mut ended = caught(steps(&mut stage)).await;
            if ended.is_ok() && on == On::Shared {
                ended = stage.clear().await.context("it has passed, and cannot be cleared away");
            }
            if ended.is_err()
                && let Err(missing) = stage.plane.keep_evidence(mark, stage.world.logs()).await
            {
                println!("  not all evidence could be kept: {missing:#}");
            }
            ended?;
            let plane = stage.end();
            match on {
                On::Shared => Ok(Some(plane)),
                On::Own => plane.stop().await.map(|()| None),
            }
        })?;
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The plane's processes have to end inside the runtime that started them.
        let _inside = self.runtime.enter();
        self.plane = None;
    }
}
