#!/usr/bin/env bash
# Breaks the plan of etcd's controller on purpose, one rule at a time, and has the model check find it.
#
#   hack/mutants.sh [NAME...]
#
#   NAME  a file of etcd-cluster-controller/mutants without .patch; default: all of them
#
# The first line of each file says which rule it breaks. It fails when one is not noticed, or does not fit the sources any
# more. The sources themselves are not touched: it works on a copy. Half a minute for each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/mutants.sh; }
case "${1:-}" in
-*) usage && exit ;;
esac
folder=$PWD/etcd-cluster-controller/mutants
if [ $# = 0 ]; then
    for file in "$folder"/*.patch; do set -- "$@" "$(basename "$file" .patch)"; done
fi

# Without what makes a release slow to build.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
export CARGO_TARGET_DIR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files --cached --others --exclude-standard -z | xargs -0 cp --parents --target-directory="$work"
cd "$work"

model() { cargo test --release --quiet -p etcd-cluster-controller --test model >"$work/said" 2>&1; }
# What the first exploration that failed has said.
reason() { awk '/ panicked at / { getline; print; exit }' "$work/said"; }

model || { cat "$work/said" && echo "the plan as it is fails already" >&2 && exit 1; }
wrong=0
for name in "$@"; do
    git apply "$folder/$name.patch" ||
        { echo "$name does not fit the sources any more" >&2 && exit 1; }
    if model; then
        said="NOT NOTICED: $(head -n 1 "$folder/$name.patch")"
        wrong=1
    elif grep --quiet '^test result: FAILED' "$work/said"; then
        said=$(reason)
    else
        said="NOT JUDGED: $(tail -n 20 "$work/said")"
        wrong=1
    fi
    printf '%-40s %s\n' "$name" "$said"
    git apply --reverse "$folder/$name.patch"
done
exit $wrong
