//! etcd versions as users write them.

use std::fmt;
use std::str::FromStr;

/// etcd version that members get when none is asked for.
pub const DEFAULT_ETCD_VERSION: &str = "3.6.16";

/// A parsed etcd version. Ordered by major, minor, patch; a pre-release comes before its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
    /// What follows a `-`, empty for a release.
    pub pre: String,
}

/// The text is not a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVersion(pub String);

impl fmt::Display for InvalidVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an etcd version; write it like {DEFAULT_ETCD_VERSION}", self.0)
    }
}

impl std::error::Error for InvalidVersion {}

impl FromStr for EtcdVersion {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidVersion(text.to_owned());
        let bare = text.strip_prefix('v').unwrap_or(text);
        let (numbers, pre) = bare.split_once('-').unwrap_or((bare, ""));
        if bare.ends_with('-') {
            return Err(invalid());
        }
        let mut parts = numbers.split('.').map(|part| {
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) { None } else { part.parse::<u32>().ok() }
        });
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => {
                Ok(Self { major, minor, patch, pre: pre.to_owned() })
            }
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if self.pre.is_empty() { Ok(()) } else { write!(f, "-{}", self.pre) }
    }
}

impl Ord for EtcdVersion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| self.pre.is_empty().cmp(&other.pre.is_empty()))
            .then_with(|| compare_pre_releases(&self.pre, &other.pre))
    }
}

/// As semantic versioning orders them: identifiers between dots from left to right, numbers by value and before words.
fn compare_pre_releases(a: &str, b: &str) -> std::cmp::Ordering {
    let identifiers = |text: &str| {
        let one = |part: &str| match part.parse::<u64>() {
            Ok(number) => (0, number, String::new()),
            Err(_) => (1, 0, part.to_owned()),
        };
        text.split('.').map(one).collect::<Vec<_>>()
    };
    identifiers(a).cmp(&identifiers(b))
}

impl PartialOrd for EtcdVersion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_users_write() {
        assert_eq!("v3.6.16".parse::<EtcdVersion>().unwrap().to_string(), "3.6.16");
        assert_eq!("3.7.0-rc.1".parse::<EtcdVersion>().unwrap().to_string(), "3.7.0-rc.1");
        for bad in ["", "3.6", "3.6.x", "3.6.1.2", "latest", "3..1", "3.6.1-", "+3.6.1"] {
            assert!(bad.parse::<EtcdVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pre_release_comes_before_its_release() {
        let order: Vec<EtcdVersion> =
            ["3.5.21", "3.6.0-alpha", "3.6.0-rc.1", "3.6.0-rc.2", "3.6.0-rc.10", "3.6.0", "3.6.10"]
                .iter()
                .map(|v| v.parse().unwrap())
                .collect();
        assert!(order.is_sorted());
        assert!(order.windows(2).all(|w| w[0] < w[1]));
    }
}
