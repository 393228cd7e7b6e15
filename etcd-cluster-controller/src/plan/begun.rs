//! When the leftovers of a Machine that was never created are deleted: its EtcdadmConfig, and perhaps its
//! infrastructure machine. They are left if a manager was killed or refused before it created the Machine, and the spec
//! then changed. The deletion is not a step of the plan, because nothing waits for it.

use super::Plan;
use crate::observation::{Observation, Template};
use std::collections::BTreeSet;

/// The names whose leftovers are deleted now. The plan has to be steady: as long as a Machine is wanted, or may be
/// wanted soon, it is made from what was begun. The template has to be known, because it names the kind of the
/// infrastructure machine.
pub(crate) fn drops_begun(observation: &Observation, plan: &Plan) -> BTreeSet<String> {
    if *plan != Plan::Steady || !matches!(observation.template, Template::Found { .. }) {
        return BTreeSet::new();
    }
    observation.begun.iter().filter(|name| !observation.is_of_a_member(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, name};
    use crate::observation::Membership;
    use crate::plan::Step;
    use api::names;

    fn begun(replicas: i32) -> Story {
        let mut story = Story::with_voters(replicas, 3);
        story.observation.begun.insert(name(3));
        story
    }

    fn drops(story: &Story) -> bool {
        !drops_begun(&story.observation, &story.plan()).is_empty()
    }

    #[test]
    fn what_no_machine_is_made_from_is_dropped() {
        let mut story = begun(3);
        assert_eq!(story.plan(), Plan::Steady, "nothing waits for it");
        assert!(drops(&story));
        story.observation.begun.clear();
        assert!(!drops(&story));
        let mut story = begun(3);
        story.observation.template = Template::Unknown("nobody has answered".to_owned());
        assert!(!drops(&story), "the kind of the infrastructure is not known");
    }

    /// The configs look unused, because someone has removed the status that shows their use.
    #[test]
    fn what_a_member_was_made_from_stays() {
        let mut story = begun(3);
        story.observation.begun.extend([name(0), name(1), name(2)]);
        let dropped = |story: &Story| drops_begun(&story.observation, &Plan::Steady);
        assert_eq!(dropped(&story), BTreeSet::from([name(3)]), "etcd has the others");
        story.observation.membership = Membership::NotAsked;
        assert_eq!(dropped(&story), BTreeSet::from([name(3)]), "the status has them too");
        story.etcd().status = None;
        assert_eq!(dropped(&story).len(), 4);
    }

    #[test]
    fn what_a_machine_may_be_made_from_stays() {
        let story = begun(5);
        assert!(matches!(story.plan(), Plan::Do(Step::CreateMachine { .. })), "{:?}", story.plan());
        assert!(!drops(&story), "it is wanted");
        let mut story = begun(3);
        story.failing(0, "closed");
        assert!(!drops(&story), "somebody may have to be replaced: {:?}", story.plan());
        let mut story = begun(3);
        story.delete(0);
        assert!(!drops(&story), "another one comes: {:?}", story.plan());
    }

    #[test]
    fn nothing_is_dropped_where_nothing_may_be_changed() {
        let mut story = begun(3);
        story.annotate(names::PAUSED_ANNOTATION, "");
        assert!(!drops(&story));
        let mut story = begun(3);
        story.cluster().paused_by = Some("spec.paused".to_owned());
        assert!(!drops(&story));
    }
}
