#!/usr/bin/env bash
# Writes what a release page holds, for clusterctl and cluster-api-operator.
#
#   hack/release.sh [DIRECTORY]     without one: out/release
#
# The manifests are rendered by the kubectl that the test bed has built, or by the one in KUBECTL or in the PATH. Two runs write
# the same bytes, with the same kubectl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

to=${1:-out/release}

# The version that the test bed pins, so that everybody renders with the same kustomize.
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

kubectl=$(find_kubectl)
mkdir -p "$to"
rm -f "$to"/*.yaml "$to/SHA256SUMS"
cp metadata.yaml "$to/metadata.yaml"
"$kubectl" kustomize config/release >"$to/bootstrap-components.yaml"
cp config/release/cluster-template.yaml "$to/cluster-template.yaml"
cp examples/docker/cluster-template.yaml "$to/cluster-template-docker.yaml"
cp examples/local/cluster-template.yaml "$to/cluster-template-local.yaml"
chmod 0644 "$to"/*.yaml
(cd "$to" && LC_ALL=C sha256sum -- *.yaml >SHA256SUMS)
echo "written to $to:"
(cd "$to" && ls -1)
