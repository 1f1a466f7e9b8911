// References in messages that nobody gets to see: whatever becomes of the message, its references are given
// back.
#include <catch2/catch.hpp>

#include "actors/cell/interceptor.h"
#include "actors/worker/worker.h"
#include "core/tensor/creation.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Item : Actor {
  int64_t number() { return 7; }
  static constexpr auto remote = methods<&Item::number>;
};

struct Box : Actor {
  void put(RRef<Item> i) { item = std::move(i); }
  RRef<Item> give() { return item; }
  void take(RRef<Item>, RRef<Item>) {}
  void clear() { item = {}; }
  Task<int64_t> use() { co_return co_await item.call<&Item::number>(); }
  /// The reference, too deep in lists to travel.
  Value give_deep() {
    Value v = internal::to_value(item);
    for (int i = 0; i < 40; ++i) v = Value(ValueList{std::move(v)});
    return v;
  }
  /// A reference that can travel, and one that cannot.
  Value give_bad() {
    return Value(
        ValueList{internal::to_value(item), Value(RefValue{{1, 1, 12345}, "Item", kNoWorker, 0, {}})});
  }
  /// A reference that can travel, and a tensor that cannot outside any context.
  std::tuple<RRef<Item>, Tensor> give_learning() { return {item, full({1}, 1.0).requires_grad_()}; }
  RRef<Item> item;
  static constexpr auto remote = methods<&Box::put, &Box::give, &Box::take, &Box::clear, &Box::use,
                                         &Box::give_deep, &Box::give_bad, &Box::give_learning>;
};

// Refuses every call of a method, before anybody else sees it.
struct Refuser : internal::actors::Interceptor {
  void incoming_call(internal::actors::Invocation& call) override {
    if (call.call().method == internal::net::method_id("take")) throw_invalid("[test] refused");
  }
};

// Makes the item that was not there when a call for it came, as another thread does whose message is its
// creation.
struct Maker : internal::actors::Interceptor {
  bool missing_object(const Ref<internal::actors::Invocation>& call) override {
    internal::actors::Worker& worker = call->worker();
    worker.actors().add(worker.make_actor(call->call().target,
                                          std::string(internal::actors::type_name<Item>()),
                                          internal::actors::MadeFrom<Item>::id, {}, 0, "Item#0"));
    return false;
  }
};

// Workers 0 to 3; the box lives on worker 1. Once it is over nothing is left of any reference.
struct Fixture {
  SimulatedCluster cluster{1, 4, hosting<Item, Box>()};
  RRef<Box> box;
  Fixture() {
    cluster.network().set_faults({.delay = 1ms});
    box = cluster.here(0).spawn<Box>(1);
  }
  /// An item that lives on worker `owner`, in the box and nowhere else.
  void fill(size_t owner) {
    cluster.await(box.call<&Box::put>(cluster.here(0).spawn<Item>(owner))).value();
    cluster.settle();
  }
  Future<Value> one_way(const char* method) {
    return cluster.worker(0).call(box.id(), "Box", internal::net::method_id(method), {}, {.one_way = true});
  }
  void check_nothing_left(std::vector<size_t> workers = {0, 1, 2, 3}) {
    if (box) cluster.await(box.call<&Box::clear>()).value();
    box = {};
    cluster.settle();
    for (size_t w : workers) {
      auto m = cluster.worker(w).metrics();
      INFO("worker " << w);
      for (const char* counter : {"owned_objects", "owned_references", "borrowed_references",
                                  "pending_references", "pending_calls", "actors"}) {
        INFO(counter);
        CHECK(m[counter] == 0);
      }
    }
  }
};

}  // namespace

TEST_CASE("references in replies that are not delivered are given back") {
  Fixture f;
  for (size_t owner : {0, 1, 2}) {  // the caller's, the callee's and somebody else's
    f.fill(owner);
    INFO("an item of worker " << owner);
    SECTION("the reply comes after the deadline, item of " + std::to_string(owner)) {
      f.cluster.network().schedule(1600us, [] {});
      const auto late = f.cluster.await(f.box.with_timeout(1500us).call<&Box::give>());
      REQUIRE_FALSE(late.ok());
      CHECK(late.error().kind() == ErrorKind::deadline);
    }
    SECTION("the call is one-way, item of " + std::to_string(owner)) { f.one_way("give").get(); }
    SECTION("the reply cannot be encoded, item of " + std::to_string(owner)) {
      const auto deep = f.cluster.await(f.box.call<&Box::give_deep>());
      REQUIRE_FALSE(deep.ok());
      CHECK_THAT(deep.error().what(), Catch::Contains("deep"));
    }
    SECTION("another reference in the reply cannot be sent, item of " + std::to_string(owner)) {
      const auto bad = f.cluster.await(f.box.call<&Box::give_bad>());
      REQUIRE_FALSE(bad.ok());
      CHECK_THAT(bad.error().what(), Catch::Contains("object of this reference is gone"));
    }
    SECTION("autograd refuses the reply, item of " + std::to_string(owner)) {
      const auto refused = f.cluster.await(f.box.call<&Box::give_learning>());
      REQUIRE_FALSE(refused.ok());
      CHECK_THAT(refused.error().what(), Catch::Contains("no autograd::Context"));
    }
    f.cluster.settle();
  }
  f.check_nothing_left();
}

TEST_CASE("references in calls that reach no method are given back") {
  Fixture f;
  for (size_t owner : {0, 1, 2}) {
    {
      const auto item = f.cluster.here(0).spawn<Item>(owner);
      const Value ref = internal::to_value(item);
      SECTION("the method is unknown, item of " + std::to_string(owner)) {
        const auto r = f.cluster.await(f.box.call_by_name("nope", {ref}));
        REQUIRE_FALSE(r.ok());
        CHECK_THAT(r.error().what(), Catch::Contains("no such method"));
      }
      SECTION("the service is unknown, item of " + std::to_string(owner)) {
        const auto r = f.cluster.await(f.cluster.worker(0).call_service(1, "nope", {ref}));
        REQUIRE_FALSE(r.ok());
        CHECK_THAT(r.error().what(), Catch::Contains("no such service"));
      }
      SECTION("the object was released, item of " + std::to_string(owner)) {
        const ObjectId gone = f.cluster.here(0).spawn<Box>(1).id();
        f.cluster.settle();
        const auto r = f.cluster.await(
            f.cluster.worker(0).call(gone, "Box::put", internal::net::method_id("put"), {ref}));
        REQUIRE_FALSE(r.ok());
        CHECK_THAT(r.error().what(), Catch::Contains("it was released"));
      }
      SECTION("an upper layer refuses it, item of " + std::to_string(owner)) {
        f.cluster.worker(1).add_extension(std::make_unique<Refuser>());
        const auto r = f.cluster.await(f.box.call<&Box::take>(item, item));
        REQUIRE_FALSE(r.ok());
        CHECK_THAT(r.error().what(), Catch::Contains("refused"));
      }
      SECTION("another reference in the call cannot be sent, item of " + std::to_string(owner)) {
        const Value bad(RefValue{{0, 0, 12345}, "Item", kNoWorker, 0, {}});
        const auto r = f.cluster.await(f.box.call_by_name("take", {ref, bad}));
        REQUIRE_FALSE(r.ok());
        CHECK_THAT(r.error().what(), Catch::Contains("object of this reference is gone"));
      }
      SECTION("the caller does not wait for the answer, item of " + std::to_string(owner)) {
        f.cluster.network().schedule(600us, [] {});
        const auto r = f.cluster.await(f.box.with_timeout(500us).call<&Box::take>(item, item));
        REQUIRE_FALSE(r.ok());
        CHECK(r.error().kind() == ErrorKind::deadline);
      }
    }
    f.cluster.settle();
  }
  f.check_nothing_left();
}

TEST_CASE("a call reaches an actor that is made while it is looked for") {
  SimulatedCluster cluster(1, 2, hosting<Item>());
  internal::actors::Worker& worker = cluster.worker(1);
  worker.add_extension(std::make_unique<Maker>());
  const ObjectId id{1, 1, worker.next_number()};
  const auto r =
      cluster.await(cluster.worker(0).call(id, "Item::number", internal::net::method_id("number"), {}));
  REQUIRE(r.ok());
  CHECK(*r.value().get_if<int64_t>() == 7);
  worker.actors().release(id);
}

TEST_CASE("a reference whose creation could not be sent says why, and cannot be passed on") {
  Fixture f;
  f.cluster.await(f.cluster.here(0).spawn<Item>(2).call<&Item::number>()).value();
  f.cluster.network().crash("w2");
  f.cluster.settle();
  {
    const auto never = f.cluster.here(0).spawn<Item>(2);
    const auto value = never.remote<&Item::number>();
    const auto says = [&](const auto& future, const char* where) {
      const auto r = f.cluster.await(future);
      REQUIRE_FALSE(r.ok());
      CHECK(r.error().kind() == ErrorKind::disconnected);
      CHECK_THAT(r.error().what(), Catch::Contains("worker w2 was lost") && Catch::Contains(where));
    };
    says(never.call<&Item::number>(), "call of");
    says(never.ready(), "creation of");
    says(value.to_here(), "fetch of Remote<int64>");
    says(f.box.call<&Box::put>(never), "sending of a reference to");
    says(f.box.call<&Box::take>(f.cluster.here(0).spawn<Item>(3), never), "sending of a reference to");
    says(f.box.call_by_name("put", {internal::to_value(value)}), "sending of a reference to Remote<int64>");
    CHECK(f.cluster.await(f.box.call<&Box::put>(f.cluster.here(0).spawn<Item>(3))).ok());
  }
  f.check_nothing_left({0, 1, 3});
}

TEST_CASE("a creation that was lost on its way fails every use of its reference, wherever it went") {
  for (bool dies : {true, false}) {
    INFO((dies ? "its worker dies" : "the connection breaks"));
    Fixture f;
    f.fill(2);  // there is a connection to w2
    {
      auto lost = f.cluster.here(0).spawn<Item>(2);
      const auto first = lost.call<&Item::number>();
      const auto shared = f.box.call<&Box::put>(lost);  // while nobody knows
      if (dies)
        f.cluster.network().crash("w2");
      else
        f.cluster.network().reset("w0", "w2");
      const auto fails = [&](const auto& future) {
        const auto r = f.cluster.await(future);
        REQUIRE_FALSE(r.ok());
        CHECK(r.error().kind() == ErrorKind::disconnected);
        CHECK(r.error().worker() == "w2");
        CHECK_THAT(r.error().what(), Catch::Contains("worker w2 was lost"));
      };
      fails(first);
      fails(lost.call<&Item::number>());
      fails(lost.ready());
      REQUIRE(f.cluster.await(shared).ok());
      // Its new holder finds out when it asks the owner, and so does whoever it is passed on to.
      const std::string why =
          dies ? "worker w2 was lost" : "the object of this reference is gone: worker w0 was lost";
      const auto refused = [&](const auto& future) {
        const auto r = f.cluster.await(future);
        REQUIRE_FALSE(r.ok());
        CHECK_THAT(r.error().what(), Catch::Contains(why));
      };
      refused(f.box.call<&Box::use>());
      refused(
          f.box.call<&Box::give>().then([](const RRef<Item>& item) { return item.call<&Item::number>(); }));
      CHECK(f.cluster.await(f.box.call<&Box::take>(f.cluster.here(0).spawn<Item>(3), lost)).ok());
      refused(f.box.call<&Box::use>());  // as it was
    }
    f.check_nothing_left(dies ? std::vector<size_t>{0, 1, 3} : std::vector<size_t>{0, 1, 2, 3});
  }
}
