// Members of a group that have a model each, whose gradients a GradientReducer sums.
#pragma once
#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/cell/actor_cell.h"
#include "autograd/hooks.h"
#include "core/graph/stateful.h"
#include "parallel/data/gradient_reducer.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"

namespace troupe::testing {

using namespace parallel;

inline Tensor numbers(const Shape& shape, int64_t first) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(double((i * 5 + first) % 7 - 3) / 4);
  return tensor(v, float64).reshape(shape);
}
inline Tensor leaf(Tensor t) {
  t.requires_grad_();
  return t;
}

struct Model {
  Tensor first = leaf(numbers({3, 4}, 1)), bias = leaf(numbers({4}, 2)), second = leaf(numbers({4, 2}, 4)),
         sometimes = leaf(numbers({2}, 3)), never = leaf(ones({3}, float64)),
         single = leaf(ones({2}, float32));
  Tensors all() const { return {first, bias, second, sometimes, never, single}; }
  // `second` is used twice.
  Tensor loss(const Tensor& x, const Tensor& y, bool some) const {
    const Tensor hidden = ops::tanh(ops::matmul(x, first) + bias);
    Tensor out = ops::matmul(hidden, second) + ops::matmul(ops::tanh(hidden), second);
    if (some) out = out * sometimes + single.to(float64);
    const Tensor away = out - y;
    return ops::mean(away * away);
  }
};

struct Member : Actor {
  void join(Group group, int64_t first, int64_t others, std::string compression) {
    const ReducerOptions options{.buckets = {static_cast<size_t>(first), static_cast<size_t>(others)},
                                 .compression = Compression::parse(compression)};
    reducer = GradientReducer(group, model.all(), options);  // while there is one, it is refused
  }
  Task<double> backward(Tensor x, Tensor y, bool some) {
    Tensor loss;
    if (x.size(0) > 0) loss = model.loss(x, y, some);
    if (fails && loss.defined()) {
      loss = loss * 1;
      autograd::register_hook(loss, [](const Tensor&) -> Tensor {
        throw_error(ErrorKind::failed, "[member] out of paper");
      }).keep();
    }
    const auto running = reducer->backward(loss, static_cast<double>(x.size(0)));
    co_return co_await running;
  }
  Task<double> later(Tensor x, Tensor y) {
    const Accumulation accumulating = reducer->accumulate();
    const auto running = backward(x, y, false);
    co_return co_await running;
  }
  // Of no loss.
  Task<double> wrong() {
    const auto running = reducer->backward(zeros({2}), 1);
    co_return co_await running;
  }
  void fail(bool on) { fails = on; }
  std::string buckets() {
    std::string all;
    for (const auto& bucket : reducer->buckets()) {
      for (const size_t i : bucket) all += std::to_string(i);
      all += " ";
    }
    return all;
  }
  // What is left out of what it has sent.
  std::map<std::string, Tensor> residuals() {
    const auto found = Stateful::made_by(internal::actors::current_cell().get());
    return found.empty() ? StateDict() : found.at(0)->state();
  }
  void load_residuals(std::map<std::string, Tensor> state) {
    Stateful::made_by(internal::actors::current_cell().get()).at(0)->load_state(state);
  }
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (const Tensor& p : model.all()) all.push_back(autograd::context_gradient(p));
    return all;
  }
  Tensors parameters() override { return model.all(); }
  Model model;
  std::optional<GradientReducer> reducer;
  bool fails = false;
  static constexpr auto remote =
      methods<&Member::join, &Member::backward, &Member::later, &Member::wrong, &Member::fail,
              &Member::buckets, &Member::residuals, &Member::load_residuals, &Member::gradients>;
};

using Cuts = std::vector<int64_t>;

// Ranks with an odd number use the parameter `sometimes`.
inline bool some(size_t rank) { return rank % 2 == 1; }

// What one process would have: by the weights of the rows.
struct OneProcess {
  Model model;
  double add(const Cuts& cuts, const Tensor& x, const Tensor& y, bool with_some = true, double of = 0) {
    Tensor sum;
    const double total = of ? of : double(cuts.back() - cuts.front());
    for (size_t r = 0; r + 1 < cuts.size(); ++r) {
      if (cuts[r] == cuts[r + 1]) continue;
      const Tensor loss = model.loss(x.slice(0, cuts[r], cuts[r + 1]), y.slice(0, cuts[r], cuts[r + 1]),
                                     with_some && some(r)) *
                          (double(cuts[r + 1] - cuts[r]) / total);
      sum = sum.defined() ? sum + loss : loss;
    }
    autograd::backward(sum);
    return sum.item();
  }
};

struct World {
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<Member>> members;
  explicit World(size_t n, int64_t first = 1 << 20, int64_t others = 25 << 20,
                 const std::string& compression = "none")
      : cluster(Cluster::in_process(3, hosting<Member>())) {
    for (size_t r = 0; r < n; ++r) members.push_back(cluster->spawn<Member>(r % 3));
    const Group group(members);
    for (auto& m : members) m.call<&Member::join>(group, first, others, compression).get();
  }
  std::vector<Result<double>> pass(const Cuts& cuts, const Tensor& x, const Tensor& y, bool later = false) {
    std::vector<Future<double>> asked;
    for (size_t r = 0; r < members.size(); ++r) {
      const Tensor mine = x.slice(0, cuts[r], cuts[r + 1]), target = y.slice(0, cuts[r], cuts[r + 1]);
      asked.push_back(later ? members[r].call<&Member::later>(mine, target)
                            : members[r].call<&Member::backward>(mine, target, some(r)));
    }
    std::vector<Result<double>> out;
    for (auto& a : asked) out.push_back(a.wait());
    return out;
  }
  // Those of the first; the others have the same bits.
  std::vector<Tensor> gradients() {
    const auto first = members[0].call<&Member::gradients>().get();
    for (auto& m : members) {
      const auto other = m.call<&Member::gradients>().get();
      for (size_t i = 0; i < first.size(); ++i) {
        REQUIRE(other[i].defined() == first[i].defined());
        if (first[i].defined()) CHECK(bit_equal(other[i], first[i]));
      }
    }
    return first;
  }
  void at_rest() {
    nothing_left(*cluster);
    for (const auto& w : cluster->workers()) CHECK(cluster->metrics(w)["collectives"] == 0);
  }
};

inline void close(const std::vector<Tensor>& got, const Model& want) {
  const Tensors all = want.all();
  for (size_t i = 0; i < all.size(); ++i) {
    INFO("parameter " << i);
    REQUIRE(got[i].defined() == all[i].grad().defined());
    if (!got[i].defined()) continue;
    CHECK(got[i].dtype() == all[i].dtype());
    const auto a = got[i].to(float64).to_vector<double>(), b = all[i].grad().to(float64).to_vector<double>();
    const double tolerance = got[i].dtype() == float64 ? 1e-9 : 1e-6;
    for (size_t k = 0; k < a.size(); ++k) CHECK(a[k] == Approx(b[k]).epsilon(tolerance).margin(1e-12));
  }
}

inline Tensor inputs() { return numbers({8, 3}, 1); }
inline Tensor targets() { return numbers({8, 2}, 2); }

}  // namespace troupe::testing
