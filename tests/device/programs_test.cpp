// Random programs, writes in place and views among them, on the null device: PyTorch's answers.
#include <catch2/catch.hpp>

#include "tests/oracle/programs/run.h"
#include "tests/support/null_device.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("random programs on the null device give what PyTorch gave") {
  install_null_device();
  const size_t before = null_bytes_in_use();
  {
    Tally tally;
    int64_t number = 0;
    for (Program p : read_programs()) {
      for (Leaf& leaf : p.leaves) leaf.device = null0;
      run_program(p, "program " + std::to_string(number++), run_here(), tally);
    }
    tally.print("random programs on the null device");
    REQUIRE(tally.programs > 0);
    for (const std::string& text : tally.different) UNSCOPED_INFO(text);
    CHECK(tally.different.empty());
    CHECK(tally.refusals() <= 13);
  }
  CHECK(null_bytes_in_use() == before);
}
