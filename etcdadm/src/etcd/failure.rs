//! Why etcd did not do what it was asked, as far as it changes what to do next.

use std::error::Error;
use std::fmt;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another learner has to be promoted first.
    TooManyLearners,
    /// etcd does not want a new member until all voters have been connected for five seconds.
    Unhealthy(String),
    /// The learner has not caught up yet.
    NotInSync,
    /// One side does not trust the other's certificate: trying again will not help.
    Untrusted(String),
    /// The request itself is refused, now and later.
    Refused(String),
    /// Anything that may pass: nobody there, no leader, a time-out. The request may have been carried out.
    Passing(String),
}

/// gRPC status codes that no repetition changes: invalid argument, permission denied, unimplemented, unauthenticated.
const FINAL_CODES: [i32; 4] = [3, 7, 12, 16];

impl Failure {
    /// Classifies what the client library reports.
    pub(super) fn of(error: &etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => {
                let chain = chain(status.message().to_owned(), status.source());
                Self::classify(status.code() as i32, status.message(), &chain)
            }
            other => Self::classify(0, "", &chain(other.to_string(), other.source())),
        }
    }

    /// `message` is etcd's own words, `chain` also what lies below a connection that failed.
    fn classify(code: i32, message: &str, chain: &str) -> Self {
        let says = |words: &str| message.contains(words);
        if says("too many learner members") {
            Self::TooManyLearners
        } else if says("in sync with leader") {
            Self::NotInSync
        } else if says("unhealthy cluster") || says("not enough started members") {
            Self::Unhealthy(message.to_owned())
        } else if chain.contains("invalid peer certificate") || chain.contains("received fatal alert") {
            Self::Untrusted(chain.to_owned())
        } else if FINAL_CODES.contains(&code) {
            Self::Refused(chain.to_owned())
        } else {
            Self::Passing(chain.to_owned())
        }
    }
}

/// An error's text and everything below it, without repetitions.
fn chain(mut text: String, mut source: Option<&(dyn Error + 'static)>) -> String {
    while let Some(below) = source {
        let below_text = below.to_string();
        if !text.contains(&below_text) {
            text = format!("{text}: {below_text}");
        }
        source = below.source();
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyLearners => f.write_str("another member is a learner still"),
            Self::NotInSync => f.write_str("it has not caught up with the leader"),
            Self::Unhealthy(why) => write!(f, "its voters have not all been connected for five seconds ({why})"),
            Self::Untrusted(why) if ["Expired", "NotValidYet"].iter().any(|word| why.contains(word)) => {
                write!(
                    f,
                    "a certificate is not valid at this time ({why}); compare the clocks of this machine and the members"
                )
            }
            Self::Untrusted(why) => write!(
                f,
                "no trust between this machine and the cluster ({why}); ca.crt and ca.key must be those that the \
                 cluster's members have, and the clocks must agree"
            ),
            Self::Refused(why) | Self::Passing(why) => f.write_str(why),
        }
    }
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(9, "etcdserver: too many learner members in cluster", Failure::TooManyLearners)]
    #[case(9, "etcdserver: can only promote a learner member which is in sync with leader", Failure::NotInSync)]
    #[case(14, "etcdserver: unhealthy cluster", Failure::Unhealthy("etcdserver: unhealthy cluster".into()))]
    #[case(14, "etcdserver: no leader", Failure::Passing("etcdserver: no leader".into()))]
    #[case(9, "etcdserver: rpc not supported for learner", Failure::Passing("etcdserver: rpc not supported for learner".into()))]
    #[case(3, "etcdserver: given member URLs are invalid", Failure::Refused("etcdserver: given member URLs are invalid".into()))]
    fn etcds_words_decide(#[case] code: i32, #[case] message: &str, #[case] expected: Failure) {
        assert_eq!(Failure::classify(code, message, message), expected);
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_final() {
        let text = "transport error: client error (Connect): invalid peer certificate: UnknownIssuer";
        assert!(matches!(Failure::classify(14, "transport error", text), Failure::Untrusted(_)));
    }
}
