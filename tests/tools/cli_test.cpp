// Flags: values, ranges, suggestions, help.
#include "tools/flags/flags.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using troupe::testing::content;
using troupe::testing::Folder;
using troupe::testing::invalid_text;
using troupe::tools::Flags;

namespace {

struct Program {
  int64_t epochs = 3;
  uint64_t seed = 1;
  double lr = 0.1;
  std::string data = "data", device = "cpu";
  bool json = false;
  std::ostringstream out, err;

  std::optional<int> parse(const std::vector<std::string>& arguments) {
    Flags flags("digits", "Trains.");
    flags.add("-e,--epochs", epochs, "passes over the data", {1, 100})
        .add("--seed", seed, "seed")
        .add("--lr", lr, "learning rate", {0, 10})
        .add("--data", data, "folder")
        .add("--device", device, "where", {"cpu", "cuda"})
        .add("--json", json, "one line");
    return flags.parse(arguments, out, err);
  }
  /// The one line that a refusal prints.
  std::string refusal(const std::vector<std::string>& arguments) {
    REQUIRE(parse(arguments) == 2);
    CHECK(out.str().empty());
    const auto text = err.str();
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
    return text;
  }
};

}  // namespace

TEST_CASE("flags set their variables and leave the others at their defaults", "[cli]") {
  Program p;
  CHECK_FALSE(p.parse({"-e", "7", "--lr=1e-2", "--json", "--seed", "18446744073709551615", "--lr", "0.5"}));
  CHECK(p.epochs == 7);
  CHECK(p.lr == 0.5);
  CHECK(p.json);
  CHECK(p.seed == 18446744073709551615u);
  CHECK(p.data == "data");
  Program untouched;
  CHECK_FALSE(untouched.parse({}));
  CHECK(untouched.epochs == 3);
  CHECK_FALSE(untouched.json);
}

TEST_CASE("values that are no number, or out of range, are refused with what was expected", "[cli]") {
  CHECK(Program().refusal({"--epochs", "0"}).find("--epochs expects a whole number from 1 to 100, got '0'") !=
        std::string::npos);
  for (auto bad : {"-1", "101", "3x", "", "1.5", " 3", "99999999999999999999"})
    CHECK(Program().refusal({"--epochs", bad}).find("--epochs") != std::string::npos);
  for (auto bad : {"nan", "inf", "-0.1", "11", "0,5", "x"})
    CHECK(Program().refusal({"--lr", bad}).find("--lr expects a number from 0 to 10") != std::string::npos);
  CHECK(Program().refusal({"--seed", "-1"}).find("--seed expects") != std::string::npos);
  CHECK(Program().refusal({"--device", "cudo"}).find("did you mean cuda?") != std::string::npos);
}

TEST_CASE("unknown flags suggest the nearest, and stray arguments are refused", "[cli]") {
  CHECK(Program().refusal({"--epoch", "3"}) ==
        "digits: unknown flag --epoch; did you mean --epochs? (see digits --help)\n");
  CHECK(Program().refusal({"--zzzzzzzzz"}).find("did you mean") == std::string::npos);
  CHECK(Program().refusal({"stray"}).find("unexpected argument 'stray'") != std::string::npos);
  CHECK(Program().refusal({"--data"}).find("--data needs a value") != std::string::npos);
  for (const std::string flag : {"--data", "--device", "--lr", "--epochs", "--seed"})
    for (const auto& arguments :
         {std::vector<std::string>{flag, ""}, {flag + "="}, {flag, "", "--json"}, {flag + "=", "1"}})
      CHECK(Program().refusal(arguments).find(flag + " needs a value") != std::string::npos);
  CHECK(Program().refusal({"--data", "--json"}).find("--data needs a value, got the flag --json") !=
        std::string::npos);
}

TEST_CASE("files that a program writes are checked before it begins, and nothing is left of the check",
          "[cli]") {
  Folder folder;
  std::string chart = folder.path / "chart.svg", trace;
  Flags flags("digits", "Trains.");
  flags.output("--chart", chart, "picture").output("--trace", trace, "the same as JSON");
  std::ostringstream out, err;
  CHECK(flags.parse({"--help"}, out, err) == 0);
  CHECK(out.str().find("--chart FILE") != std::string::npos);
  CHECK_FALSE(flags.parse({}, out, err));
  flags.check_outputs();
  CHECK(std::filesystem::is_empty(folder.path));
  std::ofstream(chart) << "old";
  flags.check_outputs();
  CHECK(content(chart) == "old");
  for (const std::string bad : {"/no/such/folder/x", "/sys/x", "/dev/null"}) {
    CHECK_FALSE(flags.parse({"--chart", bad}, out, err));
    CHECK_THAT(invalid_text([&] { flags.check_outputs(); }),
               Catch::StartsWith("[--chart] " + bad + ": cannot be written: "));
  }
}

TEST_CASE("a program does not write over the file that it reads, by whatever name", "[cli]") {
  const Folder folder;
  const std::string text = folder.file("text", "words"), link = folder.path / "link";
  std::filesystem::create_symlink(text, link);
  Flags flags("digits", "Trains.");
  (void)flags.picture("--chart", "chart.svg", "picture");
  (void)flags.layouts();
  (void)flags.file("FILE", "the text");
  std::ostringstream out, err;
  for (const std::string& given : {text, link}) {
    CHECK_FALSE(flags.parse({"--measure", given, text}, out, err));
    CHECK(invalid_text([&] { flags.check_outputs(); }) ==
          "[--measure] " + given + ": the program reads this file, and would write over it");
  }
  CHECK_FALSE(flags.parse({"--measure", text, "--layout", link, "other"}, out, err));
  CHECK_THAT(invalid_text([&] { flags.check_outputs(); }), Catch::StartsWith("[--measure] "));
  CHECK(content(text) == "words");
}

TEST_CASE("flags keep values, and the one file behind them", "[cli]") {
  std::ostringstream out, err;
  Flags flags("digits", "Trains.");
  const auto& steps = flags.whole("--steps", 3, "how many", {1, 100});
  const auto& lr = flags.number("--lr", 0.1, "rate");
  const auto& name = flags.text("--name", "a", "which", {"a", "b"});
  const auto& json = flags.given("--json", "one line");
  const auto& seed = flags.seed("of all");
  const auto& chart = flags.picture("--chart", "chart.svg", "picture");
  const auto& file = flags.file("FILE", "the text");
  CHECK((steps == 3 && lr == 0.1 && name == "a" && !json && seed == 0 && chart == "chart.svg"));
  CHECK_FALSE(
      flags.parse({"--steps", "7", "--lr=1", "--name", "b", "--json", "--seed", "9", "text"}, out, err));
  CHECK((steps == 7 && lr == 1 && name == "b" && json && seed == 9 && file == "text"));
  CHECK_FALSE(flags.parse({"--steps", "8", "other", "--lr", "2"}, out, err));  // between flags, too
  CHECK((steps == 8 && lr == 2 && file == "other"));
  CHECK(flags.parse({"text", "--stepz", "7"}, out, err) == 2);
  CHECK(err.str().find("unknown flag --stepz; did you mean --steps?") != std::string::npos);
  CHECK(flags.parse({"--steps", "101", "text"}, out, err) == 2);
  CHECK(flags.parse({"one", "two"}, out, err) == 2);
  CHECK(err.str().find("digits: expects one FILE, got 2 (see digits --help)\n") != std::string::npos);
  Flags none("digits", "Trains.");
  none.file("FILE", "the text");
  CHECK(none.parse({}, out, err) == 2);
  CHECK(err.str().find("expects one FILE, got none") != std::string::npos);
}

TEST_CASE("what is about checkpoints needs their folder", "[cli]") {
  std::ostringstream out, err;
  const auto parse = [&](const std::vector<std::string>& arguments) {
    err.str("");
    Flags flags("digits", "Trains.");
    const auto& saved = flags.checkpoints();
    const auto code = flags.parse(arguments, out, err);
    return code ? std::optional<troupe::Checkpoints>() : saved;
  };
  CHECK(parse({})->dir.empty());
  CHECK(parse({"--checkpoint", "run", "--resume"})->resume);
  CHECK(parse({"--checkpoint-every", "3", "--checkpoint", "run"})->every == 3);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--resume"},
                                                    {"--unwitnessed"},
                                                    {"--checkpoint-every", "3"},
                                                    {"--checkpoint-keep", "3"}}) {
    CHECK_FALSE(parse(arguments));
    CHECK(err.str() ==
          "digits: " + arguments[0] +
              " is about checkpoints, and there is no folder of them: give --checkpoint DIR as well "
              "(see digits --help)\n");
  }
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--checkpoint", ""}, {"--checkpoint="}, {"--checkpoint", "", "--resume"}}) {
    CHECK_FALSE(parse(arguments));
    CHECK(err.str().starts_with("digits: --checkpoint needs a value"));
  }
}

TEST_CASE("help says what a run with the defaults reaches", "[cli]") {
  std::ostringstream out, err;
  Flags flags("digits", "Trains.");
  flags.reaches("test accuracy >= 97", "on drawn digits").reaches("loss <= 0.1").footer("More.");
  CHECK(flags.parse({"--help"}, out, err) == 0);
  const std::string end =
      "\n\nWith these defaults it reaches test accuracy >= 97 on drawn digits; loss <= 0.1\n\nMore.\n";
  CHECK(out.str().ends_with(end));
}

TEST_CASE("help names every flag with its default, and help and version exit with 0", "[cli]") {
  Program p;
  CHECK(p.parse({"--help"}) == 0);
  CHECK(p.err.str().empty());
  for (auto expected : {"-e, --epochs N", "(default: 3)", "--device cpu|cuda", "--version", "Trains."})
    CHECK(p.out.str().find(expected) != std::string::npos);
  Program q;
  CHECK(q.parse({"--version"}) == 0);
  CHECK(q.out.str() == "troupe " + troupe::tools::version() + "\n");
}
