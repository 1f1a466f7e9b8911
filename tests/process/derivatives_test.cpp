// Derivatives of derivatives between real processes.
#include <cstdlib>

#include "tests/process/launcher.h"

using namespace troupe::testing;

TEST_CASE("over four processes random programs with recorded passes have the numbers of one thread",
          "[process]") {
  Launcher job({"-n", "4", program("derivatives")});
  CHECK(job.exit_code() == 0);
  INFO(job.output << job.errors);
  CHECK(std::strtoll(job.line("same ").c_str(), nullptr, 10) > 300);
  CHECK(job.line("different ") == "0");
}
