#!/bin/sh
# Compiles by way of ccache, so that what one checkout has compiled serves another. ccache.sh CHECKOUT COMPILER ARGUMENT...
# A precompiled header names the files of its own checkout, so it is made anew in each; the sum of what it was made from
# (X.pch.sum beside X.pch, see CCACHE_PCH_EXTSUM) is what units that use it are known by.
checkout=$1
shift
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
CCACHE_BASEDIR=$checkout CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 \
  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime exec ccache "$@"
