//! etcd versions, and what depends on them.

use std::fmt;
use std::str::FromStr;

/// etcd version that is installed when none is asked for.
pub const DEFAULT_ETCD_VERSION: &str = "3.6.16";

/// Version of this program, as `git describe` would name its release.
pub const PROGRAM_VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// A released or pre-released etcd version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdVersion {
    major: u32,
    minor: u32,
    patch: u32,
    pre: String,
}

impl EtcdVersion {
    /// Whether a new member may join as a learner and be promoted.
    ///
    /// etcd 3.5 before 3.5.20 loses the promotion in its v3 store, and a later upgrade to 3.6 then fails: such members
    /// join as voters. 3.4 has no such store, but is treated alike because it is only ever upgraded through 3.5.
    pub fn joins_as_learner(&self) -> bool {
        (self.major, self.minor, self.patch) >= (3, 5, 20)
    }
}

impl FromStr for EtcdVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is no etcd version; write it like {DEFAULT_ETCD_VERSION}");
        let bare = text.strip_prefix('v').unwrap_or(text);
        let (numbers, pre) = match bare.split_once('-') {
            Some((numbers, pre)) if is_pre_release(pre) => (numbers, pre),
            Some(_) => return Err(wrong()),
            None => (bare, ""),
        };
        let numbers = numbers.split('.').map(number).collect::<Option<Vec<u32>>>().ok_or_else(wrong)?;
        let [major, minor, patch] = numbers[..] else { return Err(wrong()) };
        if (major, minor) < (3, 4) || major > 3 {
            return Err(format!(
                "etcd {text} is not supported; use 3.4 or a later 3.x, for example {DEFAULT_ETCD_VERSION}"
            ));
        }
        Ok(Self { major, minor, patch, pre: pre.to_owned() })
    }
}

fn is_pre_release(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-')
}

/// A number without sign, which `u32::from_str` would accept.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if self.pre.is_empty() { Ok(()) } else { write!(f, "-{}", self.pre) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("3.6.16", "3.6.16")]
    #[case("v3.5.21", "3.5.21")]
    #[case("3.7.0-rc.1", "3.7.0-rc.1")]
    fn reads_versions(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(text.parse::<EtcdVersion>().unwrap().to_string(), shown);
    }

    #[rstest]
    #[case("")]
    #[case("3.6")]
    #[case("3.6.1.2")]
    #[case("latest")]
    #[case("3..1")]
    #[case("3.6.1-")]
    #[case("+3.6.1")]
    #[case("3.6.1-a/b")]
    #[case("2.3.8")]
    #[case("3.3.27")]
    #[case("4.0.0")]
    fn refuses_what_is_no_version(#[case] text: &str) {
        let message = text.parse::<EtcdVersion>().unwrap_err();
        assert!(message.contains(DEFAULT_ETCD_VERSION), "{message} names no right version");
    }

    #[rstest]
    #[case("3.4.23", false)]
    #[case("3.5.19", false)]
    #[case("3.5.20", true)]
    #[case("3.6.0", true)]
    #[case("3.7.3", true)]
    fn knows_which_join_as_learner(#[case] text: &str, #[case] learner: bool) {
        assert_eq!(text.parse::<EtcdVersion>().unwrap().joins_as_learner(), learner);
    }
}
