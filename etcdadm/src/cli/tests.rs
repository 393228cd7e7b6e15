use super::*;
use rstest::rstest;

fn line(args: &[&str]) -> Result<CommandLine, clap::Error> {
    parse(std::iter::once(&"etcdadm").chain(args).map(Into::into))
}

fn join(args: &[&str]) -> JoinArgs {
    match line(args).unwrap().command {
        Command::Join(join) => join,
        other => panic!("{other:?}"),
    }
}

fn init(args: &[&str]) -> MemberArgs {
    match line(args).unwrap().command {
        Command::Init(init) => init.member,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn the_line_that_cloud_init_runs_is_understood() {
    let args = init(&[
        "init",
        "--init-system",
        "systemd",
        "--version",
        "3.6.16",
        "--release-url",
        "https://mirror.example.com/etcd",
        "--install-dir",
        "/usr/local/bin",
        "--cipher-suites",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    ]);
    assert_eq!(args.version.unwrap().to_string(), "3.6.16");
    assert_eq!(args.cipher_suites.len(), 2);
    assert_eq!(args.timeout, Duration::from_secs(600));
}

#[test]
fn bootstrap_data_may_say_how_long_it_goes_on() {
    use clap::CommandFactory;
    for name in ["init", "join"] {
        let command = CommandLine::command();
        let subcommand = command.find_subcommand(name).unwrap();
        let timeout = subcommand.get_arguments().find(|argument| argument.get_id() == "timeout").unwrap();
        assert_eq!(timeout.get_env().and_then(|name| name.to_str()), Some("ETCDADM_TIMEOUT"), "{name}");
    }
}

#[test]
fn join_may_name_the_cluster() {
    use clap::CommandFactory;
    for (text, id) in [("cdf818194e3a8c32", 0xcdf8_1819_4e3a_8c32), ("0x1f", 0x1f)] {
        assert_eq!(join(&["join", "https://10.0.0.1:2379", "--cluster-id", text]).cluster_id, Some(id));
    }
    assert_eq!(join(&["join", "https://10.0.0.1:2379"]).cluster_id, None);
    let command = CommandLine::command();
    let argument = |argument: &&clap::Arg| argument.get_id() == "cluster_id";
    let cluster_id = command.find_subcommand("join").unwrap().get_arguments().find(argument).unwrap();
    assert_eq!(cluster_id.get_env().and_then(|name| name.to_str()), Some("ETCDADM_CLUSTER_ID"));
}

#[test]
fn init_may_have_a_deadline() {
    let Command::Init(init) = line(&["init", "--not-after", "2026-01-31T13:00:00+01:00"]).unwrap().command else {
        unreachable!()
    };
    assert_eq!(init.not_after.map(OffsetDateTime::unix_timestamp), Some(1_769_860_800));
}

#[rstest]
#[case(&["join", "https://10.0.0.1:2379,https://[fd00::1]:2379", "--name", "a"])]
#[case(&["join", "--name=a", "https://10.0.0.1:2379,https://[fd00::1]:2379"])]
#[case(&["join", "https://10.0.0.1:2379", "--name", "a", "https://[fd00::1]:2379"])]
#[case(&["-l", "debug", "join", "https://10.0.0.1:2379,https://[fd00::1]:2379", "--name", "b", "--name", "a"])]
fn flags_may_stand_anywhere_and_the_last_one_counts(#[case] args: &[&str]) {
    let join = join(args);
    let shown: Vec<String> = join.endpoints.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["https://10.0.0.1:2379", "https://[fd00::1]:2379"]);
    assert_eq!(join.member.name.as_deref(), Some("a"));
    assert!(join.retry);
}

#[test]
fn settings_of_etcd_may_be_repeated() {
    let args =
        init(&["init", "--etcd-flag", "snapshot-count=10000", "--etcd-flag=log-level=debug", "--max-learners=3"]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(args.etcd_flag, [pair("snapshot-count", "10000"), pair("log-level", "debug")]);
    assert_eq!(args.max_learners, Some(3));
}

#[rstest]
#[case(&["--retry"], true)]
#[case(&["--retry=true"], true)]
#[case(&["--retry=T"], true)]
#[case(&["--retry=false"], false)]
#[case(&["--retry=0"], false)]
fn booleans_are_gos(#[case] flag: &[&str], #[case] expected: bool) {
    let args = [&["join", "https://10.0.0.1:2379"], flag].concat();
    assert_eq!(join(&args).retry, expected);
}

#[rstest]
#[case("10s", 10_000)]
#[case("1m30s", 90_000)]
#[case("1.5h", 5_400_000)]
#[case("500ms", 500)]
fn durations_are_gos(#[case] text: &str, #[case] milliseconds: u64) {
    assert_eq!(init(&["init", "--timeout", text]).timeout, Duration::from_millis(milliseconds));
}

#[rstest]
#[case("error", LevelFilter::ERROR)]
#[case("WARNING", LevelFilter::WARN)]
#[case("debug", LevelFilter::DEBUG)]
fn log_levels_may_stand_behind_the_command(#[case] text: &str, #[case] level: LevelFilter) {
    assert_eq!(line(&["version", "-l", text]).unwrap().log_level, level);
    assert_eq!(line(&["version", &format!("--log-level={text}")]).unwrap().log_level, level);
}

/// A message names what is wrong, and what would be right.
#[rstest]
#[case(&["join"], "ENDPOINT")]
#[case(&["join", "10.0.0.1:2379"], "https://10.0.0.1:2379")]
#[case(&["join", "https://a,"], "https://10.0.0.1:2379")]
#[case(&["init", "https://10.0.0.1:2379"], "https://10.0.0.1:2379")]
#[case(&["init", "--retry=true"], "--retry")]
#[case(&["init", "--timeout", "10"], "1m30s")]
#[case(&["init", "--not-after", "tomorrow"], "2026-01-31T12:00:00Z")]
#[case(&["join", "https://a", "--not-after=2026-01-31T12:00:00Z"], "--not-after")]
#[case(&["init", "--timeout", "0s"], "1m30s")]
#[case(&["init", "--timeout=-5s"], "1m30s")]
#[case(&["join", "https://a", "--retry=maybe"], "true or false")]
#[case(&["join", "https://a", "--cluster-id=orders"], "hexadecimal")]
#[case(&["join", "https://a", "--cluster-id=+c1"], "hexadecimal")]
#[case(&["join", "https://a", "--cluster-id=0"], "hexadecimal")]
#[case(&["init", "--version", "latest"], "3.6.16")]
#[case(&["init", "--bind-address", "node-1"], "--bind-address")]
#[case(&["init", "--version", "3.3.27"], "3.6.16")]
#[case(&["init", "--version", "4.0.0"], "3.6.16")]
#[case(&["init", "--etcd-flag", "snapshot-count"], "snapshot-count=10000")]
#[case(&["init", "--max-learners", "0"], "1..=10")]
#[case(&["init", "--release-sha256", "abc"], "64 hexadecimal digits")]
#[case(&["init", "--init-system", "kubelet"], "use systemd")]
#[case(&["init", "-l", "loud"], "debug")]
#[case(&["init", "--snapshot", "/tmp/x"], "etcdutl snapshot restore")]
#[case(&["init", "--skip-hash-check"], "this etcdadm")]
#[case(&["init", "--disk-priorities=Nice=-10"], "drop-in")]
#[case(&["init", "phase", "install"], "as a whole")]
#[case(&["join", "phase", "membership", "https://10.0.0.1:2379"], "as a whole")]
#[case(&["reset"], "does not support `reset` yet")]
#[case(&["reset"], "/var/lib/etcdadm/member.json")]
#[case(&["info"], "etcdctl.sh")]
#[case(&["download"], "/var/cache/etcdadm")]
#[case(&["version", "-o", "yaml"], "json")]
fn what_is_not_understood_is_explained(#[case] args: &[&str], #[case] named: &str) {
    let refusal = line(args).unwrap_err();
    let message = refusal.to_string();
    assert!(message.contains(named), "{message}");
    assert_eq!(refusal.exit_code(), 2, "{message}");
}

#[test]
fn help_is_no_error() {
    assert_eq!(line(&["join", "--help"]).unwrap_err().exit_code(), 0);
}
