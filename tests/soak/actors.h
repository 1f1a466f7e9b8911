// The actors of simulated programs. The first argument of their methods is the number of the call in the
// book.
#pragma once
#include "tests/soak/cluster.h"
#include "troupe/troupe.h"

namespace troupe::soak {

/// Calls method M and writes the call into the book. Negative timeout: the reference's; zero: none. As any
/// call it is cancelled when its future goes.
template <auto M, class T, class... A>
auto tracked(RRef<T> ref, Duration timeout, A&&... args) {
  Cluster& cluster = *Cluster::current();
  const Duration most = timeout < Duration(0) ? std::chrono::seconds(60) : timeout;
  const int64_t token = cluster.issued(internal::actors::method_name<M>(),
                                       timeout == Duration(0) ? TimePoint::max() : cluster.now() + most);
  if (timeout >= Duration(0)) ref = ref.with_timeout(timeout);
  auto future = ref.template call<M>(token, std::forward<A>(args)...);
  future.watch([token](const auto& r) {
    if (auto* c = Cluster::current()) c->answered(token, r.ok());
  });
  return future;
}
template <auto M, class T, class... A>
auto tracked(const RRef<T>& ref, A&&... args) {
  return tracked<M>(ref, Duration(-1), std::forward<A>(args)...);
}

/// Leaves the result of method M where it is, and writes the call into the book: nobody will be answered.
template <auto M, class T, class... A>
auto left_there(const RRef<T>& ref, A&&... args) {
  Cluster& cluster = *Cluster::current();
  const int64_t token = cluster.issued(internal::actors::method_name<M>(), TimePoint::max());
  cluster.answered(token, false);
  return ref.template remote<M>(token, std::forward<A>(args)...);
}

inline void ran(int64_t token) { Cluster::current()->ran(token); }

inline const Tensor kOne = tensor({1, 2}, float32);

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
  /// Ends when nobody wants it any more.
  Task<void> forever(int64_t token) {
    ran(token);
    co_await never.future();
  }
  /// Waits for another who does.
  Task<void> forever_at(int64_t token, Ref other) {
    ran(token);
    co_await tracked<&Unit::forever>(other, Duration(0));
  }

  /// What others have computed and left where it was, and how many times kOne it should be.
  Task<std::pair<double, Tensor>> fetch(int64_t token, Remote<Tensor> value, double times) {
    ran(token);
    Tensor x = co_await value.to_here();
    co_return {times * double(number), ops::mul(x, double(number))};
  }
  void keep_value(int64_t token, Remote<Tensor> value, double times) {
    ran(token), values.emplace_back(std::move(value), times);
  }
  Task<std::pair<double, Tensor>> fetch_kept(int64_t token) {
    ran(token);
    if (values.empty()) co_return {double(number), ops::mul(kOne, double(number))};
    const auto [value, times] = values.back();
    Tensor x = co_await value.to_here();
    co_return {times * double(number), ops::mul(x, double(number))};
  }
  Task<void> hand_value(int64_t token, Ref to) {
    ran(token);
    if (values.empty()) co_return;
    const auto [value, times] = values.back();
    co_await tracked<&Unit::keep_value>(to, value, times);
  }
  /// Calls whoever has that name, or will have it.
  Task<Tensor> find(int64_t token, std::string name, bool wait, Tensor x) {
    ran(token);
    Ref found = co_await here().lookup<Unit>(name, {.wait = wait, .timeout = std::chrono::seconds(30)});
    Tensor y = co_await tracked<&Unit::mix>(found, x);
    co_return ops::mul(y, double(number));
  }

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
  std::vector<std::pair<Remote<Tensor>, double>> values;
  Promise<void> never;
  static constexpr auto remote =
      methods<&Unit::mix, &Unit::relay, &Unit::slow, &Unit::throws, &Unit::note, &Unit::keep,
              &Unit::keep_many, &Unit::give, &Unit::hand, &Unit::use_kept, &Unit::make, &Unit::forget,
              &Unit::forever, &Unit::forever_at, &Unit::fetch, &Unit::keep_value, &Unit::fetch_kept,
              &Unit::hand_value, &Unit::find>;
};

/// Two parameters, by which it multiplies.
struct Shard : Actor {
  Shard(double a, double b) : w(tensor({float(a), float(b)})) { w.requires_grad_(); }
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
  /// x w and x + w.
  Tensors two(int64_t token, Tensor x) { return ran(token), Tensors{ops::mul(x, w), ops::add(x, w)}; }
  /// Records a call of the other, whose result it does not use.
  Task<Tensor> in_vain(int64_t token, RRef<Shard> next, Tensor x) {
    ran(token);
    (void)co_await tracked<&Shard::two>(next, ops::mul(x, w));
    co_return ops::mul(x, w);
  }
  /// A pass in the caller's context, from a root that may be anywhere.
  Task<void> backward_of(int64_t token, Remote<Tensor> root) {
    ran(token);
    Tensor y = co_await root.to_here();
    co_await autograd::context_backward(y.sum());
  }
  Tensor gradient(int64_t token) { return ran(token), autograd::context_gradient(w); }
  Tensor weights(int64_t token) { return ran(token), w.detach(); }
  Tensors parameters() override { return {w}; }

  Tensor w;
  static constexpr auto remote =
      methods<&Shard::forward, &Shard::via, &Shard::chain, &Shard::throws, &Shard::two, &Shard::in_vain,
              &Shard::backward_of, &Shard::gradient, &Shard::weights>;
};

inline internal::actors::TypeRegistry hosted() {
  static const internal::actors::TypeRegistry types = hosting<Unit, Shard>();
  return types;
}

}  // namespace troupe::soak
