//! Settings for etcdctl without flags: its environment, and a wrapper that reads it.

use crate::paths::Paths;
use crate::pki::ETCDCTL;
use crate::pki::authority::AUTHORITY;

/// The content of etcdctl.env, which a shell can source.
pub fn render_env(paths: &Paths) -> String {
    format!(
        "\
# Written by etcdadm.
export ETCDCTL_CACERT={}
export ETCDCTL_CERT={}
export ETCDCTL_KEY={}
export ETCDCTL_DIAL_TIMEOUT=3s
",
        paths.certificate(AUTHORITY).display(),
        paths.certificate(ETCDCTL).display(),
        paths.key(ETCDCTL).display(),
    )
}

/// The content of etcdctl.sh.
pub fn render_wrapper(paths: &Paths) -> String {
    format!(
        "\
#!/bin/sh
# Written by etcdadm: runs etcdctl against the member on this machine.
env_file='{env}'
if ! [ -r \"$env_file\" ]; then
\techo \"etcdctl.sh: cannot read $env_file; run etcdctl.sh as root, on a machine that etcdadm set up\" >&2
\texit 1
fi
. \"$env_file\"
exec '{etcdctl}' \"$@\"
",
        env = paths.etcdctl_env().display(),
        etcdctl = paths.program("etcdctl").display(),
    )
}
