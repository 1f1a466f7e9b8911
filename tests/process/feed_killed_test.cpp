// Feeds whose readers, and whose whole jobs, are killed: the rows and their order stay the same.
#include "data/datasets/token_file.h"
#include "tests/process/far_site.h"
#include "tests/support/stopped_run.h"

using Catch::Contains;
using troupe::testing::Folder;
using troupe::testing::Launcher;
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
    more.insert(more.end(), {"FILES=" + files, "CONTEXT=20", "ROWS=16", "EPOCHS=20", "EVERY=10"});
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
  CHECK_THAT(undisturbed, Contains("160000 hash "));
  Launcher run({"-n", "4", "--keep-going", program("feed_job")},
               tokens.environment({"READERS=w1,w2,w3", "KILLS=3:w2,20:w1,40:w3"}));
  CHECK(ends_with(run) == undisturbed);
  CHECK_THAT(run.errors, Contains("the reader on w2 is lost: others read") && Contains("so w0 reads"));
}

TEST_CASE("a job that is killed goes on with other readers and the rows that were not used", "[process]") {
  const Tokens tokens;
  Launcher alone({"-n", "1", program("feed_job")}, tokens.environment());
  const std::string undisturbed = ends_with(alone), dir = (tokens.folder.path / "run").string();
  for (const auto& [workers, readers, kills] : {std::tuple("3", "READERS=w1,w2", "KILLS=3:w1,10:w0"),
                                                std::tuple("4", "READERS=w1,w2,w3", "KILLS=3:w2,4:w1,10:w0"),
                                                std::tuple("2", "READERS=", "KILLS=10:w0")}) {
    const int64_t before = troupe::testing::newest_step(dir);
    Launcher run({"-n", workers, "--keep-going", program("feed_job")},
                 tokens.environment({readers, kills, "CHECKPOINTS=" + dir}));
    CHECK(run.exit_code() != 0);
    INFO(run.output << run.errors);
    CHECK(troupe::testing::newest_step(dir) >= before + 5);
  }
  Launcher last({"-n", "3", program("feed_job")},
                tokens.environment({"READERS=w2,w1", "CHECKPOINTS=" + dir}));
  CHECK(ends_with(last) == undisturbed);
  CHECK(last.lines("step ").size() < 1000);
}
