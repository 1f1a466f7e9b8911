// Placement changes nothing: arguments and results are as if they had been copied, wherever the actor lives.
#include <catch2/catch.hpp>

#include "core/graph/exposed.h"
#include "tests/support/two_workers.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

constexpr int64_t kElements = 2000;  // more than is copied at once

Tensor all(float value) { return full({kElements}, value); }
std::vector<float> values(float value) { return std::vector<float>(kElements, value); }

struct Keeper : Actor {
  Keeper() = default;
  explicit Keeper(Tensor t) : kept(std::move(t)) {}
  void keep(Tensor t) { kept = std::move(t); }
  void keep_all(Tensors ts) { many = std::move(ts); }
  void write(double value) { kept.fill_(value); }
  Tensor get() { return kept; }
  Tensors get_all() { return many; }
  Tensor same(Tensor t) { return t; }
  Tensor changed(Tensor t) {
    t.fill_(-1);
    return t;
  }
  Tensor product(Tensor t) { return ops::mul(kept, t); }
  /// The product, of which the second factor is written to afterwards.
  Tensor product_then_write(Tensor t) {
    const Tensor y = ops::mul(kept, t);
    NoGradGuard guard;
    const Tensor mine = t.detach();
    mine.fill_(100);
    return y;
  }
  int64_t address(Tensor t) { return reinterpret_cast<int64_t>(t.bytes()); }
  int64_t kept_address() { return reinterpret_cast<int64_t>(kept.bytes()); }
  Tensor fresh() {
    Tensor t = all(1);
    last = reinterpret_cast<int64_t>(t.bytes());
    return t;
  }
  int64_t last_address() { return last; }
  Tensor kept;
  Tensors many;
  int64_t last = 0;
  static constexpr auto remote =
      methods<&Keeper::keep, &Keeper::keep_all, &Keeper::write, &Keeper::get, &Keeper::get_all, &Keeper::same,
              &Keeper::changed, &Keeper::product, &Keeper::product_then_write, &Keeper::address,
              &Keeper::kept_address, &Keeper::fresh, &Keeper::last_address>;
};

// The caller is on w0.
struct Scene {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(2, hosting<Keeper>());
  RRef<Keeper> here = cluster->spawn<Keeper>("w0", all(0));
  RRef<Keeper> there = cluster->spawn<Keeper>("w1", all(0));
  std::vector<RRef<Keeper>> both() const { return {here, there}; }
};

}  // namespace

TEST_CASE("what the caller writes to an argument after the call is not seen by the actor") {
  const Scene s;
  for (const auto& keeper : s.both()) {
    const Tensor x = all(1);
    const auto kept = keeper.call<&Keeper::keep>(x);
    x.fill_(7);
    kept.get();
    CHECK(keeper.call<&Keeper::get>().get().to_vector<float>() == values(1));
    CHECK(x.to_vector<float>() == values(7));

    const Tensor view = x.slice(0, 10, 1010);
    const auto many = keeper.call<&Keeper::keep_all>(Tensors{x, view, view});
    view.fill_(8);
    many.get();
    for (const Tensor& t : keeper.call<&Keeper::get_all>().get())
      CHECK(t.to_vector<float>() == std::vector<float>(static_cast<size_t>(t.numel()), 7));
  }
}

TEST_CASE("what is written through a pointer that the program keeps is not seen by the actor") {
  const Scene s;
  for (const auto& keeper : s.both()) {
    const Tensor x = all(1);
    float* mine = expose_data<float>(x, "my array");
    for (int round = 0; round < 3; ++round) {
      const auto kept = keeper.call<&Keeper::keep>(x);
      std::fill(mine, mine + kElements, 7.F + static_cast<float>(round));
      kept.get();
      CHECK(keeper.call<&Keeper::get>().get().to_vector<float>() ==
            values(round ? 6.F + static_cast<float>(round) : 1));
      CHECK(x.data<float>() == mine);
    }
    const Tensor y = all(2);
    mine = expose_data<float>(y, "my array");
    const Tensor result = keeper.call<&Keeper::same>(y).get();
    mine[0] = -1;
    CHECK(result.to_vector<float>() == values(2));
  }
}

TEST_CASE("what the actor writes to an argument is not seen by the caller, nor in another argument") {
  const Scene s;
  for (const auto& keeper : s.both()) {
    const Tensor x = all(1);
    keeper.call<&Keeper::keep_all>(Tensors{x, x}).get();
    CHECK(keeper.call<&Keeper::changed>(x).get().to_vector<float>() == values(-1));
    CHECK(x.to_vector<float>() == values(1));
    keeper.call<&Keeper::keep>(x).get();
    keeper.call<&Keeper::write>(5).get();
    CHECK(x.to_vector<float>() == values(1));
    for (const Tensor& t : keeper.call<&Keeper::get_all>().get()) CHECK(t.to_vector<float>() == values(1));
  }
}

TEST_CASE("a result stays as it was, whatever the actor and the caller write") {
  const Scene s;
  for (const auto& keeper : s.both()) {
    keeper.call<&Keeper::keep>(all(1)).get();
    const Tensor first = keeper.call<&Keeper::get>().get();
    keeper.call<&Keeper::write>(2).get();
    CHECK(first.to_vector<float>() == values(1));
    const Tensor second = keeper.call<&Keeper::get>().get();
    second.fill_(3);
    CHECK(keeper.call<&Keeper::get>().get().to_vector<float>() == values(2));
    CHECK(keeper.call<&Keeper::same>(second).get().to_vector<float>() == values(3));
    const auto value = keeper.remote<&Keeper::get>();
    const Tensor fetched = value.to_here().get();
    fetched.fill_(4);
    CHECK(value.to_here().get().to_vector<float>() == values(2));
  }
}

TEST_CASE("a constructor's argument is the actor's own") {
  const Scene s;
  for (const char* worker : {"w0", "w1"}) {
    const Tensor x = all(1);
    const auto keeper = s.cluster->spawn<Keeper>(worker, x);
    x.fill_(7);
    CHECK(keeper.call<&Keeper::get>().get().to_vector<float>() == values(1));
    keeper.call<&Keeper::write>(2).get();
    CHECK(x.to_vector<float>() == values(7));
  }
}

TEST_CASE("an argument of a call that waits for a future is what it was when it was given") {
  const Scene s;
  for (const auto& keeper : s.both()) {
    const Tensor x = all(1);
    const Promise<Tensor> later;
    const Tensors many{x};
    auto product = keeper.call<&Keeper::product>(later.future());
    const auto kept = keeper.call<&Keeper::keep>(x);
    kept.get();
    x.fill_(7);
    later.set(all(2));
    CHECK(product.get().to_vector<float>() == values(2));
  }
}

TEST_CASE("gradients run through calls as before, and through tensors that are written to after a call") {
  const Scene s;
  for (const auto& keeper : s.both()) {
    const Tensor w = all(3).requires_grad_();
    keeper.call<&Keeper::keep>(all(2)).get();
    autograd::Context context(*s.cluster);
    const Tensor x = ops::mul(w, 1.0);
    const Tensor y = keeper.call<&Keeper::product>(x).get();
    const Tensor z = keeper.call<&Keeper::product_then_write>(x).get();
    CHECK(y.to_vector<float>() == values(6));
    CHECK(z.to_vector<float>() == values(6));
    CHECK(x.to_vector<float>() == values(3));
    keeper.call<&Keeper::keep>(all(9)).get();
    context.backward(ops::sum(y));
    CHECK(context.grad(w).to_vector<float>() == values(2));
  }
}

TEST_CASE("what is given away and what nobody else has is not copied on the caller's worker") {
  const Scene s;
  Tensor x = all(1);
  const auto address = reinterpret_cast<int64_t>(x.bytes());
  s.here.call<&Keeper::keep>(std::move(x)).get();
  CHECK(s.here.call<&Keeper::kept_address>().get() == address);
  s.here.call<&Keeper::write>(2).get();  // nobody else has it: no copy for the write, either
  CHECK(s.here.call<&Keeper::kept_address>().get() == address);
  const Tensor made = s.here.call<&Keeper::fresh>().get();
  CHECK(reinterpret_cast<int64_t>(made.bytes()) == s.here.call<&Keeper::last_address>().get());
  const Tensor y = all(1);  // lazily: the same bytes as long as nobody writes
  CHECK(s.here.call<&Keeper::address>(y).get() == reinterpret_cast<int64_t>(y.bytes()));
  CHECK(y.is_exclusive());
}

TEST_CASE("large arguments and results may be written to while they are on their way to another process") {
  testing::TwoWorkers workers(hosting<Keeper>());
  const auto keeper = workers.spawn<Keeper>(zeros({1}));
  constexpr int64_t kLarge = 8 << 20;
  const Tensor x = zeros({kLarge});
  for (int round = 0; round < 5; ++round) {
    x.fill_(round);
    const auto kept = keeper.call<&Keeper::keep>(x);
    x.fill_(-1);
    const auto result = keeper.call<&Keeper::get>();
    const auto written = keeper.call<&Keeper::write>(100);
    kept.get(), written.get();
    const Tensor got = result.get();
    CHECK(got.amin().item() == round);
    CHECK(got.amax().item() == round);
  }
}
