// Libraries of actors in C++, which find in this module what they use of Troupe.
#include <dlfcn.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "python/cluster.h"
#include "troupe/library.h"

namespace troupe::python {
namespace {

using internal::actors::TypeRegistry;

internal::Mutex mutex;  // guards what follows
std::vector<std::string> libraries;
TypeRegistry types;

// What stands in a library behind these words says which headers it was compiled with.
void check_headers(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file) throw_invalid("[library] " + path + " cannot be read; expected a shared library");
  const std::string words = internal::kLibraryWords;
  size_t at = bytes.find(words);
  if (at == std::string::npos)
    throw_invalid(
        "[library] " + path +
        " says nothing about its actors: write TROUPE_LIBRARY(Half, Counter) in one of its files, as in "
        "<troupe/library.h>");
  const std::string mine = TROUPE_HEADERS, its = bytes.substr(at + words.size(), mine.size());
  if (its != mine)
    throw_invalid("[library] " + path + " was compiled with the headers of another Troupe (" +
                  its.substr(0, 8) + ") than this package (" + mine.substr(0, 8) +
                  "): compile it with those of this one");
}

// The module's names, which a library looks for, are found from now on.
void show_names() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&loaded_types), &here) ||
      !dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL))
    throw_error(ErrorKind::failed, "[library] the module itself is not found");
}

std::vector<std::string> load_library(const std::string& name) {
  const std::string path = std::filesystem::absolute(name).lexically_normal();
  const internal::Lock lock(mutex);
  std::vector<std::string> names;
  const bool known = std::ranges::find(libraries, path) != libraries.end();
  if (!known) check_headers(path), show_names();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw_invalid(std::string("[library] ") + dlerror());
  const auto list = reinterpret_cast<internal::LibraryTypes*>(dlsym(library, "troupe_library_types"));
  if (!list) throw_invalid(std::string("[library] ") + dlerror());
  TypeRegistry its;
  list(&its);
  for (const auto& type : its) names.push_back(type->name);
  if (known) return names;
  libraries.push_back(path);
  types.insert(types.end(), its.begin(), its.end());
  return names;
}

}  // namespace

TypeRegistry loaded_types() {
  const internal::Lock lock(mutex);
  return types;
}

std::vector<std::string> loaded_libraries() {
  const internal::Lock lock(mutex);
  return libraries;
}

void open_libraries(nb::module_& m) { m.def("load_library", load_library); }

}  // namespace troupe::python
