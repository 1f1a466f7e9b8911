#!/usr/bin/env bash
# What builds and tests cost, in CPU seconds and by the clock, from an empty cache: build_times.sh [COMMIT...]. Each commit (HEAD, if
# none is given) is built in worktrees of its own, with a compiler cache of its own, by what that commit's ./dev does.
#
# TROUPE_BUILD_TIMES: which of "demo test second edit ci unit" to do; all but ci, which takes an hour, if it is not set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
steps=${TROUPE_BUILD_TIMES:-demo test second edit unit}
at=$(mktemp -d "${TMPDIR:-/tmp}/troupe-build-times.XXXXXX")
leave() { git worktree prune; rm -rf "$at"; git worktree prune; }
trap leave EXIT
trap 'exit 130' INT TERM
compiler=${CXX:-clang++-19}

# spent WHAT COMMAND...: a row with the CPU seconds of the command and of all that it started, and the clock's. The row of a command
# that fails says so.
spent() {
  local what=$1 began=${EPOCHREALTIME/./} rc=0
  shift
  times >"$at/before"  # the second line: user and system time of the children that have ended
  "$@" >"$at/log" 2>&1 || rc=$?
  times >"$at/after"
  [[ $rc == 0 ]] || { what+=" (exit code $rc: $(tail -n 1 "$at/log"))"; tail -n 30 "$at/log" >&2; }
  awk -v what="$what" -v clock=$((${EPOCHREALTIME/./} - began)) '
    FNR == 2 { for (i = 1; i <= 2; i++) { split($i, part, "[ms]"); seconds[FILENAME, i] = part[1] * 60 + part[2] } }
    END { for (i = 1; i <= 2; i++) took[i] = seconds[ARGV[2], i] - seconds[ARGV[1], i]
          printf "| %-52s | %7.1f | %7.1f | %7.1f |\n", what, took[1], took[2], clock / 1e6 }' "$at/before" "$at/after"
}

has() { [[ " $steps " == *" $1 "* ]]; }

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
for commit in "${@:-HEAD}"; do
  name=$(git rev-parse --short "$commit")
  export CCACHE_DIR=$at/cache-$name
  git worktree add -q --detach "$at/$name" "$commit"
  printf '\n%s: %s, %s cores, %s\n\n' "$name" "$processor" "$(nproc)" "$("$compiler" --version | head -n 1)"
  printf '| %-52s | %7s | %7s | %7s |\n|---|---:|---:|---:|\n' "build" user system clock
  if has demo; then spent "./dev demo" "$at/$name/dev" demo --chart "$at/digits.svg"; fi
  if has test; then spent "./dev test, behind it" "$at/$name/dev" test; fi
  if has second; then
    git worktree add -q --detach "$at/$name-second" "$commit"
    spent "all of it, in a second checkout" "$at/$name-second/dev" build release
  fi
  if has edit; then
    for unit in ops/cpu/comparison.cpp net/address.cpp; do
      echo "int edited_${RANDOM}_of_build_times;" >>"$at/$name/$unit"
      spent "$unit edited, then what ./dev demo needs" "$at/$name/dev" build release troupe_cli digits
    done
  fi
  if has ci; then
    rm -rf "$at/$name/build" "$CCACHE_DIR"
    git -C "$at/$name" checkout -q .
    spent ".ci/run, from an empty cache" "$at/$name/.ci/run"
  fi
  if has unit; then
    echo '#include "troupe/troupe.h"' >"$at/one.cpp"
    spent "one unit that includes troupe.h, -O0" "$compiler" -std=c++20 -I"$at/$name" -c "$at/one.cpp" -o "$at/one.o"
  fi
done
