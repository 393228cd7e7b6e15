#!/usr/bin/env bash
# Prints the Rust target that a program of a release is built for.
#
#   hack/target.sh PROGRAM ARCHITECTURE
#
#   PROGRAM       manager, etcdadm or kubectl-etcdcluster
#   ARCHITECTURE  amd64 or arm64
set -euo pipefail

[ $# = 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" >&2 && exit 2; }
case "$2" in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*) echo "unknown architecture $2: amd64 or arm64" >&2 && exit 1 ;;
esac
# The manager uses glibc, whose memory allocation takes a third of the time of musl's with several threads. Programs
# that run on other people's computers use musl: a static glibc may load libraries of the machine to look up a name, and
# crash on those of another version.
case "$1" in
manager) library=gnu ;;
*) library=musl ;;
esac
echo "$machine-unknown-linux-$library"
