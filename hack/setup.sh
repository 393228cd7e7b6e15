#!/usr/bin/env bash
# Installs what this computer lacks for building and testing, and reports it. If nothing is missing, it does nothing,
# silently.
#
# Run it, or source it to get the right PATH as well. Packages and compilers are installed only as root; without root,
# it says what is missing. Works on Debian 12 and 13 and on Ubuntu 24.04.
#
# With SETUP_DOCKER set, it also installs what the docker tests need; with SETUP_RELEASE, what programs for the other
# architecture need; with E2E_FULL, what only the long scenarios need.
set -euo pipefail

RUST_MINIMUM=1.90
# Installed if there is no Rust that is new enough. This is a pinned version, because the newest one may have lints that
# the code has not been checked with.
RUST_VERSION=1.95.0
GO_MINIMUM=1.21
# Fetched if there is no Go that is new enough. No e2e/tools/*/go.mod requires a newer one.
GO_VERSION=1.26.8

setup_cache="${XDG_CACHE_HOME:-$HOME/.cache}/cluster-api-provider-etcdadm"
# The PATH and toolchain of the calling shell, if it runs this script and does not source it.
setup_callers_path=$PATH
setup_callers_toolchain=${RUSTUP_TOOLCHAIN:-}
setup_cargo="${CARGO_HOME:-$HOME/.cargo}/bin"
# The directories of rustup, of our own Go (see below), and of ip and iptables, which an ordinary user's PATH often
# lacks.
export PATH="$setup_cargo:$PATH:$setup_cache/go/bin:/usr/sbin:/sbin"

setup_say() { echo "setup: $*" >&2; }
setup_fail() { setup_say "$@"; exit 1; }
setup_has() { command -v "$1" >/dev/null 2>&1; }

# Whether version $1 is at least version $2.
setup_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

setup_rust_is_there() {
    local version
    version=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    setup_at_least "$version" "$RUST_MINIMUM" && setup_has cargo && cargo fmt --version >/dev/null 2>&1 &&
        cargo clippy --version >/dev/null 2>&1
}

setup_go_is_there() {
    local version
    version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || return 1
    setup_at_least "${version#go}" "$GO_MINIMUM"
}

# Scenarios give our manager a wrong clock. The library is in no PATH.
setup_has_faketime() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; }

# Names of the packages that are missing.
setup_missing_packages() {
    local missing=()
    setup_has cc || missing+=(gcc libc6-dev)
    setup_has git || missing+=(git)
    setup_has protoc || missing+=(protobuf-compiler)
    [ -e /usr/include/google/protobuf/timestamp.proto ] || missing+=(libprotobuf-dev)
    setup_has unshare && setup_has setpriv && setup_has nsenter || missing+=(util-linux)
    setup_has ip || missing+=(iproute2)
    setup_has iptables || missing+=(iptables)
    # For signing releases.
    setup_has openssl || missing+=(openssl)
    setup_has cloud-init || missing+=(cloud-init)
    # Machines consist of this computer's programs, and their users may be given sudo.
    setup_has sudo || missing+=(sudo)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
    [ -z "${E2E_FULL+set}" ] || setup_has_faketime || missing+=(libfaketime)
    # Scenarios put members on file systems of their own.
    [ -z "${E2E_FULL+set}" ] || setup_has mkfs.ext4 || missing+=(e2fsprogs)
    # A scenario runs the commands of the documentation.
    [ -z "${E2E_FULL+set}" ] || setup_has jq || missing+=(jq)
    [ -z "${E2E_FULL+set}" ] || setup_has make || missing+=(make)
    if [ -n "${SETUP_DOCKER:-}" ]; then
        setup_has dockerd && setup_has docker && setup_has runc || missing+=(docker.io)
        setup_has debootstrap || missing+=(debootstrap)
    fi
    if [ -n "${SETUP_RELEASE:-}" ]; then
        # The wanted architecture (see hack/release.sh) that is not this computer's.
        case "$(uname -m) ${ARCHITECTURES:-amd64 arm64}" in
        x86_64*arm64*) setup_has aarch64-linux-gnu-gcc || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;;
        aarch64*amd64*) setup_has x86_64-linux-gnu-gcc || missing+=(gcc-x86-64-linux-gnu libc6-dev-amd64-cross) ;;
        esac
    fi
    # The version does not matter: an old one can fetch a new one.
    setup_has go || missing+=(golang-go)
    setup_has curl || missing+=(curl)
    echo "${missing[*]}"
}

setup_install_packages() {
    local missing
    missing=$(setup_missing_packages)
    [ -n "$missing" ] || return 0
    local before="apt-get update && "
    case " $missing " in
    # Or it would set up this computer at its next boot.
    *" cloud-init "*) before="mkdir -p /etc/cloud && touch /etc/cloud/cloud-init.disabled && $before" ;;
    esac
    [ "$(id -u)" = 0 ] || setup_fail "these packages are missing; as root: ${before}apt-get install $missing"
    setup_has apt-get || setup_fail "no apt-get here; these Debian packages, or what has their programs, are missing: $missing"
    setup_say "installing packages: $missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >&2
    # shellcheck disable=SC2086 # a list
    apt-get install -y -q --no-install-recommends $missing >&2
    # Debian 13 has docker's client in a package of its own, which docker.io only recommends.
    [ -z "${SETUP_DOCKER:-}" ] || setup_has docker || apt-get install -y -q --no-install-recommends docker-cli >&2
    case " $missing " in
    *" cloud-init "*)
        # cloud-init is for the machines of tests, and must not change this computer's own settings.
        mkdir -p /etc/cloud
        touch /etc/cloud/cloud-init.disabled
        setup_say "cloud-init is switched off for this computer itself (/etc/cloud/cloud-init.disabled)"
        ;;
    esac
}

# Machines get a systemctl that works without systemd. Its package is never installed here: the program that makes the
# machines fetches it, as any user, if apt knows it.
setup_let_apt_know_systemctl() {
    [ ! -e "$setup_cache/systemctl/usr/bin/systemctl" ] || return 0
    ! apt-cache show systemctl >/dev/null 2>&1 || return 0
    [ "$(id -u)" = 0 ] || setup_fail "apt does not know the package systemctl; as root: apt-get update"
    setup_say "apt does not know the package systemctl yet: apt-get update"
    apt-get update -q >&2
}

# The distribution's Go may be too old to fetch toolchains by itself, but it can fetch a module, and Go is available as
# one.
setup_install_go() {
    ! setup_go_is_there || return 0
    local arch module answer directory
    arch=$(go env GOARCH)
    module="golang.org/toolchain@v0.0.1-go$GO_VERSION.linux-$arch"
    setup_say "installing Go $GO_VERSION in $setup_cache/go: $(go env GOVERSION) is older than $GO_MINIMUM"
    answer=$(cd / && go mod download -json "$module") || setup_fail "could not fetch $module: $answer"
    directory=$(sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$answer")
    mkdir -p "$setup_cache"
    rm -rf "$setup_cache/go.partial"
    cp -r "$directory" "$setup_cache/go.partial"
    chmod -R u+w "$setup_cache/go.partial"
    # Modules do not keep permissions.
    find "$setup_cache/go.partial/bin" "$setup_cache/go.partial/pkg/tool" -type f -exec chmod 755 {} +
    rm -rf "$setup_cache/go"
    mv "$setup_cache/go.partial" "$setup_cache/go"
    export PATH="$setup_cache/go/bin:$PATH"
}

setup_install_rust() {
    ! setup_rust_is_there || return 0
    # Installed beside an older default of the user, which stays the default.
    export RUSTUP_TOOLCHAIN=$RUST_VERSION
    ! setup_rust_is_there || return 0
    setup_say "installing Rust $RUST_VERSION by rustup: no Rust $RUST_MINIMUM or newer with rustfmt and clippy here"
    local why="install Rust $RUST_MINIMUM or newer with rustfmt and clippy yourself"
    if ! setup_has rustup; then
        # From the server that also has the compilers, so that only one server has to be reachable.
        local init
        init=$(mktemp -d)/rustup-init
        curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --output "$init" \
            "https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init" ||
            setup_fail "rustup could not be fetched; $why"
        chmod +x "$init"
        "$init" -y --quiet --no-modify-path --profile minimal --default-toolchain none >&2 ||
            setup_fail "rustup could not be installed; $why"
        rm -r "$(dirname "$init")"
    fi
    rustup toolchain install "$RUST_VERSION" --profile minimal --component rustfmt --component clippy >&2 ||
        setup_fail "rustup could not fetch Rust; $why"
    # If there was no Rust at all, plain cargo should work too.
    env -u RUSTUP_TOOLCHAIN rustc --version >/dev/null 2>&1 || rustup default "$RUST_VERSION" >&2
    hash -r
    setup_rust_is_there || setup_fail "the installed Rust is not found; is $setup_cargo another one's?"
}

# Whether the calling shell finds Rust without help.
setup_caller_has_rust() (
    export PATH=$setup_callers_path
    if [ -n "$setup_callers_toolchain" ]; then
        export RUSTUP_TOOLCHAIN=$setup_callers_toolchain
    else
        unset RUSTUP_TOOLCHAIN
    fi
    setup_rust_is_there
)

setup_install_packages
setup_let_apt_know_systemctl
# Prefers the Go of an earlier run to the distribution's old one.
setup_go_is_there || { [ -x "$setup_cache/go/bin/go" ] && export PATH="$setup_cache/go/bin:$PATH"; } || true
setup_install_go
setup_install_rust
if [ "${BASH_SOURCE[0]}" = "$0" ] && ! setup_caller_has_rust; then
    setup_say "before you run cargo yourself: export PATH=\"$setup_cargo:\$PATH\"${RUSTUP_TOOLCHAIN:+ RUSTUP_TOOLCHAIN=$RUSTUP_TOOLCHAIN}"
fi
