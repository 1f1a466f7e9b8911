// Actors of a library that Python loads: troupe.load("libmine.so").
#pragma once
#include "actors/cell/methods.h"

namespace troupe::internal {

/// Before the number of the headers in a library, which whoever loads it reads first.
inline constexpr const char* kLibraryWords = "troupe was compiled with headers ";
/// Puts the types of a library there.
using LibraryTypes = void(actors::TypeRegistry*);

}  // namespace troupe::internal

/// The actor types of a library, once in it, outside of namespaces: TROUPE_LIBRARY(Half, Counter).
#define TROUPE_LIBRARY(...)                                                                     \
  extern "C" __attribute__((visibility("default"), used)) const char troupe_library_headers[] = \
      "troupe was compiled with headers @TROUPE_HEADERS@";                                      \
  extern "C" __attribute__((visibility("default"))) void troupe_library_types(                  \
      ::troupe::internal::actors::TypeRegistry* to) {                                           \
    *to = ::troupe::hosting<__VA_ARGS__>();                                                     \
  }
