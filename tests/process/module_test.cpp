// An actor Module in a process of a program that has no actor types.
#include "tests/process/launcher.h"

using namespace troupe::testing;

TEST_CASE("a Module is made by name in another process", "[process]") {
  Launcher job({"-n", "2", program("module_by_name")});
  CHECK(job.exit_code() == 0);
  INFO(job.output << job.errors);
  CHECK(job.line("result ") == "[5, 3]");
  CHECK(job.output.find("Linear(2, 3)") != std::string::npos);
}
