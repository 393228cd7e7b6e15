#!/usr/bin/env bash
# Runs the tests.
#
#   hack/test.sh [--unit] [--api] [--local] [--docker] [NAME]
#
#   --unit    formatting, lints, rustdoc, generated files, and pure logic
#   --api     CRDs and webhooks against a real API server
#   --local   the loop on real parts, in a world of namespaces on this computer
#   --docker  the whole road on Cluster API's docker infrastructure: systemd, kubeadm, a working cluster; needs root
#   NAME      only tests whose name contains it, and none of the checks
#
# Without a tier it runs what CI runs, which is all of them. With E2E_FULL=1 the longer scenarios too. What the tests need is
# installed or built first; failing tests on real parts print the directory of their logs. The last line says how many
# passed and failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/test.sh; }

tiers=()
name=
for argument in "$@"; do
    case "$argument" in
    --unit | --api | --local | --docker) tiers+=("${argument#--}") ;;
    -h | --help) usage && exit ;;
    -*) echo "unknown option $argument" >&2 && usage >&2 && exit 2 ;;
    *) [ -z "$name" ] || { echo "one test name at most" >&2 && exit 2; } && name=$argument ;;
    esac
done
# Integration tests by tier. Those of e2e say by their name which they are in; the local one has the rest of them.
unit_tests=() api_tests=() local_tests=() docker_tests=()
for path in */tests/*; do
    [[ $path == *.rs || -e $path/main.rs ]] || continue
    test=$(basename "$path" .rs)
    case "$path" in
    e2e/tests/api*) api_tests+=(--test "$test") ;;
    e2e/tests/docker*) docker_tests+=(--test "$test") ;;
    e2e/tests/* | etcdadm/tests/* | local-infrastructure/tests/*) local_tests+=(--test "$test") ;;
    *) unit_tests+=(--test "$test") ;;
    esac
done
if [ ${#tiers[@]} = 0 ]; then
    tiers=(unit)
    [ ${#api_tests[@]} = 0 ] || tiers+=(api)
    tiers+=(local)
    if [ "$(id -u)" = 0 ]; then
        tiers+=(docker)
    else
        echo "without root: the docker tests are left out" >&2
    fi
fi
for tier in "${tiers[@]}"; do
    tests="${tier}_tests[@]"
    if [ "$tier" != unit ] && [ -z "${!tests:-}" ]; then
        echo "there are no $tier tests yet" >&2
        exit 1
    fi
done

case " ${tiers[*]} " in
*" docker "*) export SETUP_DOCKER=1 ;;
esac
. hack/setup.sh

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed_steps=()

# Runs a command with its output on the terminal and in the log.
step() {
    local what=$1
    shift
    echo
    echo "== $what"
    local started=$SECONDS status=0
    "$@" 2>&1 | tee -a "$log" || status=$?
    echo "-- $what: $((SECONDS - started)) s"
    return $status
}

# A step that passes or fails as a whole, and counts as one test.
check() {
    local before said
    before=$(wc -l <"$log")
    if step "$@"; then
        echo "test result: ok. 1 passed; 0 failed" >>"$log"
    else
        said=$(tail -n "+$((before + 1))" "$log" | tail -n 30)
        printf 'failures:\n%s\ntest result: FAILED. 0 passed; 1 failed\n' "$said" >>"$log"
        failed_steps+=("$1")
    fi
}

# Always of the whole workspace: with the same packages selected, nothing is compiled twice.
tests() {
    local what=$1 before
    shift
    before=$(wc -l <"$log")
    step "$what" cargo test --workspace --no-fail-fast "$@" ${name:+-- "$name"} && return
    failed_steps+=("$what")
    # It can fail without a failed test: when it does not compile, or crashes.
    tail -n "+$((before + 1))" "$log" | grep -q 'test result: .* [1-9][0-9]* failed' ||
        echo "test result: FAILED. 0 passed; 1 failed" >>"$log"
}

generated_files_are_up_to_date() {
    local fresh same=0
    fresh=$(mktemp -d)
    "$programs/generate-crds" "$fresh" >/dev/null &&
        "$programs/local-infrastructure" crds --out "$fresh/local" >/dev/null &&
        diff -r --exclude=kustomization.yaml config/crd "$fresh" || same=1
    rm -rf "$fresh"
    [ $same = 0 ] || echo "config/crd is not what the types say: run make generate"
    return $same
}

real_parts() {
    [ -z "${real_parts_are_there:-}" ] || return 0
    real_parts_are_there=1
    check "real parts" "$programs/e2e" tools build ${E2E_FULL+--all-etcd}
}

programs="${CARGO_TARGET_DIR:-target}/debug"
check "build" cargo build --workspace --all-targets
for tier in "${tiers[@]}"; do
    case "$tier" in
    unit)
        if [ -z "$name" ]; then
            check "formatting" cargo fmt --all --check
            # Those of docker are not tests by default, and have to be named.
            check "lints" cargo clippy --workspace --all-targets "${docker_tests[@]}" -- -D warnings
            check "rustdoc" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
            check "generated files" generated_files_are_up_to_date
            tests "examples in documentation" --doc
        fi
        tests "unit tests" --lib --bins "${unit_tests[@]}"
        ;;
    api)
        real_parts
        tests "api tests" "${api_tests[@]}"
        ;;
    local)
        real_parts
        tests "local tests" "${local_tests[@]}"
        ;;
    docker)
        real_parts
        check "real parts of docker's machines" "$programs/e2e" tools build --docker
        # The containers have a C library of their own.
        check "etcdadm without libraries" cargo rustc -p etcdadm --bin etcdadm -- -C target-feature=+crt-static
        tests "docker tests" "${docker_tests[@]}"
        ;;
    esac
done

# What failed once more: it may stand far above, and whoever runs this may keep only the end.
awk '/^failures:$/ { on = 1 } /^test result: / { on = 0 } on' "$log"

# Adds up every summary in the log.
read -r passed failed < <(sed -n 's/^.*test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*$/\1 \2/p' "$log" |
    awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }')
echo
[ ${#failed_steps[@]} = 0 ] || printf 'failed: %s\n' "${failed_steps[@]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
