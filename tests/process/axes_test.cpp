// The example `sharded` over processes: sequences and experts that are cut are the model of one worker.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"

using namespace troupe::testing;

namespace {

constexpr double kNearEnough = 2e-4;  // of perplexities, which two digits of are printed

// The perplexity that `sharded` ends with, alone or over that many processes.
double perplexity_of(int processes, std::vector<std::string> flags) {
  const Folder folder;
  std::vector<std::string> command{program("sharded"),
                                   "--chart",
                                   (folder.path / "chart.svg").string(),
                                   "--batch",
                                   "12",
                                   "--width",
                                   "16",
                                   "--balance",
                                   "0",
                                   kText};
  command.insert(command.end(), flags.begin(), flags.end());
  if (processes) command.insert(command.begin(), {kTroupeCommand, "run", "-n", std::to_string(processes)});
  Process process(command);
  const int code = process.exit_code();
  INFO(process.output << process.errors);
  REQUIRE(code == 0);
  CHECK(process.nothing_left());
  const std::string last = "perplexity ";
  const size_t at = process.output.rfind(last);
  REQUIRE(at != std::string::npos);
  return std::strtod(process.output.c_str() + at + last.size(), nullptr);
}

void check_near(double got, double expected) {
  INFO(got << ", expected " << expected);
  CHECK(expected > 1);
  CHECK(std::abs(got - expected) <= kNearEnough * expected);
}

}  // namespace

TEST_CASE("mixtures of axes on eight processes follow PyTorch's losses", "[process][oracle]") {
  Process process({kTroupeCommand, "run", "-n", "8", program("mixtures")});
  const int code = process.exit_code();
  INFO(process.output << process.errors);
  CHECK(code == 0);
  CHECK(process.lines("near ").size() >= 20);
  CHECK(process.lines("FAR ").empty());
  CHECK(process.nothing_left());
}

TEST_CASE("a model trains the same however sequences and experts are cut over processes", "[process]") {
  const auto on = [](int processes, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--steps", "4"});
    return perplexity_of(processes, flags);
  };
  const double whole = on(0, {}), mixture = on(0, {"--experts", "5"});
  CHECK(std::abs(mixture - whole) > 0.1);  // another model
  check_near(on(8, {"--mesh", "dp=2,cp=2,tp=2"}), whole);
  check_near(on(4, {"--mesh", "pp=2,cp=2", "--context", "ring"}), whole);
  check_near(on(8, {"--mesh", "dp=2,cp=2,tp=2", "--experts", "5"}), mixture);
  check_near(on(4, {"--mesh", "pp=2,ep=2", "--experts", "5", "--shard", "all"}), mixture);
  Process wrong({kTroupeCommand, "run", "-n", "2", program("sharded"), "--mesh", "ep=2", kText});
  CHECK(wrong.exit_code() != 0);
  INFO(wrong.output << wrong.errors);
  CHECK((wrong.output + wrong.errors).find("give --experts, or use dp for replicas") != std::string::npos);
}

TEST_CASE("a job of experts goes on where sequences, layers and experts are cut otherwise", "[process]") {
  const Folder folder;
  const std::string cut = (folder.path / "cut").string(), whole = (folder.path / "whole").string();
  const auto on = [](int processes, const std::string& mesh, const std::string& at, const char* steps,
                     bool resume) {
    std::vector<std::string> flags{"--experts", "5", "--steps", steps, "--checkpoint", at, "--mesh", mesh};
    if (resume) flags.emplace_back("--resume");
    return perplexity_of(processes, flags);
  };
  (void)on(4, "cp=2,tp=2", cut, "2", false);
  (void)on(4, "pp=2,ep=2", cut, "4", true);
  const double got = on(4, "dp=2,tp=2", cut, "6", true);
  (void)on(0, "dp=1", whole, "2", false);
  (void)on(0, "dp=1", whole, "4", true);
  check_near(got, on(0, "dp=1", whole, "6", true));
}
