#!/usr/bin/env bash
# Shows the whole thing on this computer: a management cluster of real parts, one apply, a TLS etcd cluster on local
# machines, and a control plane that uses it. Needs nothing set up before; arguments go to the demo (see --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. hack/setup.sh
cargo build --quiet --workspace --bins
exec "${CARGO_TARGET_DIR:-target}/debug/demo" "$@"
