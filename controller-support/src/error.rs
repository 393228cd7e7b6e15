//! Errors of controllers: I/O or bugs. Waiting is not an error, it is a value of the plan.

use crate::kinds::KindError;

/// What went wrong while a controller was reading or writing.
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
    /// The served version of a kind could not be found out.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// Something that should be impossible.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Label for metrics: a word that does not depend on names or messages.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Api { source, .. } if is_conflict(source) => "conflict",
            Self::Api { .. } => "api",
            Self::Kind(_) => "kind",
            Self::Internal(_) => "internal",
        }
    }
}

/// Result of a controller's I/O.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was being done when a request failed.
pub trait ResultExt<T> {
    /// Wraps the error; `doing` is only called if there is one.
    ///
    /// # Errors
    /// The same as before, with what was being done.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ResultExt<T> for kube::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Api { doing: doing(), source: Box::new(source) })
    }
}

/// The object, kind or path does not exist.
#[must_use]
pub fn is_not_found(error: &kube::Error) -> bool {
    has_code(error, 404)
}

/// The object has changed since it was read, or exists already.
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    has_code(error, 409)
}

/// The API server refused the content of an object (schema, CEL or a webhook).
#[must_use]
pub fn is_invalid(error: &kube::Error) -> bool {
    has_code(error, 422) || has_code(error, 400) || has_code(error, 403)
}

/// What the API server said, without what kube adds for those who debug it.
#[must_use]
pub fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
