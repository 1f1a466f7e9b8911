// Each case is a way to misuse actors, or functions of one's own, that must not compile; check.py compiles
// them one by one and reads what the compiler says. "// CASE: sentence" starts one, and the sentence must
// stand in the first ten lines.
#include <mutex>

#include "troupe/troupe.h"
using namespace troupe;

struct Good : Actor {
  Good(int64_t in, std::string name = "") : in(in), name(std::move(name)) {}
  Tensor forward(Tensor x) { return x; }
  double loss(Tensor x, double scale) { return scale * x.sum().item(); }
  void unlisted() {}
  int64_t in;
  std::string name;
  static constexpr auto remote = methods<&Good::forward, &Good::loss>;
};
struct Opaque {
  explicit Opaque(int n) : n(n) {}

 private:
  int n;
};
struct WithLock {
  int n = 0;
  std::mutex* lock = nullptr;
};

#if CASE == 0
// CASE: none, which compiles
void use(Cluster& c, Tensor x) { c.spawn<Good>("w1", 3)(log(x)); }  // the operator, and no name of a layer

#elif CASE == 1
// CASE: a parameter of this remote method cannot travel in a message
struct Bad : Actor {
  void put(Opaque o) {}
  static constexpr auto remote = methods<&Bad::put>;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 2
// CASE: a field of this struct cannot travel in a message
struct Bad : Actor {
  void put(WithLock o) {}
  static constexpr auto remote = methods<&Bad::put>;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 3
// CASE: a remote method cannot take a T&
struct Bad : Actor {
  void put(Tensor& t) {}
  static constexpr auto remote = methods<&Bad::put>;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 4
// CASE: this method is not listed in the actor's `remote`
void use(Cluster& c) { c.spawn<Good>("w1", 3).call<&Good::unlisted>(); }

#elif CASE == 5
// CASE: the actor has no constructor that takes these arguments
void use(Cluster& c) { c.spawn<Good>("w1", std::vector<int>{3}); }

#elif CASE == 6
// CASE: the actor has no constructor that takes these arguments
void use(Cluster& c) { c.spawn<Good>("w1"); }

#elif CASE == 7
// CASE: the actor has no constructor that takes these arguments
void use(Cluster& c) { c.spawn<Good>("w1", 3, "name", 5); }

#elif CASE == 8
// CASE: an argument of the call does not convert to the method's parameter
void use(Cluster& c) { c.spawn<Good>("w1", 3).call<&Good::loss>(Tensor(), "much"); }

#elif CASE == 9
// CASE: the call has fewer arguments than the method has parameters
void use(Cluster& c) { c.spawn<Good>("w1", 3).call<&Good::loss>(Tensor()); }

#elif CASE == 10
// CASE: the call has more arguments than the method has parameters
void use(Cluster& c) { c.spawn<Good>("w1", 3).call<&Good::loss>(Tensor(), 1.0, 2); }

#elif CASE == 11
// CASE: this type is no actor: derive it from troupe::Actor
struct Bad {
  Tensor forward(Tensor x) { return x; }
  static constexpr auto remote = methods<&Bad::forward>;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 12
// CASE: this actor does not list its remote methods
struct Bad : Actor {
  Tensor forward(Tensor x) { return x; }
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 13
// CASE: a remote method gives the value of a future, not the future
struct Bad : Actor {
  Future<Tensor> forward(Tensor x) { return Future<Tensor>::ready(x); }
  static constexpr auto remote = methods<&Bad::forward>;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 14
// CASE: a coroutine method takes its arguments by value
struct Bad : Actor {
  Task<Tensor> forward(const Tensor& x) { co_return x; }
  static constexpr auto remote = methods<&Bad::forward>;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 15
// CASE: a coroutine waits with co_await, so it is no blocking<> method
struct Bad : Actor {
  Task<Tensor> forward(Tensor x) { co_return x; }
  static constexpr auto remote = methods<blocking<&Bad::forward> >;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 16
// CASE: this actor has no single method `forward`, which a(x) calls
struct Bad : Actor {
  Tensor apply(Tensor x) { return x; }
  static constexpr auto remote = methods<&Bad::apply>;
};
void use(Cluster& c) { c.spawn<Bad>("w1")(Tensor()); }

#elif CASE == 17
// CASE: the result of this remote method cannot travel in a message
struct Bad : Actor {
  Opaque get() { return Opaque(1); }
  static constexpr auto remote = methods<&Bad::get>;
};
void use(Cluster& c) { c.spawn<Bad>("w1"); }

#elif CASE == 18
// CASE: an argument of this constructor cannot travel in a message
struct Bad : Actor {
  explicit Bad(std::mutex* m) {}
  static constexpr auto remote = methods<>;
};
void use(Cluster& c, std::mutex& m) { c.spawn<Bad>("w1", &m); }

#elif CASE == 19
// CASE: apply() takes what forward() takes after its Ctx
struct Bad : autograd::Function<Bad> {
  static Tensor forward(Ctx& ctx, Tensor x, double by) { return x * by; }
  static Tensors backward(Ctx& ctx, Tensors grads) { return grads; }
};
void use(Tensor x) { Bad::apply(x); }

#elif CASE == 20
// CASE: an argument of apply() is not what forward() takes
struct Bad : autograd::Function<Bad> {
  static Tensor forward(Ctx& ctx, Tensor x) { return x; }
  static Tensors backward(Ctx& ctx, Tensors grads) { return grads; }
};
void use(Cluster& c) { Bad::apply(c.spawn<Good>("w1", 3)(Tensor())); }

#elif CASE == 21
// CASE: forward() is `static Tensor forward(Ctx&, ...)`
struct Bad : autograd::Function<Bad> {
  Tensor forward(Ctx& ctx, Tensor x) { return x; }
  static Tensors backward(Ctx& ctx, Tensors grads) { return grads; }
};
void use(Tensor x) { Bad::apply(x); }

#elif CASE == 22
// CASE: the first parameter of forward() is a Ctx&
struct Bad : autograd::Function<Bad> {
  static Tensor forward(Tensor& x, Tensor y) { return x * y; }
  static Tensors backward(Ctx& ctx, Tensors grads) { return grads; }
};
void use(Tensor x) { Bad::apply(x); }

#elif CASE == 23
// CASE: backward() is `static Tensors backward(Ctx&, Tensors grads)`
struct Bad : autograd::Function<Bad> {
  static Tensor forward(Ctx& ctx, Tensor x) { return x; }
  static void backward(Ctx& ctx, Tensors grads) {}
};
void use(Tensor x) { Bad::apply(x); }
#endif
