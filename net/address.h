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

/// The forms above, for error texts.
inline constexpr const char* kAddressForms = "unix:@name, unix:/path or tcp:host:port";

/// Of the abstract Unix socket of that name.
std::string abstract_address(const std::string& name);
/// `host`: an IPv6 address in brackets.
std::string tcp_address(const std::string& host, const std::string& port);

/// Whether the same text would be another address on another host.
bool is_local(const std::string& address);

/// Throws `invalid` naming the text and what is wrong with it.
Address parse_address(const std::string& text);

/// Whether another host cannot reach whoever listens there: Unix sockets, the loopback addresses, and those
/// that mean every address of a host (0.0.0.0). Host names but "localhost" are taken for reachable. Addresses
/// of other transports are.
bool only_on_this_host(const std::string& address);

}  // namespace troupe::internal::net
