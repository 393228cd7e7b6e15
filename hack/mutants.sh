#!/usr/bin/env bash
# Breaks the plan of etcd's controller on purpose, one rule at a time. The model check has to find it, or else the unit
# tests. Rules that the Cluster hook keeps are broken in the hook, and its unit tests have to find it.
#
#   hack/mutants.sh [--check] [NAME...]
#
#   --check  only check that each file still fits the sources
#   NAME     a file of etcd-cluster-controller/mutants without .patch; default: all of them
#
# The first line of each file says which rule it breaks. The script fails if one is not noticed, or no longer fits the
# sources. It works on a copy, so the sources do not change. Each mutant takes half a minute, or a minute and a half if
# the model, with the larger bounds of `make model`, does not notice it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/mutants.sh; }
only_check=
case "${1:-}" in
--check) only_check=1 && shift ;;
-*) usage && exit ;;
esac
folder=$PWD/etcd-cluster-controller/mutants
if [ $# = 0 ]; then
    for file in "$folder"/*.patch; do set -- "$@" "$(basename "$file" .patch)"; done
fi

change() {
    git apply "${@:2}" "$folder/$1.patch" || { echo "$1 does not fit the sources any more" >&2 && exit 1; }
}
if [ -n "$only_check" ]; then
    for name in "$@"; do change "$name" --check; done
    exit
fi

# Turns off what makes a release build slow.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
export CARGO_TARGET_DIR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp --parents --target-directory="$work"
cd "$work"

crate=etcd-cluster-controller
passes() { cargo test --release --quiet -p "$crate" "$@" >"$work/said" 2>&1; }
has_failed() { grep --quiet '^test result: FAILED' "$work/said"; }
# The message of the first search of the model that failed, and the name of the first unit test that failed.
reason() { awk '/ panicked at / { getline; print; exit }' "$work/said"; }
unit_test() { sed -n "/^thread '.*' .*panicked at /{s/^thread '\([^']*\)'.*/unit test \1/p;q}" "$work/said"; }

passes --test model || { cat "$work/said" && echo "the plan as it is fails already" >&2 && exit 1; }
wrong=0
for name in "$@"; do
    change "$name"
    crate=$(sed -n '/^--- a\//{s|^--- a/\([^/]*\)/.*|\1|p;q}' "$folder/$name.patch")
    if [ "$crate" = etcd-cluster-controller ] && ! passes --test model && has_failed; then
        said=$(reason)
    elif ! passes --lib && has_failed; then
        said=$(unit_test)
    else
        said="NOT NOTICED: $(head -n 1 "$folder/$name.patch") $(grep --max-count=1 '^error' "$work/said" || true)"
        wrong=1
    fi
    printf '%-40s %s\n' "$name" "$said"
    change "$name" --reverse
done
exit $wrong
