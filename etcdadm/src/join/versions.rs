//! What the versions of the cluster's members allow the member on this machine to do.

use etcd_values::EtcdVersion;

use crate::compatibility::{self, Role};

/// What is known of the cluster's versions.
#[derive(Clone, Debug)]
pub struct Versions {
    /// The version that this machine runs, or will run.
    pub own: EtcdVersion,
    /// The name of each member in messages, and its version; `None` if the member did not report it.
    pub members: Vec<(String, Option<EtcdVersion>)>,
    /// The version that every member has at least, if it is known.
    pub floor: Option<EtcdVersion>,
}

/// Whether a step is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The step is allowed.
    Given,
    /// The step is not allowed while this is so.
    NotYet(String),
    /// The step is not allowed until a person changes something.
    Refused(String),
}

impl Versions {
    /// The role in which this machine may join.
    ///
    /// # Errors
    /// When its member would be incompatible with the others.
    pub fn role(&self) -> Result<Role, String> {
        let members: Vec<_> = self.members.iter().map(|(_, version)| version.clone()).collect();
        compatibility::role(&self.own, &members, self.floor.as_ref())
    }

    /// Whether a member that has been added, by this machine or by somebody else, may start without data.
    pub fn to_start(&self, id: u64, learner: bool) -> Leave {
        match (self.role(), learner) {
            (Err(why), _) => Leave::Refused(why),
            // It cannot be promoted, and takes a learner's place while it exists.
            (Ok(Role::Voter), true) => {
                Leave::Refused(format!("learner {id:x} is not started: it could not be promoted, {}", self.too_old(id)))
            }
            (Ok(Role::Unknown), true) => Leave::NotYet(self.undecided()),
            // A running learner changes nothing for the others, and its promotion is checked separately. A voter that
            // does not run reduces the cluster's fault tolerance.
            (Ok(_), _) => Leave::Given,
        }
    }

    /// Whether the learner may be promoted. The versions of all members count, including this learner and members that
    /// have never started: each member applies the promotion sooner or later.
    pub fn to_promote(&self, id: u64) -> Leave {
        match self.role() {
            Err(why) => Leave::Refused(format!("learner {id:x} is not promoted: {why}")),
            Ok(Role::Learner) => Leave::Given,
            Ok(Role::Voter) => Leave::Refused(format!("learner {id:x} is not promoted, {}", self.too_old(id))),
            Ok(Role::LearnerForNow | Role::Unknown) => Leave::NotYet(format!(
                "a promotion takes etcd {} or later on every member, and these do not tell their version: {}; start \
                 them, or remove them from the cluster",
                EtcdVersion::FIRST_TO_PROMOTE,
                self.silent().join(", ")
            )),
        }
    }

    /// Why it is not known yet whether this machine's member is compatible with the others.
    pub fn undecided(&self) -> String {
        if self.members.iter().all(|(_, version)| version.is_none()) {
            return "no member tells its version".to_owned();
        }
        format!(
            "these members do not report their versions: {}. Some of the versions that they may have do not work \
             together with etcd {}; start these members, or remove them from the cluster",
            self.silent().join(", "),
            self.own
        )
    }

    /// Which version rules a promotion out, why, and what to do about it.
    fn too_old(&self, id: u64) -> String {
        let known = self.members.iter().filter_map(|(member, version)| Some((member.as_str(), version.as_ref()?)));
        let oldest = known.chain([("this machine", &self.own)]).min_by_key(|(_, version)| *version);
        let (who, version) = oldest.unwrap_or(("this machine", &self.own));
        let first = EtcdVersion::FIRST_TO_PROMOTE;
        format!(
            "because {who} has etcd {version}: before {first}, members lose a promotion, and cannot be upgraded to 3.6 \
             after it. Remove the learner with `etcdctl member remove {id:x}`, then from this machine the data directory, \
             /etc/etcd/epoch and /var/lib/etcdadm/member.json, as far as they are there, and run this again: it joins as \
             a voter. Or first bring every member, and this machine, to etcd {first} or later"
        )
    }

    fn silent(&self) -> Vec<&str> {
        self.members.iter().filter(|(_, version)| version.is_none()).map(|(member, _)| member.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const ID: u64 = 0x44;

    fn versions(own: &str, members: &[&str], floor: Option<&str>) -> Versions {
        let version = |text: &str| text.parse::<EtcdVersion>().ok();
        Versions {
            own: version(own).unwrap(),
            members: (1..).zip(members).map(|(number, text)| (format!("m{number}"), version(text))).collect(),
            floor: floor.and_then(version),
        }
    }

    /// etcd#19557, etcd#20793. The last member of each list is the learner itself.
    #[rstest]
    #[case::an_old_voter("3.5.21", &["3.5.15", "3.5.21"], "m1 has etcd 3.5.15")]
    #[case::one_of_them("3.5.21", &["3.5.21", "3.5.19", "3.5.21"], "m2 has etcd 3.5.19")]
    #[case::the_learner_itself("3.5.19", &["3.5.21", "3.5.19"], "etcd 3.5.19")]
    #[case::the_program_was_replaced("3.5.21", &["3.5.21", "3.5.15"], "m2 has etcd 3.5.15")]
    #[case::silence_changes_nothing("3.5.21", &["?", "3.5.15", "3.5.21"], "m2 has etcd 3.5.15")]
    #[case::halfway_to_3_6("3.6.16", &["3.6.16", "3.5.15", "3.6.16"], "m2 has etcd 3.5.15")]
    fn no_learner_is_promoted_where_a_member_loses_the_promotion(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] named: &str,
    ) {
        for floor in [None, Some("3.5.0")] {
            let Leave::Refused(why) = versions(own, members, floor).to_promote(ID) else { panic!("{members:?}") };
            for named in [named, "learner 44 is not promoted", "etcdctl member remove 44", "member.json", "3.5.20"] {
                assert!(why.contains(named), "{why}");
            }
        }
    }

    #[rstest]
    #[case("3.5.21", &["3.5.20", "3.5.21"], None)]
    #[case("3.6.16", &["3.6.16", "3.5.35", "3.6.16"], None)]
    #[case("3.6.16", &["3.6.16", "?", "3.6.16"], Some("3.6.0"))]
    #[case("3.7.3", &["3.7.3", "?", "3.7.3"], None)]
    fn a_learner_is_promoted_where_every_member_keeps_it(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] floor: Option<&str>,
    ) {
        assert_eq!(versions(own, members, floor).to_promote(ID), Leave::Given);
    }

    #[rstest]
    #[case("3.5.21", &["3.5.21", "?", "3.5.21"], None)]
    #[case("3.6.16", &["3.6.16", "?", "3.6.16"], None)]
    #[case::halfway_from_3_5("3.6.16", &["3.6.16", "?", "3.6.16"], Some("3.5.0"))]
    #[case::nobody_tells("3.6.16", &["?", "?"], Some("3.6.0"))]
    fn a_promotion_waits_for_members_that_may_be_too_old(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] floor: Option<&str>,
    ) {
        let Leave::NotYet(why) = versions(own, members, floor).to_promote(ID) else { panic!("{members:?}") };
        assert!(why.contains("m2") && why.contains("remove them from the cluster"), "{why}");
    }

    #[rstest]
    #[case::too_old("3.5.21", &["3.5.15"], "learner 44 is not started")]
    #[case::this_machine_is_too_old("3.5.15", &["3.5.21"], "this machine has etcd 3.5.15")]
    #[case::behind("3.5.21", &["3.6.16"], "--version 3.6.16")]
    #[case::too_far_ahead("3.7.3", &["3.5.21"], "--version 3.5.21")]
    fn a_learner_that_could_not_be_promoted_is_not_started(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] named: &str,
    ) {
        let Leave::Refused(why) = versions(own, members, None).to_start(ID, true) else { panic!("{members:?}") };
        assert!(why.contains(named), "{why}");
    }

    #[rstest]
    #[case("3.5.21", &["3.5.21"], Leave::Given)]
    #[case::one_is_silent("3.5.21", &["3.5.21", "?"], Leave::Given)]
    #[case::nobody_tells("3.5.21", &["?"], Leave::NotYet("no member tells its version".to_owned()))]
    fn a_learner_starts_where_some_member_tells_a_version_that_fits(
        #[case] own: &str,
        #[case] members: &[&str],
        #[case] leave: Leave,
    ) {
        assert_eq!(versions(own, members, None).to_start(ID, true), leave);
    }

    /// Whether the learner is compatible depends on the oldest member, which may be the silent one.
    #[rstest]
    #[case::behind("3.5.35", None)]
    #[case::behind("3.5.35", Some("3.5.0"))]
    #[case::ahead("3.7.3", Some("3.5.0"))]
    fn a_learner_waits_for_a_member_that_may_rule_it_out_or_in(#[case] own: &str, #[case] floor: Option<&str>) {
        let Leave::NotYet(why) = versions(own, &["3.6.16", "?"], floor).to_start(ID, true) else { panic!("{own}") };
        assert!(why.contains(": m2. ") && why.contains(&format!("etcd {own}; start these members, or")), "{why}");
    }

    /// While it does not run, it reduces the cluster's fault tolerance.
    #[test]
    fn only_a_version_that_does_not_fit_keeps_a_voter_from_its_start() {
        for members in [&["3.5.15"][..], &["3.5.21", "?"], &["?"]] {
            assert_eq!(versions("3.5.21", members, None).to_start(ID, false), Leave::Given, "{members:?}");
        }
        assert!(matches!(versions("3.5.21", &["3.6.16"], None).to_start(ID, false), Leave::Refused(_)));
    }
}
