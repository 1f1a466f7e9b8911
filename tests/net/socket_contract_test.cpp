// Sockets keep the contract of transports.
#include <unistd.h>

#include "net/socket/transport.h"
#include "tests/contract/transport.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::net;

namespace {

struct SocketBackend : contract::Backend {
  explicit SocketBackend(bool tcp) : tcp_(tcp) {}
  std::unique_ptr<Transport> make(const std::string&, TransportOptions options, Events& events) override {
    return make_socket_transport(std::move(options), events);
  }
  std::string listen_address(const std::string&) override {
    return tcp_ ? std::string("tcp:127.0.0.1:0") : test::fresh_address();
  }
  std::string nowhere() override { return tcp_ ? "tcp:127.0.0.1:1" : "unix:@nobody-listens-here"; }
  bool tcp_;
};

}  // namespace

TEST_CASE("Unix sockets keep the contract", "[contract]") {
  contract::keeps_the_contract([] { return std::make_unique<SocketBackend>(false); });
}

TEST_CASE("TCP sockets keep the contract", "[contract]") {
  contract::keeps_the_contract([] { return std::make_unique<SocketBackend>(true); });
}
