#!/bin/sh
# Compiles by way of ccache, so that what one checkout has compiled serves another. ccache.sh CHECKOUT COMPILER ARGUMENT...
# A precompiled header names the files of its own checkout, so it is made anew in each; the sum of what it was made from
# (X.pch.sum beside X.pch, see CCACHE_PCH_EXTSUM) is what units that use it are known by.
checkout=$1
shift
# The cache knows a unit by the words of its command, so these name precompiled headers by a place that is the same in each
# build, whether Troupe is all of it or a part of another project: below the folder where the compiler runs.
for argument in "$@"; do
  shift
  case $argument in
    /*/precompiled_*.dir/cmake_pch.hxx*)
      folder=${argument%/cmake_pch.hxx*}
      group=${folder##*/precompiled_}
      link=troupe_units/${group%.dir}
      if [ "$(readlink "$link")" != "$folder" ]; then
        mkdir -p troupe_units
        ln -s "$folder" "$link.$$" && mv -fT "$link.$$" "$link"
      fi
      argument=$link/${argument##*/} ;;
  esac
  set -- "$@" "$argument"
done
# Compilers that take memory in large pages, and give none back before they end, need a tenth less time (glibc 2.35 and newer; others
# do not read this).
malloc=glibc.malloc
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-$malloc.hugetlb=1:$malloc.top_pad=67108864:$malloc.trim_threshold=1073741824:$malloc.mmap_threshold=33554432:$malloc.tcache_count=1000}"
header= output= inputs= before=
for argument in "$@"; do
  case $before in
    -x) [ "$argument" != c++-header ] || header=1 ;;
    -o) output=$argument ;;
    -MF) inputs=$argument ;;
  esac
  before=$argument
done
if [ -n "$header" ]; then
  "$@" || exit
  sed -e 's/\\$//' -e '1s/^[^:]*://' "$inputs" | xargs cat | cksum >"$output.sum"
  exit
fi
# CCACHE_DEPEND: the cache takes a unit's headers from the compiler's list, and does not preprocess the unit first.
CCACHE_BASEDIR=$checkout CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 CCACHE_DEPEND=1 \
  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime exec ccache "$@"
