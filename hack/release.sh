#!/usr/bin/env bash
# Writes the files of a release page.
#
#   hack/release.sh [--manifests] [DIRECTORY]
#
#   --manifests  only the manifests and what is for monitoring: nothing is compiled, and other files in DIRECTORY stay,
#                except the krew manifest
#   DIRECTORY    default: out/release
#
# ARCHITECTURES has the architectures; default: "amd64 arm64". The manifests are rendered by the kubectl in KUBECTL,
# else by the one that the test bed has built, else by the one in the PATH.
#
# SIGNING_KEY names a file with a private key, RSA or EC, as PEM. With it, SHA256SUMS is signed, in SHA256SUMS.sig.
#
# RELEASE_HOMEPAGE is the address at which the release will be published (HOMEPAGE of hack/krew.sh). With it, the krew
# manifest of the kubectl plugin is written too, for the archives of the plugin that are then in DIRECTORY.
#
# The same commit, kubectl, Rust, C compiler and C library always result in the same bytes; only a signature differs.
# The date in the files is that of the commit, or SOURCE_DATE_EPOCH. hack/reproduce.sh checks this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/release.sh; }

everything=yes
to=out/release
for argument in "$@"; do
    case "$argument" in
    --manifests) everything= ;;
    -h | --help) usage && exit ;;
    -*) echo "unknown option $argument" >&2 && usage >&2 && exit 2 ;;
    *) to=$argument ;;
    esac
done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# The version that the test bed pins, so that the manifests are always rendered with the same kustomize.
find_kubectl() {
    [ -z "${KUBECTL:-}" ] || { echo "$KUBECTL" && return; }
    local pinned built
    pinned=$(sed -n 's/^[[:space:]]*\(require \)\{0,1\}k8s.io\/kubernetes \(v[^ ]*\).*/\2/p' e2e/tools/kubernetes/go.mod | head -n 1)
    for built in "${XDG_CACHE_HOME:-$HOME/.cache}"/cluster-api-provider-etcdadm/tools/kubernetes-"$pinned"-*/kubectl; do
        [ ! -x "$built" ] || { echo "$built" && return; }
    done
    command -v kubectl || {
        echo "kubectl is needed: install it, name it in KUBECTL, or build the test bed's with 'cargo run -p e2e -- tools build'" >&2
        return 1
    }
}

manifests() {
    cp metadata.yaml "$to/metadata.yaml"
    "$kubectl" kustomize config/release >"$to/bootstrap-components.yaml"
    "$kubectl" kustomize config/release-before-kubernetes-1.36 >"$to/bootstrap-components-before-kubernetes-1.36.yaml"
    "$kubectl" kustomize config/default >"$to/install.yaml"
    "$kubectl" kustomize config/before-kubernetes-1.36 >"$to/install-before-kubernetes-1.36.yaml"
    "$kubectl" kustomize config/aggregate-to-people >"$to/aggregate-to-people.yaml"
    "$kubectl" kustomize config/prometheus >"$to/prometheus.yaml"
    cp config/release/network-policy.yaml "$to/network-policy.yaml"
    cp config/kube-state-metrics/custom-resource-state.yaml "$to/kube-state-metrics.yaml"
    cp config/grafana/etcdcluster.json "$to/grafana-dashboard.json"
    cp config/operator/bootstrapprovider.yaml "$to/bootstrapprovider.yaml"
    cp config/release/cluster-template.yaml "$to/cluster-template.yaml"
    cp examples/docker/cluster-template.yaml "$to/cluster-template-docker.yaml"
    cp examples/local/cluster-template.yaml "$to/cluster-template-local.yaml"
    cp examples/openstack/cluster-template.yaml "$to/cluster-template-openstack.yaml"
    chmod 0644 "$to"/*.yaml "$to/grafana-dashboard.json"
}

# The largest size of the program in the manager's image, in bytes.
most=20000000

# Writes programs, their images and their SBOMs, for one architecture.
programs() {
    local architecture=$1 image=localhost/cluster-api-provider-etcdadm program
    hack/programs.sh "$architecture" "$work/$architecture"
    local size
    size=$(stat --format=%s "$work/$architecture/manager")
    [ "$size" -le "$most" ] || { echo "the manager has $size bytes: more than $most" >&2 && exit 1; }
    install -m 0755 "$work/$architecture/etcdadm" "$to/etcdadm-linux-$architecture"
    # The image's name is that in install.yaml and bootstrap-components.yaml. A program that runs on a machine runs as
    # root there.
    hack/image.sh "$work/$architecture/manager" "$architecture" "$image:$version" "$to/manager-image-linux-$architecture.tar" 65532:65532
    hack/image.sh "$work/$architecture/etcdadm" "$architecture" "$image/etcdadm:$version" "$to/etcdadm-image-linux-$architecture.tar"
    plugin "$architecture"
    for program in manager etcdadm kubectl-etcdcluster; do
        hack/sbom.sh "$program" "$architecture" >"$to/$program-linux-$architecture.cdx.json"
    done
}

# Packs the kubectl plugin, with the program that kubectl runs for its completions, in the form that krew requires.
plugin() {
    install -m 0644 LICENSE "$work/$1/LICENSE"
    install -m 0755 config/krew/kubectl_complete-etcdcluster "$work/$1/kubectl_complete-etcdcluster"
    tar --create --directory "$work/$1" --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        kubectl-etcdcluster kubectl_complete-etcdcluster LICENSE | gzip --no-name --best >"$to/kubectl-etcdcluster-linux-$1.tar.gz"
}

# Signs standard input.
sign() { openssl dgst -sha256 -sign "$SIGNING_KEY"; }

# Tries the key first, before minutes are spent on files that cannot be signed.
if [ -n "${SIGNING_KEY:-}" ] && ! sign </dev/null >/dev/null; then
    echo "SIGNING_KEY=$SIGNING_KEY is not a private key (RSA or EC, as PEM)" >&2
    exit 1
fi
kubectl=$(find_kubectl)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$to"
rm -f "$to"/*.yaml "$to"/SHA256SUMS*
manifests
if [ -n "$everything" ]; then
    rm -f "$to"/*.tar "$to"/*.tar.gz "$to"/*.cdx.json "$to"/etcdadm-linux-* "$to/machine-image.sh"
    for architecture in ${ARCHITECTURES:-amd64 arm64}; do programs "$architecture"; done
    install -m 0755 hack/machine-image.sh "$to/machine-image.sh"
fi
if [ -n "${RELEASE_HOMEPAGE:-}" ]; then
    hack/krew.sh "$version" "$to" "$RELEASE_HOMEPAGE" >"$work/krew.yaml"
    install -m 0644 "$work/krew.yaml" "$to/kubectl-etcdcluster.krew.yaml"
fi
(cd "$to" && LC_ALL=C sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS && chmod 0644 SHA256SUMS)
[ -z "${SIGNING_KEY:-}" ] || sign <"$to/SHA256SUMS" >"$to/SHA256SUMS.sig"
echo "written to $to:"
(cd "$to" && ls -1)
