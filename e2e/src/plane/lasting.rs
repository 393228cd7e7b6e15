//! The plane of a scenario that has no bed. It outlives a scenario that fails, so that its objects can be kept.

use super::{Plane, PlaneOptions};
use crate::world::World;
use anyhow::Result;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The plane that a scenario has left. A process has at most one at a time.
static LEFT: Mutex<Option<Plane>> = Mutex::new(None);

/// A plane that keeps running when it is dropped, for the code that has run the scenario.
pub struct LastingPlane(Option<Plane>);

impl LastingPlane {
    /// As [`Plane::start`], for a [`Scenario::of_a_world`](crate::scenarios::Scenario::of_a_world).
    ///
    /// # Errors
    /// As there.
    pub async fn start(world: &World, options: PlaneOptions) -> Result<Self> {
        Ok(Self(Some(Plane::start(world, options).await?)))
    }

    /// Ends it, as [`Plane::stop`] does.
    ///
    /// # Errors
    /// As there.
    pub async fn stop(mut self) -> Result<()> {
        match self.0.take() {
            Some(plane) => plane.stop().await,
            None => Ok(()),
        }
    }
}

impl Deref for LastingPlane {
    type Target = Plane;

    fn deref(&self) -> &Plane {
        self.0.as_ref().expect("only what ends it takes it")
    }
}

impl DerefMut for LastingPlane {
    fn deref_mut(&mut self) -> &mut Plane {
        self.0.as_mut().expect("only what ends it takes it")
    }
}

impl Drop for LastingPlane {
    fn drop(&mut self) {
        if let Some(plane) = self.0.take() {
            *left() = Some(plane);
        }
    }
}

/// Takes the plane that a scenario has started and not ended. Dropping the plane ends it.
pub(crate) fn take_left() -> Option<Plane> {
    left().take()
}

fn left() -> MutexGuard<'static, Option<Plane>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}
