//! The systemd unit.

use crate::paths::Paths;

/// The content of etcd.service.
///
/// - The guard runs in place of etcd and then becomes etcd. So it is the main process, the only one whose exit status
///   can make systemd leave a service down; see [`crate::guard`].
/// - The number of restarts is unlimited: a member that cannot reach the others yet must keep trying.
/// - The start timeout is long: a member is ready only when it has received the leader's snapshot, and 8 GiB may take
///   most of an hour. There is a timeout, so that a start that hangs is noticed and tried again.
/// - etcd must be able to write to its data directory, and the guard also to the directory of etcd.env. If the data
///   directory is gone, `-` lets the guard run and report it. Otherwise systemd would fail before it runs the guard,
///   again and again.
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
