//! Whether a new member fits the cluster, and how it joins: decided by the versions of the members that are there.

use etcd_values::EtcdVersion;

/// As what a member joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// As a learner, to be promoted when it has caught up.
    Learner,
    /// As a voter: some member is too old for promotions.
    Voter,
    /// As a voter, but only because of members that did not answer: the others are new enough.
    VoterForSilence,
    /// No member told its version.
    Unknown,
}

/// Decides as what a member of version `own` joins, by the versions of the cluster's members. A member that did not answer
/// is `None`: it has at least the version `floor`, or where that is not known, the oldest one that goes with the others.
///
/// # Errors
/// When the member would not go with the others.
pub fn role(own: &EtcdVersion, members: &[Option<EtcdVersion>], floor: Option<&EtcdVersion>) -> Result<Role, String> {
    let known = || members.iter().flatten();
    let (Some(oldest), Some(newest)) = (known().min(), known().max()) else {
        return Ok(Role::Unknown);
    };
    let minor = |version: &EtcdVersion| (version.major(), version.minor());
    if minor(own) < minor(oldest) {
        return Err(format!(
            "the cluster runs etcd {oldest} or later, and does not take a member with etcd {own}; give --version {newest}"
        ));
    }
    if oldest.major() != own.major() || own.minor() > oldest.minor() + 1 {
        return Err(format!(
            "the cluster runs etcd {oldest}, and etcd {own} is more than one minor version ahead; give --version {newest}"
        ));
    }
    // Members of one cluster are at most one minor version apart.
    let apart = || EtcdVersion::new(newest.major(), newest.minor().saturating_sub(1), 0);
    let unknown = members.iter().any(Option::is_none).then(|| floor.cloned().unwrap_or_else(apart));
    Ok(if !oldest.min(own).promotes_learners() {
        Role::Voter
    } else if unknown.is_none_or(|unknown| unknown.promotes_learners()) {
        Role::Learner
    } else {
        Role::VoterForSilence
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
        assert_eq!(role(&version("3.6.16"), &members, Some(&version("3.6.0"))), Ok(Role::Learner));
        assert_eq!(role(&version("3.6.16"), &members, None), Ok(Role::VoterForSilence));
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
    #[case::one_is_silent("3.6.16", &["3.6.16", "?"], Role::VoterForSilence)]
    #[case::one_is_silent("3.5.21", &["3.5.21", "?"], Role::VoterForSilence)]
    #[case::silence_changes_nothing("3.5.21", &["3.5.15", "?"], Role::Voter)]
    #[case::all_are_silent("3.6.16", &["?", "?"], Role::Unknown)]
    fn the_oldest_member_decides(#[case] own: &str, #[case] members: &[&str], #[case] role: Role) {
        assert_eq!(decide(own, members), Ok(role));
    }

    #[rstest]
    #[case("3.5.21", &["3.6.16"], "--version 3.6.16")]
    #[case("3.7.3", &["3.5.21", "3.6.16"], "--version 3.6.16")]
    #[case("3.6.16", &["3.4.23"], "--version 3.4.23")]
    fn versions_that_do_not_go_together_are_refused_before_the_add(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] named: &str,
    ) {
        let message = decide(own, members).unwrap_err();
        assert!(message.contains(named), "{message}");
    }
}
