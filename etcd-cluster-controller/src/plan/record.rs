//! Records what a move or a restore of the management cluster must keep. It is written into annotations before anything
//! relies on it, and again if someone has removed it. The highest number in a name is first written by the step that
//! creates the Machine.

use super::{Plan, Step, View, upgrade};
use api::names;
use api::version::{DEFAULT_ETCD_VERSION, EtcdVersion};
use kube::ResourceExt;
use std::collections::BTreeMap;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let etcd = &view.observation.etcd;
    let recorded = etcd.annotations();
    let finalizer = !etcd.finalizers().iter().any(|finalizer| finalizer == names::ETCD_CLUSTER_FINALIZER);
    let mut annotations = BTreeMap::new();
    // The version of the spec is pinned too: removing it from the spec must not bring back an older version.
    let pinned = recorded.get(names::PINNED_VERSION_ANNOTATION).map(String::as_str);
    // An earlier release pinned nothing, so its members keep the version that they run.
    let runs = etcd.status.as_ref().map(|status| status.version.as_str()).filter(|version| !version.is_empty());
    let spec = etcd.spec.etcdadm_config_spec.etcd_version();
    let version = match pinned {
        Some(pinned) => in_force(view, spec, pinned),
        None => spec.or(runs).unwrap_or(DEFAULT_ETCD_VERSION).to_owned(),
    };
    if pinned != Some(&version) {
        annotations.insert(names::PINNED_VERSION_ANNOTATION, Some(version.clone()));
    }
    // Members with different limits drop each other's learners, and panic. Replacing or editing the EtcdCluster does
    // not change the limit of its members. A Machine without a member will have one with the limit that the Machine was
    // made with. A config without a limit changes no record, because someone may have removed the limit there.
    let members = view.roster.members().filter_map(|(_, seat)| seat.machine);
    let mut machines = members.chain(view.observation.machines.values());
    let running = machines.find_map(|machine| view.observation.learner_limits.get(&machine.name));
    let shown = recorded.get(names::MAX_LEARNERS_ANNOTATION);
    // An earlier release recorded nothing, and its members have 1.
    let made_with = || running.or(shown).map_or("1", String::as_str);
    let limit = if is_open(view) { max_learners(&version) } else { made_with() };
    if shown.is_none_or(|shown| shown != limit) {
        annotations.insert(names::MAX_LEARNERS_ANNOTATION, Some(limit.to_owned()));
    }
    if recorded.get(names::CLUSTER_ID_ANNOTATION).is_none_or(String::is_empty)
        // The ID of the first trusted member list, or the one in the status of an earlier release.
        && let Some(id) = view.observation.cluster_id()
    {
        annotations.insert(names::CLUSTER_ID_ANNOTATION, Some(id));
    }
    let number = view.observation.last_name_number().map(|number| number.to_string());
    if number.is_some() && recorded.get(names::LAST_NAME_NUMBER_ANNOTATION) != number.as_ref() {
        annotations.insert(names::LAST_NAME_NUMBER_ANNOTATION, number);
    }
    (finalizer || !annotations.is_empty()).then_some(Plan::Do(Step::Record { finalizer, annotations }))
}

/// The version that new members get. A version of the spec that is refused, as far as the versions of the members are
/// known, is not used: when it is taken back, the version before applies again. The recorded version may have become
/// illegal too, if the last member of an earlier minor version has failed or is leaving. Then new members get the
/// version that the others run.
fn in_force(view: &View<'_>, spec: Option<&str>, pinned: &str) -> String {
    match view.has_begun() {
        false => spec.unwrap_or(pinned).to_owned(),
        true if !upgrade::is_known(view) => pinned.to_owned(),
        true => {
            let spec = spec.filter(|_| upgrade::refusal(view).is_none());
            let open =
                spec.or_else(|| Some(pinned).filter(|pinned| upgrade::may_join(view, pinned))).map(str::to_owned);
            open.or_else(|| upgrade::newest(view)).unwrap_or_else(|| pinned.to_owned())
        }
    }
}

/// Whether the version that etcd begins with is still open: no machine can have started etcd.
fn is_open(view: &View<'_>) -> bool {
    let observation = view.observation;
    !view.has_begun() && !observation.machines.values().any(|machine| observation.has_data(machine))
}

/// The learner limit of an etcd that begins with this version: 3 if every member can have it from the start. etcd up to
/// 3.5 hard-codes 1.
fn max_learners(version: &str) -> &'static str {
    let has_limit = version.parse::<EtcdVersion>().is_ok_and(|version| version.has_max_learners());
    if has_limit { "3" } else { "1" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;

    fn recorded(story: &Story) -> Option<BTreeMap<&'static str, Option<String>>> {
        match story.plan() {
            Plan::Do(Step::Record { annotations, .. }) => Some(annotations),
            _ => None,
        }
    }

    fn bare(mut story: Story) -> Story {
        story.etcd().metadata.annotations = None;
        story
    }

    #[test]
    fn the_version_is_pinned_at_creation_and_follows_the_spec() {
        let mut story = bare(Story::new(3));
        let annotations = recorded(&story).unwrap();
        assert_eq!(annotations[names::PINNED_VERSION_ANNOTATION].as_deref(), Some(DEFAULT_ETCD_VERSION));
        story.annotate(names::PINNED_VERSION_ANNOTATION, "3.5.30");
        story.annotate(names::MAX_LEARNERS_ANNOTATION, "1");
        assert_eq!(recorded(&story), None, "a newer manager does not bring a newer etcd");
        story.etcd().spec.etcdadm_config_spec.version = Some("3.6.1".to_owned());
        assert_eq!(recorded(&story).unwrap()[names::PINNED_VERSION_ANNOTATION].as_deref(), Some("3.6.1"));
    }

    #[test]
    fn the_learner_limit_is_fixed_by_the_first_etcd() {
        let limit = |story: &Story| recorded(story).unwrap()[names::MAX_LEARNERS_ANNOTATION].clone().unwrap();
        let mut story = bare(Story::new(3));
        assert_eq!(limit(&story), "3");
        story.etcd().spec.etcdadm_config_spec.version = Some("3.5.30".to_owned());
        assert_eq!(limit(&story), "1");
        story.annotate(names::MAX_LEARNERS_ANNOTATION, "1");
        story.machine(0);
        story.etcd().spec.etcdadm_config_spec.version = Some("3.7.0".to_owned());
        assert!(!recorded(&story).unwrap().contains_key(names::MAX_LEARNERS_ANNOTATION), "never changed");
        let mut earlier = bare(Story::with_voters(3, 3));
        earlier.observation.learner_limits.clear();
        assert_eq!(limit(&earlier), "1", "members of an earlier release run with 1");
        let mut replaced = bare(Story::with_voters(3, 3));
        assert_eq!(limit(&replaced), "3", "somebody has replaced the object, and the members run as before");
        replaced.annotate(names::MAX_LEARNERS_ANNOTATION, "1");
        assert_eq!(limit(&replaced), "3", "somebody has edited it");
        replaced.annotate(names::MAX_LEARNERS_ANNOTATION, "3");
        assert!(
            recorded(&replaced).is_none_or(|annotations| !annotations.contains_key(names::MAX_LEARNERS_ANNOTATION))
        );
        let mut coming = Story::new(3);
        coming.machine(0);
        let coming = bare(coming);
        assert_eq!(limit(&coming), "3", "somebody has replaced the object before the first member has come");
        earlier.etcd().status.as_mut().unwrap().version = "3.5.21".to_owned();
        assert_eq!(recorded(&earlier).unwrap()[names::PINNED_VERSION_ANNOTATION].as_deref(), Some("3.5.21"));
    }

    /// etcd 3.5 does not start with another limit. A Machine with the earlier limit does not boot either: it is held
    /// back, and is made again.
    #[test]
    fn the_learner_limit_follows_the_version_until_a_machine_can_boot() {
        let made_again = |story: &Story| matches!(story.plan(), Plan::Do(Step::DeleteHeldBack { .. }));
        let limit = |story: &Story| recorded(story).and_then(|all| all.get(names::MAX_LEARNERS_ANNOTATION).cloned());
        let mut story = Story::new(3);
        story.held_back(0);
        for (version, follows) in [("3.5.30", "1"), ("3.6.16", "3"), ("3.5.30", "1")] {
            story.etcd().spec.etcdadm_config_spec.version = Some(version.to_owned());
            assert_eq!(limit(&story), Some(Some(follows.to_owned())), "{version}");
            story.annotate(names::MAX_LEARNERS_ANNOTATION, follows);
            story.annotate(names::PINNED_VERSION_ANNOTATION, version);
        }
        assert!(made_again(&story), "{:?}", story.plan());
        story.gone(0);
        story.held_back(0);
        assert!(!made_again(&story), "{:?}", story.plan());
        story.observation.learner_limits.insert("demo-etcd-0".to_owned(), "3".to_owned());
        assert!(made_again(&story), "{:?}", story.plan());
        story.observation.learner_limits.remove("demo-etcd-0");
        assert!(!made_again(&story), "one of an earlier release has 1: {:?}", story.plan());
        story.observation.learner_limits.insert("demo-etcd-0".to_owned(), "3".to_owned());
        story.bootstrap(0);
        assert_eq!(limit(&story), Some(Some("3".to_owned())), "it got its data in between, and boots with that");
    }

    #[test]
    fn the_highest_number_is_recorded_again_where_the_object_was_replaced() {
        let number =
            |story: &Story| recorded(story).and_then(|all| all.get(names::LAST_NAME_NUMBER_ANNOTATION).cloned());
        let mut story = Story::with_voters(5, 3);
        assert_eq!(number(&bare(story.clone())), None, "nothing was recorded; Machine and member have their numbers");
        story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "6");
        let status = story.settle();
        assert_eq!((number(&story), status.last_name_number), (None, Some(6)));
        assert_eq!(number(&bare(story.clone())), Some(Some("6".to_owned())), "somebody has replaced it");
        for edited in ["1", "none"] {
            story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, edited);
            assert_eq!(number(&story), Some(Some("6".to_owned())), "somebody has edited it to {edited}");
        }
        story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "8");
        assert_eq!((number(&story), story.settle().last_name_number), (None, Some(8)), "it goes on");
    }

    #[test]
    fn the_first_trusted_cluster_id_is_recorded_before_anything_relies_on_it() {
        let mut story = Story::new(3);
        story.machine(0);
        story.voter(0);
        story.etcd().metadata.annotations.get_or_insert_default().remove(names::CLUSTER_ID_ANNOTATION);
        let annotations = recorded(&story).unwrap();
        assert_eq!(annotations[names::CLUSTER_ID_ANNOTATION].as_deref(), Some("c"));
    }

    #[test]
    fn an_id_that_somebody_has_emptied_is_recorded_again_and_not_forgotten() {
        let mut story = Story::with_voters(3, 3);
        story.settle();
        story.annotate(names::CLUSTER_ID_ANNOTATION, "");
        assert_eq!(story.observation.recorded_cluster_id(), Some("c"), "the status has it still");
        assert_eq!(recorded(&story).unwrap()[names::CLUSTER_ID_ANNOTATION].as_deref(), Some("c"));
    }
}
