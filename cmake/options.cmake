# How the project is compiled: sanitizers, warnings, compiler cache, linker.
option(TROUPE_TESTS "build the tests" ${PROJECT_IS_TOP_LEVEL})
option(TROUPE_EXAMPLES "build the examples" ${PROJECT_IS_TOP_LEVEL})
option(TROUPE_BENCH "build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
set(TROUPE_SANITIZE "" CACHE STRING "sanitizers, as for -fsanitize= (for instance address,undefined)")
option(TROUPE_CHECK_LOCKS "with clang: what reaches a member without its mutex (core/base/mutex.h) is an error" OFF)

# Paths below the source folder count as relative ones, so that one checkout's results serve another.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/ccache.sh ${PROJECT_SOURCE_DIR})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # in words that ccache understands: no path after -Xclang
    set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include <PCH_HEADER>)
  endif()
endif()

# troupe_compile_options(option...): for C and C++; nvcc has words of its own.
function(troupe_compile_options)
  foreach(option ${ARGN})
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:${option}>)
  endforeach()
endfunction()

troupe_compile_options(-Wall -Wextra -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math
                       -ffp-contract=off)  # the same bits whatever the compiler would fuse
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 looks for elements in variants that hold none, and for copies of strings within themselves
  troupe_compile_options(-Wno-maybe-uninitialized -Wno-restrict)
else()
  troupe_compile_options(-Wno-pass-failed)  # loops that call std::exp(double) are not vectorized: that is known
  troupe_compile_options(-Wno-deprecated-declarations)  # libstdc++ 12 uses such a function in std::stable_sort
endif()
if(TROUPE_CHECK_LOCKS AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  troupe_compile_options(-Wthread-safety -Werror=thread-safety)
endif()
if(TROUPE_SANITIZE)
  troupe_compile_options(-fsanitize=${TROUPE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE MATCHES "undefined")
    troupe_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

find_program(MOLD mold)
if(MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()
