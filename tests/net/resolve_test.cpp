// Host names that no server answers for: nobody waits longer than he said.
#include <dlfcn.h>
#include <netdb.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "net/socket/loop/fd.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;

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
  const Fd fd = listen_on(parse_address("tcp:localhost:0"), actual, kForever);
  CHECK(only_on_this_host(actual.str()));
  CHECK(actual.name != "localhost");
  CHECK(actual.port != 0);
}
