#!/usr/bin/env bash
# How long builds take: from nothing, in a second checkout beside the first, after one edit; and one unit that includes
# all of troupe.h. Works on clones of HEAD in a folder of its own, with a compiler cache of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
at=$(mktemp -d "${TMPDIR:-/tmp}/troupe-build-times.XXXXXX")
trap 'rm -rf "$at"' EXIT
trap 'exit 130' INT TERM
export CCACHE_DIR=$at/cache

seconds() {  # WHAT COMMAND...
  local what=$1 began=${EPOCHREALTIME/./} took
  shift
  "$@" >"$at/log" 2>&1 || { tail -n 30 "$at/log" >&2; exit 1; }
  took=$(((${EPOCHREALTIME/./} - began) / 100000))
  printf '| %-52s | %5d.%d |\n' "$what" $((took / 10)) $((took % 10))
}

clone() { git clone -q . "$at/$1"; }

printf '| %-52s | %7s |\n|---|---|\n' "build ($(nproc) cores, $(${CXX:-clang++-19} --version | head -n 1 | cut -c1-24))" seconds
clone first
seconds "what ./dev demo needs, from nothing" "$at/first/dev" build release troupe_cli digits
seconds "the rest of what ./dev test needs" "$at/first/dev" build release
clone second
seconds "all of it, in a second checkout" "$at/second/dev" build release
echo "// edited" >>"$at/second/ops/cpu/comparison.cpp"
seconds "one kernel edited, then what ./dev demo needs" "$at/second/dev" build release troupe_cli digits
echo '#include "troupe/troupe.h"' >"$at/one.cpp"
seconds "one unit that includes troupe.h, -O0" ${CXX:-clang++-19} -std=c++20 -I"$at/first" -c "$at/one.cpp" -o "$at/one.o"
