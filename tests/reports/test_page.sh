#!/bin/sh
# tests/reports/test_page.sh DRAW_FAKE SHARDFIT: the pages of validate, compare and plan, in a real browser, are nowhere
# wider than their window, from a small phone to a desk, show every drawing whole, log no error and ask nothing of the
# network. Skipped (77) without Chromium or gnuplot.
set -eu
draw=$1 program=$2
browser=$(command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "skipped: no chromium (Debian package chromium-headless-shell)"
    exit 77
fi
if ! command -v gnuplot >/dev/null; then
    echo "skipped: no gnuplot (Debian package gnuplot-nox)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
job="--model llama-3-8b --framework shardfit --seq-len 4096 --gpus 4"
"$draw" "$dir"

check_page() { # FILE, drawings that it shows at a time
    sed 's/<details>/<details open>/g' "$1" >"$dir/open.html"
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
        echo "$1, window $width px: page, room, drawings with clipped text, drawings: $got"
        if [ "$(echo "$got" | wc -w)" -ne 4 ]; then
            echo "skipped: the browser does not run here"
            exit 77
        fi
        echo "$got" | { read -r page room clipped drawings; [ "$page" -le "$room" ] && [ "$clipped" -eq 0 ] && [ "$drawings" -eq "$2" ]; } || exit 1
    done
    # the page by itself: nothing on its console
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$dir/profile" --enable-logging=stderr --dump-dom "file://$dir/open.html" \
        2>&1 >/dev/null | grep CONSOLE && { echo "$1 logs errors"; exit 1; }
    return 0
}

check_page "$dir/report.html" 15
"$program" plan $job --gpu "A100 SXM4 40GB" --global-batch 64 --min-gpus -o "$dir/plan" >/dev/null
check_page "$dir/plan/plan.html" 1
"$program" compare $job --gpu "A100 SXM4 80GB" -o "$dir/compare" >/dev/null
check_page "$dir/compare/report.html" "$(grep -c '<figure>' "$dir/compare/report.html")"
"$program" plan $job --gpu "RTX 3080 10GB" --set cluster.host_memory_gib=16 -o "$dir/nothing" >/dev/null || test $? -eq 1
check_page "$dir/nothing/plan.html" 0
