// Random programs of tensor operations give what PyTorch gave, or are refused in words: never something else.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "tests/oracle/programs/run.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

// Statements of the files in this folder that are refused while PyTorch answers. They only fall.
constexpr int64_t kRefused = 13, kRefusedTies = 8;

// Another folder of reference values, or empty.
std::string others() {
  const char* folder = std::getenv("TROUPE_ORACLE");
  return folder ? folder : "";
}

Program with_views(Program p) {
  for (Leaf& leaf : p.leaves) leaf.view = true;
  return p;
}

// Files of others may not say which leaves are views; then a program is right if it is with one of the two.
void run_one(const Program& p, const std::string& label, Tally& tally) {
  const size_t before = tally.different.size();
  Tally next = tally;
  run_program(p, label, run_here(), next);
  if (next.different.size() > before && !others().empty()) {
    Tally viewed = tally;
    run_program(with_views(p), label, run_here(), viewed);
    if (viewed.different.size() == before) next = viewed;
  }
  tally = next;
}

void check(const std::string& name, const std::string& title, int64_t refused) {
  Tally tally;
  int64_t number = 0;
  for (const Program& p : read_programs(name)) run_one(p, "program " + std::to_string(number++), tally);
  tally.print(title);
  REQUIRE(tally.programs > 0);
  for (const std::string& text : tally.different) UNSCOPED_INFO(text);
  CHECK(tally.different.empty());
  CHECK(tally.refusals() <= (others().empty() ? refused : tally.statements / 4));
}

TEST_CASE("random programs give what PyTorch gives, or are refused", "[oracle]") {
  check("programs.json", "programs", kRefused);
}

TEST_CASE("random programs of equal, bounding, zero, infinite and NaN values give what PyTorch gives",
          "[oracle]") {
  if (!others().empty() && !std::filesystem::exists(others() + "/ties/programs.json"))
    return skip_test("$TROUPE_ORACLE has no ties/programs.json");
  check("ties/programs.json", "programs of ties", kRefusedTies);
}

}  // namespace
