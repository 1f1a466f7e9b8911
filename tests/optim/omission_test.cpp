// Nothing is left untrained without a word.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/tensor/creation.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::optim;
using Catch::Contains;
using testing::text_of;

namespace {

std::vector<std::string> logged;

struct Capture {
  Capture() {
    logged.clear();
    internal::log::set_sink([](internal::log::Level level, const std::string& text) {
      if (level == internal::log::Level::warning) logged.push_back(text);
    });
  }
  ~Capture() { internal::log::set_sink(nullptr); }
};

Tensor param() { return zeros({2}).requires_grad_(); }

}  // namespace

TEST_CASE("an optimizer over no parameters is refused") {
  CHECK_THAT(text_of([] { SGD(Tensors{}, {.lr = 0.1}); }),
             Contains("[optim] there is no parameter to train"));
  CHECK_THAT(text_of([] { Adam(std::vector<Adam::Group>{}); }), Contains("no parameter to train"));
  CHECK_THAT(text_of([] {
               Adam(std::vector<Adam::Group>{{Tensors{}, {}}, {Tensors{}, {}}});
             }),
             Contains("no parameter to train"));
  for (const char* name : {"sgd", "adam", "adamw", "adamax", "rmsprop", "rprop", "adagrad", "adadelta",
                           "lamb", "nadam", "radam", "lion", "adafactor", "muon"}) {
    CHECK_THAT(text_of([&] { optim::make(name, {}, Tensors{}); }), Contains("no parameter to train"));
    CHECK(optim::make(name, {{"lr", 0.5}}, NoParameters())->lr() == 0.5);
  }
  CHECK_NOTHROW(Adam(std::vector<Adam::Group>{{{param()}, {}}, {Tensors{}, {}}}));
}

TEST_CASE("a parameter without a gradient in 100 steps is named once") {
  const Capture capture;
  const Tensor used = param(), idle = param(), rare = param();
  SGD optimizer({used, idle, rare}, {.lr = 0.1});
  const Tensor g = ones({2});
  for (int step = 1; step <= 99; ++step) optimizer.step({g, {}, step == 50 ? g : Tensor()});
  CHECK(logged.empty());
  optimizer.step({g, {}, {}});
  REQUIRE(logged.size() == 1);
  CHECK_THAT(logged[0], Contains("[optim] parameter 1 (float32 [2]) has had no gradient in 100 steps"));
  for (int step = 101; step < 150; ++step) optimizer.step({g, {}, {}});
  CHECK(logged.size() == 1);
  optimizer.set_names({"a", "b", "c"}, " of Layer#0:1 on w1");
  optimizer.step({g, {}, {}});  // 100 after its last one
  REQUIRE(logged.size() == 2);
  CHECK_THAT(logged[1], Contains("[optim] c of Layer#0:1 on w1 (float32 [2])"));
  for (int step = 0; step < 300; ++step) optimizer.step({g, {}, {}});
  CHECK(logged.size() == 2);
}

TEST_CASE("maximize goes the other way, in every optimizer") {
  for (const char* name : {"sgd", "adam", "adamw", "adamax", "rmsprop", "rprop", "adagrad", "adadelta",
                           "lamb", "nadam", "radam", "lion", "adafactor", "muon"}) {
    INFO(name);
    const Tensor down = full({3, 1}, 0.5).requires_grad_(), up = down.clone_data().requires_grad_();
    const ValueMap options{{"lr", 0.1}, {"maximize", true}};
    const auto descent = optim::make(name, {{"lr", 0.1}}, {down}), ascent = optim::make(name, options, {up});
    for (int step = 0; step < 3; ++step) {
      const Tensor g = tensor({{1}, {-2}, {0.5}}), minus = tensor({{-1}, {2}, {-0.5}});
      descent->step({g});
      ascent->step({minus});
    }
    CHECK(bit_equal(up, down));
    CHECK_FALSE(up.to_vector<float>()[0] == 0.5);
  }
}
