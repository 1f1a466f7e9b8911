# troupe_precompile(target [header...]): the standard headers that most units include, and these, compiled once for the
# target. Units still include what they use; -DTROUPE_PRECOMPILE=OFF builds each by itself, which shows one that does not.
option(TROUPE_PRECOMPILE "precompile common headers, which takes a third off a build" ON)

function(troupe_precompile target)
  if(NOT TROUPE_PRECOMPILE)
    return()
  endif()
  set(standard algorithm array atomic chrono condition_variable cstdint cstring exception functional future limits map memory mutex
               numeric optional set span sstream string string_view thread tuple type_traits unordered_map utility variant vector)
  list(TRANSFORM standard REPLACE "(.+)" "<\\1>")
  set(ours ${ARGN})
  list(TRANSFORM ours REPLACE "(.+)" "<\\1>")  # relative to the source folder, whichever that is: caches can serve another checkout
  target_precompile_headers(${target} PRIVATE ${standard} ${ours})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")  # or ccache could not use it again
  endif()
endfunction()

# troupe_share_precompiled(program group [header...]): the first program of a group precompiles, the others use the same file.
function(troupe_share_precompiled program group)
  get_property(first GLOBAL PROPERTY troupe_precompiled_${group})
  if(NOT first)
    set_property(GLOBAL PROPERTY troupe_precompiled_${group} ${program})
    troupe_precompile(${program} ${ARGN})
  elseif(TROUPE_PRECOMPILE)
    target_precompile_headers(${program} REUSE_FROM ${first})
  endif()
endfunction()
