#!/usr/bin/env bash
# Shows the whole thing on this computer: a management cluster of real parts, one apply, a TLS etcd cluster on machines
# of its own, and a control plane that uses it. Needs no setup. Arguments are passed to the demo (see --help).
#
#   hack/demo.sh [--once] [--infrastructure local|docker]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case " $* " in
*docker*)
    export SETUP_DOCKER=1
    [ "$(id -u)" = 0 ] || { echo "--infrastructure docker needs root: it starts a Docker of its own" >&2 && exit 1; }
    ;;
esac
. hack/setup.sh
quiet=(--quiet)
if [ ! -e "${CARGO_TARGET_DIR:-target}/debug/demo" ]; then
    echo "building this project's programs: the first time takes some minutes" >&2
    # Cargo says how far it is.
    quiet=()
fi
cargo build "${quiet[@]}" --workspace --bins
# Containers have a C library of their own.
[ -z "${SETUP_DOCKER:-}" ] || cargo rustc "${quiet[@]}" -p etcdadm --bin etcdadm -- -C target-feature=+crt-static
exec "${CARGO_TARGET_DIR:-target}/debug/demo" "$@"
