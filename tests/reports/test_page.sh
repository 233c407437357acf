#!/bin/sh
# tests/reports/test_page.sh DRAW_FAKE: a report's page, in a real browser, is nowhere wider than its window, from a
# small phone to a desk, and asks nothing of the network. Skipped (77) without Chromium or gnuplot.
set -eu
draw=$1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "skipped: no chromium (Debian package chromium)"
    exit 77
fi
if ! command -v gnuplot >/dev/null; then
    echo "skipped: no gnuplot (Debian package gnuplot-nox)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$draw" "$dir"
sed 's/<details>/<details open>/g' "$dir/report.html" >"$dir/open.html"
if grep -nE '(src|href)="?(https?:)?//|url\(["'"'"']?http|@import' "$dir/open.html"; then
    echo "the page refers to something outside itself"
    exit 1
fi
for width in 320 375 768 1280; do
    cat >"$dir/frame.html" <<END
<!DOCTYPE html><body style="margin:0"><iframe id="f" src="open.html" style="border:0;width:${width}px;height:900px"></iframe><pre id="o"></pre>
<script>f.onload = () => {
  const d = f.contentDocument, r = d.documentElement;
  const clipped = [...d.querySelectorAll("svg")].filter(s => s.getClientRects().length && [...s.querySelectorAll("text")].some(t => {
    const a = t.getBoundingClientRect(), b = s.getBoundingClientRect();
    return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1; })).length;
  const shown = [...d.querySelectorAll("svg")].filter(s => s.getClientRects().length).length;
  o.textContent = "MEASURED " + r.scrollWidth + " " + r.clientWidth + " " + clipped + " " + shown + " END";
};</script>
END
    got=$(timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$dir/profile" --allow-file-access-from-files \
        --virtual-time-budget=5000 --dump-dom "file://$dir/frame.html" 2>/dev/null | sed -n 's/.*MEASURED \([0-9 ]*\) END<.*/\1/p')
    echo "window $width px: page, room, drawings with clipped text, drawings: $got"
    set -- $got
    if [ $# -ne 4 ]; then
        echo "skipped: the browser does not run here"
        exit 77
    fi
    if [ "$1" -gt "$2" ] || [ "$3" -ne 0 ] || [ "$4" -ne 15 ]; then
        exit 1
    fi
done
