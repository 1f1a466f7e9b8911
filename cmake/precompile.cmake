# Headers that are precompiled once for several targets, and units compiled in batches.
# Units still include what they use; -DTROUPE_PRECOMPILE=OFF -DTROUPE_UNITY=OFF builds each by itself, which shows one that does not.
option(TROUPE_PRECOMPILE "precompile common headers, which takes a third off a build" ON)
option(TROUPE_UNITY "compile units in batches, which takes half off a build; an edit compiles its batch" ON)

# troupe_precompile(group [PIE] [LINK target...] [HEADERS header...]): the standard headers that most units include, and these,
# compiled once in this folder for the targets that say troupe_use_precompiled(). LINK: who knows where headers lie. PIE: for programs.
# The group is a target of its own, so that who uses it waits for the headers, and for no library or program.
function(troupe_precompile group)
  cmake_parse_arguments(ARG "PIE" "" "LINK;HEADERS" ${ARGN})
  if(NOT TROUPE_PRECOMPILE)
    return()
  endif()
  set(standard algorithm array atomic chrono condition_variable cstdint cstring exception functional future limits map memory mutex
               numeric optional set span sstream string string_view thread tuple type_traits unordered_map utility variant vector)
  list(TRANSFORM standard REPLACE "(.+)" "<\\1>")
  set(ours ${ARG_HEADERS})
  list(TRANSFORM ours REPLACE "(.+)" "<\\1>")  # relative to the source folder, whichever that is: caches can serve another checkout
  set(nothing ${PROJECT_BINARY_DIR}/generated/nothing.cpp)
  file(CONFIGURE OUTPUT ${nothing} CONTENT "// A target has a unit; what counts are the headers precompiled for it.\n")
  add_library(precompiled_${group} OBJECT ${nothing})
  target_include_directories(precompiled_${group} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(precompiled_${group} PRIVATE ${ARG_LINK})
  target_precompile_headers(precompiled_${group} PRIVATE ${standard} ${ours})
  if(ARG_PIE)  # the words with which CMake compiles programs; a precompiled header holds for the same ones only
    set_target_properties(precompiled_${group} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(precompiled_${group} PRIVATE -fPIE)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(precompiled_${group} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")  # or ccache could not use it again
  endif()
endfunction()

# troupe_use_precompiled(target group)
function(troupe_use_precompiled target group)
  if(TROUPE_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM precompiled_${group})
    # The same macros as in the headers, or g++ would not take them.
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:precompiled_${group},COMPILE_DEFINITIONS>)
  endif()
endfunction()

# troupe_unity(target [BATCH n] [NAMESPACES] [APART regex]) compiles a target's units in batches of n (16), so that headers and templates
# count once for each batch. Names that are static or in an anonymous namespace must therefore differ within the whole target. With
# NAMESPACES each test file has a namespace of its own (tests/batch.py), and its names are free. Units with options of their own are
# compiled by themselves, and so are those whose paths match: expensive ones, and those that a program replaces. (CMake's UNITY_BUILD
# writes absolute paths into its units, and caches could not serve another checkout.)
function(troupe_unity target)
  cmake_parse_arguments(ARG "NAMESPACES" "APART;BATCH" "" ${ARGN})
  if(NOT TROUPE_UNITY)
    return()
  endif()
  if(NOT ARG_BATCH)
    set(ARG_BATCH 16)
  endif()
  set(in_batches "\\.cpp$")
  if(ARG_NAMESPACES)
    set(in_batches "_test\\.cpp$")  # what others share has no namespace of its own
  endif()
  set(units)
  set(batch "")
  set(files)
  set(in_batch 0)
  set(batches 0)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources} END)
    if(source STREQUAL "END" OR in_batch EQUAL ARG_BATCH)
      if(in_batch EQUAL 1)
        list(APPEND units ${last})
      elseif(in_batch GREATER 1)
        # Below the outermost build folder, where the compiler runs: the cache knows units by their place from there.
        set(unit ${CMAKE_BINARY_DIR}/troupe_units/${target}_${batches}.cpp)
        if(ARG_NAMESPACES)
          add_custom_command(OUTPUT ${unit} COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/batch.py ${PROJECT_SOURCE_DIR}
                             ${unit} ${files} DEPENDS ${PROJECT_SOURCE_DIR}/tests/batch.py ${files} VERBATIM)
        else()
          file(CONFIGURE OUTPUT ${unit} CONTENT "${batch}" @ONLY)
        endif()
        list(APPEND units ${unit})
        math(EXPR batches "${batches} + 1")
      endif()
      set(batch "")
      set(files)
      set(in_batch 0)
    endif()
    if(source STREQUAL "END")
      break()
    endif()
    get_filename_component(absolute ${source} ABSOLUTE)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${absolute})
    get_source_file_property(own_options ${source} COMPILE_OPTIONS)
    if(own_options OR NOT path MATCHES "${in_batches}" OR path MATCHES "^\\.\\./|/cuda/" OR (ARG_APART AND path MATCHES "${ARG_APART}"))
      list(APPEND units ${source})
    else()
      string(APPEND batch "#include \"${path}\"\n")
      list(APPEND files ${absolute})
      set(last ${source})
      math(EXPR in_batch "${in_batch} + 1")
    endif()
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${units})
endfunction()
