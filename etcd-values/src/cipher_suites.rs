//! TLS 1.2 cipher suites: which ones etcd accepts, and which lists keep it from starting.

use crate::Invalid;

const NAME: &str = "cipher-suites";

/// Go's names of the suites that etcd accepts. The insecure ones are included, because lists in use elsewhere have
/// them.
const ACCEPTED: [&str; 26] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

/// HTTP/2 needs one of these. Without one, etcd exits at its start (etcd#10652).
pub const HTTP2_CIPHER_SUITES: [&str; 2] =
    ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];

/// Checks a list of cipher suites. An empty list means Go's own choice.
///
/// # Errors
/// Names the suite that etcd does not accept, or the one that is missing.
pub fn check_cipher_suites<S: AsRef<str>>(suites: &[S]) -> Result<(), Invalid> {
    if let Some(unknown) = suites.iter().map(AsRef::as_ref).find(|suite| !ACCEPTED.contains(suite)) {
        let why = format!("etcd does not accept {unknown:?}; it accepts {}", ACCEPTED.join(", "));
        return Err(Invalid::new(NAME, why));
    }
    if !suites.is_empty() && !suites.iter().any(|suite| HTTP2_CIPHER_SUITES.contains(&suite.as_ref())) {
        let why = format!("HTTP/2 needs one of {}; etcd does not start without", HTTP2_CIPHER_SUITES.join(", "));
        return Err(Invalid::new(NAME, why));
    }
    Ok(())
}

/// The list with the ECDSA form of its RSA suites added, if it has no ECDSA suite.
///
/// Members' certificates have ECDSA keys: with RSA suites alone, no client of TLS 1.2 could connect.
pub fn cipher_suites_with_ecdsa(suites: &[String]) -> Vec<String> {
    let mut all = suites.to_vec();
    if !suites.iter().any(|suite| suite.contains("_ECDSA_")) {
        let twins = suites.iter().map(|suite| suite.replace("_ECDHE_RSA_", "_ECDHE_ECDSA_"));
        all.extend(twins.filter(|twin| !suites.contains(twin) && ACCEPTED.contains(&twin.as_str())));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const RSA: &str = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    const ECDSA: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";

    #[rstest]
    #[case(&[])]
    #[case(&[RSA])]
    #[case(&["TLS_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", ECDSA])]
    fn lists_that_etcd_starts_with(#[case] suites: &[&str]) {
        assert_eq!(check_cipher_suites(suites), Ok(()));
    }

    #[rstest]
    #[case(&["TLS_FOO"], "TLS_FOO")]
    #[case(&["tls_ecdhe_rsa_with_aes_128_gcm_sha256"], "tls_ecdhe_rsa")]
    #[case(&["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"], ECDSA)]
    #[case(&["TLS_AES_128_GCM_SHA256"], ECDSA)]
    #[case(&["TLS_RSA_WITH_AES_128_GCM_SHA256"], ECDSA)]
    #[case(&[ECDSA, ""], "\"\"")]
    fn lists_that_keep_etcd_from_starting(#[case] suites: &[&str], #[case] named: &str) {
        let message = check_cipher_suites(suites).unwrap_err().to_string();
        assert!(message.starts_with("cipher-suites: ") && message.contains(named), "{message}");
    }

    #[test]
    fn a_list_for_rsa_only_gets_what_ecdsa_certificates_need() {
        let list = |suites: &[&str]| suites.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(cipher_suites_with_ecdsa(&list(&[RSA])), list(&[RSA, ECDSA]));
        assert_eq!(cipher_suites_with_ecdsa(&list(&["TLS_RSA_WITH_AES_128_CBC_SHA"])).len(), 1);
        for unchanged in [list(&[]), list(&[ECDSA]), list(&[RSA, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"])] {
            assert_eq!(cipher_suites_with_ecdsa(&unchanged), unchanged);
        }
    }
}
