// Numbers are read and printed in one way, whatever the locale of the program.
#include <catch2/catch.hpp>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "core/base/ascii.h"
#include "core/tensor/creation.h"
#include "data/datasets/csv.h"
#include "data/formats/safetensors.h"
#include "nn/dropout.h"
#include "optim/optimizer.h"
#include "parallel/layout/layout.h"
#include "parallel/server/compression/compression.h"
#include "parallel/server/consistency/server_policy.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/skip.h"
#include "tools/flags/flags.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

// German, for as long as this lives; made here, since few machines have it.
class German {
 public:
  explicit German(const Folder& at) {
    const std::string make =
        "localedef -i de_DE -f UTF-8 '" + (at.path / "de_DE.UTF-8").string() + "' >/dev/null 2>&1";
    static_cast<void>(std::system(make.c_str()));
    setenv("LOCPATH", at.path.c_str(), 1);
    is_set = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  }
  ~German() {
    std::setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
  }
  bool is_set;
};

}  // namespace

TEST_CASE("numbers are read and printed as ever in a program with a German locale") {
  Folder dir;
  const German german(dir);
  if (!german.is_set) return skip_test("localedef cannot make de_DE.UTF-8 here");
  char comma[8];
  std::snprintf(comma, sizeof comma, "%.1f", 0.5);
  REQUIRE(std::string(comma) == "0,5");
  REQUIRE(std::strtod("0.5", nullptr) == 0);

  CHECK(number_in("0.5") == 0.5);
  CHECK(!number_in("0,5"));
  const auto policy = parallel::ServerPolicy::parse("local(8, 0.9, 0.5)");
  CHECK(policy.slow_momentum == 0.9);
  CHECK(policy.slow_rate == 0.5);
  CHECK(policy.str() == "local(8, 0.9, 0.5)");
  CHECK(parallel::Compression::parse("topk(0.25)").str() == "topk(0.25)");
  CHECK(parallel::parse_layout(R"json({"stages": ["w1"], "policies": {"head": "local(4, 0.5, 0.8)"
}
})json",
                               "here")
            .policy("head")
            .slow_rate == 0.8);
  CHECK_THAT(
      invalid_text([] { parallel::parse_layout(R"json({"micro_batches": 2.5})json", "here").pipeline(1); }),
      Catch::Contains("2.5"));
  CHECK(datasets::read_csv(dir.file("a.csv", "a\n0.5\n-1.25e2\n")).values.to_vector<float>() ==
        std::vector<float>{0.5, -125});
  CHECK_THAT(invalid_text([&] { datasets::read_csv(dir.file("b.csv", "a\n\"0,5\"\n")); }),
             Catch::Contains("\"0,5\" is no finite number"));
  datasets::write_safetensors(dir.path / "t", {{"x", tensor({0.5})}}, {{"lr", "0.1"}});
  CHECK(datasets::Safetensors(dir.path / "t").metadata().at("lr") == "0.1");
  CHECK(tensor({0.5, 1234.5}).str() == "tensor([5.0000e-01, 1.2345e+03])");
  CHECK_THAT(invalid_text([] { nn::Dropout(1.5); }), Catch::Contains("got 1.5"));
  CHECK_THAT(invalid_text([] {
               (void)optim::make("sgd", {{"lr", Value(-1.5)}}, optim::NoParameters());
             }),
             Catch::Contains("got -1.5"));

  double rate = 0.25;
  tools::Flags flags("p", "d");
  flags.add("--rate", rate, "a rate", {0.1, 0.9});
  std::ostringstream out, err;
  CHECK(!flags.parse({"--rate", "0.75"}, out, err));
  CHECK(rate == 0.75);
  CHECK(flags.parse({"--rate", "0,75"}, out, err) == 2);
  CHECK_THAT(err.str(), Catch::Contains("from 0.1 to 0.9, got '0,75'"));
  CHECK(flags.parse({"--help"}, out, err) == 0);
  CHECK_THAT(out.str(), Catch::Contains("0.25"));
}
