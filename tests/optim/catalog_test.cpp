// Optimizers and schedules by name.
#include <catch2/catch.hpp>
#include <set>

#include "core/base/generator.h"
#include "core/graph/copy_on_write.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "optim/optimizer_catalog.h"
#include "tests/support/error_of.h"
#include "tests/support/received.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

optim::Schedule made(const std::string& name, ValueList positional, ValueMap named = {}) {
  for (const auto& s : optim::schedules())
    if (s.name == name) return s(std::move(positional), std::move(named));
  FAIL("no schedule " << name);
  std::abort();
}

void same(const optim::Schedule& a, const optim::Schedule& b) {
  for (int64_t step = 0; step < 12; ++step) CHECK(a(0.1, step) == b(0.1, step));
}

}  // namespace

TEST_CASE("a step writes elsewhere what somebody still reads, with the same bits") {
  Generator random(5);
  const Tensor start = ops::randn({20000, 1}, random), grad = ops::randn({20000, 1}, random);
  for (const Entry& entry : optim::optimizers()) {
    INFO(entry.name);
    Tensor alone = start.clone().requires_grad_(), read = start.clone().requires_grad_();
    const auto one = optim::make(entry.name, {}, {alone}), other = optim::make(entry.name, {}, {read});
    for (int step = 0; step < 3; ++step) {
      const Tensor reader = internal::lazy_copy(read);
      const std::byte* const before = read.storage()->data();
      const auto then = reader.to_vector<double>();
      one->step({grad}), other->step({grad});
      CHECK(read.storage()->data() != before);
      CHECK(reader.storage()->data() == before);
      CHECK(reader.to_vector<double>() == then);
      CHECK(read.to_vector<double>() == alone.to_vector<double>());
    }
    const std::byte* const before = read.storage()->data();
    other->step({grad});
    CHECK(read.storage()->data() == before);  // the readers have gone
  }
}

TEST_CASE("every optimizer has an entry with its options, and is made from its defaults") {
  std::set<std::string> names;
  for (const Entry& entry : optim::optimizers()) {
    INFO(entry.signature());
    CHECK(names.insert(entry.name).second);
    CHECK((!entry.text.empty() && entry.text.back() == '.'));
    ValueMap options;
    for (const Parameter& p : entry.parameters) {
      REQUIRE(p.standard);
      options[p.name] = *p.standard;
    }
    const auto optimizer = optim::make(entry.name, options, {zeros({2, 1}).requires_grad_()});
    CHECK(text_of(optimizer->options_map(0)) == text_of(options));
  }
  CHECK(names == std::set<std::string>{"sgd", "adam", "adamw", "adamax", "rmsprop", "rprop", "adagrad",
                                       "adadelta", "lamb", "nadam", "radam", "lion", "adafactor", "muon"});
  CHECK(optim::optimizers()[0].signature() ==
        "sgd(lr: double = 0.001, momentum: double = 0, dampening: double = 0, weight_decay: double = 0, "
        "nesterov: bool = false, maximize: bool = false)");
  const std::string unknown =
      error_of([] { optim::make("adan", {}, {zeros({2}).requires_grad_()}); }).message();
  CHECK_THAT(unknown, Contains("did you mean \"adam\"?"));
}

TEST_CASE("no optimizer writes to parameters, gradients or state that another process has") {
  using testing::received;
  Generator g(1);
  const Tensor value = ops::randn({8, 5}, g), grad = ops::randn({8, 5}, g);
  for (const Entry& entry : optim::optimizers())
    for (const DType dtype : {float32, bfloat16}) {
      INFO(entry.name << " of " << troupe::name(dtype));
      const auto stepped = [&](auto&& seen) {
        const Tensor p = seen(ops::to(value, dtype)).requires_grad_();
        const auto first = optim::make(entry.name, {}, {p}), second = optim::make(entry.name, {}, {p});
        first->step({seen(ops::to(grad, dtype))});
        auto state = first->state();
        for (auto& [name, t] : state) t = seen(t);
        second->load_state(state);
        second->step({seen(ops::to(grad, dtype))});
        return p.detach();
      };
      CHECK(bit_equal(stepped(received), stepped([](const Tensor& t) { return t.clone_data(); })));
    }
  const Tensor big = received(ops::mul(grad, 100)), scaled = optim::clipped(big, 0.5);
  CHECK(bit_equal(scaled, ops::mul(big, 0.5)));
}

TEST_CASE("every schedule of the table is the function of its name") {
  const int64_t three = 3, ten = 10;
  same(made("step_decay", {three}), optim::step_decay(3));
  same(made("multi_step", ValueList(1, ValueList{int64_t{2}, 5.0}), {{"gamma", 0.5}}),
       optim::multi_step({2, 5}, 0.5));
  same(made("exponential", {0.9}), optim::exponential(0.9));
  same(made("cosine", {10.0, 0.01}), optim::cosine(10, 0.01));
  same(made("warm_up", {three}), optim::warm_up(3));
  const ValueMap then{{"schedule", std::string("cosine")}, {"steps", ten}};
  same(made("warm_up", {three, then, 0.1}), optim::warm_up(3, optim::cosine(10), 0.1));
  same(made("one_cycle", {ten}, {{"linear", true}}), optim::one_cycle(10, {.linear = true}));
  same(made("one_cycle_momentum", {ten}), optim::one_cycle_momentum(10));
  std::set<std::string> names;
  for (const auto& s : optim::schedules()) {
    CHECK(names.insert(s.name).second);
    CHECK((!s.text.empty() && s.text.back() == '.'));
  }
  CHECK(names.size() == 7);
}

TEST_CASE("schedules that fit nothing are refused") {
  const auto said = [](const Value& spec) { return error_of([&] { optim::make_schedule(spec); }).message(); };
  CHECK_THAT(said(std::string("cosine")), Contains("is described by a map"));
  CHECK_THAT(said(ValueMap{{"schedule", std::string("cosin")}}), Contains("did you mean \"cosine\"?"));
  CHECK_THAT(said(ValueMap{{"schedule", std::string("cosine")}}),
             Contains("cosine needs \"steps\": cosine(steps: int64"));
  CHECK_THROWS_AS(made("step_decay", {int64_t{0}}), Error);
  Value deep = ValueMap{{"schedule", std::string("cosine")}, {"steps", int64_t{1}}};
  for (int i = 0; i < 2000; ++i) {
    ValueMap around{{"schedule", std::string("warm_up")}, {"steps", int64_t{1}}};
    around["then"] = std::move(deep);  // moved in: braces copy all that is below
    deep = std::move(around);
  }
  CHECK_THAT(said(deep), Contains("at most 100 parts"));
}
