#!/usr/bin/env bash
# Breaks the product on purpose, in one way after the other. A scenario on real parts has to find it.
#
#   hack/sabotage.sh [--check] [NAME...]
#
#   --check  only check that each file still fits the sources, names an existing scenario, and expects words that the
#            tests contain, the name of a rule of the observer, or what the judge says; nothing is built
#   NAME     a file of e2e/sabotage without .patch; default: what E2E_SABOTAGE says, or all of them
#
# The head of each file says what is broken, which rule that breaks, which scenario has to fail, and with which words. A
# failure without these words, such as a failure to compile, does not count. The scenario runs under observation. One
# line for each file says what has caught it, and after how many seconds. The script fails if nothing has, or if a file
# no longer fits the sources. It works on a copy below target/sabotage, so the sources do not change. Each file takes
# two to five minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
folder=$root/e2e/sabotage

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/sabotage.sh; }
only_check=
case "${1:-}" in
--check) only_check=1 && shift ;;
-*) usage && exit ;;
esac
# shellcheck disable=SC2086 # Several names are several words.
[ $# -gt 0 ] || set -- ${E2E_SABOTAGE:-}
if [ $# = 0 ]; then
    for file in "$folder"/*.patch; do set -- "$@" "$(basename "$file" .patch)"; done
fi

# Every value of a word in the head of a file, one per line.
head_of() { sed -n "/^--- /q;s/^$2: //p" "$folder/$1.patch"; }
# Who catches it, and with which words. Text that is only known at run time is in braces.
words_of() { sed -n '/^--- /q;s/^Caught by \(invariant\|judge\|assertion\): /\1 /p' "$folder/$1.patch"; }

# Whether these words exist. The tests or the judge have to contain every part that is not in braces; an invariant has
# to be the name of a rule of the observer.
are_said() {
    local part places=("$root/e2e/tests" "$root/e2e/src") any=
    if [ "$1" = invariant ]; then
        grep --recursive --quiet --fixed-strings --exclude=tests.rs -e "\"$2\"" "$root/e2e/src/observer/rules"
        return
    fi
    [ "$1" != judge ] || places=("$root/e2e/src/history/judge.rs")
    while IFS= read -r part; do
        [ -n "$part" ] || continue
        grep --recursive --quiet --fixed-strings -e "$part" "${places[@]}" || return 1
        any=1
    done < <(sed 's/{[^}]*}/\n/g' <<<"$2")
    [ -n "$any" ]
}

# Whether a file fits the sources, and its head is complete.
is_sound() {
    local test scenario who words
    git apply --check "$folder/$1.patch" || { echo "$1 does not fit the sources any more" >&2 && return 1; }
    read -r test scenario < <(head_of "$1" Scenario)
    grep --quiet --fixed-strings -e "scenario!($scenario)" -e "\"$scenario\"" "$root/e2e/tests/$test/main.rs" ||
        { echo "$1: there is no scenario $scenario in e2e/tests/$test/main.rs" >&2 && return 1; }
    case "$(head_of "$1" Built)" in
    programs | test) ;;
    *) echo "$1: \"Built\" has to be \"programs\" or \"test\"" >&2 && return 1 ;;
    esac
    [ -n "$(head_of "$1" Rule)" ] && [ -n "$(words_of "$1")" ] ||
        { echo "$1 does not say which rule it breaks, or in which words it is caught" >&2 && return 1; }
    while read -r who words; do
        are_said "$who" "$words" || { echo "$1: no $who says \"$words\"" >&2 && return 1; }
    done < <(words_of "$1")
}

unsound=0
for name in "$@"; do is_sound "$name" || unsound=1; done
[ $unsound = 0 ] || exit 1
[ -z "$only_check" ] || exit 0

. hack/setup.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/sabotage
tree=$work/tree
# The scenarios are built from the sources, except those that contain the product. So a patch does not break the code
# that judges it.
cargo build --workspace --all-targets
"$target/debug/e2e" tools build >/dev/null

# The files are always new, so that cargo does not use what it has built with a patch for the unchanged sources.
rm -rf "$tree"
mkdir -p "$tree"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp --parents --target-directory="$tree"
# The copy may be inside the repository. Without this, git would look for the files of a patch at the repository's top.
export GIT_CEILING_DIRECTORIES=$work

# Two builds differ by two patches, so little has to be compiled again.
build() {
    cd "$tree" && CARGO_INCREMENTAL=1 CARGO_TARGET_DIR=$work/target cargo build --quiet --workspace \
        --bin manager --bin etcdadm --bin local-infrastructure
}

# Runs one scenario with the programs that were built from the copy.
run() {
    local built=$1 test=$2 scenario=$3
    case "$built" in
    programs) cd "$root" && export CARGO_TARGET_DIR=$target ;;
    test) cd "$tree" && export CARGO_TARGET_DIR=$work/target CARGO_INCREMENTAL=1 ;;
    esac
    E2E_FULL=1 E2E_PROGRAMS=$work/target/debug E2E_LOGS=$work/logs \
        timeout 1200 cargo test --workspace --test "$test" -- --exact "$scenario"
}

wrong=0
for name in "$@"; do
    read -r test scenario < <(head_of "$name" Scenario)
    rule=$(head_of "$name" Rule)
    said=$work/$name.log
    printf '%-30s rule %-2s  %-58s ' "$name" "${rule%%:*}" "$scenario"
    (cd "$tree" && git apply "$folder/$name.patch")
    caught=
    if ! (build) >"$said" 2>&1; then
        caught="NOT BUILT, see $said"
        wrong=1
    else
        rm -rf "$work/logs"
        begun=$SECONDS
        (run "$(head_of "$name" Built)" "$test" "$scenario") >"$said" 2>&1 || true
        seconds=$((SECONDS - begun))
        if grep --quiet '^test result: FAILED' "$said"; then
            while read -r who words; do
                words=${words//[\{\}]/}
                ! grep --quiet --fixed-strings -e "$words" "$said" || caught+="${caught:+, }$who ($words)"
            done < <(words_of "$name")
        fi
        [ -n "$caught" ] || {
            caught="NOT CAUGHT: $(head -n 1 "$folder/$name.patch") See $said"
            wrong=1
        }
        caught="$(printf '%4s s' "$seconds")  $caught"
    fi
    printf '%s\n' "$caught"
    (cd "$tree" && git apply --reverse "$folder/$name.patch")
done
exit $wrong
