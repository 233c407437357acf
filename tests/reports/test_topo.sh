#!/bin/sh
# tests/reports/test_topo.sh SHARDFIT DATA: `shardfit topo` as a user calls it.
set -eu
shardfit=$1 data=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() { echo "$1"; exit 1; }
# runs ... : stdout to $out/o, stderr to $out/e, the exit code in $code
run() { code=0; "$@" >"$out/o" 2>"$out/e" || code=$?; }

# the answer is on stdout, the hint that no model is named is not
run "$shardfit" topo "$data/topo/8x-h100-nonic.txt"
[ $code = 0 ] || fail "a good file gives $code"
cmp -s "$out/o" "$data/topo/8x-h100-nonic.expected" || fail "stdout is not the expected text"
grep -q -- '--gpu NAME' "$out/e" || fail "no hint of --gpu"

# a named GPU fills the rates: 18 NVLinks of 25 GB/s
run "$shardfit" topo --gpu H100-SXM5-80GB "$data/topo/8x-h100-nonic.txt"
grep -q 'NV18  28 GPU pairs, 450 GB/s each way (catalogue)' "$out/o" || fail "--gpu does not fill the rate"
[ ! -s "$out/e" ] || fail "complaints about a good file"

# from a pipe, and its JSON read again gives the same text
"$shardfit" topo --json - <"$data/nccl-topo/oci-h100-topology.xml" >"$out/t.json" 2>"$out/e"
grep -q 'uplink of less than half' "$out/e" || fail "--json hides the warnings"
run "$shardfit" topo "$out/t.json"
cmp -s "$out/o" "$data/nccl-topo/oci-h100-topology.expected" || fail "the JSON reads as another topology"

# a picture
run "$shardfit" topo --svg "$out/t.svg" '8xH100-SXM5-80GB nvswitch; 4 nodes; 8x400Gb ib rail'
[ $code = 0 ] && grep -q '</svg>' "$out/t.svg" || fail "no picture"

# bad input: 2 and one line that says what
for wrong in "$out/nothere" "$out" '8xH100-SXM5-80GB string' '8xNOSUCHGPU nvswitch' /dev/null; do
    run "$shardfit" topo "$wrong"
    [ $code = 2 ] || fail "'$wrong' gives $code"
    [ ! -s "$out/o" ] || fail "'$wrong' prints an answer"
    [ "$(wc -l <"$out/e")" = 1 ] || fail "'$wrong' is told in $(wc -l <"$out/e") lines"
done
run "$shardfit" topo --gpu NOSUCHGPU "$data/topo/8x-h100-nonic.txt"
[ $code = 2 ] || fail "an unknown GPU gives $code"
run "$shardfit" topo
[ $code = 2 ] || fail "no source gives $code"
run "$shardfit" topo --svg "$out/no/such/folder/t.svg" '8xL4 pcie'
[ $code = 2 ] || fail "a picture that cannot be written gives $code"

# this machine, whatever it is
run "$shardfit" topo live
[ $code = 0 ] && grep -q NUMA "$out/o" || fail "this machine is not read"
