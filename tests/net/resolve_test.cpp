// Host names that no server answers for: nobody waits longer than he said.
#include <dlfcn.h>
#include <netdb.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "net/socket/loop/own_address.h"
#include "net/socket/loop/sockets.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;
using troupe::internal::Descriptor;

namespace {

// What asks for the name "hangs.test" waits until the gate opens.
struct Gate {
  std::mutex mutex;
  std::condition_variable moved;
  bool open = true;
  int inside = 0, asked = 0;
  int times_asked() {
    std::lock_guard lock(mutex);
    return asked;
  }
};
Gate& gate() {
  static Gate* const it = new Gate;  // threads that are asking may outlive main()
  return *it;
}

struct Closed {
  Closed() {
    std::lock_guard lock(gate().mutex);
    gate().open = false;
  }
  ~Closed() {
    std::unique_lock lock(gate().mutex);
    gate().open = true;
    gate().moved.notify_all();
    gate().moved.wait(lock, [] { return gate().inside == 0; });
  }
};

}  // namespace

// In place of the system's, in this program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** out) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node && std::strcmp(node, "hangs.test") == 0 && !(hints->ai_flags & AI_NUMERICHOST)) {
    Gate& g = gate();
    std::unique_lock lock(g.mutex);
    ++g.inside, ++g.asked;
    g.moved.wait(lock, [&] { return g.open; });
    --g.inside;
    g.moved.notify_all();
    return EAI_AGAIN;
  }
  // What Debian's installer makes of the host's own name.
  if (node && std::strcmp(node, "debian.test") == 0 && !(hints->ai_flags & AI_NUMERICHOST))
    node = "127.0.1.1";
  return real(node, service, hints, out);
}

TEST_CASE("a name server that never answers is waited for no longer than said, and not by the caller") {
  const Closed closed;
  SocketLimits hurry;
  hurry.connect = std::chrono::milliseconds(100);
  Recorder events;
  const auto t = transport(events, "w1", hurry);
  for (const bool retry : {false, true}) {
    const auto connecting = t->connect("tcp:hangs.test:80", retry);
    REQUIRE(connecting.wait_for(kForever));
    CHECK_THAT(connecting.wait().error().message(),
               Contains("nobody answers at tcp:hangs.test:80") &&
                   Contains("no name server has said yet what hangs.test is"));
  }
  CHECK_THROWS_WITH(
      t->listen("tcp:hangs.test:0"),
      Contains("cannot listen on tcp:hangs.test:0: no name server said what hangs.test is within 0.1 s"));
  CHECK(gate().times_asked() >= 3);
}

TEST_CASE("an address that is a name for loopback is told as its number") {
  Address actual;
  const Descriptor fd = listen_on(parse_address("tcp:localhost:0"), actual, kForever);
  CHECK(only_on_this_host(actual.str()));
  CHECK(actual.name != "localhost");
  CHECK(actual.port != 0);
}

TEST_CASE("a worker listens where its packets to worker 0 leave from") {
  for (const std::string host : {"127.0.0.1", "localhost", "[::1]"}) {
    const OwnAddress own = own_address_towards("tcp:" + host + ":29500", kForever);
    CAPTURE(host, own.listen);
    if (host == "[::1]" && own.listen.empty()) continue;  // there is no IPv6
    CHECK(only_on_this_host("tcp:" + own.listen + ":1"));
    CHECK(own.reached_at == std::vector{own.listen});
    Address actual;
    CHECK(listen_on(parse_address("tcp:" + own.listen + ":0"), actual, kForever));
  }
  const Closed closed;
  CHECK(own_address_towards("tcp:hangs.test:29500", std::chrono::milliseconds(50)).listen.empty());
}

TEST_CASE("where the name of worker 0's host means loopback, all listen on every interface") {
  CHECK(address_to_listen_on("tcp:debian.test:29500", kForever) == "tcp:0.0.0.0:29500");
  for (const std::string as_said : {"tcp:localhost:29500", "tcp:127.0.0.1:29500", "unix:@debian.test"})
    CHECK(address_to_listen_on(as_said, kForever) == as_said);
  const OwnAddress own = own_address_towards("tcp:debian.test:29500", kForever);
  if (own.listen != "0.0.0.0") {  // no interface but loopback
    CHECK(own.listen == "127.0.0.1");
    return;
  }
  REQUIRE_FALSE(own.reached_at.empty());
  for (const std::string& host : own.reached_at) CHECK_FALSE(only_on_this_host("tcp:" + host + ":1"));
}
