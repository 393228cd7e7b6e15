#!/usr/bin/env bash
# Prints the krew manifest of the kubectl plugin for a release.
#
#   hack/krew.sh VERSION DIRECTORY HOMEPAGE
#
#   VERSION    the version of the release, such as 0.1.0
#   DIRECTORY  has the archives kubectl-etcdcluster-linux-ARCH.tar.gz. Architectures without an archive are left out
#   HOMEPAGE   the address of the repository; archives are downloaded from HOMEPAGE/releases/download
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# = 3 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/krew.sh >&2 && exit 2; }
version=${1#v} directory=$2 homepage=${3%/}

manifest=$(sed '/^#/d' config/krew/etcdcluster.yaml)
found=
for platform in linux-amd64 linux-arm64; do
    name=SHA256_$(tr a-z- A-Z_ <<<"$platform")
    archive=$directory/kubectl-etcdcluster-$platform.tar.gz
    if [ -e "$archive" ]; then
        found=yes
        manifest=${manifest//@$name@/$(sha256sum "$archive" | cut -d' ' -f1)}
    else
        # Removes everything from the selector to the last line of this platform.
        manifest=$(awk -v name="@$name@" '
            /^    - selector:/ { if (block !~ name) printf "%s", block; block = "" }
            /^    - selector:/ || block != "" { block = block $0 "\n"; next }
            { print }
            END { if (block !~ name) printf "%s", block }' <<<"$manifest")
    fi
done
[ -n "$found" ] || { echo "there is no kubectl-etcdcluster-linux-ARCH.tar.gz in $directory" >&2 && exit 1; }
manifest=${manifest//@DOWNLOADS@/$homepage/releases/download}
manifest=${manifest//@HOMEPAGE@/$homepage}
manifest=${manifest//@VERSION@/$version}
echo "$manifest"
