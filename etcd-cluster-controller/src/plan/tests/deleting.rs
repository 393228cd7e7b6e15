//! An EtcdCluster that is deleted.

use super::reason;
use crate::fixture::{Story, cluster, name};
use crate::observation::{Certificates, ClusterLink};
use crate::plan::{Plan, Step};
use api::conditions::reasons;
use api::names;
use controller_support::external::ClusterView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

#[test]
fn deletion_needs_nothing_of_etcd() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    story.observation.cluster = ClusterLink::None { message: String::new(), living: None };
    story.observation.certificates = Certificates::Unknown;
    story.unlisted();
    story.delete(0);
    let plan = story.plan();
    let Plan::Do(Step::DeleteMachines { delete, release, .. }) = &plan else { panic!("{plan:?}") };
    assert_eq!((delete, release), (&vec![name(1), name(2)], &vec![name(0)]), "one waits for our hook");
    for index in 0..3 {
        story.delete(index);
        story.observation.machines.get_mut(&name(index)).unwrap().annotations.clear();
    }
    assert_eq!(reason(&story.plan()), reasons::DELETING);
    story.observation.machines.clear();
    assert_eq!(story.plan(), Plan::Do(Step::RemoveFinalizer));
}

#[test]
fn a_running_etcd_is_deleted_only_with_a_persons_word() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    assert_eq!(reason(&story.plan()), reasons::DELETION_NOT_CONFIRMED);
    story.annotate(names::CONFIRM_DELETION_ANNOTATION, "another");
    assert_eq!(reason(&story.plan()), reasons::DELETION_NOT_CONFIRMED);
    let mut confirmed = story.clone();
    confirmed.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
    assert!(matches!(confirmed.plan(), Plan::Do(Step::DeleteMachines { .. })));
    story.cluster().deleting = true;
    assert_eq!(reason(&story.plan()), reasons::DELETING, "the Cluster hook says when nobody needs it any more");
    assert!(story.plan().hold().unwrap().message.contains("kubectl annotate -n default etcdclusters."));
    story.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
    assert!(matches!(story.plan(), Plan::Do(Step::DeleteMachines { .. })), "the Cluster goes");
    let mut fresh = Story::new(3);
    fresh.held_back(0);
    fresh.etcd().metadata.deletion_timestamp = Some(Time(fresh.observation.now));
    assert!(matches!(fresh.plan(), Plan::Do(Step::DeleteMachines { .. })), "there is nothing to lose");
}

#[test]
fn a_begun_etcd_whose_cluster_lost_hold_of_it_is_not_deleted_without_a_persons_word() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    // etcd is not read if its Cluster does not name it.
    story.observation.init_urls = None;
    let (message, living) = (String::new(), Some("demo".to_owned()));
    let links = [
        ClusterLink::None { message: message.clone(), living: living.clone() },
        ClusterLink::UsesAnother { message: message.clone(), living },
        ClusterLink::Several(vec![cluster(), ClusterView { deleting: true, ..cluster() }]),
    ];
    for link in links {
        story.observation.cluster = link;
        assert_eq!(reason(&story.plan()), reasons::DELETION_NOT_CONFIRMED);
        let mut confirmed = story.clone();
        confirmed.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
        assert!(matches!(confirmed.plan(), Plan::Do(Step::DeleteMachines { .. })));
    }
    story.observation.cluster = ClusterLink::Several(vec![ClusterView { deleting: true, ..cluster() }]);
    assert!(matches!(story.plan(), Plan::Do(Step::DeleteMachines { .. })), "the Clusters go");
    story.observation.cluster = ClusterLink::None { message, living: None };
    assert!(matches!(story.plan(), Plan::Do(Step::DeleteMachines { .. })), "there is no Cluster");
}
