// Named actors: given, looked up, waited for, taken, dropped.
#include <catch2/catch.hpp>

#include <thread>

#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using testing::error_of;

namespace {

std::atomic<int> living{0};

struct Server : Actor {
  explicit Server(int64_t n) : n(n) {
    if (n < 0) throw std::runtime_error("a negative number");
    ++living;
  }
  ~Server() override {
    if (n >= 0) --living;
  }
  int64_t get() { return n++; }
  int64_t n;
  static constexpr auto remote = methods<&Server::get>;
};

struct Client : Actor {
  Task<int64_t> ask(std::string name, bool wait) {
    auto server = co_await here().lookup<Server>(name, {.wait = wait});
    co_return co_await server.call<&Server::get>();
  }
  Task<void> serve(std::string name) {
    auto server = here().spawn_named<Server>(here().name() + "/" + name, 50);
    co_await server.ready();
  }
  static constexpr auto remote = methods<&Client::ask, &Client::serve>;
};

void nothing_left(Cluster& cluster) {
  for (const auto& name : cluster.workers())
    for (const char* what : {"names", "owned_objects", "owned_values", "owned_references",
                             "borrowed_references", "pending_references", "actors"})
      while (cluster.metrics(name)[what] != 0) std::this_thread::yield();
  CHECK(living == 0);
}

std::string says(const std::function<void()>& f) {
  const Error e = error_of(f);
  CHECK(e.kind() == ErrorKind::invalid);
  return e.what();
}

}  // namespace

TEST_CASE("a named actor is found from every worker, and lives until its name is dropped") {
  auto cluster = Cluster::in_process(3, hosting<Server, Client>());
  for (const std::string where : {"w0", "w1"}) {
    (void)cluster->spawn_named<Server>(where + "/server", 7);  // nobody keeps the reference
    {
      auto client = cluster->spawn<Client>("w2"), beside = cluster->spawn<Client>(where);
      CHECK(client.call<&Client::ask>(where + "/server", false).get() == 7);
      CHECK(beside.call<&Client::ask>(where + "/server", true).get() == 8);
      auto found = cluster->lookup<Server>(where + "/server").get();
      CHECK(found.owner_name() == where);
      CHECK(found.call<&Server::get>().get() == 9);
      CHECK(cluster->here().lookup_any(where + "/server").get() == AnyRef(found));
      client.call<&Client::serve>("other").get();  // an actor names one
      CHECK(cluster->lookup<Server>("w2/other").get().call<&Server::get>().get() == 50);
      CHECK(cluster->here().names("w2").get().size() == 1);
      cluster->drop_name(where + "/server").get();
      cluster->drop_name("w2/other").get();
      CHECK(found.call<&Server::get>().get() == 10);  // lives by this reference
    }
    nothing_left(*cluster);
  }
}

TEST_CASE("a name is given to one thing at a time") {
  auto cluster = Cluster::in_process(3, hosting<Server, Client>());
  {
    auto first = cluster->spawn_named<Server>("w1/a", 1);
    auto second = cluster->spawn_named<Server>("w1/a", 2);  // too late: made nowhere, told by its uses
    CHECK_THAT(says([&] { second.call<&Server::get>().get(); }),
               Catch::Contains("w1/a is") && Catch::Contains("Server#0:1 already"));
    CHECK_THAT(says([&] { second.ready().get(); }), Catch::Contains("already"));
    auto mine = cluster->spawn_named<Server>("w0/a", 3);  // another worker's names are others
    CHECK_THAT(says([&] { cluster->spawn_named<Server>("w0/a", 4).ready().get(); }),
               Catch::Contains("already"));
    auto third = cluster->spawn<Server>("w1", 5);
    CHECK_THAT(says([&] { cluster->set_name(third, "a").get(); }), Catch::Contains("Server#0:1 already"));
    cluster->set_name(third, "b").get();
    cluster->set_name(third, "c").get();  // one thing may have several names
    CHECK(cluster->lookup<Server>("w1/b").get() == third);
    CHECK(cluster->lookup<Server>("w1/c").get() == third);
    cluster->drop_name("w1/a").get();
    cluster->set_name(third, "a").get();
    CHECK(cluster->lookup<Server>("w1/a").get() == third);
    CHECK(first.call<&Server::get>().get() == 1);
    const auto names = cluster->here().names("w1").get();
    CHECK(names.size() == 3);
    for (const auto& [name, type] : names) cluster->drop_name("w1/" + name).get();
    cluster->drop_name("w0/a").get();
  }
  nothing_left(*cluster);
}

TEST_CASE("bad names, wrong types and unknown names are errors that say what is there") {
  auto cluster = Cluster::in_process(2, hosting<Server, Client>());
  {
    auto server = cluster->spawn_named<Server>("w1/server", 1);
    CHECK_THAT(
        says([&] { cluster->lookup<Client>("w1/server").get(); }),
        Catch::Contains("w1/server is a") && Catch::Contains("Server, not a") && Catch::Contains("Client"));
    CHECK_THAT(says([&] { cluster->lookup<Server>("w0/server").get(); }),
               Catch::Contains("w0 has nothing named 'server'; it has: no names"));
    for (int i = 0; i < 20; ++i) cluster->set_name(server, "spare-" + std::to_string(i)).get();
    const std::string unknown = says([&] { cluster->lookup<Server>("w1/servr").get(); });
    CHECK_THAT(unknown, Catch::Contains("w1 has nothing named 'servr'; it has: server (") &&
                            Catch::Contains("and 13 more"));
    CHECK_THAT(says([&] { cluster->lookup<Server>("w7/server").get(); }),
               Catch::Contains("no worker is named 'w7'"));
    CHECK_THAT(says([&] { cluster->drop_name("w1/servr").get(); }), Catch::Contains("it has: server ("));
    CHECK_THAT(says([&] { cluster->lookup<Server>("server").get(); }),
               Catch::Contains("expected WORKER/NAME"));
    CHECK_THAT(says([&] { cluster->spawn_named<Server>("w1/", 1); }), Catch::Contains("cannot be a name"));
    for (const std::string& bad : {std::string("a/b"), std::string("a b"), std::string(),
                                   std::string(300, 'x'), std::string("\n"), std::string("a\0b", 3)})
      CHECK_THAT(says([&] { cluster->set_name(server, bad).get(); }), Catch::Contains("cannot be a name"));
    CHECK_THAT(says([&] { cluster->lookup<Server>(std::string("w1/server\0", 10)).get(); }),
               Catch::Contains("'server?' (7 bytes) cannot be a name"));
    CHECK_THAT(says([&] { cluster->spawn<Server>(std::string("w1\0", 3), 1); }),
               Catch::Contains("no worker is named 'w1?'"));
    CHECK_THAT(says([&] { server.call_by_name(std::string("get\0", 4), {}).get(); }),
               Catch::Contains("has no such method"));
    CHECK_THAT(says([&] { cluster->joined("w7").get(); }),
               Catch::Contains("w7 will never join: the cluster is not elastic"));
    for (const std::string& bad :
         {std::string("w1\0", 3), std::string("w-0"), std::string("w01"), std::string("x")})
      CHECK_THAT(says([&] { cluster->joined(bad).get(); }), Catch::Contains("is no worker's name"));
    cluster->joined("w1").get();
    CHECK_THAT(says([&] { cluster->set_name(RRef<Server>(), "x").get(); }),
               Catch::Contains("empty reference"));
    // An actor that cannot be made has its name all the same, and says so to those who find it.
    (void)cluster->spawn_named<Server>("w1/bad", -1);
    auto bad = cluster->lookup<Server>("w1/bad").get();
    CHECK_THAT(error_of([&] { bad.call<&Server::get>().get(); }).what(),
               Catch::Contains("a negative number"));
    for (const auto& [name, type] : cluster->here().names("w1").get()) cluster->drop_name("w1/" + name).get();
  }
  nothing_left(*cluster);
  auto other = Cluster::in_process(2, hosting<Server>());
  CHECK_THAT(says([&] { AnyRef(other->here().table().spawn(1, "Unknown", 0, {}, "client")).ready().get(); }),
             Catch::Contains("has no actor type Unknown"));
  CHECK(other->here().names("w1").get().empty());  // a type that is not there leaves no name
}

TEST_CASE("a worker lists what lives on it, who holds it and what it is called") {
  auto cluster = Cluster::in_process(3, hosting<Server, Client>());
  {
    auto server = cluster->spawn_named<Server>("w1/server", 1);
    cluster->set_name(server, "same").get();
    auto value = server.remote<&Server::get>();
    value.ready().get();
    auto another = server.remote<&Server::get>();
    (void)server.call<&Server::get>().get();
    std::map<std::string, ObjectInfo> objects;
    for (auto& o : cluster->here().objects("w1").get()) objects.emplace(o.what.substr(o.what.find('#')), o);
    REQUIRE(objects.size() == 3);
    const ObjectInfo& s = objects.at("#0:1");
    CHECK_THAT(s.what, Catch::EndsWith("Server#0:1"));
    CHECK(s.names == std::vector<std::string>{"same", "server"});
    CHECK(s.holders == std::vector<std::string>{"w0", "w1"});
    CHECK(objects.at("#0:2").what == "value, int64#0:2");
    CHECK(objects.at("#0:2").names.empty());
    CHECK(objects.at("#0:2").holders == std::vector<std::string>{"w0"});
    CHECK(cluster->here().objects("w1", 2).get().size() == 2);
    CHECK(cluster->here().objects("w1", -5).get().empty());
    CHECK(cluster->here().objects("w2").get().empty());
    cluster->drop_name("w1/server").get();
    cluster->drop_name("w1/same").get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a lookup may wait for the name, as long as its deadline allows") {
  auto cluster = Cluster::in_process(3, hosting<Server, Client>());
  {
    auto client = cluster->spawn<Client>("w2");
    const Error late = error_of([&] {
      cluster->lookup<Server>("w1/server", {.wait = true, .timeout = std::chrono::milliseconds(1)}).get();
    });
    CHECK(late.kind() == ErrorKind::deadline);
    CHECK_THAT(late.what(), Catch::Contains("lookup of w1/server"));
    std::vector<Future<int64_t>> waiting;
    for (int i = 0; i < 3; ++i) waiting.push_back(client.call<&Client::ask>("w1/server", true));
    auto here = cluster->lookup<Server>("w1/server", {.wait = true});
    auto wrong = cluster->lookup<Client>("w1/server", {.wait = true});
    auto other = cluster->lookup<Server>("w1/other", {.wait = true});
    CHECK(cluster->metrics("w1")["names"] == 0);  // behind the lookup, on the same connection
    CHECK_FALSE(here.is_ready());
    (void)cluster->spawn_named<Server>("w1/server", 3);
    int64_t sum = 0;
    for (auto& w : waiting) sum += w.get();
    CHECK(sum == 3 + 4 + 5);
    CHECK(here.get().owner_name() == "w1");
    CHECK_THAT(says([&] { wrong.get(); }), Catch::Contains("not a"));
    CHECK_FALSE(other.is_ready());
    cluster->set_name(here.get(), "other").get();
    CHECK(other.get() == here.get());
    cluster->drop_name("w1/other").get();
    cluster->drop_name("w1/server").get();
  }
  nothing_left(*cluster);
}

TEST_CASE("names and those who wait for them end with their cluster") {
  Future<RRef<Server>> waiting;
  {
    auto cluster = Cluster::in_process(2, hosting<Server>(), {.leak_check = LeakCheck::off});
    auto server = cluster->spawn_named<Server>("w1/server", 3);
    server.ready().get();
    waiting = cluster->lookup<Server>("w1/other", {.wait = true});
  }
  CHECK(living == 0);
  CHECK(error_of([&] { waiting.get(); }).kind() == ErrorKind::cancelled);
}
