// `troupe plan`: a program measures its layers, the plan becomes a layout file, and the program trains by it.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"

using namespace troupe::testing;
using Catch::Contains;

namespace {

const std::string kText = std::string(kSourceFolder) + "/CONTRIBUTING.md";

}  // namespace

TEST_CASE("a program is measured, planned and checked", "[process]") {
  const Folder folder;
  const std::string at = folder.path.string(), profile = at + "/model.json", layout = at + "/plan.json";
  const std::string sharded = program("sharded");
  Launcher measure({"-n", "2", sharded, "--width", "8", "--batch", "4", kText, "--measure", profile});
  REQUIRE(measure.exit_code() == 0);
  CHECK_THAT(measure.output, Contains("model.json: 6 layers on 2 workers"));

  Process plan({kTroupeCommand, "plan", profile, "--layout", layout, "--chart", at + "/step.svg"});
  REQUIRE(plan.exit_code() == 0);
  CHECK_THAT(plan.output, Contains("2 workers, 4 rows a step: ") && Contains("\nlayout ") &&
                              Contains("The first spends its step on: ") && Contains("\nWhy not\n"));
  CHECK(std::filesystem::file_size(at + "/step.svg") > 500);
  const std::vector<std::string> train{"-n",      "2", sharded,    "--width", "8",
                                       "--batch", "4", "--layout", layout,    kText};
  auto check = train;
  check.insert(check.end(), {"--check", profile});
  Launcher checked(check);
  REQUIRE(checked.exit_code() == 0);
  CHECK_THAT(checked.output,
             Contains("a step: predicted ") && Contains("tensors of w") && Contains(", measured "));
  // A worker that has become slower is named, with what the plan would be.
  auto before = nlohmann::json::parse(std::ifstream(profile));
  before["workers"][1]["pace"] = before["workers"][1]["pace"].get<double>() / 1e6;
  const std::string faster = at + "/faster.json";
  std::ofstream(faster) << before;
  auto again = train;
  again.insert(again.end(), {"--check", faster});
  Launcher straggling(again);
  REQUIRE(straggling.exit_code() == 0);
  CHECK_THAT(straggling.output, Contains("\n  w1 computes at 0.00 ") && !Contains("w0 computes at 0.00 "));

  auto steps = train;
  steps.insert(steps.end(), {"--steps", "3", "--chart", at + "/loss.svg"});
  Launcher trained(steps);
  CHECK(trained.exit_code() == 0);

  // What a profile says of other workers is of no use here.
  check[1] = "1";
  Launcher alone(check);
  CHECK(alone.exit_code() == 1);
  Process little({kTroupeCommand, "plan", profile, "--memory", "1M"});
  CHECK(little.exit_code() == 1);
  CHECK_THAT(little.output, Contains("Nothing fits into 1.0 MiB of a worker. The nearest is "));
  Process more({kTroupeCommand, "plan", "-n", "16", "--per-host", "4", profile, "--batch", "64"});
  CHECK(more.exit_code() == 0);
  CHECK_THAT(more.output,
             Contains("16 workers, 64 rows a step: ") && Contains("tp 16: the layers have 4 heads"));
}

TEST_CASE("troupe plan refuses what is no profile, in a line", "[process]") {
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {kTroupeCommand, "plan"});
    Process plan(arguments);
    CHECK(plan.exit_code() == 2);
    CHECK(plan.output == "");
    CHECK(Process::count(plan.errors, "\n") == 1);
    return plan.errors;
  };
  CHECK_THAT(refused({}), Contains("no profile given; for instance: troupe plan model.json"));
  CHECK_THAT(refused({"/nowhere.json"}), Contains("/nowhere.json"));
  CHECK_THAT(refused({kText}), Contains("CONTRIBUTING.md"));
  CHECK_THAT(refused({kText, "--memory", "lots"}), Contains("\"lots\" is no number of bytes"));
  CHECK_THAT(refused({kText, "--workers", "-3"}), Contains("--workers"));
}
