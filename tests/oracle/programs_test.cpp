// Random programs of tensor operations give what PyTorch gave, or are refused in words: never something else.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/oracle/programs/run.h"

namespace troupe::testing {
namespace {

// Statements of the file in this folder that are refused while PyTorch answers. It only falls.
constexpr int64_t kRefused = 13;

TEST_CASE("random programs give what PyTorch gives, or are refused", "[oracle]") {
  Tally tally;
  int64_t number = 0;
  for (const Program& p : read_programs())
    run_program(p, "program " + std::to_string(number++), run_here(), tally);
  tally.print("programs");
  REQUIRE(tally.programs > 0);
  for (const std::string& text : tally.different) UNSCOPED_INFO(text);
  CHECK(tally.different.empty());
  const bool others = std::getenv("TROUPE_ORACLE") && *std::getenv("TROUPE_ORACLE");
  CHECK(tally.refusals() <= (others ? tally.statements / 4 : kRefused));
}

}  // namespace
}  // namespace troupe::testing
