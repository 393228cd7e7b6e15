//! Whether a new member is compatible with the cluster, and in which role it joins. The versions of the existing
//! members decide.

use etcd_values::EtcdVersion;

/// The role in which a member joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// As a learner, to be promoted when it has caught up.
    Learner,
    /// As a voter: some member is too old for promotions.
    Voter,
    /// As a learner, whose promotion waits: members that did not answer may be too old for it.
    LearnerForNow,
    /// Not known yet: no member has reported its version, or a member that has not reported one may decide whether this
    /// member is compatible with the others.
    Unknown,
}

/// Decides the role of a new member of version `own` from the versions of the cluster's members. `None` stands for a
/// member that did not answer: it has at least the version `floor`, or if that is unknown, at least the oldest version
/// that is compatible with the others.
///
/// The oldest member decides, even if it does not answer: etcd does not raise the cluster's version without it. During
/// an upgrade from 3.5 to 3.6, etcd accepts a 3.5 member, and a 3.7 member would be two minor versions ahead.
///
/// # Errors
/// When the member is incompatible with the others, whatever versions the silent members have.
pub fn role(own: &EtcdVersion, members: &[Option<EtcdVersion>], floor: Option<&EtcdVersion>) -> Result<Role, String> {
    let known = || members.iter().flatten();
    let (Some(oldest), Some(newest)) = (known().min(), known().max()) else {
        return Ok(Role::Unknown);
    };
    let minor = |version: &EtcdVersion| (version.major(), version.minor());
    let is_ahead = |other: &EtcdVersion| other.major() != own.major() || own.minor() > other.minor() + 1;
    // Members of one cluster are at most one minor version apart.
    let apart = || EtcdVersion::new(newest.major(), newest.minor().saturating_sub(1), 0);
    let is_silent = members.iter().any(Option::is_none);
    let unknown = is_silent.then(|| floor.cloned().unwrap_or_else(apart));
    let is_behind = minor(own) < minor(oldest);
    if is_behind && unknown.as_ref().is_none_or(|unknown| minor(own) < minor(unknown)) {
        return Err(format!(
            "the cluster runs etcd {oldest} or later, and does not take a member with etcd {own}; give --version {newest}"
        ));
    }
    if is_ahead(oldest) {
        return Err(format!(
            "the cluster runs etcd {oldest}, and etcd {own} is more than one minor version ahead; give --version {newest}"
        ));
    }
    // Only the storage version counts here: without a floor, nothing suggests that a member is that old.
    let may_be_ahead = is_silent && floor.is_some_and(is_ahead);
    Ok(if is_behind || may_be_ahead {
        Role::Unknown
    } else if !oldest.min(own).promotes_learners() {
        Role::Voter
    } else if unknown.is_none_or(|unknown| unknown.promotes_learners()) {
        Role::Learner
    } else {
        Role::LearnerForNow
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn decide(own: &str, members: &[&str]) -> Result<Role, String> {
        let members: Vec<_> = members.iter().map(|text| text.parse().ok()).collect();
        role(&own.parse().unwrap(), &members, None)
    }

    #[test]
    fn a_silent_member_is_not_older_than_the_clusters_storage() {
        let version = |text: &str| text.parse::<EtcdVersion>().unwrap();
        let members = [Some(version("3.6.16")), None];
        let decide = |own: &str, floor: Option<&str>| role(&version(own), &members, floor.map(version).as_ref());
        assert_eq!(decide("3.6.16", Some("3.6.0")), Ok(Role::Learner));
        assert_eq!(decide("3.6.16", None), Ok(Role::LearnerForNow));
        // During an upgrade from 3.5 to 3.6, a 3.5 member is compatible and a 3.7 member is not. After it, the opposite
        // is true.
        assert_eq!(decide("3.5.35", Some("3.5.0")), Ok(Role::Unknown));
        assert_eq!(decide("3.7.3", Some("3.5.0")), Ok(Role::Unknown));
        assert_eq!(decide("3.7.3", Some("3.6.0")), Ok(Role::Learner));
        assert!(decide("3.5.35", Some("3.6.0")).is_err());
    }

    /// Promoting a 3.5.21 learner in a cluster with a member older than 3.5.20 corrupts that member's membership.
    #[rstest]
    #[case("3.6.16", &["3.6.16", "3.6.16"], Role::Learner)]
    #[case("3.5.21", &["3.5.21", "3.5.20"], Role::Learner)]
    #[case("3.5.21", &["3.5.21", "3.5.15"], Role::Voter)]
    #[case("3.6.16", &["3.5.15"], Role::Voter)]
    #[case("3.5.15", &["3.5.21"], Role::Voter)]
    #[case("3.7.3", &["3.6.16", "3.7.3"], Role::Learner)]
    #[case::one_is_silent("3.7.3", &["3.7.3", "?"], Role::Learner)]
    #[case::one_is_silent("3.6.16", &["3.6.16", "?"], Role::LearnerForNow)]
    #[case::one_is_silent("3.5.21", &["3.5.21", "?"], Role::LearnerForNow)]
    #[case::silence_changes_nothing("3.5.21", &["3.5.15", "?"], Role::Voter)]
    #[case::all_are_silent("3.6.16", &["?", "?"], Role::Unknown)]
    #[case::a_silent_one_may_make_room("3.5.35", &["3.6.16", "?"], Role::Unknown)]
    #[case::a_silent_one_makes_no_room("3.6.16", &["3.5.35", "?"], Role::LearnerForNow)]
    fn the_oldest_member_decides(#[case] own: &str, #[case] members: &[&str], #[case] role: Role) {
        assert_eq!(decide(own, members), Ok(role));
    }

    #[rstest]
    #[case("3.5.21", &["3.6.16"], "--version 3.6.16")]
    #[case("3.7.3", &["3.5.21", "3.6.16"], "--version 3.6.16")]
    #[case("3.6.16", &["3.4.23"], "--version 3.4.23")]
    #[case::whatever_the_silent_one_has("3.5.21", &["3.7.3", "?"], "--version 3.7.3")]
    #[case::whatever_the_silent_one_has("3.7.3", &["3.5.21", "?"], "--version 3.5.21")]
    fn versions_that_do_not_go_together_are_refused_before_the_add(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] named: &str,
    ) {
        let message = decide(own, members).unwrap_err();
        assert!(message.contains(named), "{message}");
    }
}
