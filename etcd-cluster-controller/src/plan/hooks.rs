//! The pre-terminate hook: Cluster API keeps a Machine that somebody deletes running until the hook is gone. Machines get it
//! at creation; those of an earlier release get it here.

use super::{Plan, Step, View};
use api::names;
use controller_support::external::MachineView;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    // On a Machine that is being deleted it is not put back: somebody may have taken it away to let the Machine go.
    let bare = view.observation.live_machines().find(|machine| !has_hook(machine))?;
    Some(Plan::Do(Step::AddHook { machine: bare.name.clone() }))
}

/// Whether a Machine waits for us when it is deleted.
pub(crate) fn has_hook(machine: &MachineView) -> bool {
    machine.annotations.contains_key(names::PRE_TERMINATE_HOOK_ANNOTATION)
}
