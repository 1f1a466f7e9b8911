// Groups of processes.
#include <algorithm>

#include "tests/process/launcher.h"

using namespace troupe::testing;

TEST_CASE("processes sum tensors, and one that is killed is named, and the others form a group", "[process]") {
  Launcher job({"-n", "4", program("groups")});
  job.exit_code();
  INFO(job.output << job.errors);
  const auto count = [&](const std::string& line) {
    size_t n = 0;
    for (size_t at = 0; (at = job.output.find(line + "\n", at)) != std::string::npos; at += line.size()) ++n;
    return n;
  };
  CHECK(job.output.find("wrong") == std::string::npos);
  CHECK(count("disconnected names w3") == 3);
  CHECK(count("of the others 6") == 3);
  CHECK(count("left 0") == 3);
}
