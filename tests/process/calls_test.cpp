// Cancellation and back-pressure between real processes.
#include <cstdlib>

#include "tests/process/launcher.h"

using namespace troupe::testing;

TEST_CASE("over processes calls are cancelled, floods are bounded, and a killed worker frees who waits",
          "[process]") {
  Launcher job({"-n", "3", program("calls")});
  job.exit_code();
  INFO(job.output << job.errors);
  CHECK(job.line("late ") == "deadline");
  const auto number = [&](const std::string& key) {
    return std::strtoll(job.line(key).c_str(), nullptr, 10);
  };
  CHECK(number("in flight ") >= 1);
  CHECK(number("in flight ") <= 9);  // MiB: the limit of 8, and one message
  CHECK(number("grown ") < 60);      // of 300 that were sent
  CHECK(job.line("flood ended: ").find("w1") != std::string::npos);
  CHECK(number("left ") == 0);
}
