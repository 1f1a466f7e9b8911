// The contract of transports, on the network in memory.
#include "net/sim/network.h"
#include "tests/contract/transport.h"

using namespace troupe;
using namespace troupe::internal::net;

namespace {

struct SimBackend : contract::Backend {
  Network network;
  std::unique_ptr<Transport> make(const std::string& name, TransportOptions options,
                                  Events& events) override {
    return network.make_transport(name, std::move(options), events);
  }
  std::string listen_address(const std::string& name) override { return "sim:" + name; }
  std::string nowhere() override { return "sim:nobody"; }
};

}  // namespace

TEST_CASE("the network in memory keeps the contract of transports", "[contract]") {
  contract::keeps_the_contract([] { return std::make_unique<SimBackend>(); });
}
