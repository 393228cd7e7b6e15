//! The systemd unit.

use crate::paths::Paths;

/// The content of etcd.service.
///
/// - The guard runs in place of etcd and becomes it. It is the main process, since systemd only looks at that one's exit
///   status to leave a service down; see [`crate::guard`].
/// - A member that cannot reach the others yet must be tried again and again: there is no limit on restarts.
/// - A member is ready only when it has received the leader's snapshot: 8 GiB may take most of an hour. A start that hangs
///   still ends at some time, so that it is noticed and tried again.
/// - etcd needs its data directory to be writable, the guard also the directory of etcd.env. Where the data directory is
///   gone (`-`), the guard still runs and says so: otherwise systemd would fail before it, again and again.
pub fn render(paths: &Paths) -> String {
    let (guard, env, data) = (paths.guard(), paths.etcd_env(), paths.data_dir());
    let config = env.parent().unwrap_or(data);
    let refused = crate::guard::REFUSED;
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
ExecStart={guard} start
ExecStopPost=-{guard} stopped
Restart=always
RestartPreventExitStatus={refused}
RestartSec=2s
TimeoutStartSec=1h
TimeoutStopSec=30s
LimitNOFILE=65536
MemoryLow=200M
OOMScoreAdjust=-997
UMask=0077
NoNewPrivileges=true
ProtectSystem=full
ProtectHome=read-only
ReadWritePaths=-{data} {config}
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
        guard = guard.display(),
        config = config.display(),
        env = env.display(),
        data = data.display(),
    )
}
