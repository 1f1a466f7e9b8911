// Gradients that a function of a program's own reduces: PowerSGD, medians, and those of users.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/distributed/optim/distributed_optimizer.h"
#include "autograd/hooks.h"
#include "ops/linalg.h"
#include "ops/random.h"
#include "parallel/server/served_parameters.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using Catch::EndsWith;
using testing::difference;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Two : nn::Layer {
  nn::Linear hidden{16, 12, true, float64}, out{12, 10, true, float64};
  Two() {
    Generator random(5);
    for (const auto& [name, p] : named_parameters_of()) p.detach().copy_(ops::randn(p.shape(), random) * 0.3);
  }
  std::vector<std::pair<std::string, Tensor>> named_parameters_of() {
    return {{"hidden.weight", hidden.weight},
            {"hidden.bias", hidden.bias},
            {"out.weight", out.weight},
            {"out.bias", out.bias}};
  }
  Tensor forward(const Tensor& x) override { return out(ops::tanh(hidden(x))); }
  void members(nn::Members& m) override { m("hidden", hidden), m("out", out); }
};

struct Learner : nn::ModuleActor<Two> {
  Tensor loss(Tensor x, Tensor y) {
    Tensor l = mse_loss(net(x), y);
    if (fails) {
      l = l * 1;
      autograd::register_hook(l, [](const Tensor&) -> Tensor {
        throw_error(ErrorKind::failed, "[learner] out of paper");
      }).keep();
    }
    return l;
  }
  void fail(bool on) { fails = on; }
  std::pair<Tensor, double> weighted(Tensor x, Tensor y) {
    return {mse_loss(net(x), y), double(frame().worker->id()) + 1};
  }
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (const Tensor& p : parameters()) all.push_back(autograd::context_gradient(p));
    return all;
  }
  std::map<std::string, Tensor> kept() {
    return Stateful::made_by(internal::actors::current_cell().get()).at(0)->state();
  }
  void load_kept(std::map<std::string, Tensor> state) {
    Stateful::made_by(internal::actors::current_cell().get()).at(0)->load_state(state);
  }
  bool fails = false;
  static constexpr auto remote = methods<&Learner::loss, &Learner::fail, &Learner::weighted,
                                         &Learner::gradients, &Learner::kept, &Learner::load_kept>;
};

Tensor batch(int64_t rows, int64_t width, uint64_t seed) {
  return ops::randn({rows, width}, Generator(seed)).to(float64);
}

// The gradients of each replica's mean.
std::vector<Tensors> of_each(Two& model, const Tensor& x, const Tensor& y, int64_t replicas) {
  std::vector<Tensors> all;
  const int64_t rows = x.size(0) / replicas;
  for (int64_t r = 0; r < replicas; ++r) {
    for (const Tensor& p : model.parameters()) p.set_grad({});
    autograd::backward(
        mse_loss(model(x.slice(0, r * rows, (r + 1) * rows)), y.slice(0, r * rows, (r + 1) * rows)));
    Tensors own;
    for (const Tensor& p : model.parameters()) own.push_back(p.grad().clone_data());
    all.push_back(own);
  }
  return all;
}

// Gram and Schmidt, column by column: another way to the same span.
Tensor gram_schmidt(const Tensor& a) {
  Tensors columns;
  for (int64_t c = 0; c < a.size(1); ++c) {
    Tensor v = a.slice(1, c, c + 1);
    for (int round = 0; round < 2; ++round)
      for (const Tensor& u : columns) v = v - u * ops::sum(u * v).item();
    columns.push_back(v / std::sqrt(ops::sum(v * v).item()));
  }
  return ops::cat(columns, 1);
}

// Vogels et al., algorithm 1 and 2, of means.
struct PowerReference {
  int64_t rank;
  std::vector<Tensors> errors = {};  // by replica
  Tensors factors = {};
  Tensors reduce(std::vector<Tensors> gradients) {
    const size_t n = gradients.size(), count = gradients[0].size();
    if (errors.empty()) errors.assign(n, Tensors(count)), factors.resize(count);
    Tensors out;
    for (size_t k = 0; k < count; ++k) {
      Tensor mean = zeros(gradients[0][k].shape(), float64);
      const Shape shape = gradients[0][k].shape();
      if (shape.rank() < 2 || (shape[0] + shape[1]) * rank * 2 >= shape.numel()) {
        for (size_t r = 0; r < n; ++r) mean = mean + gradients[r][k];
        out.push_back(mean / double(n));
        continue;
      }
      for (size_t r = 0; r < n; ++r)
        if (errors[r][k].defined()) gradients[r][k] = gradients[r][k] + errors[r][k];
      for (size_t r = 0; r < n; ++r) mean = mean + gradients[r][k] / double(n);
      if (!factors[k].defined())
        factors[k] = ops::randn({mean.size(1), rank}, Generator(uint64_t(k))).to(float64);
      const Tensor p = gram_schmidt(ops::matmul(mean, gram_schmidt(factors[k])));
      factors[k] = ops::matmul(mean.transpose(0, 1), p);
      const Tensor low = ops::matmul(p, factors[k].transpose(0, 1));
      for (size_t r = 0; r < n; ++r) errors[r][k] = gradients[r][k] - low;
      out.push_back(low);
    }
    return out;
  }
};

using Net = DataParallel<Learner>;

struct Learning {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(4, hosting<Learner>());
  std::optional<Net> net;
  explicit Learning(const DataParallelOptions& options, std::vector<Place> on = {"w0", "w1", "w2"}) {
    net.emplace(cluster->here(), Group(*cluster, on), options);
    net->ready().get();
  }
  // All replicas have the same bits.
  Tensors gradients() {
    const auto first = net->replicas()[0].call<&Learner::gradients>().get();
    for (const auto& r : net->replicas()) {
      const auto other = r.call<&Learner::gradients>().get();
      for (size_t k = 0; k < first.size(); ++k) CHECK(bit_equal(other[k], first[k]));
    }
    return first;
  }
  Tensors pass(const Tensor& x, const Tensor& y) {
    autograd::Context step(*cluster);
    step.backward(net->mean<&Learner::loss>(split(x), split(y)).get());
    return gradients();
  }
};

DataParallelOptions compressed(const std::string& how) {
  return {.buckets = {.first = 400, .others = 2000}, .compression = Compression::parse(how)};
}

}  // namespace

TEST_CASE("PowerSGD of replicas is that of one process, pass after pass") {
  const int64_t rank = GENERATE(1, 2, 3);
  CAPTURE(rank);
  Learning learning(compressed("powersgd(" + std::to_string(rank) + ")"));
  Two model;
  PowerReference reference{rank};
  for (uint64_t i = 0; i < 5; ++i) {
    CAPTURE(i);
    const Tensor x = batch(12, 16, 10 + i), y = batch(12, 10, 20 + i);
    const Tensors got = learning.pass(x, y);
    const auto each = of_each(model, x, y, 3);
    const Tensors want = reference.reduce(each);
    for (size_t k = 0; k < want.size(); ++k) CHECK(difference(got[k], want[k], 1e-9, 1e-10) == "");
    // It is of low rank, and so not the mean.
    CHECK(difference(got[0], (each[0][0] + each[1][0] + each[2][0]) / 3., 1e-3, 1e-4) != "");
  }
  learning.net.reset();
  nothing_left(*learning.cluster);
}

TEST_CASE(
    "what PowerSGD keeps is state of the replicas, and survives a pass that fails and a replica that goes") {
  Learning undisturbed(compressed("powersgd(2)")), moved(compressed("powersgd(2)"));
  const auto pass = [](Learning& l, uint64_t i) { return l.pass(batch(12, 16, i), batch(12, 10, i + 100)); };
  const auto check = [&](uint64_t i) {
    const Tensors a = pass(undisturbed, i), b = pass(moved, i);
    for (size_t k = 0; k < a.size(); ++k) CHECK(bit_equal(a[k], b[k]));
  };
  check(1), check(2);
  moved.net->replace(1, "w3");
  check(3);
  const auto before = moved.net->replicas()[2].call<&Learner::kept>().get();
  CHECK(before.size() == 6);  // of two matrices: residual, factor, passes
  {
    autograd::Context step(*moved.cluster);
    moved.net->replicas()[1].call<&Learner::fail>(true).get();
    const Tensor loss =
        moved.net->mean<&Learner::loss>(split(batch(12, 16, 9)), split(batch(12, 10, 9))).get();
    CHECK_THAT(error_of([&] { step.backward(loss); }).message(), Contains("[learner] out of paper"));
    moved.net->replicas()[1].call<&Learner::fail>(false).get();
  }
  for (const auto& [name, t] : moved.net->replicas()[2].call<&Learner::kept>().get())
    CHECK(bit_equal(t, before.at(name)));
  check(4);
  // Another set that goes on from the states sends the same.
  Learning resumed(compressed("powersgd(2)"));
  for (size_t r = 0; r < 3; ++r)
    resumed.net->replicas()[r]
        .call<&Learner::load_kept>(undisturbed.net->replicas()[r].call<&Learner::kept>().get())
        .get();
  const Tensors a = pass(undisturbed, 5), b = pass(resumed, 5);
  for (size_t k = 0; k < a.size(); ++k) CHECK(bit_equal(a[k], b[k]));
  // What is of other passes on one of them is seen, and let go of.
  resumed.net->replicas()[1].call<&Learner::load_kept>(before).get();
  const Tensors first = Learning(compressed("powersgd(2)")).pass(batch(12, 16, 6), batch(12, 10, 106)),
                again = pass(resumed, 6);
  for (size_t k = 0; k < first.size(); ++k) CHECK(bit_equal(first[k], again[k]));
  CHECK_THAT(error_of([&] {
               resumed.net->replicas()[0]
                   .call<&Learner::load_kept>(std::map<std::string, Tensor>{{"residual.0", ones({2})}})
                   .get();
             }).message(),
             Contains("of which 0 are what powersgd(2) keeps"));
}

TEST_CASE(
    "a median, a trimmed and a clipped mean of replicas are those of their gradients, whatever one sends") {
  Two model;
  const Tensor x = batch(12, 16, 1);
  Tensor y = batch(12, 10, 2);
  y.slice(0, 9, 12).fill_(1e6);  // the last one lies
  const std::string how = GENERATE("median", "trimmed_mean(0.25)", "clipped_mean(0.1)");
  CAPTURE(how);
  const auto each = of_each(model, x, y, 4);
  Learning learning({.buckets = {.first = 400, .others = 2000}, .aggregation = how},
                    {"w0", "w1", "w2", "w3"});
  const Tensors got = learning.pass(x, y);
  for (size_t k = 0; k < got.size(); ++k) {
    std::vector<double> want;
    for (int64_t i = 0; i < got[k].numel(); ++i) {
      std::vector<double> v;
      for (const Tensors& own : each) v.push_back(own[k].reshape({-1}).to_vector<double>()[size_t(i)]);
      if (how.starts_with("clipped"))
        for (double& e : v) e = std::clamp(e, -0.1, 0.1);
      std::ranges::sort(v);
      want.push_back(how.starts_with("clipped") ? (v[0] + v[1] + v[2] + v[3]) / 4 : (v[1] + v[2]) / 2);
    }
    CHECK(difference(got[k], tensor(want, float64).reshape(got[k].shape()), 1e-9, 1e-12) == "");
  }
  // An evaluation divides rows as they are.
  const NoGradGuard guard;
  CHECK(learning.net->mean<&Learner::loss>(split(batch(7, 16, 1)), split(batch(7, 10, 2))).get().numel() ==
        1);
}

TEST_CASE("an aggregation counts replicas alike, so they need as many rows") {
  Learning learning({.aggregation = "median"});
  autograd::Context step(*learning.cluster);
  CHECK_THAT(error_of([&] {
               learning.net->mean<&Learner::loss>(split(batch(7, 16, 1)), split(batch(7, 10, 2))).get();
             }).message(),
             Contains("replicas have 3, 2, 2 rows") && Contains("give a batch that 3 divide evenly"));
  CHECK_THAT(error_of([&] {
               learning.net->mean<&Learner::weighted>(split(batch(6, 16, 1)), split(batch(6, 10, 2))).get();
             }).message(),
             Contains("weighted says that its means count for 1 and 2"));
}

namespace {

// What a program may register: gradients as multiples of 1/256, summed exactly; and with what it keeps, their
// number.
Task<Tensors> rounded(Bucket bucket) {
  Tensors sent;
  for (const Tensor& g : bucket.gradients()) sent.push_back(ops::round(g * 256.).to(int32));
  const auto summing = bucket.all_reduce(sent);
  Tensors sums = co_await summing;
  for (size_t k = 0; k < sums.size(); ++k) {
    Tensor& count = bucket.kept(k, "count");
    count = count.defined() ? count + 1. : ones({1}, float64);
    sums[k] = sums[k].to(bucket.gradients()[k].dtype()) / 256.;
  }
  co_return sums;
}

// The member of that rank fails, between two operations.
Task<Tensors> faulty(Bucket bucket, size_t rank) {
  const auto first = bucket.all_reduce(bucket.gradients());
  Tensors sums = co_await first;
  if (bucket.rank() == rank) throw_error(ErrorKind::failed, "[faulty] out of paper");
  const auto second = bucket.all_reduce(bucket.gradients());
  (void)co_await second;
  co_return sums;
}

Task<Tensors> of_other_shape(Bucket bucket) {
  Tensors all = bucket.gradients();
  all[0] = ones({3});
  co_return all;
}

[[maybe_unused]] const bool own_functions_registered = [] {
  register_compression("rounded", [](std::optional<double>) { return rounded; });
  register_compression("faulty", [](std::optional<double> rank) -> BucketReduction {
    return [rank](Bucket bucket) { return faulty(std::move(bucket), size_t(rank.value_or(0))); };
  });
  register_compression("of_other_shape", [](std::optional<double>) { return of_other_shape; });
  register_aggregation("middle", [](std::optional<double>) -> AggregationRule {
    return [](const Tensor& all) { return (ops::amax(all, {0}) + ops::amin(all, {0})) / 2.; };
  });
  register_aggregation("faulty_rule", [](std::optional<double>) -> AggregationRule {
    return [](const Tensor&) -> Tensor { throw_error(ErrorKind::failed, "[rule] no idea"); };
  });
  register_aggregation("short_rule", [](std::optional<double>) -> AggregationRule {
    return [](const Tensor& all) { return ops::sum(all); };
  });
  return true;
}();

}  // namespace

TEST_CASE("a compression and a rule of a program's own reduce its gradients") {
  Two model;
  const Tensor x = batch(12, 16, 1), y = batch(12, 10, 2);
  const auto each = of_each(model, x, y, 3);
  Learning own(compressed("rounded")), middle({.aggregation = "middle"});
  const Tensors got = own.pass(x, y), of_rule = middle.pass(x, y);
  for (size_t k = 0; k < got.size(); ++k) {
    Tensor sum = zeros(got[k].shape(), float64);
    for (const Tensors& g : each) sum = sum + ops::round(g[k] * (256. / 3)) / 256.;
    CHECK(difference(got[k], sum, 1e-12, 1e-12) == "");
    const Tensor all = ops::stack({each[0][k], each[1][k], each[2][k]}, 0);
    CHECK(difference(of_rule[k], (ops::amax(all, {0}) + ops::amin(all, {0})) / 2., 1e-9, 1e-12) == "");
  }
  own.pass(x, y);
  CHECK(own.net->replicas()[1].call<&Learner::kept>().get().at("kept.0.count").item() == 2);
}

TEST_CASE("a function of one's own that fails fails the pass of all, and the next one is right") {
  const DataParallelOptions options = GENERATE(
      DataParallelOptions{.compression = Compression::parse("faulty(1)")},
      DataParallelOptions{.compression = Compression::parse("of_other_shape")},
      DataParallelOptions{.aggregation = "faulty_rule"}, DataParallelOptions{.aggregation = "short_rule"});
  const std::string name = options.compression.on() ? options.compression.str() : options.aggregation;
  CAPTURE(name);
  const Tensor x = batch(12, 16, 1), y = batch(12, 10, 2);
  Learning learning(options);
  for (int i = 0; i < 2; ++i) {
    autograd::Context step(*learning.cluster);
    const std::string why = error_of([&] {
                              step.backward(learning.net->mean<&Learner::loss>(split(x), split(y)).get());
                            }).message();
    CHECK_THAT(why, Contains(name == "faulty(1)"     ? "[faulty] out of paper"
                             : name == "faulty_rule" ? "[rule] no idea"
                             : name == "short_rule"  ? "expected an element of the same dtype for each column"
                                                     : "made float32 [3] of gradient 0: expected float64"));
    for (const auto& r : learning.net->replicas())
      for (const Tensor& g : r.call<&Learner::gradients>().get()) CHECK_FALSE(g.defined());
  }
  learning.net.reset();
  nothing_left(*learning.cluster);
  for (const auto& w : learning.cluster->workers()) CHECK(learning.cluster->metrics(w)["collectives"] == 0);
}

namespace {

// Rank by rank.
struct RankLearner : nn::ModuleActor<Two> {
  void join(Group of, std::string aggregation) {
    group = of;
    reducer.emplace(group, parameters(), ReducerOptions{.aggregation = aggregation});
  }
  Task<double> pass(Tensor x, Tensor y) {
    const auto running = reducer->backward(mse_loss(net(x), y), double(x.size(0)));
    co_return co_await running;
  }
  Tensor gradient() { return autograd::context_gradient(net.out.weight); }
  Task<std::vector<Tensor>> ruled(Tensor x, std::string name, std::string tag) {
    AggregationRule rule = aggregation_named(name);
    if (group.rank() == 1 && tag == "fails")
      rule = [](const Tensor&) -> Tensor { throw_error(ErrorKind::failed, "[rule] no idea"); };
    const auto ruling = aggregate(group, {x, x * 2.}, rule, tag);
    const Tensors came = co_await ruling;
    co_return std::vector<Tensor>(came.begin(), came.end());
  }
  Group group;
  std::optional<GradientReducer> reducer;
  static constexpr auto remote =
      methods<&RankLearner::join, &RankLearner::pass, &RankLearner::gradient, &RankLearner::ruled>;
};

}  // namespace

TEST_CASE("rank by rank a rule is of members that have as many rows, and of tensors of any group") {
  auto cluster = Cluster::in_process(3, hosting<RankLearner>());
  std::vector<RRef<RankLearner>> members;
  for (size_t r = 0; r < 3; ++r) members.push_back(cluster->spawn<RankLearner>(r));
  for (auto& m : members) m.call<&RankLearner::join>(Group(members), "median").get();
  const Tensor x = batch(12, 16, 1), y = batch(12, 10, 2);
  const auto pass = [&](const std::vector<int64_t>& cuts) {
    std::vector<Future<double>> asked;
    for (size_t r = 0; r < 3; ++r)
      asked.push_back(members[r].call<&RankLearner::pass>(x.slice(0, cuts[r], cuts[r + 1]),
                                                          y.slice(0, cuts[r], cuts[r + 1])));
    std::vector<Result<double>> out;
    for (const auto& a : asked) out.push_back(a.wait());
    return out;
  };
  {
    autograd::Context step(*cluster);
    const auto refused = pass({0, 4, 9, 12});
    for (size_t r = 0; r < 3; ++r) {
      REQUIRE_FALSE(refused[r].ok());
      CHECK_THAT(refused[r].error().message(), Contains("median counts members alike"));
      CHECK_FALSE(members[r].call<&RankLearner::gradient>().get().defined());
    }
    for (const auto& r : pass({0, 4, 8, 12})) CHECK(r.ok());
    Two model;
    const auto each = of_each(model, x, y, 3);
    const Tensor all = ops::stack({each[0][2], each[1][2], each[2][2]}, 0);
    CHECK(difference(members[2].call<&RankLearner::gradient>().get(), ops::sort(all, 0).values.select(0, 1),
                     1e-9, 1e-12) == "");
  }
  const auto ruled = [&](const std::string& name, const std::string& tag) {
    std::vector<Future<std::vector<Tensor>>> asked;
    for (size_t r = 0; r < 3; ++r)
      asked.push_back(members[r].call<&RankLearner::ruled>(arange(5).to(float64) * double(r * r), name, tag));
    std::vector<Result<std::vector<Tensor>>> out;
    for (const auto& a : asked) out.push_back(a.wait());
    return out;
  };
  for (const auto& r : ruled("median", "one")) {
    CHECK(bit_equal(r.value()[0], arange(5).to(float64)));
    CHECK(bit_equal(r.value()[1], arange(5).to(float64) * 2.));
  }
  for (const auto& r : ruled("median", "fails")) {
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().message(), Contains("it has failed on rank 1 (") && EndsWith("): [rule] no idea"));
  }
  for (const auto& r : ruled("clipped_mean(1)", "two"))
    CHECK(r.value()[0].to_vector<double>()[1] == Approx(2. / 3));
  nothing_left(*cluster);
}

TEST_CASE("names and numbers of own functions are checked") {
  const auto compression = [](const std::string& text) {
    return error_of([&] { (void)Compression::parse(text); }).message();
  };
  CHECK_THAT(compression("powersgd(0)"), Contains("powersgd(0): expected a rank from 1 to 1024"));
  CHECK_THAT(compression("powersgd(1.5)"), Contains("expected a rank"));
  CHECK_THAT(compression("powersgd(two)"),
             Contains("expected a name, or a name and a number, as \"powersgd(2)\""));
  CHECK_THAT(compression("powersdg(2)"),
             Contains("registered here: faulty, of_other_shape, powersgd, rounded"));
  CHECK_THAT(error_of([] { register_compression("1bit", {}); }).message(), Contains("is no name"));
  CHECK_THAT(error_of([] { register_compression("topk", {}); }).message(),
             Contains("there is a \"topk\" already"));
  CHECK_THAT(error_of([] { register_compression("powersgd", {}); }).message(), Contains("already"));
  const auto rule = [](const std::string& text) {
    return error_of([&] { (void)aggregation_named(text); }).message();
  };
  CHECK_THAT(rule("medain"),
             Contains("expected mean, or one of those that are registered here: clipped_mean, "));
  CHECK_THAT(rule("median(2)"), Contains("median(2): expected \"median\""));
  CHECK_THAT(rule("trimmed_mean(0.5)"), Contains("at least 0 and below 0.5"));
  CHECK_THAT(rule("clipped_mean"), Contains("above 0, as clipped_mean(1)"));
  auto cluster = Cluster::in_process(2, hosting<Learner>());
  const auto refused = [&](const DataParallelOptions& options) {
    return error_of([&] { Net(cluster->here(), Group(*cluster, {"w0", "w1"}), options).ready().get(); })
        .message();
  };
  CHECK_THAT(refused({.compression = Compression::parse("bf16"), .aggregation = "median"}),
             Contains("gradients that travel by bf16 are sums, and median is none"));
  CHECK_THAT(refused({.aggregation = "median", .shard = Shard::gradients}),
             Contains("median needs whole gradients"));
  CHECK_THAT(refused({.aggregation = "maximum"}), Contains("\"maximum\""));
  CHECK_THAT(error_of([&] {
               (void)serve(cluster->here(), {"w0"}, {ones({3})},
                           {.trainers = 1, .push = Compression::parse("powersgd(2)")});
             }).message(),
             Contains("a function that replicas run together"));
}
