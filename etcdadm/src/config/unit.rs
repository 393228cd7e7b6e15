//! The systemd unit.

use crate::paths::Paths;

/// The content of etcd.service.
///
/// - A member that cannot reach the others yet must be tried again and again: there is no limit on restarts. A start
///   still ends after five minutes, so that one that hangs is noticed and done anew.
/// - etcd needs its data directory and nothing else of the machine to be writable.
pub fn render(paths: &Paths) -> String {
    let (etcd, env, data) = (paths.program("etcd"), paths.etcd_env(), paths.data_dir());
    format!(
        "\
# Written by etcdadm.
[Unit]
Description=etcd
Documentation=https://etcd.io/docs/
Wants=network-online.target
After=network-online.target
RequiresMountsFor={data}
StartLimitIntervalSec=0

[Service]
Type=notify
EnvironmentFile={env}
ExecStart={etcd}
Restart=always
RestartSec=2s
TimeoutStartSec=5min
TimeoutStopSec=30s
LimitNOFILE=65536
MemoryLow=200M
OOMScoreAdjust=-997
UMask=0077
NoNewPrivileges=true
ProtectSystem=full
ProtectHome=read-only
ReadWritePaths={data}
PrivateTmp=true
PrivateDevices=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectControlGroups=true
RestrictSUIDSGID=true
RestrictRealtime=true
LockPersonality=true

[Install]
WantedBy=multi-user.target
",
        etcd = etcd.display(),
        env = env.display(),
        data = data.display(),
    )
}
