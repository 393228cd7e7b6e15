use super::*;
use rstest::rstest;

fn parse(arguments: &[&str]) -> Flags {
    Flags::from_arguments([&["manager"], arguments].concat()).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn refused(argument: &str) -> String {
    Flags::from_arguments(["manager", argument]).unwrap_err().to_string()
}

#[test]
fn any_subset_of_the_controllers_can_be_asked_for() {
    let flags = parse(&["--controllers", "cluster-hooks,etcd-cluster", "--leader-elect=false"]);
    assert_eq!(flags.controllers, [ControllerName::ClusterHooks, ControllerName::EtcdCluster]);
    assert!(!flags.leader_elect);
    let error = refused("--controllers=backup");
    assert!(error.contains("--controllers") && error.contains("etcdadm-bootstrap"), "{error}");
}

/// The flags of the kubeadm bootstrap manager of Cluster API 1.12 to 1.14, with the values that its manifest and
/// documentation have, and those that cluster-api-operator 0.20 passes.
const CLUSTER_API: &[&str] = &[
    "--bootstrap-token-ttl=15m",
    "--cluster-concurrency=10",
    "--clustercache-client-burst=30",
    "--clustercache-client-qps=20",
    "--clustercache-concurrency=100",
    "--contention-profiling=false",
    "--diagnostics-address=:8443",
    "--feature-gates=MachinePool=true,KubeadmBootstrapFormatIgnition=false",
    "--health-addr=:9440",
    "--insecure-diagnostics=false",
    "--kube-api-burst=200",
    "--kube-api-qps=100",
    "--kubeadmconfig-concurrency=100",
    "--leader-elect",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=2s",
    "--leader-election-id=capi/lease",
    "--log-flush-frequency=5s",
    "--log-json-info-buffer-size=0",
    "--log-json-split-stream=false",
    "--log-text-info-buffer-size=0",
    "--log-text-split-stream",
    "--logging-format=json",
    "--max-concurrent-reconciles=10",
    "--metrics-bind-addr=localhost:8080",
    "--namespace=",
    "--profiler-address=localhost:6060",
    "--skip-crd-migration-phases=StorageVersionMigration",
    "--sync-period=10m0s",
    "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
    "--tls-curve-preferences=29,23,4588",
    "--tls-min-version=VersionTLS12",
    "--v=2",
    "--vmodule=",
    "--watch-filter=",
    "--webhook-cert-dir=/tmp/k8s-webhook-server/serving-certs/",
    "--webhook-cert-name=tls.crt",
    "--webhook-host=0.0.0.0",
    "--webhook-key-name=tls.key",
    "--webhook-port=9443",
];

#[test]
fn every_flag_of_cluster_apis_managers_is_accepted_and_those_without_effect_are_told() {
    let flags = parse(CLUSTER_API);
    assert_eq!(flags.scope(), Scope::default(), "empty values restrict nothing");
    let told: Vec<&str> = flags.without_effect().iter().map(|(flag, _)| flag.as_str()).collect();
    for flag in ["sync-period", "feature-gates", "webhook-port"] {
        assert!(told.contains(&flag), "{flag} is not told: {told:?}");
    }
    for flag in ["leader-elect", "v", "health-addr", "metrics-bind-addr", "tls-min-version", "diagnostics-address"] {
        assert!(!told.contains(&flag), "{flag} has an effect");
    }
    assert!(parse(&[]).without_effect().is_empty());
}

#[rstest]
#[case("--sync-period=10", "--sync-period", "15s")]
#[case("--leader-elect-lease-duration=-15s", "--leader-elect-lease-duration", "15s")]
#[case("--leader-elect=perhaps", "--leader-elect", "true or false")]
#[case("--health-addr=9440", "--health-addr", ":9440")]
#[case("--diagnostics-address=metrics.example.org:8443", "--diagnostics-address", ":9440")]
#[case("--namespace=Team_A", "--namespace", "lower-case")]
#[case("--namespace=a,b", "--namespace", "one namespace")]
#[case("--watch-filter=a b", "--watch-filter", "letters")]
#[case("--feature-gates=MachinePool", "--feature-gates", "Name=true")]
#[case("--tls-min-version=1.2", "--tls-min-version", "VersionTLS12")]
#[case("--tls-cipher-suites=AES", "--tls-cipher-suites", "TLS_")]
#[case("--tls-curve-preferences=X25519", "--tls-curve-preferences", "29 (X25519)")]
#[case("--tls-curve-preferences=25,4588", "--tls-curve-preferences", "23 (P-256)")]
#[case("--webhook-port=70000", "--webhook-port", "port")]
#[case("--kube-api-qps=many", "--kube-api-qps", "number")]
#[case("--etcdcluster-concurrency=0", "--etcdcluster-concurrency", "1..")]
#[case("--logging-format=xml", "--logging-format", "json")]
#[case("--v=loud", "--v", "digit")]
fn a_wrong_value_is_refused_with_the_flag_and_what_would_be_right(
    #[case] argument: &str,
    #[case] flag: &str,
    #[case] right: &str,
) {
    let error = refused(argument);
    assert!(error.contains(flag) && error.contains(right), "{error}");
}

/// Flags of Cluster API 1.14's other managers, and flags that a later version may have.
#[test]
fn unknown_flags_that_do_no_harm_are_accepted_by_their_families_and_told() {
    let unknown = [
        "--machine-concurrency=10",
        "--clustertopology-concurrency=10",
        "--kubeadmcontrolplane-concurrency",
        "10",
        "--clustercache-client-timeout=10s",
        "--remote-connection-grace-period=50s",
        "--remote-conditions-grace-period=5m0s",
        "--some-client-qps=0.5",
        "--some-client-burst=30",
        "--webhook-client-ca-name=ca.crt",
        "--webhook-new",
        "--log-json-new=a=b",
        "--log-text-new",
        "value",
        "--profiler-new=true",
        "--skip-crd-migration-new=All",
    ];
    let flags = parse(&[&unknown[..], &["--namespace", "team-a", "--etcdcluster-concurrency=3"]].concat());
    assert_eq!(flags.scope().namespace.as_deref(), Some("team-a"));
    assert_eq!(flags.concurrency(ControllerName::EtcdCluster), Some(3));
    let told: Vec<&str> = flags.without_effect().iter().map(|(flag, _)| flag.as_str()).collect();
    let given = unknown.iter().filter_map(|flag| flag.strip_prefix("--")?.split('=').next());
    assert_eq!(told, Vec::from_iter(given));
    assert!(refused("--machine-concurrency=many").contains("'--machine-concurrency': expected a number"));
    assert!(refused("--machine-concurrency").contains("expected a number"), "a value is missing");
}

#[rstest]
#[case::unknown("--machineset-preflight-checks=All")]
#[case::of_security("--tls-session-tickets=false")]
#[case::no_family("--concurrency=3")]
#[case::nobodys("--additional-sync-machine-labels=a")]
#[case::a_letter_too_many("--etcdclusters-concurrency=3")]
#[case::a_letter_missing("--etcadmconfig-concurrency=3")]
#[case::two_exchanged("--clutser-concurrency=3")]
#[case::at_the_end("--etcdcluster-concurency=3")]
#[case::of_the_lease("--leader-elect-lease-durations=15s")]
#[case::of_logs("--log-fromat=text")]
#[case::of_the_scope("--watch-filer=blue")]
fn any_other_unknown_flag_is_refused_and_so_is_a_mistyped_one(#[case] argument: &str) {
    let flag = argument.split('=').next().unwrap_or_default();
    assert!(refused(argument).contains(flag), "{}", refused(argument));
}

#[test]
fn a_flag_without_a_value_is_true_and_the_last_value_counts() {
    assert!(parse(&["--leader-elect"]).leader_elect);
    assert!(parse(&["--leader-elect", "--namespace", "team-a"]).leader_elect);
    assert!(!parse(&["--leader-elect", "--leader-elect=F"]).leader_elect);
    assert!(!parse(&["--leader-elect", "false"]).leader_elect, "also with a space, which Go would ignore");
    let scope = parse(&["--namespace=team-a", "--namespace=team-b", "--watch-filter=blue"]).scope();
    assert_eq!(scope, Scope { namespace: Some("team-b".to_owned()), watch_filter: Some("blue".to_owned()) });
}

#[test]
fn the_lease_leaves_its_holder_time_to_end() {
    let times = |arguments: &[&str]| parse(arguments).lease_times();
    assert_eq!(times(&[]).unwrap(), Times::default());
    let given = [
        "--leader-elect-lease-duration=1m30s",
        "--leader-elect-renew-deadline=1m",
        "--leader-elect-retry-period=500ms",
    ];
    let expected = Times {
        duration: Duration::from_secs(90),
        renew_deadline: Duration::from_secs(60),
        retry_period: Duration::from_millis(500),
    };
    assert_eq!(times(&given).unwrap(), expected);
    let error = |argument: &str| times(&[argument]).unwrap_err().to_string();
    assert_eq!(
        error("--leader-elect-lease-duration=20s"),
        "--leader-elect-lease-duration 20s must be longer than --leader-elect-renew-deadline 20s"
    );
    assert!(error("--leader-elect-retry-period=20s").contains("--leader-elect-retry-period"));
    assert!(error("--leader-elect-retry-period=0s").contains("above 0s"));
    assert!(error("--leader-elect-lease-duration=30500ms").contains("whole seconds"));
}

#[test]
fn health_and_metrics_are_where_they_are_asked_for() {
    let plain = |arguments: &[&str]| -> Vec<String> {
        let words = |paths: Paths| [("health", paths.health), ("metrics", paths.metrics)];
        let words = |paths| words(paths).into_iter().filter(|(_, served)| *served).map(|(word, _)| word);
        let one = |(flag, address, paths)| format!("{flag} {address} {}", Vec::from_iter(words(paths)).join(" "));
        parse(arguments).plain().into_iter().map(one).collect()
    };
    assert_eq!(plain(&[]), ["--admin-address 127.0.0.1:9440 health metrics"]);
    assert_eq!(plain(&["--health-addr=:9441", "--admin-address=[::]:9440"]), ["--health-addr [::]:9441 health"]);
    assert_eq!(plain(&["--health-addr=0"]), [""; 0]);
    let metrics = ["--diagnostics-address=:8443", "--metrics-bind-addr=localhost:8080"];
    assert_eq!(
        plain(&[&metrics[..], &["--insecure-diagnostics"]].concat()),
        [
            "--admin-address 127.0.0.1:9440 health metrics",
            "--diagnostics-address [::]:8443 metrics",
            "--metrics-bind-addr 127.0.0.1:8080 metrics"
        ]
    );
    assert_eq!(plain(&metrics), [plain(&[]), vec!["--metrics-bind-addr 127.0.0.1:8080 metrics".to_owned()]].concat());
    let twice = ["--health-addr=:8443", "--diagnostics-address=:8443", "--insecure-diagnostics"];
    assert_eq!(plain(&twice), ["--health-addr [::]:8443 health metrics"], "it cannot be bound twice");
}

#[test]
fn metrics_are_secure_unless_somebody_says_otherwise() {
    assert_eq!(parse(&[]).secure(), None);
    let address = "--diagnostics-address=:8443";
    assert_eq!(parse(&[address]).secure(), Some("[::]:8443".parse().unwrap()));
    assert_eq!(parse(&[address, "--insecure-diagnostics"]).secure(), None);
    assert_eq!(parse(&["--diagnostics-address=0"]).secure(), None);
    let tls = |arguments: &[&str]| parse(arguments).tls();
    let default = TlsSettings { least: TlsVersion::V1_2, suites: Vec::new(), groups: Vec::new() };
    assert_eq!(tls(&[]), default);
    assert_eq!(tls(&["--tls-min-version=VersionTLS10"]).least, TlsVersion::V1_2, "there is no less");
    assert_eq!(tls(&["--tls-min-version=VersionTLS13"]).least, TlsVersion::V1_3);
    let suites = ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
    assert_eq!(tls(&[&format!("--tls-cipher-suites={}", suites.join(","))]).suites, suites);
    assert_eq!(tls(&["--tls-curve-preferences=29, 4588"]).groups, [29, 4588]);
}

#[test]
fn each_controller_may_have_a_number_of_its_own() {
    let flags = parse(&["--max-concurrent-reconciles=7", "--etcdadmconfig-concurrency=3", "--cluster-concurrency=2"]);
    let all = [
        (ControllerName::EtcdCluster, 7),
        (ControllerName::EtcdadmBootstrap, 3),
        (ControllerName::ClusterHooks, 2),
        (ControllerName::ControlPlaneRemediation, 2),
    ];
    for (controller, expected) in all {
        assert_eq!(flags.concurrency(controller), Some(expected), "{controller:?}");
        assert_eq!(parse(&[]).concurrency(controller), None, "{controller:?}");
    }
}

#[test]
fn verbosity_is_a_level_unless_there_is_one() {
    let filter = |arguments: &[&str]| parse(arguments).log_filter();
    assert_eq!(filter(&[]), "info");
    assert_eq!(filter(&["--v=0"]), "info");
    assert!(filter(&["-v", "4"]).starts_with("info,manager=debug,"));
    assert_eq!(filter(&["-v=6"]), "debug");
    assert_eq!(filter(&["--v=9", "--log-level=warn"]), "warn");
    for arguments in [&["--v=4"], &["--v=6"]] {
        tracing_subscriber::EnvFilter::try_new(filter(arguments)).unwrap();
    }
    assert_eq!(parse(&["--logging-format=text"]).logs(), LogFormat::Text);
    assert_eq!(parse(&["--log-format=text"]).logs(), LogFormat::Text);
    assert_eq!(parse(&[]).logs(), LogFormat::Json);
}
