#!/usr/bin/env bash
# Runs a command inside the world of a running demo: its network, its processes, its API server. With WORLD_OF set, uses
# the world of another program of the test bed, such as WORLD_OF=local.
#
#   hack/enter.sh [COMMAND [ARGUMENT...]]        without a command: a shell
#
# The command finds kubectl and this project's programs in its PATH, and KUBECONFIG is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

inside=
program=${WORLD_OF:-demo}
for environment in /proc/[0-9]*/environ; do
    executable=$(readlink "${environment%environ}exe" 2>/dev/null) || continue
    # The program was built again after it started.
    executable=${executable% (deleted)}
    [[ ${executable##*/} == "$program" || ${executable##*/} == "$program"-* ]] || continue
    if grep --null-data --quiet --line-regexp 'CAPE_WORLD_STAGE=inside' "$environment" 2>/dev/null; then
        process=${environment#/proc/}
        process=${process%/environ}
        # The oldest process in the world is the program itself, because it has started all others.
        [ -n "$inside" ] && [ "$inside" -lt "$process" ] || inside=$process
    fi
done
[ -n "$inside" ] || {
    echo "no $program of this user is running: start hack/demo.sh in another terminal, or run this as the same user" >&2
    exit 1
}

tools=$(tr '\0' '\n' <"/proc/$inside/environ" | sed -n 's/^CAPE_WORLD_TOOLS=//p')
kubectl=$(sed -n 's/.*"kubectl":"\([^"]*\)".*/\1/p' <<<"$tools")
export PATH="${CARGO_TARGET_DIR:-$PWD/target}/debug:$(dirname "$kubectl"):$PATH:/usr/sbin:/sbin"
export KUBECONFIG=/run/world/plane/admin.kubeconfig LOCAL_INFRASTRUCTURE_STATE_DIR=/run/world/machines
user=()
[ "$(id -u)" = 0 ] || user=(--user --preserve-credentials)
exec nsenter --target "$inside" "${user[@]}" --mount --net --pid --wdns="$PWD" -- "${@:-${SHELL:-/bin/sh}}"
