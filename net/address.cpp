#include "net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/shown.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kMaxUnixName = 107;  // sun_path holds 108 bytes, one of them the NUL
constexpr size_t kMaxHost = 253;      // of a DNS name

[[noreturn]] void bad(const std::string& text, const std::string& why) {
  throw_invalid(fmt::format("[net] bad address \"{}\": {}; expected {}", shown(text), why, kAddressForms));
}

Address parse_unix(const std::string& text) {
  const std::string rest = text.substr(5);
  if (rest.empty() || (rest[0] != '@' && rest[0] != '/')) bad(text, "neither @ nor / follows unix:");
  if (rest.size() == 1) bad(text, "the name is empty");
  const bool abstract = rest[0] == '@';
  if (rest.size() - abstract > kMaxUnixName)
    bad(text,
        fmt::format("the name has {} bytes, at most {} are allowed", rest.size() - abstract, kMaxUnixName));
  return {abstract ? Address::Kind::abstract : Address::Kind::path, abstract ? rest.substr(1) : rest, 0};
}

Address parse_tcp(const std::string& text) {
  const std::string rest = text.substr(4);
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos) bad(text, "the port is missing");
  std::string host = rest.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) bad(text, "the host is empty");
  if (host.size() > kMaxHost) bad(text, "the host is too long");
  if (!bracketed && host.find(':') != std::string::npos)
    bad(text, "an IPv6 host needs brackets, as in tcp:[::1]:80");
  if (host.find_first_of("[] /") != std::string::npos)
    bad(text, "the host has a character that no host name has");
  uint16_t port = 0;
  const char *begin = rest.data() + colon + 1, *end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (begin == end || stop != end || error != std::errc())
    bad(text, "the port is not a number from 0 to 65535");
  return {Address::Kind::tcp, host, port};
}

}  // namespace

std::string Address::str() const {
  switch (kind) {
    case Kind::abstract:
      return abstract_address(name);
    case Kind::path:
      return "unix:" + name;
    case Kind::tcp:
      break;
  }
  const bool v6 = name.find(':') != std::string::npos;
  return v6 ? fmt::format("tcp:[{}]:{}", name, port) : fmt::format("tcp:{}:{}", name, port);
}

std::string abstract_address(const std::string& name) { return "unix:@" + name; }
std::string tcp_address(const std::string& host, const std::string& port) {
  return "tcp:" + host + ":" + port;
}
bool is_local(const std::string& address) { return address.starts_with("unix:"); }

bool only_on_this_host(const std::string& address) {
  if (is_local(address)) return true;
  if (!address.starts_with("tcp:")) return false;
  const std::string host = parse_address(address).name;
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    const uint32_t number = ntohl(v4.s_addr);
    return number >> 24 == 127 || number == INADDR_ANY;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6);
    return IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6) || (mapped && v6.s6_addr[12] == 127);
  }
  return host == "localhost";
}

Address parse_address(const std::string& text) {
  if (std::any_of(text.begin(), text.end(), is_control)) bad(text, "it has a control character");
  if (text.starts_with("unix:")) return parse_unix(text);
  if (text.starts_with("tcp:")) return parse_tcp(text);
  bad(text, "unknown scheme");
}

}  // namespace troupe::internal::net
