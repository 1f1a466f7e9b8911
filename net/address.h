// Where a transport listens or connects to, as text and as parts.
#pragma once
#include <cstdint>
#include <string>

namespace troupe::internal::net {

/// "unix:@name" (abstract: no file), "unix:/path", "tcp:host:port" ("tcp:[::1]:port" for IPv6).
struct Address {
  enum class Kind { abstract, path, tcp };
  Kind kind = Kind::abstract;
  std::string name;   ///< abstract name without the '@', path with its '/', or host without brackets
  uint16_t port = 0;  ///< tcp only; 0: any

  std::string str() const;
  bool operator==(const Address&) const = default;
};

/// Throws `invalid` naming the text and what is wrong with it.
Address parse_address(const std::string& text);

/// Whether another host cannot reach whoever listens there: Unix sockets, the loopback addresses, and those
/// that mean every address of a host (0.0.0.0). Host names but "localhost" are taken for reachable. Addresses
/// of other transports are.
bool only_on_this_host(const std::string& address);

}  // namespace troupe::internal::net
