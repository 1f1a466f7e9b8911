// Programs that do nothing for it, as processes: the questions of a second terminal, answered.
#include <signal.h>

#include <fstream>
#include <set>

#include "tests/support/folder.h"
#include "tests/watch/watched_job.h"

using namespace troupe::testing;

namespace {

struct Example {
  std::vector<std::string> command;
  int64_t workers;
  bool has_loss;                   // of a pass that ends at the driver
  std::vector<std::string> types;  // of its actors
};

// `troupe run` of it, once it has made some steps, and its job.
class Running {
 public:
  explicit Running(const Example& example) : example(example), run(arguments(example)) {
    while (steps() < 5) {
    }
  }
  ~Running() { run.signal(SIGKILL); }
  nlohmann::json ask(std::vector<std::string> verb) const {
    verb.insert(verb.end(), {"--json", job});
    return nlohmann::json::parse(troupe_says(verb));
  }
  const Example example;
  const std::string job =
      "job-" + example.command[0].substr(example.command[0].rfind('/') + 1) + "-" + std::to_string(getpid());
  Launcher run;

 private:
  std::vector<std::string> arguments(const Example& example) const {
    std::vector<std::string> out{"-n", std::to_string(example.workers), "--rdzv-id", job};
    out.insert(out.end(), example.command.begin(), example.command.end());
    return out;
  }
  int64_t steps() const {
    Process ps({kTroupeCommand, "ps", "--json", job});
    if (ps.exit_code() != 0) return 0;
    const auto report = nlohmann::json::parse(ps.output.substr(0, ps.output.find('\n')));
    return report.at("workers")[0].value("steps", int64_t{0});
  }
};

void check_ps(const Running& running) {
  const auto report = running.ask({"ps"});
  const Example& example = running.example;
  CHECK(report.at("workers").size() == static_cast<size_t>(example.workers));
  std::set<std::string> types;
  for (const auto& worker : report.at("workers")) {
    CHECK_FALSE(worker.contains("silent"));
    CHECK(worker.at("memory") > 1'000'000);
    for (const auto& actor : worker.at("actors")) {
      CHECK(actor.at("calls") > 0);
      types.insert(actor.at("type"));
    }
  }
  for (const std::string& type : example.types) {
    INFO(type);
    CHECK(types.contains(type));
  }
  CHECK(report.at("workers")[0].at("loss").is_number() == example.has_loss);
}

void check_top(const Running& running) {
  const std::string page = troupe_says({"top", "--once", "--seconds", "0.3", running.job});
  INFO(page);
  CHECK(page.find(", " + std::to_string(running.example.workers) + " workers  ") != std::string::npos);
  for (int64_t i = 0; i < running.example.workers; ++i)
    CHECK(page.find("\nw" + std::to_string(i) + " ") != std::string::npos);
}

void check_trace(const Running& running) {
  const auto trace = running.ask({"trace", "--steps", "3"});
  std::set<int64_t> there;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") there.insert(event.at("pid").get<int64_t>());
  CHECK(there.size() == static_cast<size_t>(running.example.workers));
  const std::string table = trace.at("otherData").at("breakdown");
  INFO(table);
  for (const std::string& type : running.example.types) CHECK(table.find(type + "::") != std::string::npos);
}

void check_metrics(const Running& running) {
  const std::string text = troupe_says({"metrics", running.job});
  for (int64_t i = 0; i < running.example.workers; ++i)
    CHECK(text.find("worker=\"w" + std::to_string(i) + "\"") != std::string::npos);
}

// A worker that is stopped is what everybody waits for, and then nobody does any more.
void check_waits(const Running& running) {
  const auto report = running.ask({"ps"});
  const auto& last = report.at("workers").back();
  const pid_t pid = last.at("pid");
  REQUIRE(kill(pid, SIGSTOP) == 0);
  const auto waits = running.ask({"waits"}).at("waits");
  REQUIRE_FALSE(waits.empty());
  CHECK(waits[0].at("line").get<std::string>().starts_with(last.at("worker").get<std::string>() +
                                                           " does not answer: its process " +
                                                           std::to_string(pid) + " is stopped"));
  REQUIRE(kill(pid, SIGCONT) == 0);
}

void check_all(const Example& example) {
  const Running running(example);
  check_ps(running);
  check_top(running);
  check_trace(running);
  check_metrics(running);
  check_waits(running);
}

}  // namespace

TEST_CASE("questions about the recommender are answered while it trains") {
  const Folder folder;
  check_all({{program("recommender"), "--steps", "1000000", "--chart", (folder.path / "r.svg").string()},
             7,
             false,
             {"Bottom", "Top", "troupe::parallel::Table"}});
}

TEST_CASE("questions about replicas are answered while they train") {
  const Folder folder;
  check_all({{program("data_parallel"), "--epochs", "1000000", "--chart", (folder.path / "d.svg").string()},
             3,
             true,
             {"Net"}});
}

TEST_CASE("questions about a model that is cut over a mesh are answered while it trains") {
  const Folder folder;
  std::ofstream text((folder.path / "text.txt").string());
  for (int i = 0; i < 5000; ++i) text << "the cat sat on the mat ";
  text.close();
  check_all({{program("sharded"), (folder.path / "text.txt").string(), "--steps", "1000000", "--mesh",
              "dp=2,tp=2", "--shard", "all", "--chart", (folder.path / "s.svg").string()},
             4,
             true,
             {"troupe::parallel::ModuleStage<Net>"}});
}

TEST_CASE("questions about a program that never thought of it are answered") {
  check_all({{program("planted"), "train"}, 3, true, {"Half"}});
}
