// References between processes of which some are killed.
#include "tests/process/launcher.h"

using namespace troupe::testing;

TEST_CASE("a killed holder's references are reclaimed, and those of a killed owner name it", "[process]") {
  // Started by hand: `troupe run` ends the job when a worker dies.
  const auto variables = [](int rank) {
    return std::vector<std::string>{"TROUPE_RANK=" + std::to_string(rank), "TROUPE_WORLD_SIZE=3",
                                    "TROUPE_ADDRESS=unix:@troupe-holders-" + std::to_string(getpid()),
                                    "TROUPE_TOKEN=a token of this test, long enough"};
  };
  Process driver({program("holders")}, variables(0)), owner({program("holders")}, variables(1)),
      holder({program("holders")}, variables(2));
  const int code = driver.exit_code();
  INFO(driver.output << driver.errors);
  CHECK(holder.exit_code() == 137);
  CHECK(owner.exit_code() == 137);
  CHECK(code == 0);
  CHECK(driver.line("sum ") == std::to_string(2 * (1000 + 99 * 100 / 2)));
  CHECK(driver.line("owned after a holder's end ") == "3");
  CHECK(driver.line("value ") == "1000");
  CHECK(driver.line("named ") == "1000");
  for (const std::string what : {"use", "fetch", "lookup", "creation"})
    CHECK(driver.line(what + " failed: ").find("disconnected: worker w1 was lost") == 0);
  CHECK(driver.line("text ").find("on w1, used by w0") != std::string::npos);
  driver.line("done");
}
