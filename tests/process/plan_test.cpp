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
  const std::string chunked = at + "/chunks.json";
  std::ofstream(chunked) << R"({"mesh": "pp=2", "chunks": 2, "schedule": "interleaved", "micro_batches": 2})";
  auto in_chunks = check;
  std::ranges::replace(in_chunks, layout, chunked);
  Launcher both(in_chunks);
  REQUIRE(both.exit_code() == 0);
  CHECK_THAT(both.output, Contains("pp 2, interleaved of 2 in 2 chunks\n  a step: predicted "));
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

  // Of another model, too.
  check[4] = "16";
  Launcher wider(check);
  CHECK(wider.exit_code() == 1);
  CHECK_THAT(wider.errors, Contains("model.json is of another model: layer 0, embedding, has "));
  check[4] = "8";

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

TEST_CASE("stages that are tied are measured, planned in replicas, and checked", "[process]") {
  const Folder folder;
  const std::string at = folder.path.string(), profile = at + "/model.json", layout = at + "/plan.json";
  const auto on_three = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-n", "3", program("char_pipeline"), "--batch", "6", kText});
    return arguments;
  };
  Launcher measured(on_three({"--width", "8", "--measure", profile}));
  REQUIRE(measured.exit_code() == 0);
  CHECK_THAT(measured.output, Contains("model.json: 6 layers on 3 workers"));
  Process plan({kTroupeCommand, "plan", profile, "--layout", layout});
  REQUIRE(plan.exit_code() == 0);
  CHECK_THAT(plan.output, Contains("it is planned over dp and pp alone") && !Contains("\ntp "));

  Launcher trained(on_three({"--width", "8", "--layout", layout, "--steps", "3", "--chart", at + "/loss.svg",
                             "--timeline", at + "/step.svg"}));
  CHECK(trained.exit_code() == 0);
  CHECK_THAT(trained.output, Contains("perplexity "));
  const std::string replicas = folder.file("replicas.json", R"({"mesh": {"dp": 3}})");
  const std::string stages = folder.file("stages.json", R"({"mesh": {"pp": 3}, "cuts": [1, 5]})");
  for (const std::string& file : {layout, stages}) {
    Launcher checked(on_three({"--width", "8", "--layout", file, "--check", profile}));
    REQUIRE(checked.exit_code() == 0);
    CHECK_THAT(checked.output,
               Contains("a step: predicted ") && Contains("tensors of w") && Contains(", measured "));
  }

  const auto refused = [&](const std::vector<std::string>& arguments) {
    Launcher wrong(on_three(arguments));
    CHECK(wrong.exit_code() == 1);
    return wrong.errors;
  };
  CHECK_THAT(refused({"--width", "12", "--layout", replicas, "--check", profile}),
             Contains("model.json is of another model: layer 0, embedding, has "));
  CHECK_THAT(refused({"--width", "8", "--context", "32", "--layout", replicas, "--check", profile}),
             Contains("layer 0, embedding, gives 2.0 KiB for a row there, and 1.0 KiB here"));
  CHECK_THAT(refused({"--blocks", "3", "--width", "8", "--layout", replicas, "--check", profile}),
             Contains("it has 6 layers, and the model here 5"));
  CHECK_THAT(refused({"--layout", profile}), Contains("model.json: this is a profile of a model"));
  CHECK_THAT(refused({"--layout", layout, "--check", layout}), Contains("plan.json: this is no profile"));
  CHECK_THAT(refused({"--check", profile}), Contains("--check is about a \"mesh\" of all workers"));
  const std::string order = folder.file("order.json", R"({"mesh": {"pp": 2}, "workers": ["w2", "w1"]})");
  CHECK_THAT(refused({"--width", "8", "--layout", order, "--check", profile}), Contains("a \"mesh\" of all"));
  CHECK_THAT(refused({"--blocks", "2", "--layout", stages}), Contains("a cut before layer 5 of 4 "));
  CHECK_THAT(refused({"--layout", folder.file("ranks.json", R"({"mesh": {"tp": 3}})")}),
             Contains("\"mesh\" has tp 3, and this program cuts its model along \"dp\", \"pp\" alone"));
  Process over({kTroupeCommand, "plan", profile, "--layout", profile});
  CHECK(over.exit_code() == 2);
  CHECK_THAT(over.errors, Contains("[--layout] " + profile + ": this is a profile that is read"));
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
