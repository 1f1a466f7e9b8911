// Every reference case, in float64 and float32.
#include <catch2/catch.hpp>
#include <cmath>

#include "optim/optim.h"
#include "tests/support/options.h"
#include "tests/support/oracle.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

double distance(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  if (a.shape() != b.shape()) return HUGE_VAL;
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - y[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

// Follows all cases; with `reload`, a new optimizer takes over the state before every step.
void follow(DType dtype, double tolerance, bool reload) {
  std::map<std::string, int> cases;
  auto all = read_oracle("optimizers.json").at("cases");
  const auto more = read_oracle("more_optimizers.json");
  for (const auto& json : more.at("cases")) all.push_back(json);
  for (const auto& json : all) {
    const std::string name = json.at("optimizer");
    ++cases[name];
    const ValueMap options = to_options(json.at("options"));
    const Tensor p = to_tensor(json.at("start"), dtype);
    auto optimizer = optim::make(name, options, {p});
    // Muon makes its steps, of about lr, in bfloat16, whose sums machines round differently.
    const double most = name == "muon" ? 0.1 * optimizer->lr() : tolerance;
    for (size_t step = 0; step < json.at("grads").size(); ++step) {
      if (reload) {
        auto next = optim::make(name, options, {p});
        next->load_state(optimizer->state());
        optimizer = std::move(next);
      }
      optimizer->step({to_tensor(json.at("grads")[step], dtype)});
      INFO(name << " " << json.at("options").dump() << " step " << step);
      CHECK(distance(p, to_tensor(json.at("after")[step], dtype)) <= most);
    }
  }
  for (const char* name : {"adadelta", "adafactor", "adagrad", "adam", "adamw", "lion", "muon", "nadam",
                           "radam", "rmsprop", "sgd"}) {
    INFO(name);
    CHECK(cases[name] > 0);
  }
}

}  // namespace

TEST_CASE("optimizers follow PyTorch in float64", "[oracle]") { follow(float64, 1e-12, false); }
TEST_CASE("optimizers follow PyTorch in float32", "[oracle]") { follow(float32, 2e-6, false); }
TEST_CASE("saved state goes on where it was", "[oracle]") { follow(float64, 1e-12, true); }
