#!/usr/bin/env bash
# Prints what a program of a release consists of, as CycloneDX JSON: every crate that is linked into it, and what
# depends on it.
#
#   hack/sbom.sh PROGRAM ARCHITECTURE
#
#   PROGRAM       manager, etcdadm or kubectl-etcdcluster
#   ARCHITECTURE  amd64 or arm64
#
# cargo knows what is linked in, and Cargo.lock has the checksums. rust-std is Rust's own library, including the musl
# that comes with it if a program uses that. glibc is that of the C compiler for the architecture, which has to be
# installed: its static library contains its version. Left out is what only build scripts, macros and tests need, and
# what the compiler adds (libgcc). SOURCE_DATE_EPOCH (default 0) is the date, so that the output is always the same with
# the same Rust and C library.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# = 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/sbom.sh >&2 && exit 2; }
program=$1
target=$(hack/target.sh "$@")

fail() { echo "$*" >&2 && exit 1; }

# The version text in the C library of hack/programs.sh's compiler: it begins with `GNU C Library`, and ends with a
# version.
glibc() {
    local compiler=cc library pattern='GNU C Library ([^)"\\]*) [a-z ]* version [0-9.]*[0-9]'
    [ "$(uname -m)" = "${target%%-*}" ] || compiler=${target%%-*}-linux-gnu-gcc
    library=$("$compiler" -print-file-name=libc.a) || fail "$compiler is missing, whose C library is linked in"
    LC_ALL=C grep --text --only-matching --max-count=1 "$pattern" "$library" ||
        fail "$library does not say which version it is"
}

case "$target" in
*-gnu) glibc=$(glibc) ;;
*) glibc= ;;
esac

# One crate per line, with its depth before its name. A subtree that was printed before is not repeated.
tree() {
    cargo tree --locked --package "$program" --target "$target" --edges normal,no-proc-macro --prefix depth \
        --format "$(printf '{p}\t{l}')"
}

crates=$(tree)

# `name version<tab>checksum`, for every crate of a registry.
checksums() {
    awk -F '"' '$1 == "name = " { name = $2 } $1 == "version = " { version = $2 }
        $1 == "checksum = " { print name " " version "\t" $2 }' Cargo.lock
}

# Texts are names, versions, checksums and licences, so nothing in them needs quoting.
LC_ALL=C awk -F '\t' -v date="$(date --utc --date="@${SOURCE_DATE_EPOCH:-0}" +%Y-%m-%dT%H:%M:%SZ)" -v target="$target" \
    -v rust="$(rustc --version | cut -d ' ' -f 2)" -v glibc="$glibc" '
    function fields(id,    licence, text) {
        licence = licences[id]
        gsub(/ *\/ */, " OR ", licence)
        text = "\"bom-ref\":\"" id "\",\"name\":\"" names[id] "\",\"version\":\"" versions[id] "\""
        if (id in described) text = text ",\"description\":\"" described[id] "\""
        if (licence != "") text = text ",\"licenses\":[{\"expression\":\"" licence "\"}]"
        if (names[id] == "glibc") text = text ",\"cpe\":\"cpe:2.3:a:gnu:glibc:" versions[id] ":*:*:*:*:*:*:*\""
        # Our own crates have no checksum, and are in no registry.
        if (id in sums) {
            text = text ",\"hashes\":[{\"alg\":\"SHA-256\",\"content\":\"" sums[id] "\"}]"
            text = text ",\"purl\":\"pkg:cargo/" names[id] "@" versions[id] "\""
        }
        return text
    }
    FNR == NR { split($1, part, " "); sums[part[1] "@" part[2]] = $2; next }
    {
        match($1, /^[0-9]+/)
        depth = substr($1, 1, RLENGTH) + 0
        split(substr($1, RLENGTH + 1), part, " ")
        sub(/^v/, "", part[2])
        id = part[1] "@" part[2]
        names[id] = part[1]; versions[id] = part[2]
        licences[id] = $2; sub(/ \(\*\)$/, "", licences[id])
        if (depth == 0) root = id
        above[depth] = id
        needed[id] = needed[id]
        if (depth > 0 && !((above[depth - 1], id) in edges)) {
            edges[above[depth - 1], id]
            needed[above[depth - 1]] = needed[above[depth - 1]] " " id
        }
    }
    END {
        # Sorted here, because not every awk has a sort function.
        std = "rust-std@" rust
        names[std] = "rust-std"; versions[std] = rust; licences[std] = "MIT OR Apache-2.0"
        needed[root] = needed[root] " " std
        if (glibc != "") {
            version = glibc
            sub(/.* /, "", version)
            library = "glibc@" version
            names[library] = "glibc"; versions[library] = version; licences[library] = "LGPL-2.1-or-later"
            described[library] = glibc
            needed[root] = needed[root] " " library
        }
        for (id in names) order[++count] = id
        for (i = 2; i <= count; i++)
            for (j = i; j > 1 && order[j - 1] > order[j]; j--) { t = order[j]; order[j] = order[j - 1]; order[j - 1] = t }
        print "{"
        print "\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.5\",\"version\":1,"
        print "\"metadata\":{\"timestamp\":\"" date "\",\"component\":{\"type\":\"application\"," fields(root) "},"
        print "\"properties\":[{\"name\":\"cargo:target\",\"value\":\"" target "\"}]},"
        print "\"components\":["
        left = count - 1
        for (i = 1; i <= count; i++)
            if (order[i] != root) print "{\"type\":\"library\"," fields(order[i]) "}" (--left ? "," : "")
        print "],"
        print "\"dependencies\":["
        for (i = 1; i <= count; i++) {
            some = split(substr(needed[order[i]], 2), part, " ")
            list = ""
            for (j = 1; j <= some; j++) list = list (j > 1 ? "," : "") "\"" part[j] "\""
            print "{\"ref\":\"" order[i] "\",\"dependsOn\":[" list "]}" (i < count ? "," : "")
        }
        print "]"
        print "}"
    }' <(checksums) - <<<"$crates"
