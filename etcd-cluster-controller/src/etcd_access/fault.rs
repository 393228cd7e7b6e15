//! Who is at fault when a request fails.
//!
//! A member is at fault only if the network or the member itself says so. If this process or its host lacks something,
//! the fault is ours. If the member and this controller do not trust each other, one failure alone does not show who is
//! at fault: that depends on the other members.

use crate::observation::probe::{Distrust, MemberFault, OurFault};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError};
use std::error::Error as StdError;
use std::io;
use std::iter::successors;
use std::time::Duration;
use thiserror::Error;

/// Limit for resolving a name. It is below the limit for the connection, so that a silent name server does not look
/// like a silent member.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// A timer that fires later than this shows that this process did not get the processor.
const LATE: Duration = Duration::from_secs(1);

/// Why a request failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The member's fault, or that of the network to it.
    #[error(transparent)]
    Theirs(#[from] MemberFault),
    /// This controller's fault.
    #[error(transparent)]
    Ours(#[from] OurFault),
    /// The fault of either side.
    #[error(transparent)]
    Either(#[from] Distrust),
}

/// The fault if no answer came within `limit`, and this was noticed `by` too late. If the delay is long, this process
/// did not get the processor, and the answer may have come in time.
pub(super) fn late(limit: Duration, by: Duration) -> Fault {
    if by > LATE {
        let message = format!("a timer fired {:.1} s late; this process lacks processor time", by.as_secs_f64());
        return OurFault::Internal(message).into();
    }
    MemberFault::NoAnswerInTime { seconds: limit.as_secs() }.into()
}

/// The fault behind an error. `None`: no connection was made in time.
pub(super) fn classify(error: &reqwest::Error) -> Option<Fault> {
    if error.is_builder() {
        return Some(OurFault::Internal(root_cause(error)).into());
    }
    if let Some(fault) = causes(error).find_map(known) {
        return Some(fault);
    }
    if error.is_timeout() {
        return None;
    }
    Some(if error.is_decode() || error.is_body() || error.is_request() && !error.is_connect() {
        MemberFault::Closed(root_cause(error)).into()
    } else {
        OurFault::Internal(root_cause(error)).into()
    })
}

/// An error and its causes, from the outside in. [`io::Error`] skips the error that it wraps when it is asked for its
/// source.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        let error: &'a (dyn StdError + 'static) = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner as &'a (dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

/// The innermost cause, as the outer ones only repeat the URL.
fn root_cause(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn known(error: &(dyn StdError + 'static)) -> Option<Fault> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error);
    }
    if let Some(error) = error.downcast_ref::<ResolveError>() {
        // The resolver may have failed because there was no file descriptor left.
        let local = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).find_map(of_io);
        let ours = local.filter(|fault| matches!(fault, Fault::Ours(_)));
        return Some(ours.unwrap_or_else(|| OurFault::NameResolution(error.to_string()).into()));
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(of_tls(error));
    }
    let error = error.downcast_ref::<hyper::Error>()?;
    if error.is_parse() {
        return Some(MemberFault::Garbled(error.to_string()).into());
    }
    (error.is_incomplete_message() || error.is_closed()).then(|| MemberFault::Closed(error.to_string()).into())
}

fn of_io(error: &io::Error) -> Option<Fault> {
    if let Some(code) = error.raw_os_error() {
        let system = || Some(OurFault::System(error.to_string()).into());
        match Errno::from_raw_os_error(code) {
            Errno::MFILE | Errno::NFILE => return Some(OurFault::FileDescriptors.into()),
            // No memory, buffers or ports; a local firewall or sandbox; the node's own network.
            Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL | Errno::AGAIN => return system(),
            Errno::PERM | Errno::ACCESS | Errno::NETDOWN | Errno::AFNOSUPPORT => return system(),
            Errno::NETUNREACH => return Some(OurFault::NoRoute(error.to_string()).into()),
            Errno::HOSTUNREACH | Errno::HOSTDOWN => return Some(MemberFault::Unreachable.into()),
            _ => {}
        }
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(MemberFault::Refused.into()),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => Some(MemberFault::Closed(error.to_string()).into()),
        _ => None,
    }
}

fn of_tls(error: &rustls::Error) -> Fault {
    use AlertDescription as Alert;
    use CertificateError as Certificate;
    use rustls::Error as Tls;
    match error {
        Tls::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            // The alert for a client certificate from a CA with the same name and another key.
            | Alert::DecryptError
            | Alert::CertificateRequired),
        ) => Distrust::ClientCertificateRefused(format!("{alert:?}")).into(),
        Tls::General(_)
        | Tls::EncryptError
        | Tls::FailedToGetCurrentTime
        | Tls::FailedToGetRandomBytes
        | Tls::InconsistentKeys(_) => OurFault::Internal(error.to_string()).into(),
        Tls::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            MemberFault::Tls("its certificate is not signed by the CA of this etcd cluster".to_owned()).into()
        }
        Tls::InvalidCertificate(
            wrong @ (Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. }),
        ) => Distrust::NotValidNow(wrong.to_string()).into(),
        _ => MemberFault::Tls(error.to_string()).into(),
    }
}

/// Resolves names as the system does, with an error that can be told from others.
#[derive(Debug)]
pub(super) struct Resolver;

#[derive(Debug, Error)]
#[error("{name}: {source}")]
struct ResolveError {
    name: String,
    source: io::Error,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let looked_up = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((name.as_str(), 0))).await;
            let silent = || {
                let message = format!("the name server has not answered within {} s", RESOLVE_TIMEOUT.as_secs());
                Err(io::Error::other(message))
            };
            match looked_up.unwrap_or_else(|_| silent()).map(|found| found.collect::<Vec<_>>()) {
                Ok(addresses) => Ok(Box::new(addresses.into_iter()) as Addrs),
                Err(source) => Err(ResolveError { name, source }.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
