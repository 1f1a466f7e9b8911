// `troupe ways`: what it tells of real processes, started by itself or by a launcher.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/process/launcher.h"

using namespace troupe::testing;
using Catch::Contains;

namespace {

// Of each pair of workers the way of the CPU's tensors.
std::map<std::string, nlohmann::json> cpu_ways(const std::vector<std::string>& command,
                                               const std::vector<std::string>& environment = {}) {
  Process ways(command, environment);
  REQUIRE(ways.exit_code() == 0);
  CHECK(ways.errors == "");
  std::map<std::string, nlohmann::json> out;
  const auto all = nlohmann::json::parse(ways.output);
  for (const auto& w : all.at("tensors"))
    if (w.at("from_device") == "cpu")
      out[w.at("from").get<std::string>() + w.at("to").get<std::string>()] = w;
  return out;
}

}  // namespace

TEST_CASE("troupe ways tells that processes of a host share memory", "[process]") {
  const auto ways = cpu_ways({kTroupeCommand, "ways", "-n", "3", "--json"});
  CHECK(ways.size() == 6);
  for (const auto& [pair, w] : ways) {
    INFO(pair);
    CHECK(w.at("way") == "shared memory");
    CHECK(w.at("at_least") == 65536);
    CHECK(w.at("below") == "a ring of shared memory");
    CHECK(w.at("why") == "");
  }
}

TEST_CASE("troupe ways tells what the environment of a job changes", "[process]") {
  const auto ways =
      cpu_ways({kTroupeCommand, "run", "-n", "2", "troupe", "ways", "--json"}, {"TROUPE_SHARED_MEMORY=0"});
  REQUIRE(ways.size() == 2);
  CHECK(ways.at("w1w0").at("way") == "a Unix socket");
  CHECK(ways.at("w1w0").at("why") == "shared memory is switched off (TROUPE_SHARED_MEMORY)");
}

TEST_CASE("troupe ways prints tables for people", "[process]") {
  Process ways({kTroupeCommand, "ways"});
  REQUIRE(ways.exit_code() == 0);
  CHECK_THAT(ways.output, Contains("w0, w1 to each other  cpu") && Contains("\nall_reduce ") &&
                              Contains("\nOperations of a group of all workers:\n"));
  Launcher alone({"-n", "1", "troupe", "ways"});
  REQUIRE(alone.exit_code() == 0);
  CHECK(alone.output == "there is one worker: its tensors stay where they are\n");
}

TEST_CASE("troupe ways refuses what it cannot do", "[process]") {
  Process few({kTroupeCommand, "ways", "-n", "1"});
  CHECK(few.exit_code() == 2);
  CHECK_THAT(few.errors, Contains("troupe ways: ") && Contains("-n"));
  Launcher twice({"-n", "2", "troupe", "ways", "-n", "2"});
  CHECK(twice.exit_code() == 2);
  CHECK_THAT(twice.errors, Contains("a launcher has started this one: leave -n out"));
}
