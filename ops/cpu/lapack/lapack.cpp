#include "ops/cpu/lapack/lapack.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/base/error.h"

namespace troupe::ops::on_cpu {
namespace {

void* lapack_library() {
  static void* const library = [] {
    for (const char* name : {"liblapack.so.3", "liblapack.so", "libopenblas.so.0"})
      if (void* found = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return found;
    return static_cast<void*>(nullptr);
  }();
  return library;
}

// False: the library lacks it.
template <class F>
bool load(F*& function, char precision, const char* name) {
  function = reinterpret_cast<F*>(dlsym(lapack_library(), fmt::format("{}{}_", precision, name).c_str()));
  return function;
}

template <class T>
std::optional<Lapack<T>> load_lapack() {
  Lapack<T> l;
  constexpr char p = sizeof(T) == 4 ? 's' : 'd';
  if (lapack_library() && load(l.potrf, p, "potrf") && load(l.getrf, p, "getrf") &&
      load(l.getri, p, "getri") && load(l.getrs, p, "getrs") && load(l.geqrf, p, "geqrf") &&
      load(l.orgqr, p, "orgqr") && load(l.gesdd, p, "gesdd") && load(l.syevd, p, "syevd"))
    return l;
  return {};
}

}  // namespace

template <class T>
const Lapack<T>& lapack(const char* name) {
  static const std::optional<Lapack<T>> loaded = load_lapack<T>();
  if (!loaded)
    throw_error(
        ErrorKind::unimplemented,
        fmt::format(
            "[{}] needs LAPACK, and there is no liblapack.so.3 here: install Debian's liblapack3, or say "
            "in LD_LIBRARY_PATH where it is",
            name));
  return *loaded;
}

template const Lapack<float>& lapack<float>(const char* name);
template const Lapack<double>& lapack<double>(const char* name);

}  // namespace troupe::ops::on_cpu
