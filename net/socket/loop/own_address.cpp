#include "net/socket/loop/own_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <memory>

#include "net/socket/loop/sockets.h"

namespace troupe::internal::net {
namespace {

// "10.0.0.2", "[fd00::2]"
std::string host_of(const sockaddr* at, socklen_t size) {
  char host[NI_MAXHOST] = "";
  getnameinfo(at, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return at->sa_family == AF_INET6 ? "[" + std::string(host) + "]" : host;
}

bool is_loopback(const std::string& host) { return only_on_this_host("tcp:" + host + ":1"); }

// Whether a name, not a number and not "localhost", leads nowhere but here.
bool name_means_loopback(const Address& a, const Resolved& resolved) {
  if (a.name == "localhost" || !resolve_numeric(a).found.empty() || resolved.found.empty()) return false;
  return std::all_of(resolved.found.begin(), resolved.found.end(),
                     [](const SockAddr& s) { return is_loopback(host_of(s.get(), s.size)); });
}

// Of IPv4, without loopback.
std::vector<std::string> hosts_of_interfaces() {
  ifaddrs* list = nullptr;
  std::vector<std::string> hosts;
  if (getifaddrs(&list) != 0) return hosts;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i; i = i->ifa_next)
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
        !(i->ifa_flags & IFF_LOOPBACK))
      hosts.push_back(host_of(i->ifa_addr, sizeof(sockaddr_in)));
  return hosts;
}

}  // namespace

OwnAddress own_address_towards(const std::string& address, Duration limit) {
  const Address a = parse_address(address);
  const Resolved resolved = resolve(a, limit);
  if (name_means_loopback(a, resolved)) {
    auto hosts = hosts_of_interfaces();
    if (!hosts.empty()) return {"0.0.0.0", std::move(hosts)};
  }
  for (const SockAddr& to : resolved.found) {
    const Descriptor fd(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));  // connecting it sends nothing
    SockAddr from;
    from.size = sizeof from.storage;
    if (!fd || ::connect(fd.get(), to.get(), to.size) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.size) != 0)
      continue;
    const std::string host = host_of(from.get(), from.size);
    return {host, {host}};
  }
  return {};
}

std::string address_to_listen_on(const std::string& address, Duration limit) {
  const Address a = parse_address(address);
  if (a.kind != Address::Kind::tcp || !name_means_loopback(a, resolve(a, limit))) return address;
  return Address{Address::Kind::tcp, "0.0.0.0", a.port}.str();
}

}  // namespace troupe::internal::net
