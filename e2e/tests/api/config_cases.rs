//! What an EtcdadmConfig must not contain. The same applies to a template of it, and to `etcdadmConfigSpec`.

#![expect(clippy::needless_pass_by_value, reason = "so that a case reads like a document")]

use crate::refusals::Case;
use serde_json::{Value, json};

const TWICE: &str = "etcd's version is given twice: set either version or cloudInitConfig.version";
const VERSION: &str = "must be an etcd version such as 3.6.16";
const LOSES_DATA: &str = "etcd 3.5.0 to 3.5.2 may lose data when a member is killed (etcd#13766); use 3.5.3 or later";
const USERS_AND_NTP: &str = "users and ntp need cloudInitConfig.modules: All";

fn file(change: Value) -> Value {
    let Value::Object(mut fields) = change else { return Value::Null };
    fields.entry("path").or_insert(json!("/etc/a"));
    fields.entry("content").or_insert(json!("a"));
    fields.retain(|_, value| !value.is_null());
    json!({"files": [fields]})
}

fn user(change: Value) -> Value {
    let Value::Object(mut fields) = change else { return Value::Null };
    fields.entry("name").or_insert(json!("a"));
    json!({"users": [fields]})
}

fn argument(name: &str, value: &str) -> Value {
    json!({"etcdadmArgs": {name: value}})
}

fn cloud_init(change: Value) -> Value {
    json!({"cloudInitConfig": change})
}

fn simple(mut others: Value) -> Value {
    others["cloudInitConfig"] = json!({"modules": "WriteFilesAndRunCmd"});
    others
}

fn secret() -> Value {
    json!({"secret": {"name": "files", "key": "a"}})
}

/// The fields are below the spec of a config, whichever object that spec is in.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |at: &'static str, says: &'static str, wrong: Value, right: Value| {
        cases.push(Case::new(at, says, wrong, right));
    };
    for bad in ["latest", "3.6", "3.6.x", "3.6.16.1", "v", "", " 3.6.16", "3.6.16-", "99999999999.0.0"] {
        case("version", VERSION, json!({"version": bad}), json!({"version": "v3.6.16"}));
        let good = json!({"version": "3.7.0-rc.1"});
        case("cloudInitConfig.version", VERSION, cloud_init(json!({"version": bad})), cloud_init(good));
    }
    for bad in ["3.5.0", "v3.5.2", "3.5.0-rc.1"] {
        case("version", LOSES_DATA, json!({"version": bad}), json!({"version": "3.5.3"}));
        let good = cloud_init(json!({"version": "3.5.20"}));
        case("cloudInitConfig.version", LOSES_DATA, cloud_init(json!({"version": bad})), good);
    }
    case(
        "",
        TWICE,
        json!({"version": "3.6.16", "cloudInitConfig": {"version": "3.6.16"}}),
        json!({"version": "3.6.16", "cloudInitConfig": {}}),
    );

    for unknown in ["name", "version", "certs-dir", "Data-Dir", "--data-dir", "init-system"] {
        case(
            "etcdadmArgs",
            "unknown etcdadm argument; possible are data-dir, download-connect-timeout, log-level, release-sha256 and server-cert-extra-sans",
            argument(unknown, "x"),
            argument("data-dir", "/srv/etcd"),
        );
    }
    for (name, bad, says, good) in [
        ("data-dir", "etcd", "data-dir must be an absolute path", "/srv/etcd"),
        ("download-connect-timeout", "10", "must be a duration such as 10s or 1m30s", "1m30s"),
        ("download-connect-timeout", "-1s", "must be a duration such as 10s or 1m30s", "1.5s"),
        ("log-level", "loud", "log-level must be error, warn, info, debug or trace", "debug"),
        (
            "release-sha256",
            "abc",
            "release-sha256 must be 64 hexadecimal digits",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF",
        ),
        ("server-cert-extra-sans", "a, b", "separated by commas without spaces", "a.example,10.0.0.1"),
    ] {
        case("etcdadmArgs", says, argument(name, bad), argument(name, good));
    }

    let two = |second: &str| json!({"files": [{"path": "/etc/a", "content": ""}, {"path": second, "content": "b"}]});
    case("files", "two files have the same path", two("/etc/a"), two("/etc/b"));
    case("files[0].path", "path must be absolute", file(json!({"path": "etc/a"})), file(json!({"path": "/etc/a"})));
    case("files[0].path", "at least 2 chars", file(json!({"path": "/"})), file(json!({"path": "/a"})));
    for (reserved, free) in [("/etc/etcd/pki/ca.crt", "/etc/etcd.conf"), ("/run/cluster-api/x", "/run/cluster-api-x")] {
        case(
            "files[0].path",
            "paths below /etc/etcd/ and /run/cluster-api/ are written by the bootstrap itself",
            file(json!({"path": reserved})),
            file(json!({"path": free})),
        );
    }
    let either = "set either content or contentFrom";
    case("files[0]", either, file(json!({"contentFrom": secret()})), file(json!({})));
    case("files[0]", either, file(json!({"content": null})), file(json!({"content": null, "contentFrom": secret()})));
    case(
        "files[0].contentFrom.secret.key",
        "Required value",
        file(json!({"content": null, "contentFrom": {"secret": {"name": "a"}}})),
        file(json!({"content": null, "contentFrom": secret()})),
    );
    case(
        "files[0].owner",
        "must be a user or user:group, such as root:root",
        file(json!({"owner": "root root"})),
        file(json!({"owner": "root:adm"})),
    );
    for bad in ["rw-r--r--", "0999", "64", "777777"] {
        case("files[0].permissions", "0640", file(json!({"permissions": bad})), file(json!({"permissions": "0640"})));
    }
    case(
        "files[0].permissions",
        "must be of type string",
        file(json!({"permissions": 640})),
        file(json!({"permissions": "640"})),
    );
    case(
        "files[0].encoding",
        "supported values: \"base64\", \"gzip\", \"gzip+base64\"",
        file(json!({"encoding": "gz"})),
        file(json!({"encoding": "gzip+base64"})),
    );
    let many = |count: usize| {
        let files: Vec<Value> = (0..count).map(|n| json!({"path": format!("/etc/{n}"), "content": ""})).collect();
        json!({"files": files})
    };
    case("files", "128", many(129), many(128));

    case(
        "users[0]",
        "set either passwd or passwdFrom",
        user(json!({"passwd": "x", "passwdFrom": secret()})),
        user(json!({"passwdFrom": secret()})),
    );
    for bad in ["Root", "-x", "a b", "1a", "a:b"] {
        case("users[0].name", "must be a login name", user(json!({"name": bad})), user(json!({"name": "_a-1"})));
    }

    case(
        "",
        "etcdadmBuiltin is false, so etcdadmInstallCommands must say how",
        json!({"etcdadmBuiltin": false}),
        json!({"etcdadmBuiltin": false, "etcdadmInstallCommands": ["true"]}),
    );
    case(
        "",
        "set etcdadmBuiltin to false, or leave one of them out",
        json!({"etcdadmBuiltin": true, "etcdadmInstallCommands": ["true"]}),
        json!({"etcdadmInstallCommands": ["true"]}),
    );
    case(
        "",
        "etcdadmInstallCommands must say how",
        json!({"etcdadmBuiltin": false, "etcdadmInstallCommands": []}),
        json!({"etcdadmBuiltin": true}),
    );
    let one = json!({"users": [{"name": "a"}]});
    case("", USERS_AND_NTP, simple(one.clone()), one);
    case("", USERS_AND_NTP, simple(json!({"ntp": {}})), simple(json!({"users": []})));
    case(
        "cloudInitConfig.modules",
        "supported values: \"All\", \"WriteFilesAndRunCmd\"",
        cloud_init(json!({"modules": "Docker"})),
        cloud_init(json!({"modules": "WriteFilesAndRunCmd"})),
    );
    case(
        "cloudInitConfig.etcdReleaseURL",
        "must be an http or https URL",
        cloud_init(json!({"etcdReleaseURL": "ftp://x"})),
        cloud_init(json!({"etcdReleaseURL": "https://x/y"})),
    );
    case(
        "cloudInitConfig.installDir",
        "must be an absolute path",
        cloud_init(json!({"installDir": "bin"})),
        cloud_init(json!({"installDir": "/usr/local/bin/"})),
    );
    case(
        "format",
        "supported values: \"cloud-config\"",
        json!({"format": "bottlerocket"}),
        json!({"format": "cloud-config"}),
    );

    case(
        "proxy",
        "set httpProxy or httpsProxy",
        json!({"proxy": {"noProxy": ["a"]}}),
        json!({"proxy": {"httpsProxy": "http://proxy:3128"}}),
    );
    for field in ["httpProxy", "httpsProxy"] {
        let at = if field == "httpProxy" { "proxy.httpProxy" } else { "proxy.httpsProxy" };
        case(
            at,
            "must be the URL of a proxy, such as",
            json!({"proxy": {field: "a b"}}),
            json!({"proxy": {field: "http://u:p%40@[fd00::1]:3128"}}),
        );
    }
    for bad in ["https://mirror.example", "a b", "\"x"] {
        case(
            "registryMirror.endpoint",
            "without a scheme, such as mirror.example:5000/v2/all",
            json!({"registryMirror": {"endpoint": bad}}),
            json!({"registryMirror": {"endpoint": "mirror.example:5000/v2/all"}}),
        );
    }
    case(
        "registryMirror.endpoint",
        "Required value",
        json!({"registryMirror": {}}),
        json!({"registryMirror": {"endpoint": "a"}}),
    );
    for bad in ["tls_x", "A B", "A,", ""] {
        case(
            "cipherSuites",
            "must be cipher suites as etcd names them, separated by commas",
            json!({"cipherSuites": bad}),
            json!({"cipherSuites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384"}),
        );
    }
    let http2 = "must have TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    for bad in ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256X"] {
        let good = "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        case("cipherSuites", http2, json!({"cipherSuites": bad}), json!({"cipherSuites": good}));
    }
    let commands = |count: usize| json!({"preEtcdadmCommands": vec!["true"; count]});
    case("preEtcdadmCommands", "128", commands(129), commands(128));
    case(
        "preEtcdadmCommands[0]",
        "must be of type string",
        json!({"preEtcdadmCommands": [["a", "b"]]}),
        json!({"preEtcdadmCommands": ["a b"]}),
    );
    cases.extend(etcd_cases());
    cases
}

fn etcd(settings: Value) -> Value {
    json!({"etcd": settings})
}

fn flag(name: &str, value: &str) -> Value {
    etcd(json!({"extraFlags": [{"name": name, "value": value}]}))
}

/// Settings of etcd.
fn etcd_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |at: &'static str, says: &'static str, wrong: Value, right: Value| {
        cases.push(Case::new(at, says, wrong, right));
    };
    for (at, field, limits) in [
        ("etcd.quotaBackendBytes", "quotaBackendBytes", [16_777_215_i64, 16_777_216, 107_374_182_400, 107_374_182_401]),
        ("etcd.snapshotCount", "snapshotCount", [99, 100, 1_000_000, 1_000_001]),
    ] {
        let [below, least, most, above] = limits.map(|limit| etcd(json!({field: limit})));
        case(at, "should be greater than or equal to", below, least);
        case(at, "should be less than or equal to", above, most);
        case(at, "must be of type integer", etcd(json!({field: "8Gi"})), etcd(json!({field: limits[1]})));
    }
    let timing = |heartbeat: Option<i64>, election: Option<i64>| {
        let mut settings = json!({});
        for (field, value) in [("heartbeatIntervalMilliseconds", heartbeat), ("electionTimeoutMilliseconds", election)]
        {
            if let Some(value) = value {
                settings[field] = json!(value);
            }
        }
        etcd(settings)
    };
    let heartbeat = "etcd.heartbeatIntervalMilliseconds";
    case(heartbeat, "greater than or equal to 1", timing(Some(0), None), timing(Some(1), None));
    case(
        heartbeat,
        "less than or equal to 10000",
        timing(Some(10_001), Some(50_000)),
        timing(Some(10_000), Some(50_000)),
    );
    let election = "etcd.electionTimeoutMilliseconds";
    case(election, "less than or equal to 50000", timing(None, Some(50_001)), timing(None, Some(50_000)));
    for (wrong, right) in [
        (timing(Some(300), Some(1499)), timing(Some(300), Some(1500))),
        (timing(Some(201), None), timing(Some(200), None)),
        (timing(None, Some(499)), timing(None, Some(500))),
    ] {
        case("etcd", "must be at least five times heartbeatIntervalMilliseconds", wrong, right);
    }

    let compaction = |mode: Option<&str>, retention: Option<&str>| {
        let mut settings = json!({});
        for (field, value) in [("autoCompactionMode", mode), ("autoCompactionRetention", retention)] {
            if let Some(value) = value {
                settings[field] = json!(value);
            }
        }
        etcd(settings)
    };
    let (periodic, revision) = (Some("periodic"), Some("revision"));
    case(
        "etcd.autoCompactionMode",
        "supported values: \"periodic\", \"revision\"",
        compaction(Some("hourly"), Some("8")),
        compaction(periodic, Some("8")),
    );
    case("etcd", "no effect without autoCompactionRetention", compaction(revision, None), compaction(None, Some("8h")));
    for (wrong, right) in [
        (compaction(revision, Some("1h")), compaction(revision, Some("1000"))),
        (compaction(periodic, Some("1d")), compaction(periodic, Some("1h30m"))),
        (compaction(None, Some("-1h")), compaction(None, Some("0.5h"))),
    ] {
        case("etcd", "must be a number of hours or a duration such as 30m", wrong, right);
    }

    for bad in [
        "0.0.0.0:2381",
        "http://0.0.0.0",
        "http://etcd.example:2381",
        "http://0.0.0.0:2379",
        "https://[::]:2380",
        "http://::1:2381",
    ] {
        case(
            "etcd.listenMetricsURLs",
            "such as http://0.0.0.0:2381",
            etcd(json!({"listenMetricsURLs": ["http://127.0.0.1:2381", bad]})),
            etcd(json!({"listenMetricsURLs": ["http://127.0.0.1:2381", "https://[::]:2382", "http://localhost:2383"]})),
        );
    }

    let name = "etcd.extraFlags[0].name";
    for refused in [
        "max-learners",
        "experimental-max-learners",
        "strict-reconfig-check",
        "initial-cluster",
        "initial-cluster-state",
        "initial-cluster-token",
        "initial-advertise-peer-urls",
        "force-new-cluster",
        "unsafe-no-fsync",
        "experimental-unsafe-no-fsync",
        "name",
        "data-dir",
        "wal-dir",
        "config-file",
        "discovery",
        "discovery-srv",
        "listen-peer-urls",
        "listen-client-urls",
        "listen-client-http-urls",
        "advertise-client-urls",
        "cert-file",
        "key-file",
        "trusted-ca-file",
        "client-cert-auth",
        "client-crl-file",
        "auto-tls",
        "peer-cert-file",
        "peer-auto-tls",
        "experimental-peer-skip-client-san-verification",
        "cipher-suites",
        "tls-min-version",
        "auth-token",
        "proxy",
        "enable-v2",
        "enable-grpc-gateway",
        "initial-corrupt-check",
        "experimental-log-level",
        "--metrics",
        "Metrics",
        "log-experimental-level",
    ] {
        case(name, "etcdadm sets what decides membership", flag(refused, "x"), flag("metrics", "extensive"));
    }
    for typed in [
        "quota-backend-bytes",
        "heartbeat-interval",
        "election-timeout",
        "snapshot-count",
        "auto-compaction-mode",
        "auto-compaction-retention",
        "listen-metrics-urls",
    ] {
        let free = flag("experimental-compaction-batch-limit", "100");
        case(name, "this flag has a field of its own in etcd", flag(typed, "1000"), free);
    }
    for bad in ["a b", "a\nb", "$HOME", "`id`", "'", "\"", "\\", "#", "\u{e9}"] {
        case(
            "etcd.extraFlags[0].value",
            "must be visible ASCII",
            flag("log-level", bad),
            flag("log-outputs", "stderr,/a_b"),
        );
    }
    for bad in
        ["SetMemberLocalAddr=true", "InitialCorruptCheck", "InitialCorruptCheck=true,", "InitialCorruptCheck=yes"]
    {
        case(
            "etcd.extraFlags[0].value",
            "feature-gates must be FEATURE=true or FEATURE=false",
            flag("feature-gates", bad),
            flag("feature-gates", "InitialCorruptCheck=true,CompactHashCheck=false"),
        );
    }
    case("etcd.extraFlags[0].value", "at least 1 chars", flag("log-level", ""), flag("log-level", "warn"));
    let twice = |second: &str| {
        let flags = json!([{"name": "metrics", "value": "basic"}, {"name": second, "value": "x"}]);
        etcd(json!({"extraFlags": flags}))
    };
    case("etcd.extraFlags[1]", "Duplicate value", twice("metrics"), twice("log-level"));
    cases
}
