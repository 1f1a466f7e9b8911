// The examples, as a user runs them: alone, and those with workers over processes as well.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/process/run_example.h"
#include "tests/support/folder.h"
#include "tests/support/sanitized.h"
#include "tests/support/skip.h"

using namespace troupe::testing;

namespace {

// What an example says under --help that it reaches: "With these defaults it reaches loss <= 0.5 in its last
// step; AUC >= 0.82".
struct Goal {
  std::string what;
  bool at_most;
  double bound;
};
std::vector<Goal> goals(const std::string& name) {
  Process help({program(name), "--help"});
  CHECK(help.exit_code() == 0);
  std::vector<Goal> out;
  const std::string intro = "With these defaults it reaches ";
  const size_t start = help.output.find(intro);
  INFO(name << help.output);
  REQUIRE(start != std::string::npos);
  std::stringstream line(help.output.substr(start + intro.size()));
  for (std::string goal; std::getline(line, goal, ';');) {
    const size_t sign = goal.find_first_of("<>");
    REQUIRE(sign != std::string::npos);
    const size_t first = goal.find_first_not_of(' ');
    out.push_back({goal.substr(first, sign - first), goal[sign] == '<',
                   std::strtod(goal.c_str() + goal.find_first_of("0123456789", sign), nullptr)});
  }
  return out;
}

// Runs it with its defaults; behind the last place where its output names a goal stands what it reached.
std::string check_goals(const std::string& name, const std::vector<std::string>& files = {}) {
  const std::string output = run(name, files);
  for (const Goal& goal : goals(name)) {
    const size_t at = output.rfind(goal.what);
    INFO(name << ": " << goal.what << "\n" << output);
    REQUIRE(at != std::string::npos);
    const double reached = number_after(output.substr(at), goal.what);
    if (goal.at_most)
      CHECK(reached <= goal.bound);
    else
      CHECK(reached >= goal.bound);
  }
  return output;
}

}  // namespace

TEST_CASE("every example reaches with its defaults what its --help says", "[process]") {
  if (kSanitized) return skip_test("it only trains");
  for (const char* name : {"spirals", "mnist_cnn", "digits", "data_parallel", "pipeline", "cartpole", "pinn"})
    check_goals(name);
  const std::string clicks = check_goals("recommender");  // by the rate of clicks alone: 0.67, 0.5
  CHECK(number_after(clicks, "test loss ") > number_after(clicks, "hidden odds "));  // nobody can know more
  check_goals("rnn_remote", {kText});
  const std::string stalls = check_goals("stalls");
  for (const char* policy : {"bsp", "ssp(3)", "async"})
    CHECK(number_after(stalls.substr(stalls.find(policy)), "loss ") <= goals("stalls")[0].bound);
  Process quickstart({program("quickstart")});
  CHECK(quickstart.exit_code() == 0);
  CHECK(number_after(quickstart.output, "step 1000  loss ") < 0.001);  // as its first lines say
}

TEST_CASE("transformers of characters learn in a pipeline as well as alone", "[process]") {
  if (kSanitized) return skip_test("it only trains");
  const char* data = std::getenv("TROUPE_DATA");
  if (!data) {
    skip_test("TROUPE_DATA does not name a folder");
    return;
  }
  const std::string text = std::string(data) + "/tinyshakespeare.txt";
  const double alone = number_after(check_goals("char_transformer", {text}), "perplexity ");
  const double pipeline = number_after(check_goals("char_pipeline", {text}), "perplexity ");
  CHECK(pipeline < 1.15 * alone);
}

TEST_CASE("a language model learns sums from rewards alone", "[process]") {
  if (kSanitized) return skip_test("it only trains");
  check_goals("grpo");
}

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
    skip_test("TROUPE_DATA does not name a folder");
    return;
  }
  CHECK(number_after(run("mnist_cnn", {"--data", data}), "test accuracy ") >= 97);
}

TEST_CASE("a transformer learns characters of a text and writes some", "[process]") {
  const std::vector<std::string> flags{"--steps", "60", "--sample", "40", kText};
  const std::string output = run("char_transformer", flags);
  CHECK(number_after(output, "perplexity ") < 25);  // of about 90 characters
  auto recomputing = flags;
  recomputing.insert(recomputing.begin(), "--recompute");
  const std::string again = run("char_transformer", recomputing);
  CHECK(result(output) == result(again));
}

TEST_CASE("a pipeline learns drawn digits, and draws its last step", "[process]") {
  for (const std::string schedule : {"auto", "zb-h1"})
    CHECK(number_after(run("pipeline", {"--steps", "81", "--schedule", schedule}), "step   80  loss ") < 0.9);
  const std::string turning = run("pipeline", {"--steps", "81", "--schedule", "zb-v", "--chunks", "2"});
  CHECK(number_after(turning, "step   80  loss ") < 0.9);
  CHECK(turning.find("zb-v: 2 workers") != std::string::npos);
}

TEST_CASE("a character transformer with tied embeddings is one pipeline, in one process or many",
          "[process]") {
  Folder folder;
  const std::string step = (folder.path / "step.svg").string();
  const std::vector<std::string> flags{"--steps", "60", "--timeline", step, kText};
  const std::string alone = run("char_pipeline", flags);  // three workers in memory
  CHECK(number_after(alone, "perplexity ") < 25);         // of about 90 characters
  CHECK(content(step).find("2 workers, 4 micro-batches") != std::string::npos);
  CHECK(number_after(run("char_pipeline", flags, 3), "\nloss ") == number_after(alone, "\nloss "));
  const auto by_file = [&](const std::string& json, int workers) {
    auto with_layout = flags;
    with_layout.insert(with_layout.begin(), {"--layout", folder.file("layout.json", json)});
    return number_after(run("char_pipeline", with_layout, workers), "\nloss ");
  };
  // The same by a file: four stages on two workers, and another schedule.
  const double interleaved = by_file(
      R"({"stages": ["w1", "w2", "w1", "w2"], "schedule": "interleaved", "chunks": 2, "micro_batches": 8})",
      3);
  CHECK(interleaved < std::log(25));
  CHECK(content(step).find("interleaved: 2 workers, 8 micro-batches") != std::string::npos);
  // A mesh has replicas of the stages.
  const double loss = number_after(alone, "\nloss ");
  CHECK(by_file(R"({"mesh": {"pp": 2}, "workers": ["w1", "w2"], "cuts": [3]})", 3) == loss);
  CHECK(by_file(R"({"mesh": {"pp": 2}, "workers": ["w1", "w2"], "schedule": "interleaved", "chunks": 2,
                    "micro_batches": 8})",
                3) == interleaved);
  for (const std::string shard : {"none", "state"})
    CHECK(by_file(R"({"mesh": {"dp": 2, "pp": 2}, "shard": ")" + shard + "\"}", 4) ==
          Approx(loss).epsilon(1e-5));
  const std::string file = folder.file("shard.json", R"({"stages": ["w1", "w2"], "shard": "state"})");
  Process refused({program("char_pipeline"), "--layout", file, kText});
  CHECK(refused.exit_code() == 1);
  CHECK(refused.errors.find("shard.json: nothing in this program reads \"shard\"; it reads: ") !=
        std::string::npos);
}

TEST_CASE("trainers learn under every policy while they stall, and the loss is drawn over time",
          "[process]") {
  const std::string output = run("stalls", {"--steps", "60", "--step-ms", "1"});
  for (const char* policy : {"bsp", "ssp(3)", "async"}) {
    const size_t line = output.find(policy);
    REQUIRE(line != std::string::npos);
    CHECK(number_after(output.substr(line), "loss ") < 0.45);  // 0.69 at the start
  }
  const std::string quorum = run("stalls", {"--steps", "20", "--step-ms", "1", "--policy", "quorum(2)"}, 3);
  CHECK(quorum.find("quorum(2)") != std::string::npos);
}

TEST_CASE("a wide and deep model gives the same bits wherever its parts live", "[process]") {
  const std::vector<std::string> few{"--steps", "50"};
  const std::string first = run("recommender", few);
  for (const int processes : {3, 7}) CHECK(result(run("recommender", few, processes)) == result(first));
  Launcher two({"-n", "2", program("recommender")});
  CHECK(two.exit_code() == 1);
  CHECK(two.errors.find("need 3 workers, got 2") != std::string::npos);
}

TEST_CASE("observers and a learner balance a pole, with the same episodes wherever they live", "[process]") {
  const std::string alone = run("cartpole", {"--goal", "195"});
  CHECK(number_after(alone, "mean reward ") >= 150);  // about 20 by chance
  for (const int processes : {2, 4})
    CHECK(result(run("cartpole", {"--goal", "195"}, processes)) == result(alone));
  CHECK(number_after(run("cartpole", {"--updates", "2"}), "mean reward ") < 60);
}

TEST_CASE("a wave comes out of its equation, with derivatives through calls", "[process]") {
  // Alone it does so with its defaults, above. The wave has a height of 2.
  CHECK(number_after(run("pinn", {"--steps", "800"}, 3), "largest error ") < 0.2);
}

TEST_CASE("a function and an operator of one's own train on another worker", "[process]") {
  const Goal goal = goals("own_function")[0];
  std::string alone;
  for (const int processes : {0, 2, 3}) {
    std::vector<std::string> command{program("own_function")};
    if (processes) command.insert(command.begin(), {kTroupeCommand, "run", "-n", std::to_string(processes)});
    Process process(command);
    CHECK(process.exit_code() == 0);
    CHECK(process.nothing_left());
    INFO(process.output << process.errors);
    CHECK(number_after(process.output.substr(process.output.rfind("step")), "loss ") <= goal.bound);
    if (alone.empty()) alone = process.output;
    CHECK(process.output == alone);
  }
}

TEST_CASE("an LSTM learns characters with its embedding and decoder on a server", "[process]") {
  const std::vector<std::string> flags{"--epochs", "6", kText};
  const std::string alone = run("rnn_remote", flags);
  CHECK(number_after(alone, "perplexity ") < 16);  // about 23 by the rates of the characters alone
  CHECK(result(run("rnn_remote", flags, 3)) == result(alone));
}

TEST_CASE("checkpoints that were written before placements were one record load, on other meshes, too",
          "[process]") {
  // By `sharded --width 8 --batch 4 --mesh dp=2,tp=2 --shard gradients --steps 3 text.txt` of that tree,
  // which then says 92.69 of the next three steps.
  const std::filesystem::path before =
      std::filesystem::path(kSourceFolder) / "tests/process/checkpoint_before";
  const std::string text = (before / "text.txt").string();
  for (const auto& [mesh, shard] :
       {std::pair("dp=2,tp=2", "gradients"), std::pair("tp=4", "none"), std::pair("dp=2,tp=2", "all")}) {
    const Folder folder;
    const std::string at = folder.path.string();
    Process unpack({"/bin/tar", "xzf", (before / "checkpoint.tar.gz").string(), "-C", at});
    REQUIRE(unpack.exit_code() == 0);
    const std::string output = run("sharded",
                                   {"--width", "8", "--batch", "4", "--steps", "6", "--mesh", mesh, "--shard",
                                    shard, "--checkpoint", at + "/c", "--resume", text},
                                   4);
    CHECK(std::abs(number_after(output, "perplexity ") - 92.69) < 0.02);
  }
}

TEST_CASE("a model trains the same however its layers, replicas and state are cut over processes",
          "[process]") {
  const auto on = [](const char* mesh, const char* shard) {
    return result(run("sharded", {"--steps", "3", "--mesh", mesh, "--shard", shard, kText}, 4));
  };
  const std::string cut = on("tp=4", "none");
  CHECK(number_after(cut, "perplexity ") > 1);
  CHECK(on("dp=2,tp=2", "gradients") == cut);
  CHECK(on("dp=4", "state") == cut);
  CHECK(on("dp=2", "all") == cut);  // and two ranks, which are left
  CHECK(on("pp=2,tp=2", "none") == cut);
  CHECK(on("pp=2,dp=2", "gradients") == cut);
  CHECK(on("pp=4", "none") == cut);
  CHECK(on("pp=2,dp=2", "all") == cut);
  const Folder folder;
  const std::string chunked = folder.file(
      "plan.json", R"({"mesh": "dp=2,pp=2", "chunks": 2, "schedule": "interleaved", "cuts": [2, 3, 4]})");
  CHECK(result(run("sharded", {"--steps", "3", "--layout", chunked, "--shard", "gradients", kText}, 4)) ==
        cut);
  const std::string report =
      run("sharded", {"--steps", "1", "--mesh", "dp=2,pp=2", "--shard", "all", "--report", kText}, 4);
  CHECK(report.find("dp 2 x pp 2 x ep 1 x cp 1 x tp 1 with Shard::all") != std::string::npos);
  CHECK(report.find("pp 1, ep 0, cp 0, tp 0, by formula") != std::string::npos);
}

TEST_CASE("every example prints its help and trains nothing", "[process]") {
  for (const char* name : {"quickstart", "digits", "data_parallel", "sharded", "spirals", "pinn", "mnist_cnn",
                           "char_transformer", "pipeline", "char_pipeline", "stalls", "recommender",
                           "cartpole", "rnn_remote", "own_function", "llm", "chat", "grpo"}) {
    Process help({program(name), "--help"});
    CHECK(help.exit_code() == 0);
    INFO(name << help.output);
    CHECK(help.output.find(std::string("Usage: ") + name) != std::string::npos);
    CHECK(help.output.find("\nstep ") == std::string::npos);
    Process wrong({program(name), "--hepl"});
    CHECK(wrong.exit_code() == 2);
    CHECK(wrong.output.empty());
  }
}

TEST_CASE("examples with workers refuse flags that they do not know, and values out of range", "[process]") {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"recommender", "--step", "3"},
                                                  {"recommender", "--batch", "0"},
                                                  {"cartpole", "--goal", "502"},
                                                  {"cartpole", "--observers", "none"},
                                                  {"pinn", "--points", "2"},
                                                  {"rnn_remote", "--epochs", "-1", kText},
                                                  {"rnn_remote", "--epochs", "1"},
                                                  {"char_transformer", kText, kText}}) {
    std::vector<std::string> arguments = command;
    arguments[0] = program(command[0]);
    Process process(arguments);
    CHECK(process.exit_code() == 2);
    INFO(process.errors);
    std::string fault = command[1] == "--step" ? "unknown flag" : command[1];
    if (command.size() == 3 && command[2] == "1") fault = "expects one FILE, got none";
    if (command[1] == kText) fault = "expects one FILE, got 2";
    CHECK(process.errors.find(command[0] + ": " + fault) != std::string::npos);
    CHECK(process.output.empty());
  }
}

namespace {

struct Short {  // an example, flags with which it is over soon, and what stands before its result
  std::string name;
  std::vector<std::string> flags;
  std::string result;
};
const Short kShort[] = {{"spirals", {"--epochs", "1"}, "test accuracy "},
                        {"mnist_cnn", {"--epochs", "1", "--batch", "500"}, "test accuracy "},
                        {"digits", {"--epochs", "1", "--json"}, "\"final_loss\":"},
                        {"data_parallel", {"--epochs", "1"}, "test accuracy "},
                        {"pipeline", {"--steps", "2"}, "step    1  loss "},
                        {"stalls", {"--steps", "2", "--step-ms", "0"}, "async "},
                        {"recommender", {"--steps", "1"}, "test loss "},
                        {"cartpole", {"--updates", "1"}, "mean reward "},
                        {"grpo", {"--steps", "1"}, "reward "},
                        {"pinn", {"--steps", "1"}, "largest error "},
                        {"char_transformer", {"--steps", "1", "--sample", "1", kText}, "perplexity "},
                        {"char_pipeline", {"--steps", "1", kText}, "perplexity "},
                        {"sharded", {"--steps", "1", kText}, "perplexity "},
                        {"rnn_remote", {"--epochs", "1", "--hidden", "8", kText}, "perplexity "}};

// The example alone, started by a shell that does `first` before and adds `behind`.
std::vector<std::string> by_shell(const std::string& first, const Short& example, const std::string& chart,
                                  const std::string& behind = "") {
  std::vector<std::string> command{
      "/bin/sh", "-c", first + " exec \"$0\" \"$@\" " + behind, program(example.name), "--chart", chart};
  command.insert(command.end(), example.flags.begin(), example.flags.end());
  return command;
}

}  // namespace

TEST_CASE("an example looks first whether it can write its picture", "[process]") {
  for (const Short& example : kShort) {
    for (const std::string chart : {"/no/such/folder/x.svg", "/sys/x.svg", "/dev/null"}) {
      Process refused(by_shell("", example, chart));
      CHECK(refused.exit_code() == 1);
      INFO(example.name << refused.output << refused.errors);
      CHECK(refused.errors.find(": error: [--chart] " + chart + ": cannot be written: ") !=
            std::string::npos);
      CHECK(Process::count(refused.errors, "\n") == 1);
      CHECK(refused.output.empty());
    }
  }
}

TEST_CASE("an example whose picture finds no room has said its result before", "[process]") {
  if (TROUPE_TSAN) return skip_test("ThreadSanitizer writes a file of its own");
  Folder folder;
  const std::string chart = (folder.path / "chart.svg").string();
  for (const Short& example : kShort) {
    Process full(
        by_shell("cd " + folder.path.string() + "; ulimit -f 0;", example, chart));  // not one byte fits
    CHECK(full.exit_code() == 1);
    INFO(example.name << full.output << full.errors);
    CHECK(full.output.find(example.result) != std::string::npos);
    CHECK(full.errors.find(": cannot be written: File too large") != std::string::npos);
    CHECK(std::filesystem::is_empty(folder.path));
    Process silent(by_shell("cd " + folder.path.string() + ";", example, chart, ">/dev/full"));
    CHECK(silent.exit_code() == 1);
    INFO(silent.errors);
    CHECK(silent.errors.find("standard output cannot be written: No space left on device") !=
          std::string::npos);
    for (const auto& written : std::filesystem::directory_iterator(folder.path))
      std::filesystem::remove(written);
  }
}

TEST_CASE("programs that cannot print say so, and end quietly where nobody reads", "[process]") {
  const auto by = [](const std::string& behind, std::vector<std::string> command) {
    command.insert(command.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" " + behind});
    return command;
  };
  const std::string kCannot = ": error: standard output cannot be written: ";
  std::vector<std::vector<std::string>> helps{
      {kTroupeCommand, "--help"},         {kTroupeCommand, "--version"},
      {kTroupeCommand, "run", "--help"},  {kTroupeCommand, "join", "--help"},
      {kTroupeCommand, "ways", "--help"}, {program("quickstart"), "--help"}};
  for (const Short& example : kShort) helps.push_back({program(example.name), "--help"});
  for (const auto& command : helps) {
    INFO(command[0] << " " << command[1]);
    Process full(by(">/dev/full", command)), closed(by(">&-", command));
    CHECK(full.exit_code() == 1);
    CHECK(full.errors.find(kCannot + "No space left on device\n") != std::string::npos);
    CHECK(closed.exit_code() == 1);
    CHECK(closed.errors.find(kCannot + "Bad file descriptor\n") != std::string::npos);
  }
  const std::vector<std::string> digits{program("digits"), "--epochs", "1", "--json"};
  Process closed(by(">&-", digits));  // no socket and no file gets its number
  CHECK(closed.exit_code() == 1);
  CHECK(closed.errors.find(kCannot + "Bad file descriptor\n") != std::string::npos);
  for (std::vector<std::string> command : {std::vector<std::string>{}, {kTroupeCommand, "run", "-n", "2"}}) {
    command.insert(command.end(), digits.begin(), digits.end());
    std::vector<std::string> piped{"/bin/bash", "-c", "\"$0\" \"$@\" | true; exit ${PIPESTATUS[0]}"};
    piped.insert(piped.end(), command.begin(), command.end());
    Process unread(piped);
    CHECK(unread.exit_code() == 128 + SIGPIPE);
    INFO(unread.errors);  // a busy machine may have had a warning
    CHECK(unread.errors.find("error") == std::string::npos);
    CHECK(unread.errors.find("SIGPIPE") == std::string::npos);
  }
}

TEST_CASE("examples refuse bad input with one line", "[process]") {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"char_pipeline", "--layout", "/no/such/file", kText},
        {"char_transformer", "/no/such/file"},
        {"char_transformer", "--heads", "3", kText},
        {"mnist_cnn", "--data", "/no/such/folder"},
        {"rnn_remote", "/no/such/file"},
        {"rnn_remote", "--time", "60000", kText}}) {
    std::vector<std::string> arguments = command;
    arguments[0] = program(command[0]);
    Process process(arguments);
    CHECK(process.exit_code() == 1);
    INFO(process.errors);
    const std::string_view driven[] = {"char_pipeline", "rnn_remote", "recommender", "cartpole"};
    const bool has_driver = std::find(std::begin(driven), std::end(driven), command[0]) != std::end(driven);
    const std::string who = has_driver ? "w0" : command[0];
    CHECK(process.errors.find(who + ": error: ") != std::string::npos);
  }
}

TEST_CASE("a language model is trained from nothing, tuned by adapters, and served, in one process or many") {
  const Folder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  std::filesystem::create_directory(folder.path / "start");
  std::ofstream(at("start/config.json"))
      << R"({"model_type": "llama", "vocab_size": 422, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": true})";
  std::filesystem::copy_file(std::string(kOracleFolder) + "/tokenizers/gpt2.json",
                             at("start/tokenizer.json"));
  Process probe({program("llm"), kText, "--config", at("start/config.json"), "--chart", at("chart.svg"),
                 "--steps", "1"});
  if (probe.exit_code(); probe.errors.find("has no ICU") != std::string::npos)
    return skip_test("this build has no ICU");
  const std::vector<std::string> few{"--steps", "12", "--batch", "4", "--context", "16"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), few.begin(), few.end());
    flags.push_back(kText);
    return flags;
  };
  const std::string first =
      run("llm", with({"--config", at("start/config.json"), "--out", at("base"), "--prompt", "The end"}));
  CHECK(first.find("The end") != std::string::npos);
  const double before = number_after(first, "validation loss ");
  const std::string cut =
      run("llm", with({"--config", at("start/config.json"), "--mesh", "pp=2,tp=2", "--out", at("cut")}), 4);
  CHECK(number_after(cut, "validation loss ") < 6.1);  // the logarithm of 422 is 6.05
  const std::string tuned = run(
      "llm",
      with({"--model", at("base"), "--lora", "2", "--mesh", "tp=2", "--lr", "0.01", "--out", at("tuned")}),
      2);
  CHECK(number_after(tuned, "validation loss ") < before);
  CHECK(std::filesystem::exists(at("tuned/adapter_model.safetensors")));
  CHECK(!std::filesystem::exists(at("tuned/model.safetensors")));

  Process chat({kTroupeCommand, "run", "-n", "2", program("chat"), at("base"), "--adapters", at("tuned"),
                "--prompt", "The end", "--tokens", "5"});
  const int code = chat.exit_code();
  INFO(chat.output << chat.errors);
  CHECK(code == 0);
  CHECK(chat.output.size() > 2);
  CHECK(chat.nothing_left());
  Process wrong({program("chat"), at("base"), "--prompt", "The end", "--pages", "1"});
  CHECK(wrong.exit_code() == 1);
  CHECK_THAT(wrong.errors, Catch::Contains("are more than the cache, 1 pages of 16"));
  Process both({program("llm"), kText, "--model", at("base"), "--config", at("start/config.json")});
  CHECK(both.exit_code() == 1);
  CHECK_THAT(both.errors, Catch::Contains("give either --model FOLDER"));
}
