//! Machines as the API server has them now, and not as a watch shows them: a watch may lag behind.

use super::machines::machines;
use crate::context::Context;
use crate::observation::Observation;
use crate::observe::is_controlled_by;
use api::names;
use controller_support::{Result, ResultExt};
use kube::ResourceExt;
use kube::api::{ListParams, ObjectMeta};
use std::collections::BTreeSet;

/// The Machines that an EtcdCluster controls.
pub(super) struct Live(Vec<ObjectMeta>);

impl Live {
    /// Lists the Machines by the Cluster's label, which Cluster API restores. A user may have removed our label.
    pub(super) async fn of_cluster(context: &Context, observation: &Observation, cluster: &str) -> Result<Self> {
        Self::list(context, observation, &format!("{}={cluster}", names::CLUSTER_NAME_LABEL)).await
    }

    /// Lists those that match a label selector.
    pub(super) async fn list(context: &Context, observation: &Observation, selector: &str) -> Result<Self> {
        let list = machines(context, &observation.etcd).list_metadata(&ListParams::default().labels(selector)).await;
        let list = list.doing(|| "listing Machines".to_owned())?;
        let uid = observation.etcd.uid().unwrap_or_default();
        let ours = list.items.into_iter().filter(|machine| is_controlled_by(machine, &uid));
        Ok(Self(ours.map(|machine| machine.metadata).collect()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.0.iter().filter_map(|machine| machine.name.as_deref()).collect()
    }

    /// The one of this name.
    pub(super) fn get(&self, name: &str) -> Option<&ObjectMeta> {
        self.0.iter().find(|machine| machine.name.as_deref() == Some(name))
    }

    /// Whether these are the Machines that were observed: their UIDs are the same, because a name may have been used
    /// again, and no other ones are being deleted.
    pub(super) fn are_as_observed(&self, observation: &Observation) -> bool {
        let live = self.0.iter().map(|machine| (machine.uid.as_deref(), machine.deletion_timestamp.is_some()));
        let known = observation.machines.values().map(|machine| (Some(machine.uid.as_str()), machine.deleting));
        live.collect::<BTreeSet<_>>() == known.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, name};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn live(uids: &[&str]) -> Live {
        let machine = |(index, uid): (usize, &&str)| ObjectMeta {
            name: Some(name(index)),
            uid: Some((*uid).to_owned()),
            ..ObjectMeta::default()
        };
        Live(uids.iter().enumerate().map(machine).collect())
    }

    #[test]
    fn a_machine_that_the_watch_does_not_show_yet_is_noticed() {
        let mut story = Story::with_voters(3, 2);
        assert!(live(&["uid-0", "uid-1"]).are_as_observed(&story.observation));
        assert!(!live(&["uid-0", "uid-1", "uid-2"]).are_as_observed(&story.observation));
        assert!(!live(&["uid-0"]).are_as_observed(&story.observation));
        let again = live(&["uid-0", "made-again"]);
        assert_eq!(again.names(), story.observation.machines.keys().map(String::as_str).collect());
        assert!(!again.are_as_observed(&story.observation), "another one, of the same name");
        let mut leaving = live(&["uid-0", "uid-1"]);
        leaving.0[1].deletion_timestamp = Some(Time(story.observation.now));
        assert!(!leaving.are_as_observed(&story.observation), "the watch does not show yet that it goes");
        story.observation.machines.get_mut(&name(1)).unwrap().deleting = true;
        assert!(leaving.are_as_observed(&story.observation));
    }
}
