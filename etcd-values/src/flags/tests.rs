use super::*;
use rstest::rstest;

/// This version has every setting, in both spellings.
fn check_flags(flags: &[(&str, &str)]) -> Result<(), Invalid> {
    super::check_flags(flags, &EtcdVersion::new(3, 6, 16))
}

#[rstest]
#[case(&[])]
#[case(&[("quota-backend-bytes", "8589934592")])]
#[case(&[("heartbeat-interval", "200"), ("election-timeout", "2000")])]
#[case(&[("heartbeat-interval", "200")])]
#[case(&[("snapshot-count", "10000"), ("log-level", "debug"), ("experimental-compaction-batch-limit", "100")])]
#[case(&[("auto-compaction-mode", "revision"), ("auto-compaction-retention", "1000")])]
#[case(&[("auto-compaction-retention", "8")])]
#[case(&[("auto-compaction-mode", "periodic"), ("auto-compaction-retention", "1h30m")])]
#[case(&[("listen-metrics-urls", "http://0.0.0.0:2381,https://[::1]:2382,http://localhost:2383")])]
#[case(&[("experimental-initial-corrupt-check", "true"), ("experimental-corrupt-check-time", "12h")])]
#[case(&[("feature-gates", "InitialCorruptCheck=true,TxnModeWriteWithSharedBuffer=false")])]
#[case(&[("feature-gates", "LeaseCheckpoint=true,LeaseCheckpointPersist=true")])]
#[case(&[("experimental-enable-lease-checkpoint", "1"), ("experimental-enable-lease-checkpoint-persist", "True")])]
#[case(&[("experimental-enable-lease-checkpoint", "true"), ("experimental-enable-lease-checkpoint-persist", "true")])]
fn what_may_be_set(#[case] flags: &[(&str, &str)]) {
    assert_eq!(check_flags(flags), Ok(()));
}

#[rstest]
#[case("max-learners")]
#[case("experimental-max-learners")]
#[case("strict-reconfig-check")]
#[case("initial-cluster")]
#[case("initial-cluster-state")]
#[case("initial-cluster-token")]
#[case("initial-advertise-peer-urls")]
#[case("initial-election-tick-advance")]
#[case("force-new-cluster")]
#[case("unsafe-no-fsync")]
#[case("experimental-unsafe-no-fsync")]
#[case("name")]
#[case("data-dir")]
#[case("wal-dir")]
#[case("config-file")]
#[case("discovery")]
#[case("discovery-srv")]
#[case("listen-client-urls")]
#[case("listen-peer-urls")]
#[case("listen-client-http-urls")]
#[case("advertise-client-urls")]
#[case("client-cert-auth")]
#[case("client-crl-file")]
#[case("peer-cert-file")]
#[case("peer-skip-client-san-verification")]
#[case("experimental-peer-skip-client-san-verification")]
#[case("cert-file")]
#[case("key-file")]
#[case("trusted-ca-file")]
#[case("auto-tls")]
#[case("tls-min-version")]
#[case("cipher-suites")]
#[case("auth-token")]
#[case("socket-reuse-port")]
#[case("enable-v2")]
#[case("enable-grpc-gateway")]
#[case("experimental-enable-grpc-gateway")]
fn what_decides_membership_identity_durability_trust_or_health_is_refused(#[case] name: &str) {
    let invalid = check_flags(&[(name, "1")]).unwrap_err();
    assert_eq!(invalid.name, name);
    assert!(invalid.why.starts_with("it cannot be set here: "), "{invalid}");
}

#[rstest]
#[case(&[("snapshot-counts", "10000")], "snapshot-counts", "snapshot-count,")]
#[case(&[("initial-corrupt-check", "true")], "initial-corrupt-check", "feature-gates with the value InitialCorruptCheck=true")]
#[case(&[("experimental-log-level", "debug")], "experimental-log-level", "known are")]
#[case(&[("corrupt-check-time", "1h"), ("experimental-corrupt-check-time", "1h")], "experimental-corrupt-check-time", "twice")]
#[case(&[("feature-gates", "SetMemberLocalAddr=true")], "feature-gates", "possible are CompactHashCheck,")]
#[case(&[("feature-gates", "InitialCorruptCheck")], "feature-gates", "FEATURE=true")]
#[case(&[("feature-gates", "InitialCorruptCheck=true,")], "feature-gates", "FEATURE=true")]
#[case(&[("experimental-initial-corrupt-check", "true"), ("feature-gates", "CompactHashCheck=true")], "experimental-initial-corrupt-check", "write the feature there")]
#[case(&[("feature-gates", "LeaseCheckpointPersist=true")], "feature-gates", "switch both on")]
#[case(&[("experimental-enable-lease-checkpoint-persist", "T")], "experimental-enable-lease-checkpoint-persist", "switch both on")]
#[case(&[("experimental-enable-lease-checkpoint-persist", "true")], "experimental-enable-lease-checkpoint-persist", "switch both on")]
#[case(&[("--snapshot-count", "10000")], "--snapshot-count", "leading dashes")]
#[case(&[("experimental-quota-backend-bytes", "99999999")], "experimental-quota-backend-bytes", "experimental-")]
#[case(&[("snapshot-count", "1000"), ("snapshot-count", "1000")], "snapshot-count", "twice")]
#[case(&[("quota-backend-bytes", "-1")], "quota-backend-bytes", "bytes from 16777216")]
#[case(&[("quota-backend-bytes", "0")], "quota-backend-bytes", "bytes from")]
#[case(&[("quota-backend-bytes", "8Gi")], "quota-backend-bytes", "bytes from")]
#[case(&[("snapshot-count", "0")], "snapshot-count", "entries from 100")]
#[case(&[("heartbeat-interval", "+100")], "heartbeat-interval", "milliseconds")]
#[case(&[("heartbeat-interval", "300")], "heartbeat-interval", "five times")]
#[case(&[("election-timeout", "400")], "election-timeout", "five times")]
#[case(&[("election-timeout", "50001")], "election-timeout", "to 50000")]
#[case(&[("auto-compaction-mode", "hourly")], "auto-compaction-mode", "periodic or revision")]
#[case(&[("auto-compaction-mode", "revision"), ("auto-compaction-retention", "1h")], "auto-compaction-retention", "revisions")]
#[case(&[("auto-compaction-retention", "1d")], "auto-compaction-retention", "1h30m")]
#[case(&[("auto-compaction-retention", "-1h")], "auto-compaction-retention", "1h30m")]
#[case(&[("listen-metrics-urls", "http://0.0.0.0:2379")], "listen-metrics-urls", "taken")]
#[case(&[("listen-metrics-urls", "http://etcd.example.com:2381")], "listen-metrics-urls", "address to listen on")]
#[case(&[("listen-metrics-urls", "0.0.0.0:2381")], "listen-metrics-urls", "http://0.0.0.0:2381")]
#[case(&[("listen-metrics-urls", "http://0.0.0.0:2381,")], "listen-metrics-urls", "http or https")]
#[case(&[("listen-metrics-urls", "http://::1:2381")], "listen-metrics-urls", "address to listen on")]
#[case(&[("listen-metrics-urls", "http://[::1]:0")], "listen-metrics-urls", "not a port")]
#[case(&[("log-level", "de bug")], "log-level", "without spaces")]
#[case(&[("log-level", "debug\nETCD_NAME=x")], "log-level", "without spaces")]
#[case(&[("log-level", "")], "log-level", "cannot be used")]
#[case(&[("log-level", "$HOME")], "log-level", "cannot be used")]
fn what_is_wrong_is_named(#[case] flags: &[(&str, &str)], #[case] name: &str, #[case] why: &str) {
    let invalid = check_flags(flags).unwrap_err();
    assert_eq!(invalid.name, name);
    assert!(invalid.why.contains(why), "{invalid}");
}

#[test]
fn flags_become_environment_variables() {
    assert_eq!(environment_name("quota-backend-bytes"), "ETCD_QUOTA_BACKEND_BYTES");
}

#[test]
fn nothing_is_both_allowed_and_a_refused_name() {
    for name in user_flags() {
        assert!(REFUSED.iter().all(|(_, starts)| !starts.contains(&name.as_str())), "{name}");
    }
}

#[rstest]
#[case("log-format", "3.5.35", "leave it out before etcd 3.6")]
#[case("experimental-warning-unary-request-duration", "3.5.35", "leave it out before etcd 3.6")]
#[case("experimental-warning-unary-request-duration", "3.7.3", "write warning-unary-request-duration")]
#[case("corrupt-check-time", "3.5.35", "write experimental-corrupt-check-time")]
#[case("feature-gates", "3.5.35", "write the flag of the feature")]
#[case("experimental-corrupt-check-time", "3.7.3", "write corrupt-check-time")]
#[case("experimental-initial-corrupt-check", "3.7.3", "write feature-gates with the value InitialCorruptCheck=true")]
fn what_a_version_does_not_have_is_written_otherwise(#[case] name: &str, #[case] version: &str, #[case] instead: &str) {
    let why = flag_exists(name, &version.parse().unwrap()).unwrap_err();
    assert!(why.contains(&format!("etcd {version} does not have it")) && why.contains(instead), "{why}");
    assert_eq!(flag_exists(name, &"3.6.16".parse().unwrap()), Ok(()), "3.6 has both spellings");
}

#[rstest]
#[case(&[], false)]
#[case(&[("experimental-initial-corrupt-check", "true")], true)]
#[case(&[("experimental-initial-corrupt-check", "1")], true)]
#[case(&[("experimental-initial-corrupt-check", "0")], false)]
#[case(&[("feature-gates", "CompactHashCheck=true,InitialCorruptCheck=true")], true)]
#[case(&[("feature-gates", "InitialCorruptCheck=false,CompactHashCheck=true")], false)]
#[case(&[("experimental-corrupt-check-time", "12h")], false)]
fn knows_which_members_check_their_data_at_the_start(#[case] flags: &[(&str, &str)], #[case] expected: bool) {
    assert_eq!(checks_data_at_start(flags), expected);
}
