// Every module, built as PyTorch builds it by default: options, names and shapes, how parameters start, and
// what it computes (tests/oracle/make_defaults.py).
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/codec/codec.h"
#include "nn/make.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;
using namespace troupe::testing;
using nlohmann::json;

namespace {

Shape shape_of(const json& j) {
  const auto dims = j.get<std::vector<int64_t>>();
  return Shape{std::span<const int64_t>(dims)};
}

std::vector<int64_t> sizes(const Shape& shape) { return {shape.begin(), shape.end()}; }

Tensor wave(const Shape& shape, double (*f)(double), double step, double start, double least, double size) {
  const Tensor t = empty(shape, float64);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<double>()[i] = least + size * f(step * static_cast<double>(i) + start);
  return t;
}

std::shared_ptr<nn::Layer> built(const json& entry) {
  if (entry.at("module") == "sequential")
    return nn::make(nn::spec_of("sequential", {nn::spec_of("linear", {int64_t{5}, int64_t{3}}), "sigmoid"}));
  ValueList arguments;
  for (const auto& a : entry.at("arguments")) arguments.push_back(a.get<int64_t>());
  return nn::make(nn::spec_of(entry.at("module").get<std::string>(), arguments));
}

// Values of the script, by the places of parameters and buffers.
void fill(nn::Layer& module) {
  double k = 0;
  const auto one = [&k](const std::string& name, const Tensor& t) {
    const bool variance = name.find("var") != std::string::npos;
    if (is_floating(t.dtype()))
      t.detach().copy_(wave(t.shape(), std::sin, 0.7, k, variance ? 0.6 : 0, variance ? 0.4 : 0.5));
    ++k;
  };
  for (const auto& [name, t] : module.named_parameters()) one(name, t);
  for (const auto& [name, t] : module.named_buffers()) one(name, t);
}

Tensor input_of(const json& entry) {
  const json& input = entry.at("input");
  if (!input.is_object()) return wave(shape_of(input), std::cos, 0.3, 0, 0, 1);
  const Shape shape = shape_of(input.at("ids"));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < shape.numel(); ++i) ids.push_back(7 * i % 5);
  return ops::reshape(tensor(ids), sizes(shape));
}

void check_close(const Tensor& got, const json& wanted) {
  const auto values = wanted.get<std::vector<double>>();
  REQUIRE(got.numel() == std::ssize(values));
  CHECK(difference(ops::to(got, float64), tensor(values, float64).reshape(sizes(got.shape())), 1e-12,
                   1e-12) == "");
}

// What `standard` is in JSON; sides that are equal are one number.
void check_default(const Value& standard, const json& wanted) {
  INFO(standard.describe() << ", PyTorch has " << wanted);
  if (wanted.is_null())
    CHECK(standard.is_null());
  else if (const bool* flag = standard.get_if<bool>())
    CHECK((wanted.is_boolean() && wanted == *flag));
  else if (const int64_t* whole = standard.get_if<int64_t>())
    CHECK((wanted.is_number() && wanted == *whole));
  else if (const double* number = standard.get_if<double>())
    CHECK((wanted.is_number() && wanted == *number));
  else
    CHECK((wanted.is_string() && wanted == internal::from_value<std::string>(standard)));
}

json entries() { return read_oracle("defaults.json").at("modules"); }

}  // namespace

TEST_CASE("PyTorch's defaults are those of every module") {
  std::set<std::string> tried;
  for (const json& entry : entries()) {
    const std::string name = entry.at("module");
    INFO(name);
    tried.insert(name);
    for (const auto& made : nn::modules()) {
      if (made.name != name) continue;
      for (const Parameter& p : made.parameters)
        if (p.standard && entry.at("defaults").contains(p.name) && p.name != "dtype") {
          INFO(p.name);
          check_default(*p.standard, entry.at("defaults").at(p.name));
        }
    }
  }
  for (const auto& made : nn::modules()) {
    INFO(made.name);
    CHECK(tried.count(made.name) == 1);
  }
}

TEST_CASE("modules built by default have PyTorch's names and shapes, in its order") {
  for (const json& entry : entries()) {
    INFO(entry.at("module"));
    const auto module = built(entry);
    const auto same = [](const nn::NamedTensors& got, const json& wanted) {
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].first == wanted[i].at("name").get<std::string>());
        CHECK(got[i].second.shape() == shape_of(wanted[i].at("shape")));
      }
    };
    same(module->named_parameters(), entry.at("parameters"));
    same(module->named_buffers(), entry.at("buffers"));
  }
}

TEST_CASE("modules built by default start as PyTorch's do") {
  manual_seed(0);
  for (const json& entry : entries()) {
    INFO(entry.at("module"));
    std::vector<std::vector<double>> values(entry.at("parameters").size());
    for (int round = 0; round < 200; ++round) {
      size_t i = 0;
      for (const Tensor& p : built(entry)->parameters()) {
        std::vector<double>& all = values[i++];
        for (const double x : p.to_vector<double>())
          if (all.size() < 20000) all.push_back(x);
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const json& wanted = entry.at("parameters")[i];
      INFO(wanted.at("name"));
      const auto n = static_cast<double>(values[i].size());
      double sum = 0, squares = 0, most = 0;
      for (const double x : values[i]) sum += x, squares += x * x, most = std::max(most, std::abs(x));
      if (wanted.contains("value")) {
        CHECK(sum == n * wanted.at("value").get<double>());
        CHECK(squares == n * std::pow(wanted.at("value").get<double>(), 2));
        continue;
      }
      const double deviation = wanted.at("deviation"), spread = std::sqrt(squares / n);
      CHECK(std::abs(sum / n) < 6 * deviation / std::sqrt(n));
      CHECK(std::abs(spread - deviation) < 6 * deviation / std::sqrt(n) + 0.02 * deviation);
      if (wanted.at("bound").is_null())
        CHECK(most > 3 * deviation);
      else
        CHECK(most == Approx(wanted.at("bound").get<double>()).epsilon(0.002 + 12 / n));
    }
  }
}

TEST_CASE("modules built by default compute what PyTorch's do, in use and in training") {
  for (const json& entry : entries()) {
    INFO(entry.at("module"));
    const auto module = built(entry);
    module->to(float64);
    const Tensor x = input_of(entry);
    fill(*module);
    module->eval();
    check_close((*module)(x), entry.at("use"));
    if (!entry.contains("training")) continue;
    fill(*module);
    module->train();
    check_close((*module)(x), entry.at("training"));
    for (const auto& [name, t] : module->named_buffers()) check_close(t, entry.at("after").at(name));
  }
}

TEST_CASE("an encoder layer built by default drops a tenth of what it mixes, hides and adds, in training") {
  nn::TransformerEncoderLayer layer(4, 2);
  const auto texts = nn::TransformerEncoderLayerOptions{};
  CHECK(texts.dropout == 0.1);
  for (const nn::Dropout* d : {&layer.dropout, &layer.dropout1, &layer.dropout2})
    CHECK(d->str() == "Dropout(0.1)");
  const Tensor x = ops::randn({2, 3, 4}, Generator(1));
  CHECK_FALSE(bit_equal(layer(x), layer(x)));
  layer.eval();
  CHECK(bit_equal(layer(x), layer(x)));
  // Attention's own part: each weight is dropped alone, the rest grows, so the mean stays.
  nn::MultiheadAttention attention(2, 1, {.dropout = 0.5, .dtype = float64});
  for (const Tensor& p : attention.parameters()) nn::init::zeros_(p);
  const Tensor eye = tensor({{1.0, 0.0}, {0.0, 1.0}});
  attention.in_proj_weight.detach().slice(0, 4, 6).copy_(eye);  // values are the input; all weights are equal
  attention.out_proj.weight.detach().copy_(eye);
  constexpr int64_t kKeys = 4, kRows = 2000;
  const Tensor y = attention(ones({kRows, kKeys, 2}, float64)).detach();
  std::map<double, int64_t> counts;
  for (const double v : y.to_vector<double>()) ++counts[std::round(v * 1e9) / 1e9];
  REQUIRE(counts.size() == kKeys + 1);  // 0 to 4 of 4 weights are left, each worth a half
  double mean = 0;
  for (const auto& [value, count] : counts) {
    CHECK(std::fmod(value, 0.5) == 0);
    mean += value * static_cast<double>(count) / static_cast<double>(y.numel());
  }
  CHECK(mean == Approx(1).epsilon(0.03));
}
