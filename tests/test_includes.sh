#!/bin/sh
# tests/test_includes.sh ROOT: includes point one way.
#
#   base <- desc <- program <- {strategy, cost} <- sim <- reports
#   base <- desc <- program <- exec <- reports
#
# sim and exec never include each other, and exec nothing of strategy. Of cost, exec knows the profile that it
# fills (model/cost/profile.h). MPI's header appears only under exec/host, CUDA's and NCCL's only under exec/cuda.
set -eu
root=$1

check() { # DIR: prints each forbidden include; fails if there is one
    (cd "$1" && find model sim exec reports -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk '
    function part(path,  a, n) {
        n = split(path, a, "/")
        return a[1] == "model" ? a[1] "/" a[2] : a[1]
    }
    BEGIN {
        may["model/base"] = "model/base"
        may["model/desc"] = may["model/base"] " model/desc"
        may["model/program"] = may["model/desc"] " model/program"
        may["model/strategy"] = may["model/program"] " model/strategy"
        may["model/cost"] = may["model/program"] " model/cost"
        may["sim"] = may["model/program"] " model/strategy model/cost sim"
        may["exec"] = may["model/program"] " exec"
        may["reports"] = may["sim"] " exec reports"
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, q, "\"")
        from = part(FILENAME); to = part(q[2])
        if (from == "exec" && q[2] == "model/cost/profile.h")
            next
        if (q[2] !~ /\//)
            say("includes \"" q[2] "\": write the path from the top")
        else if (index(" " may[from] " ", " " to " ") == 0)
            say("includes \"" q[2] "\": " from " must not know " to)
    }
    /^[ \t]*#[ \t]*include[ \t]*</ {
        split($0, q, "[<>]")
        if (q[2] == "mpi.h" && FILENAME !~ /^exec\/host\//)
            say("includes <mpi.h> outside exec/host")
        if (q[2] ~ /^(cuda|cublas|nccl|nvml|nvtx)/ && FILENAME !~ /^exec\/cuda\//)
            say("includes <" q[2] "> outside exec/cuda")
    }
    function say(what) { printf "%s:%d: %s\n", FILENAME, FNR, what; bad = 1 }
    END { exit bad }')
}

# The check itself finds what it should.
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p "$made/model/base" "$made/model/program" "$made/sim" "$made/exec/host" "$made/reports"
echo '#include "model/base/a.h"' >"$made/sim/good.c"
echo '#include <mpi.h>' >"$made/exec/host/good.c"
if ! check "$made" >/dev/null; then
    echo "the check refuses what is allowed"
    exit 1
fi
for wrong in 'model/base/b.c|"model/program/p.h"' 'sim/b.c|"exec/e.h"' 'exec/b.c|"sim/s.h"' 'exec/b.c|"model/strategy/s.h"' \
             'exec/b.c|"model/cost/accountant.h"' 'sim/b.c|"engine.h"' 'reports/b.c|<mpi.h>' 'exec/host/b.c|<cuda_runtime.h>' 'exec/b.c|<nccl.h>'; do
    file=$made/${wrong%%|*}
    echo "#include ${wrong#*|}" >"$file"
    if check "$made" >/dev/null; then
        echo "the check overlooks $wrong"
        exit 1
    fi
    rm "$file"
done

check "$root"
