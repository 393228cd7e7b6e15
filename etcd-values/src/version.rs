//! etcd versions, and what depends on them.

use std::fmt;
use std::str::FromStr;

use crate::Invalid;

/// The etcd version of members if the user names none.
pub const DEFAULT_ETCD_VERSION: &str = "3.6.16";

/// A released or pre-released etcd version, ordered by the rules of semantic versioning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtcdVersion(semver::Version);

impl EtcdVersion {
    /// The first version with which a cluster may promote learners; see [`promotes_learners`](Self::promotes_learners).
    pub const FIRST_TO_PROMOTE: Self = Self::new(3, 5, 20);

    /// The version `major.minor.patch`, without a pre-release.
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(semver::Version::new(major, minor, patch))
    }

    /// First number.
    pub const fn major(&self) -> u64 {
        self.0.major
    }

    /// Second number.
    pub const fn minor(&self) -> u64 {
        self.0.minor
    }

    /// Third number.
    pub const fn patch(&self) -> u64 {
        self.0.patch
    }

    /// What follows the `-`; empty for a release.
    pub fn pre_release(&self) -> &str {
        &self.0.pre
    }

    /// Whether this project supports it: 3.4 and every later 3.x, except 3.5.0 to 3.5.2. A member of these that is
    /// killed under load may come back with data that differs from the others' (etcd#13766, mended in 3.5.3).
    pub const fn is_supported(&self) -> bool {
        let loses_data = self.0.minor == 5 && self.0.patch < 3;
        self.0.major == 3 && self.0.minor >= 4 && !loses_data
    }

    /// Whether a cluster whose oldest member has this version may promote learners.
    ///
    /// Members of 3.5 before 3.5.20 lose a promotion in their v3 store (etcd#19557, #20793), and a later upgrade to 3.6
    /// then fails. With such members, new members join as voters. 3.4 has no such store, but can be upgraded only
    /// through 3.5.
    pub fn promotes_learners(&self) -> bool {
        *self >= Self::FIRST_TO_PROMOTE
    }

    /// Whether it has the setting `max-learners`. Earlier versions accept exactly one learner at a time.
    pub fn has_max_learners(&self) -> bool {
        (self.major(), self.minor()) >= (3, 6)
    }
}

impl FromStr for EtcdVersion {
    type Err = Invalid;

    /// Reads `3.6.16`, `v3.6.16` and `3.7.0-rc.1`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match semver::Version::parse(text.strip_prefix('v').unwrap_or(text)) {
            Ok(version) if version.build.is_empty() => Ok(Self(version)),
            _ => Err(Invalid::new(
                "version",
                format!("{text:?} is not an etcd version; write it like {DEFAULT_ETCD_VERSION}"),
            )),
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn version(text: &str) -> EtcdVersion {
        text.parse().unwrap()
    }

    #[rstest]
    #[case("3.6.16", "3.6.16")]
    #[case("v3.5.21", "3.5.21")]
    #[case("3.7.0-rc.1", "3.7.0-rc.1")]
    fn reads_versions(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(version(text).to_string(), shown);
    }

    #[rstest]
    #[case("")]
    #[case("3.6")]
    #[case("3.6.1.2")]
    #[case("latest")]
    #[case("3..1")]
    #[case("3.6.1-")]
    #[case("+3.6.1")]
    #[case("3.6.1+build")]
    #[case("3.6.1-a/b")]
    #[case("3.06.1")]
    fn refuses_what_is_not_a_version(#[case] text: &str) {
        let message = text.parse::<EtcdVersion>().unwrap_err().to_string();
        assert!(message.contains(DEFAULT_ETCD_VERSION), "{message} names no right version");
    }

    #[test]
    fn pre_releases_are_ordered_by_number() {
        let order = ["3.5.21", "3.6.0-alpha.0", "3.6.0-rc.2", "3.6.0-rc.10", "3.6.0", "3.6.10"].map(version);
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}");
    }

    #[rstest]
    #[case("3.4.23", false, false)]
    #[case("3.5.19", false, false)]
    #[case("3.5.20-rc.1", false, false)]
    #[case("3.5.20", true, false)]
    #[case("3.6.0-rc.0", true, true)]
    #[case("3.7.3", true, true)]
    fn knows_what_learners_depend_on(#[case] text: &str, #[case] promotes: bool, #[case] max_learners: bool) {
        assert_eq!(version(text).promotes_learners(), promotes);
        assert_eq!(version(text).has_max_learners(), max_learners);
    }

    #[rstest]
    #[case("2.3.8", false)]
    #[case("3.3.27", false)]
    #[case("3.4.0", true)]
    #[case("3.5.0-rc.1", false)]
    #[case("3.5.2", false)]
    #[case("3.5.3", true)]
    #[case("3.6.0", true)]
    #[case("3.7.0-rc.1", true)]
    #[case("4.0.0", false)]
    fn knows_what_is_supported(#[case] text: &str, #[case] supported: bool) {
        assert_eq!(version(text).is_supported(), supported);
    }

    #[test]
    fn the_default_is_supported() {
        assert!(version(DEFAULT_ETCD_VERSION).is_supported());
    }
}
