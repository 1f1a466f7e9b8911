#include "collective/nccl/cuda/nccl_library.h"

#ifndef TROUPE_SIM_CUDA
#include <dlfcn.h>
#endif

#include <cstdlib>

#include "collective/nccl/launcher.h"

namespace troupe::internal::collective {

namespace {

constexpr int kOldest = 22807;  // the first with ncclCommRevoke

struct Loaded {
  Nccl functions;
  bool usable = false;
  std::string why;
};

// It reads these once. No listener on a port that everybody can reach; kernels of several communicators start
// in the order in which they are launched; its sockets are where Troupe's are.
void set_environment() {
  setenv("NCCL_RAS_ENABLE", "0", 0);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  if (const std::string interface = library_interface(); !interface.empty())
    setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), 0);
}

#ifndef TROUPE_SIM_CUDA
// Where the linker finds it, else in the toolkit's own folder; TROUPE_NCCL names a file.
void* open_library(const char* named, std::string& complaints) {
  const std::string places[] = {named ? named : "libnccl.so.2", TROUPE_CUDA_LIBRARIES "/libnccl.so.2"};
  for (const std::string& path : places) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    complaints += (complaints.empty() ? "" : "; ") + std::string(dlerror());
    if (named) break;
  }
  return nullptr;
}
#endif

Loaded load() {
  Loaded l;
  const char* named = std::getenv("TROUPE_NCCL");
  if (named && !*named) named = nullptr;
  if (named && std::string(named) == "0") {
    l.why = "TROUPE_NCCL is 0";
    return l;
  }
  set_environment();
#ifdef TROUPE_SIM_CUDA
#define TROUPE_FIND(name) l.functions.name = &nccl##name
  TROUPE_NCCL_FUNCTIONS(TROUPE_FIND);
#else
  std::string complaints;
  void* const library = open_library(named, complaints);
  if (!library) {
    l.why =
        "libnccl.so.2 cannot be loaded; put its folder into LD_LIBRARY_PATH, or set TROUPE_NCCL to the "
        "file: " +
        complaints;
    return l;
  }
#define TROUPE_FIND(name)                                                                                 \
  if (!(l.functions.name = reinterpret_cast<decltype(l.functions.name)>(dlsym(library, "nccl" #name)))) { \
    l.why = "the NCCL that was loaded has no nccl" #name ": it needs " + nccl_version_text(kOldest);      \
    return l;                                                                                             \
  }
  TROUPE_NCCL_FUNCTIONS(TROUPE_FIND);
#endif
#undef TROUPE_FIND
  int version = 0;
  if (l.functions.GetVersion(&version) != ncclSuccess) version = 0;
  l.functions.version = version;
  l.usable = version >= kOldest;
  if (!l.usable)
    l.why = "NCCL " + nccl_version_text(version) + " is older than " + nccl_version_text(kOldest);
  return l;
}

const Loaded& loaded() {
  static const auto* l = new Loaded(load());
  return *l;
}

}  // namespace

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

const Nccl* Nccl::get() { return loaded().usable ? &loaded().functions : nullptr; }
const std::string& Nccl::why() { return loaded().why; }

}  // namespace troupe::internal::collective
