#include "collective/nccl/cuda/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "collective/nccl/launcher.h"
#include "collective/nccl/why_not.h"

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

void* open_library(const std::vector<std::string>& places, std::string& complaints) {
  for (const std::string& path : places) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    complaints += (complaints.empty() ? "" : "; ") + std::string(dlerror());
  }
  return nullptr;
}

// Where the linker finds it, else in the toolkit's own folder. That of simulated GPUs is linked.
#ifdef TROUPE_SIM_CUDA
const std::vector<std::string> kPlaces;
#define TROUPE_LINKED(name) &nccl##name
#else
const std::vector<std::string> kPlaces = {"libnccl.so.2", TROUPE_CUDA_LIBRARIES "/libnccl.so.2"};
#define TROUPE_LINKED(name) nullptr
#endif

Loaded load() {
  Loaded l;
  const char* named = std::getenv("TROUPE_NCCL");
  if (named && !*named) named = nullptr;
  if (named && std::string(named) == "0") {
    l.why = "TROUPE_NCCL is 0: unset it";
    return l;
  }
  set_environment();
  const char* const interface = std::getenv("NCCL_SOCKET_IFNAME");
  l.why = why_no_interface(interface ? interface : "", host_interfaces());
  if (!l.why.empty()) return l;
  std::string complaints;
  const std::vector<std::string> places = named ? std::vector<std::string>{named} : kPlaces;
  void* const library = open_library(places, complaints);
  if (!library && !places.empty()) {
    l.why = named ? "TROUPE_NCCL is \"" + std::string(named) +
                        "\", which cannot be loaded; set it to the file of NCCL " +
                        library_version_text(kOldest) + " or newer, or unset it: "
                  : "libnccl.so.2 cannot be loaded; put its folder into LD_LIBRARY_PATH, or set TROUPE_NCCL "
                    "to the file: ";
    l.why += complaints;
    return l;
  }
#define TROUPE_FIND(name)                                                                                 \
  l.functions.name = library ? reinterpret_cast<decltype(l.functions.name)>(dlsym(library, "nccl" #name)) \
                             : TROUPE_LINKED(name);                                                       \
  if (!l.functions.name) {                                                                                \
    l.why = "the NCCL that was loaded has no nccl" #name ": install " + library_version_text(kOldest) +   \
            " or newer";                                                                                  \
    return l;                                                                                             \
  }
  TROUPE_NCCL_FUNCTIONS(TROUPE_FIND);
#undef TROUPE_FIND
#undef TROUPE_LINKED
  int version = 0;
  if (l.functions.GetVersion(&version) != ncclSuccess) version = 0;
  l.functions.version = version;
  l.usable = version >= kOldest;
  if (!l.usable)
    l.why = "NCCL " + library_version_text(version) + " is older than " + library_version_text(kOldest) +
            ": install that or a newer one, and set TROUPE_NCCL to its file";
  return l;
}

const Loaded& loaded() {
  static const auto* l = new Loaded(load());
  return *l;
}

}  // namespace

const Nccl* Nccl::get() { return loaded().usable ? &loaded().functions : nullptr; }
const std::string& Nccl::why() { return loaded().why; }

}  // namespace troupe::internal::collective
