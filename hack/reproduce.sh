#!/usr/bin/env bash
# Builds a release twice, in two checkouts in different directories, and compares the checksums of all files.
#
#   hack/reproduce.sh [DIRECTORY...]
#
#   DIRECTORY  another release of the same commit to compare, such as out/release, or one that another person has built
#
# Builds the last commit, the second time with another time zone, language and umask. ARCHITECTURES has the
# architectures; default: "amd64 arm64". Takes twice as long as hack/release.sh in a new checkout. If the two releases
# differ, it prints where they are.
set -euo pipefail

case "${1:-}" in
-*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" && exit ;;
esac
releases=()
for release in "$@"; do
    [ -e "$release/SHA256SUMS" ] || { echo "$release has no SHA256SUMS" >&2 && exit 1; }
    releases+=("$(realpath "$release")")
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One commit for both: somebody may commit while the first one is built.
commit=$(git rev-parse HEAD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Builds a release in a checkout at $1, with the other arguments in its environment.
build() {
    local place=$work/$1
    shift
    git clone --quiet . "$place"
    git -C "$place" checkout --quiet --detach "$commit"
    # A target directory of its own: otherwise, what the other build has compiled would not be compiled again.
    (cd "$place" && env -u CARGO_TARGET_DIR -u SIGNING_KEY "$@" hack/release.sh "$place-release")
    releases+=("$place-release")
    rm -rf "$place"
}

build one
umask 077
build a/longer/path/to-the-other TZ=Pacific/Kiritimati LANG=C.UTF-8 LC_ALL=C.UTF-8

same=yes
for release in "${releases[@]:1}"; do
    diff "${releases[0]}/SHA256SUMS" "$release/SHA256SUMS" || same=
done
if [ -z "$same" ]; then
    trap - EXIT
    echo "they differ: ${releases[*]}" >&2
    exit 1
fi
echo "$(wc -l <"${releases[0]}/SHA256SUMS") files, the same in ${#releases[@]} releases"
