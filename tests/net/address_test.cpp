// Addresses: every form there and back, and bad ones refused with a reason.
#include "net/address.h"

#include <catch2/catch.hpp>

#include "core/base/error.h"

using namespace troupe;
using namespace troupe::internal::net;
using Kind = Address::Kind;

namespace {

std::string refusal(const std::string& text) {
  try {
    (void)parse_address(text);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("an address survives the way to text and back") {
  const std::pair<std::string, Address> cases[] = {
      {"unix:@workers/7", {Kind::abstract, "workers/7", 0}},
      {"unix:/tmp/a b.sock", {Kind::path, "/tmp/a b.sock", 0}},
      {"tcp:127.0.0.1:0", {Kind::tcp, "127.0.0.1", 0}},
      {"tcp:node-3.lan:65535", {Kind::tcp, "node-3.lan", 65535}},
      {"tcp:[::1]:80", {Kind::tcp, "::1", 80}},
  };
  for (const auto& [text, address] : cases) {
    CHECK(parse_address(text) == address);
    CHECK(address.str() == text);
  }
}

TEST_CASE("a bad address is refused with the text, the reason and what was expected") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "unknown scheme"},
      {"http://x", "unknown scheme"},
      {"unix:", "neither @ nor /"},
      {"unix:name", "neither @ nor /"},
      {"unix:@", "the name is empty"},
      {"unix:/", "the name is empty"},
      {"unix:@" + std::string(108, 'x'), "has 108 bytes, at most 107"},
      {"unix:/" + std::string(107, 'x'), "has 108 bytes, at most 107"},
      {"tcp:host", "the port is missing"},
      {"tcp::80", "the host is empty"},
      {"tcp:[]:80", "the host is empty"},
      {"tcp:::1:80", "needs brackets"},
      {"tcp:host:", "the port is not a number"},
      {"tcp:host:65536", "the port is not a number"},
      {"tcp:host:-1", "the port is not a number"},
      {"tcp:host:80x", "the port is not a number"},
      {"tcp:a b:80", "no host name has"},
      {"tcp:" + std::string(300, 'h') + ":80", "too long"},
      {"tcp:a\nb:80", "a control character"},
      {std::string("unix:@a\0b", 9), "a control character"},
  };
  for (const auto& [text, why] : cases) {
    const auto said = refusal(text);
    CAPTURE(text, said);
    CHECK(said.starts_with("[net] bad address \""));
    CHECK(said.find(why) != std::string::npos);
    CHECK(said.find("expected unix:@name, unix:/path or tcp:host:port") != std::string::npos);
    CHECK(said.find('\n') == std::string::npos);
  }
}

TEST_CASE("which addresses another host cannot reach") {
  for (const std::string here :
       {"unix:@name", "unix:/tmp/name", "tcp:127.0.0.1:80", "tcp:127.8.8.8:80", "tcp:0.0.0.0:80",
        "tcp:[::1]:80", "tcp:[::]:80", "tcp:[::ffff:127.0.0.1]:80", "tcp:localhost:80"})
    CHECK(only_on_this_host(here));
  for (const std::string there : {"tcp:10.0.0.1:80", "tcp:128.0.0.1:80", "tcp:[fe80::1]:80", "tcp:node7:80",
                                  "sim:w1", "tcp:[::ffff:10.0.0.1]:80"})
    CHECK_FALSE(only_on_this_host(there));
}

TEST_CASE("the longest names are accepted") {
  CHECK(parse_address("unix:@" + std::string(107, 'x')).name.size() == 107);
  CHECK(parse_address("unix:/" + std::string(106, 'x')).name.size() == 107);
}
