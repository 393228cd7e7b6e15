//! Good documents: for each kind, one that says as little as possible, and one that says much.

use serde_json::{Value, json};

/// Documents of all our kinds that the API server accepts.
#[must_use]
pub fn originals() -> Vec<Value> {
    let etcd = |spec: Value| document("etcdcluster.cluster.x-k8s.io/v1beta1", "EtcdCluster", &spec);
    let config = |kind: &str, spec: Value| document("bootstrap.cluster.x-k8s.io/v1beta1", kind, &spec);
    let local = |kind: &str, spec: Value| document("infrastructure.cluster.x-k8s.io/v1alpha1", kind, &spec);
    vec![
        etcd(json!({"infrastructureTemplate": template()})),
        etcd(full_etcd()),
        config("EtcdadmConfig", json!({})),
        config("EtcdadmConfig", full_config()),
        config("EtcdadmConfig", for_docker()),
        config("EtcdadmConfigTemplate", json!({"template": {"spec": {}}})),
        config("EtcdadmConfigTemplate", json!({"template": {"metadata": metadata(), "spec": full_config()}})),
        local("LocalCluster", json!({})),
        local(
            "LocalCluster",
            json!({"controlPlaneEndpoint": {"host": "10.77.0.9", "port": 6443}, "failureDomains": ["a", "b"]}),
        ),
        local("LocalMachine", json!({"providerID": "local:///default/demo-etcd-0"})),
        local("LocalMachineTemplate", json!({"template": {"metadata": metadata(), "spec": {}}})),
    ]
}

fn document(api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "malformed", "labels": {"a": "b"}, "annotations": {"example.org/note": "c"}},
        "spec": spec,
    })
}

fn metadata() -> Value {
    json!({"labels": {"disk": "fast"}, "annotations": {"example.org/note": "of a template"}})
}

fn template() -> Value {
    json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachineTemplate", "name": "demo"})
}

fn full_etcd() -> Value {
    json!({
        "replicas": 5, "infrastructureTemplate": template(), "etcdadmConfigSpec": full_config(),
        "addressTypes": ["InternalIP", "Hostname"],
        "healthCheck": {"intervalSeconds": 5, "unhealthyAfterSeconds": 30, "startupGraceSeconds": 300},
        "remediation": {"mode": "Report", "maxRetry": 3, "retryPeriodSeconds": 60, "minHealthyPeriodSeconds": 600},
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2}},
        "rolloutAfter": "2026-11-23T04:00:00Z", "rolloutBefore": {"certificatesExpiryDays": 30},
        "machineTemplate": {"metadata": metadata(), "spec": {"deletion": {"nodeDrainTimeoutSeconds": 60,
            "nodeVolumeDetachTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 10}}},
        "metricsClientSecret": true,
    })
}

fn full_config() -> Value {
    let secret = |key: &str| json!({"secret": {"name": "machine-files", "key": key}});
    json!({
        "version": "3.6.16", "format": "cloud-config", "etcdadmBuiltin": false,
        "etcdadmInstallCommands": ["curl -fo /usr/local/bin/etcdadm https://files.example.org/etcdadm"],
        "preEtcdadmCommands": ["hostname {{ ds.meta_data.local_hostname }}"], "postEtcdadmCommands": ["true"],
        "cipherSuites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
        "cloudInitConfig": {"etcdReleaseURL": "https://mirror.example/etcd", "installDir": "/opt/etcd/"},
        "etcd": {
            "quotaBackendBytes": 8_589_934_592_u64, "heartbeatIntervalMilliseconds": 200,
            "electionTimeoutMilliseconds": 2000, "snapshotCount": 10_000, "autoCompactionMode": "periodic",
            "autoCompactionRetention": "30m", "listenMetricsURLs": ["http://127.0.0.1:2381"],
            "extraFlags": [{"name": "log-level", "value": "debug"}],
        },
        "etcdadmArgs": {"data-dir": "/srv/etcd", "log-level": "debug", "server-cert-extra-sans": "etcd.example,10.0.0.9"},
        "files": [
            {"path": "/etc/motd", "content": "etcd\n", "owner": "root:root", "permissions": "0644"},
            {"path": "/opt/blob", "content": "aGVsbG8=", "encoding": "base64", "append": true},
            {"path": "/etc/secret", "contentFrom": secret("a")},
        ],
        "ntp": {"enabled": true, "servers": ["0.pool.example", "fd00::7"]},
        "users": [
            {"name": "admin", "gecos": "An admin", "groups": "adm", "sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash",
             "lockPassword": false, "passwd": "$6$salt$hash", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a@b"]},
            {"name": "other", "inactive": true, "primaryGroup": "adm", "homeDir": "/srv/x", "passwdFrom": secret("b")},
        ],
        "proxy": {"httpProxy": "http://proxy.example:3128", "noProxy": [".svc", "10.0.0.0/8"]},
        "registryMirror": {"endpoint": "mirror.example:5000/v2/all", "caCert": "pem"},
    })
}

/// A spec that the docker infrastructure supports.
fn for_docker() -> Value {
    json!({
        "cloudInitConfig": {"version": "v3.5.21", "modules": "WriteFilesAndRunCmd"},
        "files": [{"path": "/etc/motd", "content": "etcd"}], "preEtcdadmCommands": ["true"],
    })
}
