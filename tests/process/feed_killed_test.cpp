// Feeds whose readers, and whose whole jobs, are killed: the rows and their order stay the same.
#include <signal.h>

#include "data/datasets/token_file.h"
#include "tests/process/far_site.h"
#include "tests/support/eventually.h"
#include "tests/support/stopped_run.h"

using Catch::Contains;
using troupe::testing::Folder;
using troupe::testing::Launcher;
using troupe::testing::pid_of;
using troupe::testing::program;

namespace {

struct Tokens {
  Folder folder;
  std::string files;
  Tokens() {
    int64_t id = 0;
    for (const size_t size : {60'001, 100'001}) {
      std::vector<int64_t> ids(size);
      for (int64_t& i : ids) i = id++ % 65'536;
      const std::string path = (folder.path / (std::to_string(size) + ".bin")).string();
      troupe::datasets::write_token_file(path, ids);
      files += (files.empty() ? "" : ",") + path;
    }
  }
  std::vector<std::string> environment(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"FILES=" + files, "CONTEXT=20", "ROWS=16", "EPOCHS=6", "EVERY=10"});
    return more;
  }
};

std::string ends_with(Launcher& run) {
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  const std::string line = run.line("rows ");
  return line.substr(0, line.find(" waited"));
}

}  // namespace

TEST_CASE("a feed whose readers are killed one after the other gives the rows of one without", "[process]") {
  const Tokens tokens;
  Launcher alone({"-n", "1", program("feed_job")}, tokens.environment());
  const std::string undisturbed = ends_with(alone);
  CHECK_THAT(undisturbed, Contains("48000 hash "));
  Launcher run({"-n", "4", "--keep-going", program("feed_job")},
               tokens.environment({"READERS=w1,w2,w3", "SLOW=5000"}));
  for (const auto& [step, worker] : {std::pair(3, "w2"), std::pair(20, "w1"), std::pair(40, "w3")}) {
    run.await("step ", static_cast<size_t>(step));
    kill(pid_of(run, worker), SIGKILL);
  }
  CHECK(ends_with(run) == undisturbed);
  CHECK_THAT(run.errors, Contains("the reader on w2 is lost: others read") && Contains("so w0 reads"));
}

TEST_CASE("a job that is killed goes on with other readers and the rows that were not used", "[process]") {
  const Tokens tokens;
  Launcher alone({"-n", "1", program("feed_job")}, tokens.environment());
  const std::string undisturbed = ends_with(alone), dir = (tokens.folder.path / "run").string();
  int64_t before = 0;
  for (const auto& [readers, workers] :
       {std::pair("READERS=w1,w2", "3"), std::pair("READERS=w1,w2,w3", "4"), std::pair("READERS=", "2")}) {
    Launcher run({"-n", workers, "--keep-going", program("feed_job")},
                 tokens.environment({readers, "SLOW=20000", "CHECKPOINTS=" + dir}));
    REQUIRE(troupe::testing::eventually([&] { return troupe::testing::newest_step(dir) > before + 5; }));
    if (readers[8]) kill(pid_of(run, "w1"), SIGKILL);  // a reader, while checkpoints are made
    before = troupe::testing::newest_step(dir);
    REQUIRE(troupe::testing::eventually([&] { return troupe::testing::newest_step(dir) > before + 5; }));
    kill(pid_of(run, "w0"), SIGKILL);
    (void)run.exit_code();
    before = troupe::testing::newest_step(dir);
  }
  Launcher last({"-n", "3", program("feed_job")},
                tokens.environment({"READERS=w2,w1", "CHECKPOINTS=" + dir}));
  CHECK(ends_with(last) == undisturbed);
  CHECK(last.lines("step ").size() < 300);
}
