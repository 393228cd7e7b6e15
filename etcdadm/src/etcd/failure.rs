//! Why etcd did not carry out a request, as far as it matters for the next step.

use std::error::Error;
use std::{fmt, io};

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The cluster has as many learners as it takes: one of them has to be promoted first.
    TooManyLearners,
    /// etcd accepts no new member until all voters have been connected for five seconds.
    Unhealthy(String),
    /// The learner has not caught up yet.
    NotInSync,
    /// One side does not trust the other's certificate: trying again will not help.
    Untrusted {
        /// What TLS says.
        why: String,
        /// Whether the certificate is valid at another time.
        by_clock: bool,
    },
    /// etcd refuses the request itself, now and later.
    Refused(String),
    /// Anything that may pass: no server, no leader, a timeout. etcd may have carried out the request.
    Transient(String),
}

/// gRPC status codes that a retry does not change: invalid argument, permission denied, unimplemented, unauthenticated.
const FINAL_CODES: [i32; 4] = [3, 7, 12, 16];

impl Failure {
    /// Classifies an error of the client library.
    pub(super) fn of(error: &etcd_client::Error) -> Self {
        let (code, message, text, source) = match error {
            etcd_client::Error::GRpcStatus(status) => {
                (status.code() as i32, status.message(), status.message().to_owned(), status.source())
            }
            // The text of the library's own errors does not include their cause.
            etcd_client::Error::TransportError(below) => (0, "", error.to_string(), below.source()),
            other => (0, "", other.to_string(), None),
        };
        Self::classify(code, message, &chain(text, source), tls_error(source))
    }

    /// `message` is etcd's own text, `chain` also has the causes of a failed connection, and `tls` is the TLS error
    /// among them.
    fn classify(code: i32, message: &str, chain: &str, tls: Option<&rustls::Error>) -> Self {
        let says = |words: &str| message.contains(words);
        if says("too many learner members") {
            Self::TooManyLearners
        } else if says("in sync with leader") {
            Self::NotInSync
        } else if says("unhealthy cluster") || says("not enough started members") {
            Self::Unhealthy(message.to_owned())
        } else if let Some(by_clock) = distrust(chain, tls) {
            Self::Untrusted { why: chain.to_owned(), by_clock }
        } else if FINAL_CODES.contains(&code) {
            Self::Refused(chain.to_owned())
        } else {
            Self::Transient(chain.to_owned())
        }
    }
}

/// Whether one side refuses the other's certificate. If so, whether only its validity period is the reason.
fn distrust(chain: &str, tls: Option<&rustls::Error>) -> Option<bool> {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    if let Some(rustls::Error::InvalidCertificate(theirs)) = tls {
        return Some(matches!(theirs, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }));
    }
    // The server refuses our certificate after the handshake, where HTTP/2 keeps only the text of an error. A
    // certificate that is not valid yet causes the same alert.
    let (_, alert) = chain.split_once("received fatal alert: ")?;
    Some(alert.starts_with("CertificateExpired"))
}

/// The TLS error among the causes, if there is one.
fn tls_error<'a>(mut error: Option<&'a (dyn Error + 'static)>) -> Option<&'a rustls::Error> {
    while let Some(this) = error {
        if let Some(found) = this.downcast_ref() {
            return Some(found);
        }
        // An I/O error does not return the error that it wraps as its source, but the source of that error.
        let wrapped = this.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error = wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| this.source());
    }
    None
}

/// The text of an error and of all its causes, without repetitions.
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
            Self::TooManyLearners => f.write_str("it has as many learners as it takes"),
            Self::NotInSync => f.write_str("it has not caught up with the leader"),
            Self::Unhealthy(why) => write!(f, "its voters have not all been connected for five seconds ({why})"),
            Self::Untrusted { why, by_clock: true } => write!(
                f,
                "a certificate is not valid at this time ({why}); compare the clocks of this machine and the members"
            ),
            Self::Untrusted { why, by_clock: false } => write!(
                f,
                "no trust between this machine and the cluster ({why}); ca.crt and ca.key must be those that the \
                 cluster's members have, and the clocks must agree"
            ),
            Self::Refused(why) | Self::Transient(why) => f.write_str(why),
        }
    }
}

impl Error for Failure {}

#[cfg(test)]
pub(super) mod tests;
