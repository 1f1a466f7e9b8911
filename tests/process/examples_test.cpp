// The examples without a cluster, as a user runs them.
#include <cstdlib>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"

using namespace troupe::testing;

namespace {

// Runs a program that ends well and draws a chart; its standard output.
std::string run(const std::string& name, std::vector<std::string> flags) {
  Folder folder;
  const std::string chart = (folder.path / "chart.svg").string();
  flags.insert(flags.begin(), {program(name), "--chart", chart});
  Process process(flags);
  const int code = process.exit_code();
  INFO(process.output << process.errors);
  REQUIRE(code == 0);
  CHECK(process.nothing_left());
  CHECK(content(chart).find("</svg>") != std::string::npos);
  return process.output;
}

// The number behind `text`.
double number_after(const std::string& output, const std::string& text) {
  INFO(output);
  const size_t at = output.find(text);
  REQUIRE(at != std::string::npos);
  return std::strtod(output.c_str() + at + text.size(), nullptr);
}

}  // namespace

TEST_CASE("spirals are told apart", "[process]") {
  CHECK(number_after(run("spirals", {"--epochs", "20"}), "test accuracy ") > 90);
}

TEST_CASE("a convolutional network learns drawn digits", "[process]") {
  const std::string output = run("mnist_cnn", {"--epochs", "1"});
  CHECK(number_after(output, "test accuracy ") > 95);
  CHECK(output.find("Conv2d(16, 32, 3x3)") != std::string::npos);  // the table of layers
}

TEST_CASE("a convolutional network reaches 97 % on the last 2,000 digits of t10k", "[process]") {
  const char* data = std::getenv("TROUPE_DATA");
  if (!data) {
    WARN("skipped: TROUPE_DATA does not name a folder");
    return;
  }
  CHECK(number_after(run("mnist_cnn", {"--data", data}), "test accuracy ") >= 97);
}

TEST_CASE("a transformer learns characters of a text and writes some", "[process]") {
  const std::vector<std::string> flags{"--steps", "60", "--sample", "40", TROUPE_TEXT};
  const std::string output = run("char_transformer", flags);
  CHECK(number_after(output, "perplexity ") < 25);  // of about 90 characters
  auto recomputing = flags;
  recomputing.insert(recomputing.begin(), "--recompute");
  const std::string again = run("char_transformer", recomputing);
  CHECK(output.substr(0, output.rfind("picture")) == again.substr(0, again.rfind("picture")));
}

TEST_CASE("a pipeline learns drawn digits, and draws its last step", "[process]") {
  for (const std::string schedule : {"auto", "zb-h1"})
    CHECK(number_after(run("pipeline", {"--steps", "41", "--schedule", schedule}), "step   40  loss ") < 0.9);
  Launcher job({"-n", "3", program("pipeline"), "--steps", "3", "--chart", "/dev/null/x"});
  CHECK(job.exit_code() == 1);  // and what goes wrong at the end is said
  CHECK(job.errors.find("/dev/null/x") != std::string::npos);
}

TEST_CASE("a character transformer with tied embeddings is one pipeline, in one process or many",
          "[process]") {
  Folder folder;
  const std::string step = (folder.path / "step.svg").string();
  const std::vector<std::string> flags{"--steps", "60", "--timeline", step, TROUPE_TEXT};
  const std::string alone = run("char_pipeline", flags);  // three workers in memory
  CHECK(number_after(alone, "perplexity ") < 25);         // of about 90 characters
  CHECK(content(step).find("2 workers, 4 micro-batches") != std::string::npos);
  const auto over_processes = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"-n", "3", program("char_pipeline")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    Launcher job(arguments);
    const int code = job.exit_code();
    INFO(job.output << job.errors);
    REQUIRE(code == 0);
    return job.output;
  };
  const std::string chart = (folder.path / "chart.svg").string();
  CHECK(number_after(over_processes({"--chart", chart}), "\nloss ") == number_after(alone, "\nloss "));
  // The same by a file: four stages on two workers, and another schedule.
  const std::string layout = folder.file(
      "layout.json",
      R"({"stages": ["w1", "w2", "w1", "w2"], "schedule": "interleaved", "chunks": 2, "micro_batches": 8})");
  const std::string laid_out = over_processes({"--chart", chart, "--layout", layout});
  CHECK(number_after(laid_out, "perplexity ") < 25);
  CHECK(content(step).find("interleaved: 2 workers, 8 micro-batches") != std::string::npos);
}

TEST_CASE("trainers learn under every policy while they stall, and the loss is drawn over time",
          "[process]") {
  const std::string output = run("stalls", {"--steps", "60", "--step-ms", "1"});
  for (const char* policy : {"bsp", "ssp(3)", "async"}) {
    const size_t line = output.find(policy);
    REQUIRE(line != std::string::npos);
    CHECK(number_after(output.substr(line), "loss ") < 0.45);  // 0.69 at the start
  }
  Folder folder;
  Launcher job({"-n", "3", program("stalls"), "--steps", "20", "--step-ms", "1", "--policy", "quorum(2)",
                "--chart", (folder.path / "stalls.svg").string()});
  CHECK(job.exit_code() == 0);
  INFO(job.output << job.errors);
  CHECK(job.output.find("quorum(2)") != std::string::npos);
  CHECK(job.nothing_left());
}

TEST_CASE("examples refuse bad input with one line", "[process]") {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"char_transformer"},
        {"char_pipeline", "--layout", "/no/such/file", TROUPE_TEXT},
        {"char_transformer", "/no/such/file"},
        {"char_transformer", "--heads", "3", TROUPE_TEXT},
        {"mnist_cnn", "--data", "/no/such/folder"},
        {"spirals", "--epochs", "1", "--chart", "/no/such/folder/x.svg"}}) {
    std::vector<std::string> arguments = command;
    arguments[0] = program(command[0]);
    Process process(arguments);
    CHECK(process.exit_code() == 1);
    INFO(process.errors);
    const std::string who =
        command[0] == "char_pipeline" ? "w0" : command[0];  // its driver, who reads the file
    CHECK(process.errors.find(who + ": error: ") != std::string::npos);
  }
}
