#!/usr/bin/env bash
# Builds the programs of a release for one architecture: static, and without a trace of where they were built.
#
#   hack/programs.sh ARCHITECTURE DIRECTORY [PROGRAM...]
#
#   ARCHITECTURE  amd64 or arm64
#   DIRECTORY     where they are written
#   PROGRAM       manager, etcdadm and kubectl-etcdcluster; default: all of them
#
# The same Rust, C compiler and C library always result in the same bytes. Needs rustup or the installed targets, a C
# compiler with its static library for the architecture, and protoc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "$*" >&2 && exit 1; }

[ $# -ge 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/programs.sh >&2 && exit 2; }
architecture=$1 to=$2
shift 2
[ $# != 0 ] || set -- manager etcdadm kubectl-etcdcluster
targets=$(for program in "$@"; do hack/target.sh "$program" "$architecture"; done | sort -u)
machine=${targets%%-*}
if [ "$(uname -m)" = "$machine" ]; then
    compiler=cc
else
    compiler=$machine-linux-gnu-gcc
fi
command -v "$compiler" >/dev/null || fail "$compiler is missing: install gcc-${machine/_/-}-linux-gnu"

sysroot=$(rustc --print sysroot)
commit=$(rustc --version --verbose | sed -n 's/^commit-hash: //p')
cargo_home=${CARGO_HOME:-$HOME/.cargo}
directory=$(realpath -m "${CARGO_TARGET_DIR:-target}")

quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

build() {
    local target=$1 program packages=()
    shift
    for program in "$@"; do packages+=(-p "$program" --bin "$program"); done
    [ -d "$sysroot/lib/rustlib/$target/lib" ] || rustup target add "$target" >&2 || fail "Rust has no target $target here"

    # Paths that the message of a panic could show. If several match, the last one counts.
    local flags=(
        -Ctarget-feature=+crt-static
        --remap-path-prefix="$PWD=/source"
        --remap-path-prefix="$directory=/target"
        --remap-path-prefix="$cargo_home=/cargo"
        --remap-path-prefix="$sysroot/lib/rustlib/src/rust=/rustc/$commit"
    )
    # For musl, Rust has the linker and the library.
    if [[ $target == *-musl ]]; then flags+=(-Clinker=rust-lld); else flags+=(-Clinker="$compiler"); fi
    local encoded maps
    # The crate that calls the C compiler splits its flags as a POSIX shell does: a path may contain a space.
    maps=" -ffile-prefix-map=$(quoted "$directory=/target") -ffile-prefix-map=$(quoted "$cargo_home=/cargo")"
    encoded=$(printf '%s\x1f' "${flags[@]}")
    # Compilers of some distributions call checked functions that only glibc has.
    env CARGO_INCREMENTAL=0 CARGO_ENCODED_RUSTFLAGS="${encoded%$'\x1f'}" "CC_${target//-/_}=$compiler" \
        CC_SHELL_ESCAPED_FLAGS=1 "CFLAGS_${target//-/_}=-U_FORTIFY_SOURCE$maps" \
        cargo build --release --locked --target "$target" "${packages[@]}"
    local headers
    for program in "$@"; do
        headers=$(LC_ALL=C readelf --program-headers "$directory/$target/release/$program")
        [[ $headers != *INTERP* ]] || fail "$program is not static"
        install -D -m 0755 "$directory/$target/release/$program" "$to/$program"
    done
}

for target in $targets; do
    programs=()
    for program in "$@"; do [ "$(hack/target.sh "$program" "$architecture")" != "$target" ] || programs+=("$program"); done
    build "$target" "${programs[@]}"
done
