#!/usr/bin/env bash
# Builds the programs of a release for one architecture: static, without a trace of where they were built.
#
#   hack/programs.sh ARCHITECTURE DIRECTORY [PROGRAM...]
#
#   ARCHITECTURE  amd64 or arm64
#   DIRECTORY     where they are written to
#   PROGRAM       manager, etcdadm and kubectl-etcdcluster; without one: all of them
#
# The C library is musl, which comes with Rust. So nothing but the little C in them depends on this computer, and etcdadm
# loads no library of the machine that it runs on. Two builds with the same Rust and the same C compiler are the same bytes.
# Needs rustup or the installed target, a C compiler for the architecture, and protoc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "$*" >&2 && exit 1; }

[ $# -ge 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/programs.sh >&2 && exit 2; }
architecture=$1 to=$2
shift 2
[ $# != 0 ] || set -- manager etcdadm kubectl-etcdcluster
case "$architecture" in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*) fail "unknown architecture $architecture: amd64 or arm64" ;;
esac
target=$machine-unknown-linux-musl
sysroot=$(rustc --print sysroot)

[ -d "$sysroot/lib/rustlib/$target/lib" ] || rustup target add "$target" >&2 ||
    fail "Rust has no target $target here"
if [ "$(uname -m)" = "$machine" ]; then
    compiler=cc
else
    compiler=$machine-linux-gnu-gcc
fi
command -v "$compiler" >/dev/null || fail "$compiler is missing: install gcc-${machine/_/-}-linux-gnu"

# What is outside of the checkout and could be read in a panic's message. Of several that match, the last one counts.
commit=$(rustc --version --verbose | sed -n 's/^commit-hash: //p')
directory=$(realpath -m "${CARGO_TARGET_DIR:-target}")
flags=(
    # It comes with Rust, too.
    -Clinker=rust-lld
    --remap-path-prefix="$PWD=/source"
    --remap-path-prefix="$directory=/target"
    --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=/cargo"
    --remap-path-prefix="$sysroot/lib/rustlib/src/rust=/rustc/$commit"
)
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
export "CC_${target//-/_}=$compiler"
# Some distributions' compilers call checked functions that only glibc has.
export "CFLAGS_${target//-/_}=-U_FORTIFY_SOURCE -ffile-prefix-map=$directory=/target -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo"

packages=()
for program in "$@"; do packages+=(-p "$program" --bin "$program"); done
CARGO_INCREMENTAL=0 cargo build --release --locked --target "$target" "${packages[@]}"
mkdir -p "$to"
for program in "$@"; do install -m 0755 "$directory/$target/release/$program" "$to/$program"; done
