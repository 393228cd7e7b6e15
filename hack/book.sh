#!/usr/bin/env bash
# Builds the site of the documentation with mdBook.
#
#   hack/book.sh [DIRECTORY]
#
#   DIRECTORY  where the pages are written; default: out/book
#
# Installs mdBook and the program that draws the diagrams if they are missing. Fails if mdBook fails, if a page of the
# site links to a file that does not exist, or if a diagram is shown as text.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

case "${1:-}" in
-*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/book.sh && exit ;;
esac
MDBOOK=0.5.4
MERMAID=0.17.1

# Installs this version of a program, unless the program reports that version. Without optimisation, it is compiled
# sooner, and still fast enough for these pages.
install_program() {
    "$1" --version 2>/dev/null | grep --quiet --fixed-strings "$2" ||
        cargo install --quiet --locked --debug --version "$2" "$1"
}
install_program mdbook "$MDBOOK"
install_program mdbook-mermaid "$MERMAID"

mkdir -p "${1:-out/book}"
to=$(cd "${1:-out/book}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The layout of the repository, so that every link between pages works. Examples and sources are not pages; pages link
# to them as files.
mkdir "$work/source"
cp book.toml site.css "$work"
cp -r README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE docs examples "$work/source"
mkdir -p "$work/source/e2e/src"
cp e2e/src/scenarios.rs e2e/src/malformed.rs "$work/source/e2e/src"
# Links in SUMMARY.md without a folder lead to pages of docs/.
sed -e 's|](|](docs/|' -e 's|](docs/\.\./|](|' docs/SUMMARY.md >"$work/source/SUMMARY.md"
rm "$work/source/docs/SUMMARY.md"

mdbook-mermaid install "$work" >/dev/null
mdbook build "$work"
rm -rf "${to:?}"/*
cp -r "$work/book/." "$to"

missing=0
while IFS= read -r page; do
    folder=$(dirname "$page")
    while IFS= read -r link; do
        [ -e "$folder/$link" ] || {
            echo "${page#"$to/"}: $link does not exist" >&2
            missing=1
        }
    done < <(grep -o 'href="[^"#:]*[#"]' "$page" | sed -e 's/^href="//' -e 's/[#"]$//' -e '/^$/d' | sort -u)
done < <(find "$to" -name '*.html' ! -name 404.html)
[ $missing = 0 ]
if grep --recursive --files-with-matches --include='*.html' 'language-mermaid' "$to" >&2; then
    echo "these pages show a diagram as text" >&2
    exit 1
fi
echo "$to/index.html"
