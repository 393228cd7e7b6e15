//! Whether a new member fits the cluster, and how it joins: decided by the versions of the members that are there.

use etcd_values::EtcdVersion;

/// Decides whether a member of version `own` joins as a learner, by the versions of the cluster's members. A member that
/// did not answer is `None`: it has at least the version `floor`, or where that is not known, the oldest one that goes
/// with the others.
///
/// # Errors
/// When the member would not go with the others.
pub fn joins_as_learner(
    own: &EtcdVersion,
    members: &[Option<EtcdVersion>],
    floor: Option<&EtcdVersion>,
) -> Result<bool, String> {
    let known = || members.iter().flatten();
    let (Some(oldest), Some(newest)) = (known().min(), known().max()) else {
        return Err("no member tells its version".to_owned());
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
    let oldest = unknown.as_ref().map_or(oldest, |unknown| unknown.min(oldest));
    Ok(oldest.min(own).promotes_learners())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn decide(own: &str, members: &[&str]) -> Result<bool, String> {
        let members: Vec<_> = members.iter().map(|text| text.parse().ok()).collect();
        joins_as_learner(&own.parse().unwrap(), &members, None)
    }

    #[test]
    fn a_silent_member_is_not_older_than_the_clusters_storage() {
        let version = |text: &str| text.parse::<EtcdVersion>().unwrap();
        let members = [Some(version("3.6.16")), None];
        assert_eq!(joins_as_learner(&version("3.6.16"), &members, Some(&version("3.6.0"))), Ok(true));
        assert_eq!(joins_as_learner(&version("3.6.16"), &members, None), Ok(false));
    }

    /// Promoting a 3.5.21 learner in a cluster with a member older than 3.5.20 corrupts that member's membership.
    #[rstest]
    #[case("3.6.16", &["3.6.16", "3.6.16"], true)]
    #[case("3.5.21", &["3.5.21", "3.5.20"], true)]
    #[case("3.5.21", &["3.5.21", "3.5.15"], false)]
    #[case("3.6.16", &["3.5.15"], false)]
    #[case("3.5.15", &["3.5.21"], false)]
    #[case("3.7.3", &["3.6.16", "3.7.3"], true)]
    #[case::one_is_silent("3.7.3", &["3.7.3", "?"], true)]
    #[case::one_is_silent("3.6.16", &["3.6.16", "?"], false)]
    #[case::one_is_silent("3.5.21", &["3.5.21", "?"], false)]
    fn the_oldest_member_decides(#[case] own: &str, #[case] members: &[&str], #[case] learner: bool) {
        assert_eq!(decide(own, members), Ok(learner));
    }

    #[rstest]
    #[case("3.5.21", &["3.6.16"], "--version 3.6.16")]
    #[case("3.7.3", &["3.5.21", "3.6.16"], "--version 3.6.16")]
    #[case("3.6.16", &["3.4.23"], "--version 3.4.23")]
    #[case("3.6.16", &["?"], "no member")]
    fn versions_that_do_not_go_together_are_refused_before_the_add(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] named: &str,
    ) {
        let message = decide(own, members).unwrap_err();
        assert!(message.contains(named), "{message}");
    }
}
