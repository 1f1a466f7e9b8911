// Where a transport listens or connects to, as text and as parts.
#pragma once
#include <cstdint>
#include <string>

namespace troupe::net {

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

}  // namespace troupe::net
