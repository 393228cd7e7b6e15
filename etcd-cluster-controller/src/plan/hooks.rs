//! The pre-terminate hook: Cluster API keeps a Machine that somebody deletes running until the hook is gone. Machines get it
//! at creation; those of an earlier release get it here.

use super::{Plan, Step, View};
use crate::observation::has_hook;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    // On a Machine that is being deleted it is not put back: somebody may have taken it away to let the Machine go.
    let bare = view.observation.live_machines().find(|machine| !has_hook(machine))?;
    Some(Plan::Do(Step::AddHook { machine: bare.name.clone() }))
}
