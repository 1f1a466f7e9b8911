// Messages that create actors, malformed: errors, and the worker goes on.
#include <catch2/catch.hpp>

#include "rref/ref_messages.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct Item : Actor {
  int64_t number() { return 7; }
  static constexpr auto remote = methods<&Item::number>;
};

}  // namespace

TEST_CASE("a creation with missing fields or fields of other types is refused") {
  auto cluster = Cluster::in_process(2, hosting<Item>());
  const std::string type(internal::actors::type_name<Item>());
  const Value number(int64_t{1} << 40), none{ValueList{}}, text(type), name(std::string{}), seed(int64_t{5});
  for (const ValueList& args : std::vector<ValueList>{{},
                                                      {number, text, none, name, seed},
                                                      {number, text, none, name, text, name},
                                                      {number, text, none, name, Value(), name},
                                                      {text, text, none, name, seed, name},
                                                      {number, number, none, name, seed, name},
                                                      {number, text, text, name, seed, name},
                                                      {number, text, none, number, seed, name},
                                                      {number, text, none, name, seed, seed},
                                                      {number, text, none, name, seed, name, name}}) {
    const Error e =
        error_of([&] { cluster->worker().call_service(1, internal::rref::kSpawn.name, args).get(); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Contains("ref.spawn "));
  }
  CHECK(cluster->spawn<Item>("w1").call<&Item::number>().get() == 7);
}
