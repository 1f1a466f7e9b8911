// The job's own program claims workers, too: its actors make others there, wherever they are.
#include <catch2/catch.hpp>

#include "troupe/claim.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Maker : Actor {
  Task<RRef<Maker>> make(std::string worker) {
    const auto made = here().spawn<Maker>(worker);
    const auto ready = made.ready();
    co_await ready;
    co_return made;
  }
  static constexpr auto remote = methods<&Maker::make>;
};

}  // namespace

TEST_CASE("the job's own program makes actors on workers that it has claimed, from anywhere") {
  const auto cluster = Cluster::in_process(4);
  const auto before = cluster->spawn<Maker>("w1");
  before.ready().get();
  const Claim claim(*cluster, {"w1", "w2"});
  CHECK(claim.workers() == std::vector<std::string>{"w1", "w2"});
  CHECK(cluster->metrics("w2")["claims"] == 1);
  const auto other = cluster->spawn<Maker>("w3");
  (void)other.call<&Maker::make>("w2").get();
  CHECK_THROWS_WITH(Claim(*cluster, 2), Catch::Contains("and 1 is free: w1 is claimed by ") &&
                                            Catch::Contains("Claim(cluster, {\"w3\"})"));
  CHECK_THROWS_WITH(Claim(*cluster, 4), Catch::Contains("got 4 of 3 workers"));
  CHECK_THROWS_WITH(Claim(*cluster, {"w3", "w3"}),
                    Catch::Contains("[claim] got w3 twice; expected each worker once"));
  {
    const Claim second(*cluster, {"w3"});
    (void)before.call<&Maker::make>("w3").get();  // from one claim to another
  }
  {
    const Claim rest(*cluster, 1, {.share = true});
    CHECK(rest.workers() == std::vector<std::string>{"w3"});
    const Claim again(*cluster, 1, {.share = true});
    CHECK(cluster->metrics("w3")["claims"] == 2);
  }
  (void)Claim(*cluster, {"w3"});  // what has been given back is free
}
