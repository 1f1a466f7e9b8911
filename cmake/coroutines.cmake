# Whether the compiler gets coroutines right, found by running a program. Cached: once for each build folder.
# TROUPE_COROUTINES is 1 if it does, 0 if not, and empty where programs of this build cannot run here.
if(NOT DEFINED CACHE{TROUPE_COROUTINES} AND CMAKE_CXX_COMPILER)
  set(verdict "")
  if(NOT CMAKE_CROSSCOMPILING)
    try_run(ran compiled ${PROJECT_BINARY_DIR}/coroutine_probe ${CMAKE_CURRENT_LIST_DIR}/coroutine_probe.cpp
            CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON COMPILE_OUTPUT_VARIABLE output)
    if(NOT compiled)
      message(FATAL_ERROR "${CMAKE_CXX_COMPILER} cannot compile C++20 coroutines:\n${output}")
    endif()
    if(ran EQUAL 0)
      set(verdict 1)
    else()
      set(verdict 0)
    endif()
    unset(ran CACHE)
    unset(compiled CACHE)
  endif()
  set(TROUPE_COROUTINES "${verdict}" CACHE INTERNAL "the compiler gets coroutines right")
endif()
if("$CACHE{TROUPE_COROUTINES}" STREQUAL "0" AND NOT Troupe_FIND_QUIETLY)
  message(NOTICE
    "Troupe: ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} miscompiles coroutines (temporaries within co_await); use clang++-19, or read \"Compilers\" in Troupe's docs/reference/platforms.md before you write one")
endif()
