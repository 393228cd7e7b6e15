//! When what was begun for a Machine is dropped: its config, and perhaps its infrastructure. A manager was killed or
//! refused before it had made the Machine, and then the spec was changed. It is not a step of the plan, as nothing waits
//! for it.

use super::Plan;
use crate::observation::Observation;

/// Whether it is dropped now. Only where nothing else is to be done: as long as a Machine is wanted, or may be in a
/// moment, it is made from what was begun.
pub(crate) fn drops_begun(observation: &Observation, plan: &Plan) -> bool {
    *plan == Plan::Steady && !observation.begun.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, name};
    use crate::plan::Step;
    use api::names;

    fn begun(replicas: i32) -> Story {
        let mut story = Story::with_voters(replicas, 3);
        story.observation.begun.insert(name(3));
        story
    }

    fn drops(story: &Story) -> bool {
        drops_begun(&story.observation, &story.plan())
    }

    #[test]
    fn what_no_machine_is_made_from_is_dropped() {
        let mut story = begun(3);
        assert_eq!(story.plan(), Plan::Steady, "nothing waits for it");
        assert!(drops(&story));
        story.observation.begun.clear();
        assert!(!drops(&story));
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
