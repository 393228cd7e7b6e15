//! URLs of releases: where upstream's releases are, and how messages show any URL.

/// Where upstream's releases are.
pub(crate) const DEFAULT_RELEASE_URL: &str = "https://github.com/etcd-io/etcd/releases/download";

/// A URL, or a text that was meant as one, for messages: without user name and password, and without the query, which
/// may be a signature.
pub(crate) fn without_credentials(url: &str) -> String {
    let parsed = reqwest::Url::parse(url).ok().filter(reqwest::Url::has_host);
    let Some(mut parsed) = parsed else {
        // All that precedes the last @ may be a password.
        return url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("…@{rest}"));
    };
    if parsed.username().is_empty() && parsed.password().is_none() && parsed.query().is_none() {
        return url.to_owned();
    }
    // These fail only for URLs without a host.
    let _ = parsed.set_username("");
    let _ = parsed.set_password(None);
    parsed.set_query(None);
    parsed.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("https://example.com/etcd/", "https://example.com/etcd/")]
    #[case(
        "https://user:secret@example.com:8443/etcd/v3.6.16/a.tar.gz",
        "https://example.com:8443/etcd/v3.6.16/a.tar.gz"
    )]
    #[case("https://token@example.com/etcd", "https://example.com/etcd")]
    #[case("http://user:p%40ss@[fd00::1]/etcd", "http://[fd00::1]/etcd")]
    #[case("https://example.com/a.tar.gz?X-Amz-Signature=secret", "https://example.com/a.tar.gz")]
    #[case("https://example.com/@scope/etcd", "https://example.com/@scope/etcd")]
    #[case::no_url("user:secret@example.com", "…@example.com")]
    #[case::no_url("example.com/etcd", "example.com/etcd")]
    fn urls_are_shown_without_credentials(#[case] url: &str, #[case] shown: &str) {
        assert_eq!(without_credentials(url), shown);
    }
}
