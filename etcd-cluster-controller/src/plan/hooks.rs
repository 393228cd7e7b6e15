//! The pre-terminate hook: Cluster API keeps a deleted Machine running until the hook is gone. Machines get the hook
//! when they are created. Machines of an earlier release get it here.

use super::{Plan, Step, View};
use crate::observation::has_hook;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    // The hook is not put back on a Machine that is being deleted: a person may have removed it to let the Machine go.
    let bare = view.observation.live_machines().find(|machine| !has_hook(machine))?;
    Some(Plan::Do(Step::AddHook { machine: bare.name.clone() }))
}
