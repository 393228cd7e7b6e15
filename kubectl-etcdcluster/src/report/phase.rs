//! The state of an EtcdCluster in one word.

use super::Trouble;
use crate::snapshot::Snapshot;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{EtcdClusterStatus, Health, MemberRole, MemberStatus};
use api::names::PAUSED_ANNOTATION;
use kube::ResourceExt;
use serde::Serialize;
use std::fmt::{self, Display};

/// The state of an EtcdCluster in one word: the first phase in this order that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// Nothing has been reported yet.
    Unknown,
    /// It is being deleted.
    Deleting,
    /// It or its Cluster is paused.
    Paused,
    /// The first member has not come up yet.
    Starting,
    /// etcd cannot be written to.
    Unavailable,
    /// A member that has failed, or whose Machine is marked, is being replaced.
    Replacing,
    /// The spec names an etcd version that the members cannot change to.
    Refused,
    /// Machines that do not match the spec are being replaced.
    RollingOut,
    /// There are fewer members than wanted, and more are coming.
    ScalingUp,
    /// There are more Machines than wanted, and some are going.
    ScalingDown,
    /// A member is not known to be healthy, and is not a learner that is just joining.
    Degraded,
    /// Something else has to happen first, or the state is not known.
    NotReady,
    /// All is well.
    Ready,
}

impl Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

pub(super) fn phase(snapshot: &Snapshot, troubles: &[Trouble]) -> Phase {
    let status = snapshot.etcd.status.clone().unwrap_or_default();
    // This also applies if no controller runs that would report it.
    let is_paused = snapshot.etcd.annotations().contains_key(PAUSED_ANNOTATION)
        || snapshot.cluster.as_ref().is_some_and(|cluster| cluster.is_paused());
    let of = |type_: &str| troubles.iter().find(|trouble| trouble.type_ == type_);
    let is = |type_: &str, value: &str| of(type_).is_some_and(|trouble| trouble.status == value);
    let for_reason = |type_: &str, reason: &str| of(type_).is_some_and(|trouble| trouble.reason == reason);
    match () {
        () if status.conditions.is_empty() => Phase::Unknown,
        // No controller may run that would report it.
        () if of(c::DELETING).is_some() || snapshot.etcd.metadata.deletion_timestamp.is_some() => Phase::Deleting,
        () if is_paused || of(c::PAUSED).is_some() => Phase::Paused,
        () if !status.initialized => Phase::Starting,
        () if is(c::AVAILABLE, "False") => Phase::Unavailable,
        () if for_reason(c::REMEDIATING, reasons::REPLACING_MEMBER) => Phase::Replacing,
        () if for_reason(c::MACHINES_UP_TO_DATE, reasons::UNSUPPORTED_VERSION_CHANGE) => Phase::Refused,
        () if of(c::MACHINES_UP_TO_DATE).is_some()
            && !for_reason(c::MACHINES_UP_TO_DATE, reasons::MADE_FROM_AN_EARLIER_SPEC) =>
        {
            Phase::RollingOut
        }
        () if of(c::SCALING_UP).is_some() => Phase::ScalingUp,
        () if of(c::SCALING_DOWN).is_some() => Phase::ScalingDown,
        () if is(c::MEMBERS_HEALTHY, "Unknown") && only_joins(&status) => Phase::NotReady,
        () if of(c::MEMBERS_HEALTHY).is_some() => Phase::Degraded,
        // The rest of the status is the last known state.
        () if status.ready && !is(c::READY, "Unknown") => Phase::Ready,
        () => Phase::NotReady,
    }
}

/// Whether every member is healthy, except learners that are joining: of these, nobody knows yet how they are.
fn only_joins(status: &EtcdClusterStatus) -> bool {
    let joins = |member: &MemberStatus| {
        member.role == MemberRole::Learner && member.health == Health::Unknown && member.unhealthy_since.is_none()
    };
    !status.ready && status.members.iter().all(|member| member.health == Health::Healthy || joins(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

    #[test]
    fn the_first_that_holds() {
        for (snapshot, expected) in [
            (fixture::healthy(), Phase::Ready),
            (fixture::growing(), Phase::ScalingUp),
            (fixture::joining(), Phase::NotReady),
            (fixture::one_down(), Phase::Degraded),
            (fixture::rolling(), Phase::RollingOut),
            (fixture::paused(), Phase::Paused),
            (fixture::refused(), Phase::Refused),
        ] {
            let status = snapshot.etcd.status.clone().unwrap_or_default();
            assert_eq!(phase(&snapshot, &super::super::conditions::troubles(&status.conditions)), expected);
        }
    }

    #[test]
    fn what_was_known_last_is_not_said_to_be_well() {
        let snapshot = fixture::healthy();
        let mut conditions = snapshot.etcd.status.clone().unwrap().conditions;
        let of = |conditions: &[Condition]| phase(&snapshot, &super::super::conditions::troubles(conditions));
        assert_eq!(of(&conditions), Phase::Ready);
        let ready = conditions.iter_mut().find(|condition| condition.type_ == c::READY).unwrap();
        (ready.status, ready.reason) = ("Unknown".to_owned(), reasons::REFUSED.to_owned());
        assert_eq!(of(&conditions), Phase::NotReady);
        let ready = conditions.iter_mut().find(|condition| condition.type_ == c::READY).unwrap();
        ready.status = "True".to_owned();
        assert_eq!(of(&conditions), Phase::Ready, "what is refused keeps nobody from being well");
    }

    #[test]
    fn a_deletion_counts_where_no_controller_runs() {
        let mut snapshot = fixture::healthy();
        snapshot.etcd.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(snapshot.now));
        let conditions = snapshot.etcd.status.clone().unwrap().conditions;
        assert_eq!(phase(&snapshot, &super::super::conditions::troubles(&conditions)), Phase::Deleting);
    }

    #[test]
    fn a_pause_counts_where_no_controller_runs() {
        let mut snapshot = fixture::healthy();
        snapshot.etcd.annotations_mut().insert(PAUSED_ANNOTATION.to_owned(), String::new());
        assert_eq!(phase(&snapshot, &[]), Phase::Paused);
    }
}
