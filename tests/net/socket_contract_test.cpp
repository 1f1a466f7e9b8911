// Sockets keep the contract of transports.
#include <unistd.h>

#include "net/socket/socket_transport.h"
#include "tests/contract/transport.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;

namespace {

struct Kind {
  bool tcp = false, ring = true, arena = true, polling = true, callers = true, tls = false;
  bool listen = false;  // both ends: their links outlive their sockets
  bool lanes = false;   // however short the way is
};

struct SocketBackend : contract::Backend {
  explicit SocketBackend(Kind kind) : tcp_(kind.tcp), kind_(kind) {}
  std::unique_ptr<Transport> make(const std::string&, TransportOptions from, Events& events) override {
    SocketOptions options{from.self, from.token, {from.limits}};
    if (!kind_.ring) options.limits.ring_bytes = 0;
    if (!kind_.arena) options.limits.arena_bytes = 0;
    options.limits.callers_read = kind_.callers;
    if (kind_.tls) options.encryption = Encryption::always;
    if (kind_.lanes) options.limits.long_way = Duration::zero(), options.limits.bulk_bytes = 1;
    if (!kind_.polling) options.limits.polling = Duration::zero();
    auto made = make_socket_transport(std::move(options), events);
    if (kind_.listen) listeners_.push_back(made->listen("tcp:127.0.0.1:0"));
    return made;
  }
  std::string listen_address(const std::string&) override {
    return tcp_ ? std::string("tcp:127.0.0.1:0") : test::fresh_address();
  }
  std::string nowhere() override { return tcp_ ? "tcp:127.0.0.1:1" : "unix:@nobody-listens-here"; }
  bool tcp_;
  Kind kind_;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

void keep_it(Kind kind) {
  contract::keeps_the_contract([kind] { return std::make_unique<SocketBackend>(kind); });
}

}  // namespace

TEST_CASE("Unix sockets with rings and arenas keep the contract", "[contract]") { keep_it({}); }
TEST_CASE("Unix sockets with rings keep the contract", "[contract]") { keep_it({.arena = false}); }
TEST_CASE("Unix sockets with arenas keep the contract", "[contract]") { keep_it({.ring = false}); }
TEST_CASE("Unix sockets with rings whose readers sleep keep the contract", "[contract]") {
  keep_it({.polling = false});
}
TEST_CASE("Unix sockets with rings that only the transport's thread reads keep the contract", "[contract]") {
  keep_it({.callers = false});
}
TEST_CASE("Unix sockets alone keep the contract", "[contract]") { keep_it({.ring = false, .arena = false}); }
TEST_CASE("Unix sockets alone whose readers sleep keep the contract", "[contract]") {
  keep_it({.ring = false, .arena = false, .polling = false});
}
TEST_CASE("TCP sockets keep the contract", "[contract]") { keep_it({.tcp = true}); }
TEST_CASE("TCP sockets of ends that both listen keep the contract", "[contract]") {
  keep_it({.tcp = true, .listen = true});
}
TEST_CASE("several TCP sockets in turns keep the contract", "[contract]") {
  keep_it({.tcp = true, .listen = true, .lanes = true});
}
TEST_CASE("several TCP sockets with TLS in turns keep the contract", "[contract]") {
  keep_it({.tcp = true, .tls = true, .listen = true, .lanes = true});
}
TEST_CASE("TCP sockets whose readers sleep keep the contract", "[contract]") {
  keep_it({.tcp = true, .polling = false});
}
TEST_CASE("TCP sockets with TLS keep the contract", "[contract]") { keep_it({.tcp = true, .tls = true}); }
TEST_CASE("TCP sockets with TLS whose readers sleep keep the contract", "[contract]") {
  keep_it({.tcp = true, .polling = false, .tls = true});
}
