#include "collective/nccl/launcher.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "core/base/mutex.h"

namespace troupe::internal::collective {

namespace {

std::atomic<const DeviceLibrary*> the_library = nullptr;
internal::Mutex host_mutex;
std::array<char, NI_MAXHOST> library_host TROUPE_GUARDED_BY(host_mutex) = {};  // empty: none yet

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (!a || !b || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    sockaddr_in x{}, y{};
    std::memcpy(&x, a, sizeof x), std::memcpy(&y, b, sizeof y);
    return x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  if (a->sa_family != AF_INET6) return false;
  sockaddr_in6 x{}, y{};
  std::memcpy(&x, a, sizeof x), std::memcpy(&y, b, sizeof y);
  return std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

}  // namespace

const DeviceLibrary* device_library() { return the_library.load(std::memory_order_acquire); }
void set_device_library(const DeviceLibrary& library) {
  the_library.store(&library, std::memory_order_release);
}

void set_library_host(const std::string& host) {
  const Lock lock(host_mutex);
  if (!library_host[0] && host.size() < library_host.size()) std::ranges::copy(host, library_host.begin());
}

std::string library_interface() {
  std::string host;
  {
    const Lock lock(host_mutex);
    host = library_host.data();
  }
  if (host.empty()) return "lo";
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return "";
  std::string name;
  if (ifaddrs* all = nullptr; getifaddrs(&all) == 0) {
    for (const addrinfo* a = found; a && name.empty(); a = a->ai_next)
      for (const ifaddrs* i = all; i && name.empty(); i = i->ifa_next)
        if (same_address(i->ifa_addr, a->ai_addr)) name = i->ifa_name;
    freeifaddrs(all);
  }
  freeaddrinfo(found);
  return name;
}

std::vector<std::string> host_interfaces() {
  std::vector<std::string> names;
  if (ifaddrs* all = nullptr; getifaddrs(&all) == 0) {
    for (const ifaddrs* i = all; i; i = i->ifa_next)
      if (std::ranges::find(names, i->ifa_name) == names.end()) names.emplace_back(i->ifa_name);
    freeifaddrs(all);
  }
  return names;
}

}  // namespace troupe::internal::collective
