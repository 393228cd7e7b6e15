//! Errors of controllers: I/O, objects that cannot be read, or bugs. Waiting is not an error, but a value of the plan.

use crate::kinds::KindError;
use std::time::Duration;

/// An error that occurred while a controller was reading or writing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("{doing}: {source}")]
    Api {
        /// What was being done, such as "creating Machine default/demo-etcd-0".
        doing: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// The served version of a kind could not be determined.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// Something that is needed is not known yet, such as a first list that has not arrived.
    #[error("{0}")]
    NotReady(String),
    /// The API server refuses a list, or does not keep what is written: waiting does not help.
    #[error("{0}")]
    Refused(String),
    /// An object cannot be read: somebody has to correct it.
    #[error("{0}")]
    Invalid(String),
    /// A machine of the infrastructure could not be read, made, started or removed.
    #[error("{0}")]
    Infrastructure(String),
    /// A reconcile was given up. It hung, most likely on a connection that died silently.
    #[error("gave up after {} s: the API server does not answer", .0.as_secs())]
    Timeout(Duration),
    /// Something that should be impossible: a bug.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Label for metrics: a word that does not depend on names or messages.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Api { source, .. } | Self::Kind(KindError::Api { source, .. }) if is_outage(source) => "not_ready",
            Self::Api { .. } if self.is_conflict() => "conflict",
            Self::Api { .. } | Self::Refused(_) => "api",
            Self::Kind(_) => "kind",
            Self::NotReady(_) => "not_ready",
            Self::Invalid(_) => "invalid",
            Self::Infrastructure(_) => "infrastructure",
            Self::Timeout(_) => "timeout",
            Self::Internal(_) => "internal",
        }
    }

    /// The object has changed since it was read, or exists already.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if code(source) == 409)
    }

    /// The object, kind or path does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { source, .. } if code(source) == 404)
    }

    /// The API server refused the content of an object (schema, CEL or a webhook).
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_invalid(source))
    }

    /// What failed and why, without the details that kube adds for debugging.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Self::Api { doing, source } => format!("{doing}: {}", answer(source)),
            other => other.to_string(),
        }
    }

    /// The refusal that a person can do something about, for a condition. If the API server does not answer, a
    /// condition could not be written either. If it is only slow with a first list, it has refused nothing.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Api { source, .. } if is_invalid(source) => Some(self.cause()),
            Self::Kind(KindError::Api { source, .. }) if is_invalid(source) => Some(self.to_string()),
            Self::Refused(message) => Some(message.clone()),
            _ => None,
        }
    }

    /// The same for the condition of an object whose reconcile has failed with this error.
    #[must_use]
    pub fn told_refusal(&self) -> Option<String> {
        self.refusal().map(|refusal| format!("{refusal}; this controller tries again with a back-off"))
    }
}

/// Result of a controller's I/O.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds to an error what was being done when a request failed.
pub trait ResultExt<T> {
    /// Wraps the error; `doing` is only called if there is one.
    ///
    /// # Errors
    /// The original error, with what was being done.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ResultExt<T> for kube::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Api { doing: doing(), source: Box::new(source) })
    }
}

/// The code of the API server's answer, or 0 if there is none.
#[must_use]
pub fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// The API server refused the content of an object (schema, CEL or a webhook).
#[must_use]
pub fn is_invalid(error: &kube::Error) -> bool {
    matches!(code(error), 400 | 403 | 422)
}

/// The API server's message, without the details that kube adds for debugging.
#[must_use]
pub fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// The API server did not answer, or is not able to serve.
fn is_outage(error: &kube::Error) -> bool {
    matches!(code(error), 429 | 500..) || matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(code: u16) -> Error {
        let status = Status { code, ..Status::default() };
        Err::<(), _>(kube::Error::Api(Box::new(status))).doing(|| "reading".to_owned()).unwrap_err()
    }

    #[test]
    fn metrics_tell_outages_from_conflicts_and_bugs() {
        let labels = [404, 409, 429, 503].map(|code| refused(code).label());
        assert_eq!(labels, ["api", "conflict", "not_ready", "not_ready"]);
        assert_eq!(Error::NotReady(String::new()).label(), "not_ready");
        assert_eq!(Error::Refused(String::new()).label(), "api");
        assert_eq!(Error::Invalid(String::new()).label(), "invalid");
        assert_eq!(Error::Infrastructure(String::new()).label(), "infrastructure");
        assert_eq!(Error::Timeout(Duration::from_secs(1)).label(), "timeout");
        assert_eq!(Error::Internal(String::new()).label(), "internal");
        assert!(refused(409).is_conflict() && refused(404).is_not_found() && refused(422).is_invalid());
    }

    #[test]
    fn what_the_api_server_refuses_is_said_and_an_outage_is_not() {
        let answered = |code: u16| {
            let status = Status { code, message: "secrets is forbidden".to_owned(), ..Status::default() };
            kube::Error::Api(Box::new(status))
        };
        let failed = |code: u16| {
            let doing = || "creating demo-apiserver-etcd-client".to_owned();
            Err::<(), _>(answered(code)).doing(doing).unwrap_err()
        };
        let looked_up = |code: u16| {
            let kind = "Other.example.org".to_owned();
            Error::Kind(KindError::Api { kind, source: Box::new(answered(code)) })
        };
        for code in [400, 403, 422] {
            let refusal = failed(code).refusal();
            assert_eq!(refusal.as_deref(), Some("creating demo-apiserver-etcd-client: secrets is forbidden"));
        }
        for code in [409, 429, 500, 503] {
            assert_eq!(failed(code).refusal(), None, "{code}");
        }
        let forbidden = looked_up(403).refusal();
        assert!(forbidden.is_some_and(|message| message.starts_with("looking up kind Other.example.org")));
        assert_eq!(looked_up(503).refusal(), None);
        let list = || "othercontrolplanes cannot be listed: forbidden".to_owned();
        assert_eq!(Error::Refused(list()).refusal(), Some(list()));
        let told = "othercontrolplanes cannot be listed: forbidden; this controller tries again with a back-off";
        assert_eq!(Error::Refused(list()).told_refusal().as_deref(), Some(told));
        assert_eq!(Error::NotReady("secrets are not listed yet".to_owned()).refusal(), None, "slow is not refused");
    }
}
