// Each case is a way to misuse actors, functions of one's own, or temporaries that must not compile; check.py
// compiles them one by one and reads what the compiler says. "// CASE: sentence" starts one, and the sentence
// must stand in the first ten lines.
#include "troupe/troupe.h"  // first, as in a user's program: what compilers say begins with who included what

#include <mutex>

#include "data/datasets/prefetch.h"
#include "data/formats/safetensors.h"
#include "parallel/sharded/sharded.h"
#include "parallel/tensor/convert.h"
#include "troupe/profile.h"
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

// What an accessor of an object that is made on the spot gives: a value, which a loop may run over.
template <class Given, class Expected>
constexpr bool gives = std::is_same_v<Given, Expected>;
template <class T>
T made();
static_assert(gives<decltype(made<Tensor>().shape()), Shape> &&
              gives<decltype(made<const Tensor>().sizes()), Shape>);
static_assert(gives<decltype(made<Tensor>().strides()), Shape>);
static_assert(gives<decltype(made<Tensor>().storage()), Ref<Storage>>);
static_assert(gives<decltype(made<Tensor>().requires_grad_()), Tensor>);
static_assert(gives<decltype(made<datasets::Epoch>().order()), datasets::Order>);
static_assert(gives<decltype(made<datasets::Loader>().options()), datasets::LoaderOptions>);
static_assert(
    gives<decltype(made<datasets::Safetensors>().entries()), std::vector<datasets::SafetensorsEntry>>);
static_assert(gives<decltype(made<datasets::Safetensors>().metadata()), std::map<std::string, std::string>>);
static_assert(gives<decltype(made<Future<Tensor>>().wait()), Result<Tensor>>);
static_assert(gives<decltype(made<Result<Tensor>>().value()), Tensor>);
static_assert(gives<decltype(made<Result<Tensor>>().error()), Error>);
static_assert(gives<decltype(made<Error>().message()), std::string>);
static_assert(gives<decltype(made<Error>().trail()), std::vector<std::string>>);
static_assert(gives<decltype(made<optim::SGD>().params()), Tensors>);
static_assert(gives<decltype(made<Trace>().events()), std::vector<internal::actors::TraceEvent>>);
static_assert(gives<decltype(made<RRef<Good>>().type()), std::string>);

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
  static constexpr auto remote = methods<blocking<&Bad::forward>>;
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

#elif CASE == 24
// CASE: name the tensor: the elements go with the last handle on them
const float* use(Tensor x) { return (x + x).data<float>(); }

#elif CASE == 25
// CASE: name the epoch: its iterators end with it
auto use(datasets::Loader& loader) { return loader.epoch(0).begin(); }

#elif CASE == 26
// CASE: name it: its iterators end with it
auto use(datasets::Loader& loader) { return datasets::prefetch(loader.epoch(0)).begin(); }

#elif CASE == 27
// CASE: name the future: its result goes with the last handle on it
const Result<Tensor>* use(RRef<Good> a) { return a(Tensor()).peek(); }

#elif CASE == 28
// CASE: name the value, or take it: std::get<T>(std::move(value.v))
const Tensor* use() { return Value(Tensor()).get_if<Tensor>(); }

#elif CASE == 29
// CASE: name the module: its layers go with its last copy
nn::Layer& use() { return nn::Sequential(nn::Linear(2, 2))[0]; }

#elif CASE == 30
// CASE: this is a rank's summand, and no tensor yet: co_await it, or tp::sum() it
Tensor use(Tensor x, tp::Part part) { return x + part; }

#elif CASE == 31
// CASE: nothing waits within a part: make parts of the members of this module
struct Waits : nn::Module {
  Task<Tensor> operator()(Tensor x) { co_return x; }
};
Task<Tensor> use(parallel::Sharded<Waits>& part, Tensor x) { return part(x); }
#endif
