#!/usr/bin/env bash
# Runs the tests.
#
#   hack/test.sh [--unit] [--api] [--local] [--docker] [NAME]
#
#   --unit    formatting, lints, rustdoc, generated files, pure logic, the model of the plan with its figures,
#             dependencies, and the site of the documentation; with E2E_FULL=1 its pictures (with --local also one of
#             the dashboard), and two builds of a release, which have to be the same
#   --api     CRDs, admission policies and examples against a real API server
#   --local   the loop on real parts, in a world of namespaces on this computer; if root runs it with E2E_FULL=1, a part
#             of it without root too
#   --docker  the whole road on Cluster API's docker infrastructure: systemd, kubeadm, a working cluster; needs root
#   NAME      only tests whose name contains it, and none of the checks
#
# With E2E_SABOTAGE=NAME, runs hack/sabotage.sh instead: the product is broken on purpose, and a scenario has to find it.
#
# Without a tier, runs what CI runs, which is all of them. With E2E_FULL=1, runs the longer scenarios too. First
# installs or builds what the tests need. Failing tests on real parts print the directory of their logs. At the end,
# there is one list of what took how long in all tiers; the last line says how many passed and failed.
#
# Pictures need Chromium, which is installed only on Debian and as root. Elsewhere, install it, or name a browser that
# takes the same options in PICTURES_BROWSER.
#
# Lints run at low priority. With more than two processors, the docker tier runs beside the local one, with "docker | "
# before its lines.
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
[ -z "${E2E_SABOTAGE:-}" ] || exec hack/sabotage.sh

# Integration tests by tier. The names of those in e2e decide the tier; the local tier has the rest of them.
unit_tests=() api_tests=() local_tests=() docker_tests=()
for path in */tests/*; do
    [[ $path == *.rs || -e $path/main.rs ]] || continue
    test=$(basename "$path" .rs)
    case "$path" in
    e2e/tests/api*) api_tests+=(--test "$test") ;;
    e2e/tests/docker*) docker_tests+=(--test "$test") ;;
    e2e/tests/* | etcdadm/tests/* | local-infrastructure/tests/*) local_tests+=(--test "$test") ;;
    # Runs separately, because it prints its figures.
    etcd-cluster-controller/tests/model) ;;
    *) unit_tests+=(--test "$test") ;;
    esac
done
if [ ${#tiers[@]} = 0 ]; then
    tiers=(unit api local)
    if [ "$(id -u)" = 0 ]; then
        tiers+=(docker)
    else
        echo "without root: the docker tests are left out" >&2
    fi
fi

case " ${tiers[*]} " in
*" docker "*) export SETUP_DOCKER=1 ;;
esac
. hack/setup.sh

# The whole output, and the names of the steps that failed. A part that runs beside the rest has a log of its own.
logs=$(mktemp -d)
log=$logs/all
failed_steps=$logs/failed-steps
: >"$failed_steps"
started_beside=()

clean_up() {
    local process
    for process in "${started_beside[@]}"; do
        kill -- "-$process" 2>/dev/null && wait "$process" || true
    done
    rm -rf "$logs"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

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
    before=$(lines_of_the_log)
    if step "$@"; then
        echo "test result: ok. 1 passed; 0 failed" >>"$log"
    else
        said=$(tail -n "+$((before + 1))" "$log" | tail -n 30)
        printf 'failures:\n%s\ntest result: FAILED. 0 passed; 1 failed\n' "$said" >>"$log"
        echo "$1" >>"$failed_steps"
    fi
}

# A command that runs the command of the tests.
as=()

# Always for the whole workspace: with the same packages selected, nothing is compiled twice.
tests() {
    local what=$1 before
    shift
    before=$(lines_of_the_log)
    step "$what" "${as[@]}" cargo test --workspace --no-fail-fast ${name:+"$name"} "$@" && return
    echo "$what" >>"$failed_steps"
    # It can fail without a failed test, if it does not compile, or crashes. grep reads to the end: with -q it would leave
    # early, and tail could fail.
    tail -n "+$((before + 1))" "$log" | grep 'test result: .* [1-9][0-9]* failed' >/dev/null ||
        echo "test result: FAILED. 0 passed; 1 failed" >>"$log"
}

lines_of_the_log() {
    touch "$log"
    wc -l <"$log"
}

# Runs a function beside the rest, with a name before its lines. It has a process group of its own, so that all its
# processes can be killed.
beside() {
    local part=$1
    shift
    set -m
    { log=$logs/$part && "$@" 2>&1 | sed -u "s/^/$part | /"; } &
    set +m
    started_beside+=($!)
}

end_of_what_runs_beside() {
    [ ${#started_beside[@]} = 0 ] || wait "${started_beside[@]}"
    started_beside=()
}

generated_files_are_up_to_date() {
    local fresh same=0
    fresh=$(mktemp -d)
    "$programs/generate-crds" "$fresh/crd" "$fresh/api-reference.md" >/dev/null &&
        "$programs/local-infrastructure" crds --out "$fresh/crd/local" >/dev/null &&
        diff -r --exclude=kustomization.yaml config/crd "$fresh/crd" &&
        diff docs/api-reference.md "$fresh/api-reference.md" || same=1
    rm -rf "$fresh"
    [ $same = 0 ] || echo "config/crd or docs/api-reference.md is not what the types say: run make generate"
    return $same
}

real_parts() {
    [ -z "${real_parts_are_there:-}" ] || return 0
    real_parts_are_there=1
    check "real parts" "$programs/e2e" tools build ${E2E_FULL+--all-etcd}
}

# Static checks. They use a target directory of their own, because cargo locks the one that it works in.
lints() {
    check "lints" env CARGO_TARGET_DIR="$target/lints" \
        nice -n 19 cargo clippy --quiet --workspace --all-targets -- -D warnings
    # The docker tests are not tests by default, so --all-targets leaves them out.
    check "lints of the docker tests" env CARGO_TARGET_DIR="$target/lints" \
        nice -n 19 cargo clippy --quiet --workspace "${docker_tests[@]}" -- -D warnings
    check "rustdoc" env CARGO_TARGET_DIR="$target/lints" RUSTDOCFLAGS="-D warnings" \
        nice -n 19 cargo doc --quiet --workspace --no-deps
}

# The containers have their own C library, so they get a static etcdadm.
programs_for_containers() {
    cargo rustc -p etcdadm --bin etcdadm -- -C target-feature=+crt-static &&
        mkdir -p "$target/containers" &&
        cp --force "$programs"/{etcdadm,manager,local-infrastructure,e2e,kubectl-etcdcluster} "$target/containers"
}

# The worlds of an ordinary user are user namespaces with a single user ID. So the machines run again in such a
# namespace, and one cluster runs as a root that may not make any other namespaces either.
without_root() {
    LOCAL_INFRASTRUCTURE_TEST_USERNS=1 tests "machines without root" --test machine
    as=(setpriv --inh-caps=-sys_admin --bounding-set=-sys_admin)
    tests "a cluster without root" --test local -- --exact bring_up::three_members
    as=()
}

docker_tests() {
    E2E_PROGRAMS=$target/containers tests "docker tests" "${docker_tests[@]}"
}

# Whether the docker tier runs beside the local one. The two worlds of the local tier keep two processors busy. A third
# world would starve API servers.
docker_runs_beside() {
    [ "$(nproc)" -gt 2 ] || return 1
    case " ${tiers[*]} " in *" local docker "*) ;; *) return 1 ;; esac
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
programs=$target/debug
# What the scenario dashboard::has_something_to_show draws.
dashboard=$target/tmp/dashboard/page.html
check "build" cargo build --workspace --all-targets
case " ${tiers[*]} " in
*" docker "*)
    real_parts
    check "real parts of docker's machines" "$programs/e2e" tools build --docker ${E2E_FULL+--release}
    check "programs for containers" programs_for_containers
    check "build of the docker tests" cargo test --no-run --workspace "${docker_tests[@]}"
    ;;
esac
for tier in "${tiers[@]}"; do
    case "$tier" in
    unit)
        if [ -z "$name" ]; then
            beside lints lints
            check "formatting" cargo fmt --all --check
            check "generated files" generated_files_are_up_to_date
            check "sabotages fit the sources" hack/sabotage.sh --check
            check "mutants fit the sources" hack/mutants.sh --check
            tests "examples in documentation" --doc
        fi
        tests "unit tests" --lib --bins "${unit_tests[@]}"
        # Shows what each search has seen: nothing else would report a search that sees less than before.
        tests "model" --test model -- --show-output
        ;;
    api)
        real_parts
        tests "api tests" "${api_tests[@]}"
        ;;
    local)
        real_parts
        # The page of an earlier run would hide that this run has drawn none.
        [ -z "${E2E_FULL+set}" ] || rm -f "$dashboard"
        ! docker_runs_beside || beside docker docker_tests
        tests "local tests" "${local_tests[@]}"
        [ -n "$name" ] || [ -z "${E2E_FULL+set}" ] || [ "$(id -u)" != 0 ] || without_root
        # A person runs this first, exactly like this. So it has to find out by itself whether it needs docker's parts.
        [ -n "$name" ] || check "demo" env -u SETUP_DOCKER hack/demo.sh --once
        ;;
    docker)
        docker_runs_beside || docker_tests
        ;;
    esac
done
end_of_what_runs_beside
case " ${tiers[*]} " in
*" docker "*)
    # With nothing beside it, because it rebuilds programs that other tests run.
    [ -n "$name" ] || [ -z "${E2E_FULL+set}" ] ||
        check "demo with docker" hack/demo.sh --once --infrastructure docker
    ;;
esac
# These install the programs that they lack. They run alone, because that takes minutes and all processors.
case " ${tiers[*]} " in
*" unit "*)
    if [ -z "$name" ]; then
        check "dependencies" hack/deny.sh
        check "site" hack/book.sh "$target/book"
        if [ -n "${E2E_FULL+set}" ]; then
            pictures=("$target/book" "$target/pictures")
            # Only the local tier draws it.
            case " ${tiers[*]} " in *" local "*) pictures+=("$dashboard") ;; esac
            check "pictures of the site" hack/pictures.sh "${pictures[@]}"
            # The real parts include the kubectl that renders a release.
            real_parts
            # A compiler for the other architecture is not installed.
            case "$(uname -m)" in aarch64) architecture=arm64 ;; *) architecture=amd64 ;; esac
            check "two releases that are the same" env "ARCHITECTURES=$architecture" hack/reproduce.sh
        fi
    fi
    ;;
esac

# How long everything took, the longest first: steps, test programs, and scenarios of programs that report them. Leaves
# out what took less than a second.
seconds() {
    awk '
        function add(took, what) { if (took + 0 >= 1) printf "%.1f\t%s\n", took, what }
        /^== / { step = substr($0, 4); program = step; scenarios = 0 }
        /^-- .*: [0-9]+ s$/ { took = $(NF - 1); add(took, step ": all of it"); scenarios = 0 }
        /^ +Running .*\(.*\)$/ {
            program = $NF
            gsub(/[()]|.*\//, "", program)
            sub(/-[0-9a-f]+$/, "", program)
        }
        /^ +Doc-tests / { program = "documentation of " $2 }
        /^test result: .*; finished in [0-9.]+s$/ { took = $NF; sub(/s$/, "", took); add(took, step ": " program) }
        scenarios && /^ *[0-9]+\.[0-9]  / { add($1, program " " $2); next }
        { scenarios = /^seconds of each scenario, / }
    ' "$@" | sort -t "$(printf '\t')" -k 1,1nr | awk -F '\t' '{ printf "%8.1f  %s\n", $1, $2 }'
}
echo
echo "== seconds"
seconds "$logs"/*

# Prints the failures once more: they may be far above, and a caller may keep only the end of the output.
awk '/^failures:$/ { on = 1 } /^test result: / { on = 0 } on' "$logs"/*

# Adds up every summary in the logs.
read -r passed failed < <(cat "$logs"/* | sed -n 's/^.*test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*$/\1 \2/p' |
    awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }')
echo
# Scenarios that cannot show anything on this computer do not count as passed.
sed -n 's/^ *[0-9.]*  \([^ ]*\) SKIPPED, /skipped: \1, /p' "$logs"/*
sed 's/^/failed: /' "$failed_steps"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
