// Initial values and masks are the same in one worker, in several, as processes, and on every rerun.
#include <set>

#include "tests/process/launcher.h"
#include "tests/process/programs/seeds.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

using Lines = std::vector<std::string>;

Lines in_memory(int workers) {
  Lines lines;
  const auto cluster = Cluster::in_process(workers, hosting<Drawer>());
  draw_everywhere(*cluster, [&](const std::string& line) { lines.push_back(line); });
  return lines;
}

Lines over_processes() {
  Launcher job({"-n", "3", program("seeds")});
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  REQUIRE(code == 0);
  CHECK(job.errors == "");
  return job.lines("");
}

}  // namespace

TEST_CASE("a program draws the same numbers in one worker, in three, as processes, and when it runs again",
          "[process]") {
  const Lines alone = in_memory(1);
  REQUIRE(alone.size() == 1 + 4 + 6 + 4 + 6 + 4 + 1);
  CHECK(in_memory(3) == alone);
  CHECK(in_memory(3) == alone);
  CHECK(in_memory(5) == alone);
  CHECK(over_processes() == alone);
  CHECK(over_processes() == alone);
  // Each actor has numbers of its own; what it keeps (its layer) is the only thing told twice.
  std::set<std::string> bits;
  for (const auto& line : alone) bits.insert(line.substr(line.rfind(' ')));
  CHECK(bits.size() == alone.size() - 2);
}
