// The actors of simulated programs. The first argument of their methods is the number of the call in the
// book.
#pragma once
#include "tests/soak/cluster.h"
#include "troupe/troupe.h"

namespace troupe::soak {

/// Calls method M and writes the call into the book. Negative timeout: the reference's.
template <auto M, class T, class... A>
auto tracked(RRef<T> ref, Duration timeout, A&&... args) {
  Cluster& cluster = *Cluster::current();
  const Duration most = timeout < Duration(0) ? std::chrono::seconds(60) : timeout;
  const int64_t token = cluster.issued(actors::method_name<T, M>(), cluster.now() + most);
  if (timeout >= Duration(0)) ref = ref.with_timeout(timeout);
  auto future = ref.template call<M>(token, std::forward<A>(args)...);
  future.on_ready([token](const auto& r) {
    if (auto* c = Cluster::current()) c->answered(token, r.ok());
  });
  return future;
}
template <auto M, class T, class... A>
auto tracked(const RRef<T>& ref, A&&... args) {
  return tracked<M>(ref, Duration(-1), std::forward<A>(args)...);
}

inline void ran(int64_t token) { Cluster::current()->ran(token); }

/// Multiplies tensors by its number, keeps references, and calls other units.
struct Unit : Actor {
  using Ref = RRef<Unit>;
  explicit Unit(int64_t number) : number(number) {
    if (number < 0) throw std::runtime_error("a unit with a number below zero");
  }
  Tensor mix(int64_t token, Tensor x) { return ran(token), ops::mul(x, double(number)); }
  Task<Tensor> relay(int64_t token, Ref to, Tensor x) {
    ran(token);
    Tensor y = co_await tracked<&Unit::mix>(to, x);
    co_return ops::mul(y, double(number));
  }
  Task<Tensor> slow(int64_t token, int64_t microseconds, Tensor x) {
    ran(token);
    co_await Cluster::current()->sleep(std::chrono::microseconds(microseconds));
    co_return ops::mul(x, double(number));
  }
  void throws(int64_t token) {
    ran(token);
    throw std::runtime_error("as asked");
  }
  void note(int64_t token) { ran(token); }

  void keep(int64_t token, Ref unit) { ran(token), kept.push_back(std::move(unit)); }
  void keep_many(int64_t token, std::map<std::string, std::vector<Ref>> units) {
    ran(token);
    for (auto& [name, list] : units) kept.insert(kept.end(), list.begin(), list.end());
  }
  std::vector<Ref> give(int64_t token) { return ran(token), kept; }
  /// Keeps on to them, too.
  Task<void> hand(int64_t token, Ref to) {
    ran(token);
    co_await tracked<&Unit::keep_many>(to, all_kept());
  }
  /// Through the last one kept: its number, and x times both numbers.
  Task<std::pair<int64_t, Tensor>> use_kept(int64_t token, Tensor x) {
    ran(token);
    if (kept.empty()) co_return {1, ops::mul(x, double(number))};
    Ref last = kept.back();
    Tensor y = co_await tracked<&Unit::mix>(last, x);
    co_return {Cluster::current()->numbers.at(last.id()), ops::mul(y, double(number))};
  }
  /// A new unit on worker `on`.
  Ref make(int64_t token, int64_t on) {
    ran(token);
    Ref unit = Cluster::current()->here().spawn<Unit>(static_cast<WorkerId>(on), number + 1);
    Cluster::current()->numbers[unit.id()] = number + 1;
    return unit;
  }
  void forget(int64_t token) { ran(token), kept.clear(); }

  std::map<std::string, std::vector<Ref>> all_kept() const { return {{"a", kept}, {"none", {}}}; }

  int64_t number;
  std::vector<Ref> kept;
  static constexpr auto remote = methods<Unit, int64_t>(
      "mix", &Unit::mix, "relay", &Unit::relay, "slow", &Unit::slow, "throws", &Unit::throws, "note",
      &Unit::note, "keep", &Unit::keep, "keep_many", &Unit::keep_many, "give", &Unit::give, "hand",
      &Unit::hand, "use_kept", &Unit::use_kept, "make", &Unit::make, "forget", &Unit::forget);
};

/// Two parameters, by which it multiplies.
struct Shard : Actor {
  Shard(double a, double b) : w(Tensor::of<float>({float(a), float(b)})) { w.set_requires_grad(); }
  Tensor forward(int64_t token, Tensor x) { return ran(token), ops::mul(x, w); }
  /// h + next(h), h = x w.
  Task<Tensor> via(int64_t token, RRef<Shard> next, Tensor x) {
    ran(token);
    Tensor h = ops::mul(x, w);
    Tensor y = co_await tracked<&Shard::forward>(next, h);
    co_return ops::add(h, y);
  }
  /// Through this one and the others, each of which calls the next.
  Task<Tensor> chain(int64_t token, std::vector<RRef<Shard>> others, Tensor x) {
    ran(token);
    Tensor h = ops::mul(x, w);
    if (others.empty()) co_return h;
    const RRef<Shard> next = others.front();
    others.erase(others.begin());
    co_return co_await tracked<&Shard::chain>(next, others, h);
  }
  /// After it has recorded something.
  Task<Tensor> throws(int64_t token, RRef<Shard> next, Tensor x) {
    ran(token);
    (void)co_await tracked<&Shard::forward>(next, ops::mul(x, w));
    throw std::runtime_error("as asked");
  }
  Tensor gradient(int64_t token) { return ran(token), autograd::context_gradient(w); }
  Tensor weights(int64_t token) { return ran(token), w.detach(); }
  Tensors parameters() override { return {w}; }

  Tensor w;
  static constexpr auto remote = methods<Shard, double, double>(
      "forward", &Shard::forward, "via", &Shard::via, "chain", &Shard::chain, "throws", &Shard::throws,
      "gradient", &Shard::gradient, "weights", &Shard::weights);
};

inline actors::Hosting hosted() {
  static const actors::Hosting types = hosting<Unit, Shard>();
  return types;
}

}  // namespace troupe::soak
