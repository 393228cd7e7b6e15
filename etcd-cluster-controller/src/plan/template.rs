//! The owner of the infrastructure template. It matters only when the Cluster is deleted, so everything else comes
//! first. No plan depends on it, because the template may belong to a provider whose objects we are not allowed to
//! change.

use super::{Plan, is_left_alone};
use crate::build;
use crate::observation::{ClusterLink, Observation, Template};
use kube::ResourceExt;

/// Whether the Cluster is to be made an owner of the template now, because nothing else is to be done.
pub(crate) fn owns_template(observation: &Observation, plan: &Plan) -> bool {
    let (ClusterLink::One(cluster), Template::Found { template, .. }) = (&observation.cluster, &observation.template)
    else {
        return false;
    };
    // If the Cluster is deleted, the template is to go with it, even if the Cluster is deleted before there was time to
    // make it an owner.
    let goes_alone = observation.etcd.metadata.deletion_timestamp.is_some() && !cluster.deleting;
    let beside = observation.etcd.spec.infrastructure_template.namespace.as_deref();
    matches!(plan, Plan::Steady | Plan::Wait(_))
        && !goes_alone
        && !is_left_alone(observation)
        // The template that was found is in the EtcdCluster's own namespace.
        && beside.is_none_or(|namespace| Some(namespace) == observation.etcd.namespace().as_deref())
        && build::template_owners(template, cluster).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use crate::plan::Step;
    use api::conditions::reasons;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use std::sync::Arc;

    fn without_owner(mut story: Story) -> Story {
        let Template::Found { template, .. } = &mut story.observation.template else { panic!("no template") };
        Arc::make_mut(template).metadata.owner_references = None;
        story
    }

    fn owns(story: &Story) -> bool {
        owns_template(&story.observation, &story.plan())
    }

    #[test]
    fn nothing_waits_for_the_owner_of_the_template() {
        let mut story = without_owner(Story::new(3));
        let plan = story.plan();
        assert!(matches!(plan, Plan::Do(Step::CreateMachine { .. })), "{plan:?}");
        assert!(!owns(&story), "the Machine comes first");
        story.held_back(0);
        assert!(owns(&story), "before the cluster is up: it may be deleted sooner");
        let story = without_owner(Story::with_voters(3, 3));
        assert_eq!(story.plan(), Plan::Steady);
        assert!(owns(&story));
        assert!(!owns(&Story::with_voters(3, 3)), "it has its owner");
    }

    #[test]
    fn a_cluster_that_goes_before_anything_else_was_done_takes_the_template_with_it() {
        let mut story = without_owner(Story::new(3));
        story.held_back(0);
        story.cluster().deleting = true;
        assert!(owns(&story), "{:?}", story.plan());
        story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
        assert!(owns_template(&story.observation, &super::super::wait(reasons::DELETING, "")));
        story.cluster().deleting = false;
        assert!(!owns_template(&story.observation, &super::super::wait(reasons::DELETING, "")), "etcd goes alone");
    }

    #[test]
    fn a_template_is_left_alone_where_nothing_may_be_changed() {
        let changed = |change: fn(&mut Story)| {
            let mut story = without_owner(Story::with_voters(3, 3));
            change(&mut story);
            owns(&story)
        };
        assert!(!changed(|story| story.cluster().paused_by = Some("spec.paused".to_owned())));
        assert!(!changed(|story| story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now))));
        assert!(!changed(|story| story.etcd().spec.infrastructure_template.namespace = Some("other".to_owned())));
        let blocked = super::super::block(reasons::REFUSED, "forbidden");
        assert!(!owns_template(&without_owner(Story::with_voters(3, 3)).observation, &blocked));
    }
}
