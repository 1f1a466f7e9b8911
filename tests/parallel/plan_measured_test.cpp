// Plans beside workers: layers that are measured, and checks of layouts.
#include <catch2/catch.hpp>

#include "core/tensor/creation.h"
#include "parallel/measure/measure.h"
#include "parallel/measure/whole_pass.h"
#include "parallel/plan/check.h"
#include "parallel/plan/plan.h"
#include "tests/parallel/plan_models.h"
#include "tests/support/error_of.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using namespace troupe::testing;

TEST_CASE("layers are measured on the workers of a cluster") {
  const auto cluster = Cluster::in_process(2);
  const Value model = ValueList{nn::spec_of("linear", {int64_t{64}, int64_t{512}}), Value("relu"),
                                nn::spec_of("linear", {int64_t{512}, int64_t{8}})};
  const ModelProfile p = measure(cluster->here(), model, ones({32, 64}), {.repeats = 2});
  REQUIRE(p.layers.size() == 3);
  CHECK(p.layers[0].name == "linear");
  CHECK(p.layers[0].parameters == 4 * (64 * 512 + 512));
  CHECK(p.layers[0].output == 4 * 512);
  CHECK(p.layers[1].parameters == 0);
  CHECK(p.layers[0].saved == Approx(4 * 512).epsilon(0.3));  // blocks are somewhat larger
  CHECK(p.workers.size() == 2);
  CHECK((p.workers[0].speed > 0 && p.workers[1].speed > 0));
  CHECK(p.process.rate > 0);
  CHECK(p.hosts.rate == 0);
  CHECK(p.sums.near_rate > 0);
  CHECK(p.state == Approx(2));
  CHECK(!p.cuts_layers);
  CHECK(!plan(p).best.empty());
  CHECK(parse_profile(p.json(), "here") == p);
  const auto refused = [&](const Value& net, const Tensor& x) {
    return testing::invalid_text([&] { (void)measure(cluster->here(), net, x); });
  };
  CHECK(refused(model, ones({1, 64})).find("at least 2 rows; got ") != std::string::npos);
  CHECK(refused(model, Tensor()).find("got undefined") != std::string::npos);
  CHECK(refused(ValueList(), ones({4, 4})).find("the model has no layers") != std::string::npos);
  CHECK(refused(Value("linaer"), ones({4, 4})).find("linear") != std::string::npos);
  CHECK(refused(model, ones({4, 65})).find("65") != std::string::npos);
}

TEST_CASE("a check runs no step for a profile of another model") {
  const auto cluster = Cluster::in_process(1);
  const auto linear = [](int64_t width) {
    return Value(ValueList{nn::spec_of("linear", {int64_t{4}, width})});
  };
  const Tensor x = ones({4, 4});
  const ModelProfile p = measure(cluster->here(), linear(8), x, {.repeats = 1});
  PlannedLayout layout = layout_of(1, 1, 1, 1);
  layout.rows = {4};
  int steps = 0;
  const auto check = [&](const Value& model) {
    return check_plan(cluster->here(), p, layout, model, x, [&] { ++steps; });
  };
  CHECK(testing::invalid_text([&] { (void)check(linear(9)); }) ==
        "[plan] the profile is of another model: layer 0, linear, has 160 B of parameters there, and 180 B "
        "here: give the flags with which it was measured, or measure anew");
  CHECK(steps == 0);
  CHECK(check(linear(8)).measured_step > 0);
  CHECK(steps == 10);
}

TEST_CASE("a whole pass is of as many layers as a worker holds") {
  using internal::parallel::held_layers, internal::parallel::time_whole_pass;
  const ValueList layers{nn::spec_of("linear", {int64_t{64}, int64_t{64}}), Value("relu"),
                         nn::spec_of("linear", {int64_t{64}, int64_t{512}})};
  for (const bool loss : {false, true}) {
    const auto all = time_whole_pass(layers, ones({32, 64}), loss);
    CHECK(all.seconds > 0);
    CHECK(all.optimizer > 0);
    CHECK(all.state == Approx(2));
  }
  const auto none = time_whole_pass({Value("relu")}, ones({32, 64}), true);
  CHECK(none.optimizer == 0);
  CHECK(none.state == 0);
  // With their gradients and the state of Adam, and with what rows leave.
  ModelProfile p = uniform(8, 1);
  CHECK(held_layers(p.layers, 32) == 8);
  for (LayerCost& l : p.layers) l.parameters = 100 * kMiB;
  CHECK(held_layers(p.layers, 32) == 5);
  for (LayerCost& l : p.layers) l.saved = 8 * kMiB;
  CHECK(held_layers(p.layers, 32) == 3);
  p.layers[0].parameters = 1e12;
  CHECK(held_layers(p.layers, 32) == 1);
}

TEST_CASE("a worker that is slow is named whatever rows a check has, and where other rows fit no rounds") {
  const auto cluster = Cluster::in_process(4);
  const Value model = ValueList(4, nn::spec_of("linear", {int64_t{8}, int64_t{8}}));
  ModelProfile p = measure(cluster->here(), model, ones({8, 8}), {.repeats = 1});
  for (WorkerCost& w : p.workers) w.pace = 1e3, w.speed = 1;
  p.workers[3].pace = 1e-9;
  PipelineOptions options{.schedule = "interleaved", .micro_batches = 2, .chunks = 2};
  const std::vector<MeshDim> dims{{"dp", 2}, {"pp", 4, 2}};
  const PlannedLayout layout = planned(dims, options, {1, 2, 3}, 4);
  const PlanCheck check = check_plan(cluster->here(), p, layout, model, ones({4, 8}), [] {});
  CHECK(check.slower.find("  w3 computes at 0.00 ") == 0);
  // Three rows of a replica begin the schedule of four, as its pipeline does.
  options.micro_batches = 4;
  const PlannedLayout odd = planned(dims, options, {1, 2, 3}, 6);
  CHECK(odd.micro_batches == 3);
  CHECK(micro_batches_of(policy_of(odd)) == 3);
  CHECK(cost(p, odd).step > 0);
}

TEST_CASE("a parameter goes to replicas as a whole") {
  ModelProfile p = uniform(2, 4, 2);
  p.cores = 64;
  for (LayerCost& l : p.layers) l.parameters = 200 * kMiB, l.largest = 0, l.backward = {4, 0};
  const double cut = cost(p, layout_of(4, 1, 1, 1)).gradients;
  for (LayerCost& l : p.layers) l.largest = l.parameters;
  const double whole = cost(p, layout_of(4, 1, 1, 1)).gradients;
  CHECK(whole > 4 * cut);  // nothing of the first layer lies under its own pass
  PlannedLayout divided = layout_of(4, 1, 1, 1);
  divided.shard = Shard::gradients;
  CHECK(cost(p, divided).gradient_bytes == Approx(2 * 400 * kMiB + 400 * kMiB / 4));
}
