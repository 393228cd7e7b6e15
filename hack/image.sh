#!/usr/bin/env bash
# Puts one static program into a container image, without a container engine.
#
#   hack/image.sh PROGRAM ARCHITECTURE REFERENCE FILE [USER]
#
#   PROGRAM       the program: the only file in the image, at /NAME, and its entrypoint
#   ARCHITECTURE  amd64 or arm64: what the program was built for
#   REFERENCE     name and tag that the image gets when it is loaded
#   FILE          the archive to write
#   USER          the user that runs it, as UID:GID; default: root
#
# The archive is both an OCI image layout and what `docker save` writes: docker, podman, containerd, kind, skopeo and
# crane can read it. The same program and SOURCE_DATE_EPOCH (default 0) always result in the same bytes.
set -euo pipefail

[ $# = 4 ] || [ $# = 5 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" >&2 && exit 2; }
program=$1 architecture=$2 reference=$3 file=$4 user=${5:-}
name=$(basename "$program")
epoch=${SOURCE_DATE_EPOCH:-0}
created=$(date --utc --date="@$epoch" +%Y-%m-%dT%H:%M:%SZ)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root" "$work/image/blobs/sha256"

# Writes a tar archive of everything in a directory to standard output. It does not depend on this computer, nor on its
# order of files.
archive() {
    LC_ALL=C tar --create --directory "$1" --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -- "${@:2}"
}

digest() { sha256sum "$1" | cut -d ' ' -f 1; }

# Moves a file to the blobs of the image, and sets `added` to the descriptor that refers to it.
add() {
    local from=$1 type=$2 sum
    sum=$(digest "$from")
    added="\"mediaType\":\"$type\",\"digest\":\"sha256:$sum\",\"size\":$(stat --format=%s "$from")"
    added_path=blobs/sha256/$sum
    mv "$from" "$work/image/$added_path"
}

install -m 0755 "$program" "$work/root/$name"
archive "$work/root" "$name" >"$work/layer.tar"
difference=$(digest "$work/layer.tar")
gzip --no-name --best "$work/layer.tar"
add "$work/layer.tar.gz" application/vnd.oci.image.layer.v1.tar+gzip
layer=$added layer_path=$added_path

printf '{"created":"%s","architecture":"%s","os":"linux","config":{%s"Entrypoint":["/%s"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"hack/image.sh"}]}' \
    "$created" "$architecture" "${user:+\"User\":\"$user\",}" "$name" "$difference" "$created" >"$work/config"
add "$work/config" application/vnd.oci.image.config.v1+json
config=$added config_path=$added_path

printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{%s},"layers":[{%s}]}' \
    "$config" "$layer" >"$work/manifest"
add "$work/manifest" application/vnd.oci.image.manifest.v1+json

printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{%s,"platform":{"architecture":"%s","os":"linux"},"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
    "$added" "$architecture" "$reference" "${reference##*:}" >"$work/image/index.json"
printf '[{"Config":"%s","RepoTags":["%s"],"Layers":["%s"]}]' \
    "$config_path" "$reference" "$layer_path" >"$work/image/manifest.json"
chmod -R u=rwX,go=rX "$work/image"
archive "$work/image" blobs index.json manifest.json oci-layout >"$file"
