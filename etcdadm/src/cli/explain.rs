//! Better messages for flags and subcommands that the replaced program had and this one does not have yet.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags and subcommands that a user of the replaced program may expect, and what to do instead.
const NOT_YET: [(&str, &str); 12] = [
    ("--snapshot", "restore with `etcdutl snapshot restore` into the data directory before the first start"),
    ("--skip-hash-check", "it goes with --snapshot, which this etcdadm does not have"),
    ("--disk-priorities", "set Nice= and IOSchedulingClass= in a drop-in for etcd.service"),
    ("--image-repository", "it goes with the kubelet init system, which this etcdadm does not have"),
    ("--kubelet-pod-manifest-path", "it goes with the kubelet init system, which this etcdadm does not have"),
    ("phase", "run `init` or `join` as a whole; a second run continues where the first one stopped"),
    (
        "reset",
        "stop etcd.service, remove the member with etcdctl on another machine, then remove the data directory, \
         /etc/etcd/epoch and /var/lib/etcdadm/member.json",
    ),
    ("info", "run etcdctl.sh in the install directory: `etcdctl.sh member list`"),
    ("download", "put the release archive into /var/cache/etcdadm/etcd/v<version>/"),
    ("completion", "there are no shell completions"),
    ("help", "use `etcdadm --help` or `etcdadm <command> --help`"),
    ("yaml", "`--output json` is the only document form"),
];

/// Adds to `error` what to do instead, if the argument is one that the replaced program had.
pub(super) fn explain(error: clap::Error) -> clap::Error {
    let wanted = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => ContextKind::InvalidValue,
        _ => return error,
    };
    let Some(ContextValue::String(named)) = error.get(wanted) else { return error };
    let name = named.split(['=', ' ']).next().unwrap_or_default();
    let Some((_, instead)) = NOT_YET.iter().find(|(known, _)| *known == name) else { return error };
    clap::Error::raw(error.kind(), format!("this etcdadm does not support `{name}` yet: {instead}\n"))
}
