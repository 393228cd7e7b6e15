#!/usr/bin/env bash
# Puts etcdadm and etcd's releases into a machine image, at the places where they are expected. It needs no other file:
# copy it into a build.
#
#   machine-image.sh RELEASE ARCHITECTURE VERSION...
#
#   RELEASE       the directory with etcdadm-linux-ARCHITECTURE and SHA256SUMS of a release
#   ARCHITECTURE  amd64 or arm64
#   VERSION       a version of etcd, such as 3.6.16; several allow for upgrades without a download
#
# ROOT is the root of the image's file system; default: /, as inside a build. ETCD_RELEASES is the address of etcd's
# releases; default: upstream's. Everything is checked against the SHA256SUMS beside it, and etcdadm checks it again
# when it uses it.
set -euo pipefail

[ $# -ge 3 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" >&2 && exit 2; }
release=$1 architecture=$2
shift 2
root=${ROOT:-/}
etcd_releases=${ETCD_RELEASES:-https://github.com/etcd-io/etcd/releases/download}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Checks a file against its line in SHA256SUMS of its directory. It is an error if there is no line.
check() {
    (cd "$1" && awk -v name="$2" '$2 == name || $2 == "*" name { print; found = 1 } END { exit !found }' SHA256SUMS |
        sha256sum --check --strict --quiet) || { echo "$2 is not what SHA256SUMS says" >&2 && return 1; }
}

check "$release" "etcdadm-linux-$architecture"
install -D -m 0755 "$release/etcdadm-linux-$architecture" "$root/usr/local/bin/etcdadm"
for version in "$@"; do
    version=${version#v}
    archive=etcd-v$version-linux-$architecture.tar.gz
    for file in "$archive" SHA256SUMS; do
        curl --fail --silent --show-error --location --output "$work/$file" "$etcd_releases/v$version/$file"
    done
    check "$work" "$archive"
    # Installed only after the check, because etcdadm uses what it finds there.
    cache=$root/var/cache/etcdadm/etcd/v$version
    install -D -m 0644 "$work/SHA256SUMS" "$cache/SHA256SUMS"
    install -m 0644 "$work/$archive" "$cache/$archive"
done
