#!/usr/bin/env bash
# Checks dependencies with cargo-deny, by deny.toml: licences, duplicates, sources, and known vulnerabilities.
#
#   hack/deny.sh
#
# Installs cargo-deny if it is missing. If the database of vulnerabilities cannot be reached, everything else is
# checked, and the last line says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=0.20.2

# Without optimisation: it runs once for each time that it is compiled here.
[ "$(cargo deny --version 2>/dev/null)" = "cargo-deny $VERSION" ] ||
    cargo install --quiet --locked --debug --version "$VERSION" cargo-deny
cargo deny --locked check bans licenses sources
if cargo deny fetch db; then
    cargo deny --frozen check advisories
else
    echo "advisories: NOT CHECKED, their database cannot be reached from here"
fi
