//! Who may read the metrics, or set what is logged. The API server decides: a TokenReview says which user a token
//! belongs to, and a SubjectAccessReview says whether that user may make this request.

use controller_support::TtlCache;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// What a caller requests, as RBAC rules name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    /// The method, in lower case.
    pub(super) verb: &'static str,
    /// The path.
    pub(super) path: &'static str,
}

/// How long an answer about a token that the API server knows is cached.
const KNOWN_TTL: Duration = Duration::from_secs(60);

/// How long to wait for the API server. Prometheus itself waits for 10 s by default.
const TIMEOUT: Duration = Duration::from_secs(8);

/// About how many callers the API server is asked at the same time. Anybody can send any number of invalid tokens.
const AT_ONCE: usize = 4;

/// The answer about a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The caller may do it.
    Allowed,
    /// The token belongs to no user.
    Unknown,
    /// The token belongs to this user, who may not do it.
    Denied(String),
    /// The API server could not be asked.
    Failed,
}

/// Asks the API server.
pub(super) struct Access {
    client: Client,
    /// By the hash of a token, because tokens are not kept. Invalid tokens are not cached, since there may be any
    /// number of them.
    known: TtlCache<([u8; 32], Asked), Answer>,
    asking: Semaphore,
}

impl Access {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: TtlCache::new(KNOWN_TTL), asking: Semaphore::new(AT_ONCE) }
    }

    /// Whether the owner of a token may do it.
    pub(super) async fn ask(&self, token: &str, asked_for: Asked) -> Answer {
        let key: ([u8; 32], Asked) = (Sha256::digest(token).into(), asked_for);
        if let Some(known) = self.known.get(&key) {
            return known;
        }
        let asked = async {
            // The semaphore is never closed.
            let _permit = self.asking.acquire().await;
            self.review(token, asked_for).await
        };
        match timeout(TIMEOUT, asked).await {
            Ok(Ok(answer)) => {
                if answer != Answer::Unknown {
                    self.known.insert(key, answer.clone());
                }
                answer
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the API server does not say what a caller may do");
                Answer::Failed
            }
            Err(_) => {
                tracing::warn!("the API server does not say in time what a caller may do");
                Answer::Failed
            }
        }
    }

    async fn review(&self, token: &str, asked: Asked) -> kube::Result<Answer> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let (Some(true), Some(user)) = (status.authenticated, status.user) else { return Ok(Answer::Unknown) };
        let name = user.username.clone().unwrap_or_default();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let status =
            reviews.create(&PostParams::default(), &access_review(user, asked)).await?.status.unwrap_or_default();
        Ok(if status.allowed { Answer::Allowed } else { Answer::Denied(name) })
    }
}

fn access_review(user: UserInfo, Asked { verb, path }: Asked) -> SubjectAccessReview {
    let wanted = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(wanted),
        ..SubjectAccessReviewSpec::default()
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}
