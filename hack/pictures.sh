#!/usr/bin/env bash
# Takes pictures of the site of the documentation for people to view, and checks what only a browser can: that every
# diagram is drawn.
#
#   hack/pictures.sh SITE DIRECTORY [DASHBOARD]
#
#   SITE       the directory that hack/book.sh has written
#   DIRECTORY  where the pictures are written
#   DASHBOARD  the page that dashboard::has_something_to_show has drawn; without it, there is no picture of one
#
# On Debian, and as root, Chromium is installed if no such browser is there. PICTURES_BROWSER names another browser that
# takes the same options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "$*" >&2 && exit 1; }

[ $# = 2 ] || [ $# = 3 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' hack/pictures.sh >&2 && exit 2; }
mkdir -p "$2"
site=$(realpath "$1") to=$(realpath "$2") dashboard=
if [ $# = 3 ]; then
    [ -e "$3" ] || fail "$3 does not exist: dashboard::has_something_to_show has drawn no page there"
    dashboard=$(realpath "$3")
fi
pages=(README docs/start docs/concepts docs/architecture docs/cluster-hooks docs/conditions docs/api-reference)
# The smallest size of a picture in bytes: more than that of an empty page.
least=30000

find_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" && return
    done
    return 1
}

install_browser() {
    { [ "$(id -u)" = 0 ] && grep -q '^ID=debian' /etc/os-release; } || fail "no browser here: install Chromium, or name a browser in PICTURES_BROWSER"
    echo "installing packages: chromium fonts-dejavu-core" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; } >&2
}

if [ -n "${PICTURES_BROWSER:-}" ]; then
    program=$(command -v "$PICTURES_BROWSER") || fail "PICTURES_BROWSER: $PICTURES_BROWSER is not a program here"
else
    find_browser >/dev/null || install_browser
    program=$(find_browser)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Opens a page and gives its scripts time. Chromium's own sandbox does not work in a container.
open_page() {
    local page=$1
    shift
    timeout 120 "$program" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
        --user-data-dir="$work/profile" --virtual-time-budget=20000 "$@" "file://$page" 2>"$work/said" ||
        fail "$page: $program fails: $(tail -n 5 "$work/said")"
}

# Takes a picture of a page with this height in pixels.
take() {
    local page=$1 height=$2 picture=$3 size
    rm -f "$picture"
    open_page "$page" --window-size="1280,$height" --screenshot="$picture"
    [ -s "$picture" ] || fail "$page: no picture"
    size=$(stat --format=%s "$picture")
    [ "$size" -ge "$least" ] || fail "$page: nothing can be seen on $picture, of $size bytes"
    echo "$picture"
}

for page in "${pages[@]}"; do
    take "$site/$page.html" 1600 "$to/${page//\//-}.png"
done
[ -z "$dashboard" ] || take "$dashboard" 2800 "$to/dashboard.png"

# A diagram that is not drawn is shown as its source. A wrong diagram becomes a picture of an error message.
drawn=0
while IFS= read -r page; do
    open_page "$page" --dump-dom >"$work/page"
    diagrams=$(grep --only-matching '<pre class="mermaid"[^>]*>' "$work/page" || true)
    [ -n "$diagrams" ] || fail "$page: its diagrams are gone"
    ! grep --quiet --invert-match 'data-processed="true"' <<<"$diagrams" || fail "$page: a diagram is not drawn"
    ! grep --quiet 'Syntax error in text' "$work/page" || fail "$page: a diagram cannot be drawn"
    drawn=$((drawn + $(wc -l <<<"$diagrams")))
done < <(grep --recursive --files-with-matches --include='*.html' '<pre class="mermaid"' "$site" | sort)
[ "$drawn" -gt 0 ] || fail "no page has a diagram"
echo "$drawn diagrams are drawn"
