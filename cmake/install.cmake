# What other projects get: the library Troupe::troupe in one file, Troupe::tools (flags, progress bars, charts, for who asks),
# the `troupe` command, headers as troupe/..., a CMake package and a pkg-config file. The same targets serve add_subdirectory()
# and FetchContent.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
option(TROUPE_SHARED "make libtroupe a shared library" OFF)
option(TROUPE_INSTALL "install the library, the command and their headers" ${PROJECT_IS_TOP_LEVEL})
set(cuda_libraries)
if(TROUPE_CUDA)
  set(cuda_libraries CUDA::cudart_static)
elseif(TROUPE_CUDA_SIM)
  set(TROUPE_INSTALL OFF)  # simulated GPUs are for tests
endif()

# Headers include each other from the root of the source folder: "core/tensor/tensor.h". Others see them below troupe/, so that
# none of these names lies on their include path.
set(public_include ${PROJECT_BINARY_DIR}/include)
set(layers core ops net autograd actors nn optim data rref collective parallel llm tools)
string(JOIN "|" layer_pattern ${layers})
set(headers)
foreach(layer ${layers} troupe)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${layer}/*.h)
  list(APPEND headers ${found})
endforeach()
list(FILTER headers EXCLUDE REGEX "^(ops/cpu|net/socket|net/wire/kj_|tools/launch|tools/repl|tools/watch|tools/dashboard)/?")
list(FILTER headers EXCLUDE REGEX "/cuda/")
if(TROUPE_CUDA)
  list(APPEND headers core/cuda/install.h)
endif()
list(APPEND headers ops/cpu/gemm/packed_weights.h)  # a part of ops/ops.h
# TROUPE_HEADERS names what they say: a library of actors and the module that loads it have to have the same.
set(texts)
foreach(header ${headers})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  file(SHA256 ${PROJECT_SOURCE_DIR}/${header} sum)
  string(APPEND texts "${header} ${sum}\n")
endforeach()
string(SHA256 TROUPE_HEADERS "${texts}")
foreach(header ${headers})
  file(READ ${PROJECT_SOURCE_DIR}/${header} text)
  string(REGEX REPLACE "#include \"(${layer_pattern})/" "#include \"troupe/\\1/" text "${text}")
  string(REGEX REPLACE "^troupe/" "" place ${header})
  file(CONFIGURE OUTPUT ${public_include}/troupe/${place} CONTENT "${text}" @ONLY NEWLINE_STYLE UNIX)
endforeach()

# troupe_product(target TYPE name LINK private... OBJECTS layer...): the objects of these layers as one library.
function(troupe_product target type name)
  cmake_parse_arguments(ARG "" "" "LINK;PUBLIC_LINK;OBJECTS" ${ARGN})
  list(TRANSFORM ARG_OBJECTS REPLACE "(.+)" "$<TARGET_OBJECTS:troupe_\\1>")
  add_library(${target} ${type} ${ARG_OBJECTS})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name} LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${public_include}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE ${ARG_LINK} PUBLIC ${ARG_PUBLIC_LINK})
endfunction()

# troupe_products(static|shared TYPE): both are of the same objects; one is installed unless asked otherwise.
function(troupe_products kind type)
  troupe_product(troupe_${kind} ${type} troupe PUBLIC_LINK Threads::Threads
    LINK fmt::fmt spdlog::spdlog DNNL::dnnl CapnProto::capnp OpenSSL::SSL OpenSSL::Crypto CAF::core ZLIB::ZLIB ${TROUPE_DATA_LIBRARIES} ${TROUPE_ICU_LIBRARIES} ${cuda_libraries}
    OBJECTS core ops net autograd actors nn optim data rref autograd_distributed collective parallel llm troupe)
  set_target_properties(troupe_${kind} PROPERTIES OUTPUT_NAME troupe)
  if(TROUPE_CUDA)  # of an archive the linker takes what it is asked for
    target_link_options(troupe_${kind} INTERFACE -Wl,-u,troupe_device_cuda)
  endif()
  if(TROUPE_NCCL)
    target_link_options(troupe_${kind} INTERFACE -Wl,-u,troupe_collective_nccl)
  endif()
  troupe_product(troupe_tools_${kind} STATIC tools PUBLIC_LINK troupe_${kind}
    LINK fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json OBJECTS tools)
  set_target_properties(troupe_tools_${kind} PROPERTIES OUTPUT_NAME troupe_tools
                                                        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/${kind})
  if(NOT kind STREQUAL default_kind)
    set(asked ON)
    if(TROUPE_TESTS)
      set(asked OFF)
    endif()
    set_target_properties(troupe_${kind} troupe_tools_${kind} PROPERTIES EXCLUDE_FROM_ALL ${asked})
  endif()
endfunction()

# The headers alone, for libraries of actors, which the module of Python loads.
add_library(troupe_headers INTERFACE)
target_compile_features(troupe_headers INTERFACE cxx_std_20)
target_include_directories(troupe_headers INTERFACE $<BUILD_INTERFACE:${public_include}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_library(Troupe::headers ALIAS troupe_headers)

set(default_kind static)
if(TROUPE_SHARED)
  set(default_kind shared)
endif()
troupe_products(static STATIC)
troupe_products(shared SHARED)
add_library(Troupe::troupe ALIAS troupe_${default_kind})
add_library(Troupe::tools ALIAS troupe_tools_${default_kind})

if(NOT TROUPE_INSTALL)
  return()
endif()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Troupe)
foreach(kind static shared)
  set(choice)
  if(NOT kind STREQUAL default_kind)
    set(choice EXCLUDE_FROM_ALL)
  endif()
  install(TARGETS troupe_${kind} troupe_tools_${kind} EXPORT Troupe_${kind} ARCHIVE COMPONENT ${kind} ${choice}
          LIBRARY COMPONENT ${kind} NAMELINK_COMPONENT ${kind} ${choice})
  install(EXPORT Troupe_${kind} FILE Troupe_${kind}.cmake NAMESPACE Troupe:: DESTINATION ${package_folder} COMPONENT ${kind} ${choice})
endforeach()
install(TARGETS troupe_cli COMPONENT common)
install(DIRECTORY ${public_include}/troupe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT common)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TroupeConfig.cmake.in ${PROJECT_BINARY_DIR}/TroupeConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TroupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TroupeConfig.cmake ${PROJECT_BINARY_DIR}/TroupeConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindCAF.cmake ${PROJECT_SOURCE_DIR}/cmake/Finddnnl.cmake
              ${PROJECT_SOURCE_DIR}/cmake/coroutines.cmake ${PROJECT_SOURCE_DIR}/cmake/coroutine_probe.cpp
        DESTINATION ${package_folder} COMPONENT common)
file(RELATIVE_PATH TROUPE_PC_INCLUDE ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
set(TROUPE_PC_DATA)  # shared libraries, which need nothing besides: pkg-config --static would ask for what they were made of
if(TROUPE_ARCHIVE)
  string(APPEND TROUPE_PC_DATA " -larchive")
endif()
if(TROUPE_PICTURES)
  string(APPEND TROUPE_PC_DATA " -lpng -ljpeg")
endif()
set(TROUPE_PC_ICU)
if(TROUPE_ICU)
  set(TROUPE_PC_ICU " icu-i18n icu-uc")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/troupe.pc.in ${PROJECT_BINARY_DIR}/troupe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/troupe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT common)
