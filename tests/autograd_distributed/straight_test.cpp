// Gradients of results that go straight from the worker that makes them to the one that uses them: those of
// the way through the caller.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

internal::net::Network* network = nullptr;

// Time in which the caller says where the result goes.
Future<void> later() {
  const Promise<void> promise;
  network->schedule(10ms, [promise] { promise.set(); });
  return promise.future();
}

struct Layer : Actor {
  explicit Layer(double s) : w((arange(6) * 0.1 + s).detach()) { w.requires_grad_(); }
  Task<Tensor> forward(Tensor x) {
    co_await later();
    co_return sin(x * w);
  }
  Tensor at_once(Tensor x) { return sin(x * w); }
  Tensor two(Tensor x, Tensor y) { return x * y + w; }
  Tensor first(Tensor x, Tensor) { return x * w; }  // the other stays unused
  Task<Tensor> plain(Tensor x) {
    co_await later();
    co_return x.detach() * 2.0;
  }
  Task<Tensor> weight() {
    co_await later();
    co_return w;
  }
  Task<Tensor> cached(Tensor x) {  // calls share a part
    co_await later();
    if (!h.defined()) h = w * w;
    co_return h* x;
  }
  Task<Tensors> pair(Tensor x) {
    co_await later();
    co_return {x * w, x + w};
  }
  Tensor joined(Tensors t) { return t[0] * t[1] * w; }
  Task<Tensor> inner(Tensor x, RRef<Layer> a, RRef<Layer> b, bool straight) {  // this one is the caller
    if (straight) co_return co_await b(a(x));
    const auto f = a(x), g = b(f);
    co_return co_await g;
  }
  void clear() { h = {}; }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor take() { return autograd::take_context_gradient(w); }
  Tensor w, h;
  static constexpr auto remote =
      methods<&Layer::forward, &Layer::at_once, &Layer::two, &Layer::first, &Layer::plain, &Layer::weight,
              &Layer::cached, &Layer::pair, &Layer::joined, &Layer::inner, &Layer::clear, &Layer::gradient,
              &Layer::take>;
};

bool same(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.detach().to_vector<float>() == b.detach().to_vector<float>();
}

enum class Pass { backward, grad, recorded, none };

// Layers on w1 to w4, and a driver on w0.
struct Scene {
  Scene() : cluster(7, 5, hosting<Layer>()) {
    network = &cluster.network();
    cluster.network().set_faults({.delay = 1ms, .jitter = 1ms});
    for (size_t w = 1; w < 5; ++w) s.push_back(cluster.here(0).spawn<Layer>(w, 0.3 * double(w)));
    also = cluster.here(0).spawn<Layer>(1, 0.7);
    for (auto& a : s) (void)cluster.await(a.ready());
  }
  template <class T>
  T get(const Future<T>& f) {
    const Result<T> r = cluster.await(f);
    if (!r.ok()) throw r.error();
    if constexpr (!std::is_void_v<T>) return r.value();
  }
  int64_t count(const char* what) {
    int64_t n = 0;
    for (size_t w = 0; w < 5; ++w) n += cluster.worker(w).metrics()[what];
    return n;
  }
  Tensors gradients(bool take) {
    Tensors out;
    for (auto& a : s) out.push_back(get(take ? a.call<&Layer::take>() : a.call<&Layer::gradient>()));
    return out;
  }
  /// All numbers that the case gives.
  Tensors play(Tensor (*f)(Scene&, Tensor), Pass pass) {
    Tensors out;
    {
      autograd::Context step(cluster.worker(0));
      Tensor x = (arange(6) * 0.2).detach();
      x.requires_grad_();
      const Tensor loss = f(*this, x).sum();
      out.push_back(loss);
      if (pass == Pass::backward) {
        get(step.backward_async({loss}));
        out.push_back(step.grad(x));
        for (const Tensor& g : gradients(false)) out.push_back(g);
      } else if (pass == Pass::grad) {
        out.push_back(get(step.grad_async({loss}, {x}))[0]);
      } else if (pass == Pass::recorded) {
        get(step.backward_async({loss}, {}, {.create_graph = true}));
        Tensors first{autograd::take_context_gradient(x)};
        for (const Tensor& g : gradients(true)) first.push_back(g);
        Tensor second;
        for (const Tensor& g : first)
          if (g.defined() && g.requires_grad())
            second = second.defined() ? second + (g * g).sum() : (g * g).sum();
        for (const Tensor& g : first) out.push_back(g);
        if (second.defined()) {
          get(step.backward_async({second}));
          out.push_back(step.grad(x));
          for (const Tensor& g : gradients(false)) out.push_back(g);
        }
      }
      get(step.end());
    }
    for (auto& a : s) get(a.call<&Layer::clear>());
    return out;
  }
  void nothing_left() {
    cluster.settle();
    for (const char* what : {"contexts", "send_nodes", "receive_nodes", "backward_passes", "late_calls",
                             "early_arguments", "pending_calls"}) {
      INFO(what);
      CHECK(count(what) == 0);
    }
  }
  SimulatedCluster cluster;
  std::vector<RRef<Layer>> s;
  RRef<Layer> also;  // on w1
};

struct Case {
  const char* name;
  Tensor (*straight)(Scene& s, Tensor x);
  Tensor (*stored)(Scene& s, Tensor x);
};

const Case kCases[] = {
    {"a chain", [](Scene& c, Tensor x) { return c.get(c.s[3](c.s[2](c.s[1](c.s[0](x))))); },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0](x), g = c.s[1](f), h = c.s[2](g);
       return c.get(c.s[3](h));
     }},
    {"two results into one call, from one tensor",
     [](Scene& c, Tensor x) { return c.get(c.s[3].call<&Layer::two>(c.s[0](x * 2.0), c.s[1](x))); },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0](x * 2.0), g = c.s[1](x);
       return c.get(c.s[3].call<&Layer::two>(f, g));
     }},
    {"two results that share a part, for two users",
     [](Scene& c, Tensor x) {
       auto p = c.s[1](c.s[0].call<&Layer::cached>(x)), q = c.s[2](c.s[0].call<&Layer::cached>(x));
       return c.get(p) + c.get(q);
     },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0].call<&Layer::cached>(x), g = c.s[0].call<&Layer::cached>(x);
       auto p = c.s[1](f), q = c.s[2](g);
       return c.get(p) + c.get(q);
     }},
    {"an unused result",
     [](Scene& c, Tensor x) { return c.get(c.s[3].call<&Layer::first>(c.s[0](x), c.s[1](x))); },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0](x), g = c.s[1](x);
       return c.get(c.s[3].call<&Layer::first>(f, g));
     }},
    {"a result without gradients",
     [](Scene& c, Tensor x) {
       return c.get(c.s[3].call<&Layer::two>(c.s[0].call<&Layer::plain>(x), c.s[1](x)));
     },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0].call<&Layer::plain>(x), g = c.s[1](x);
       return c.get(c.s[3].call<&Layer::two>(f, g));
     }},
    {"a parameter as result",
     [](Scene& c, Tensor x) {
       return c.get(c.s[3].call<&Layer::two>(c.s[0].call<&Layer::weight>(), c.s[1](x)));
     },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0].call<&Layer::weight>(), g = c.s[1](x);
       return c.get(c.s[3].call<&Layer::two>(f, g));
     }},
    {"a parameter that is not recorded",
     [](Scene& c, Tensor x) {
       const auto weight = [&] {
         NoGradGuard off;
         return c.s[0].call<&Layer::weight>();
       };
       return c.get(c.s[3].call<&Layer::two>(weight(), c.s[1](x)));
     },
     [](Scene& c, Tensor x) {
       const auto f = [&] {
         NoGradGuard off;
         return c.s[0].call<&Layer::weight>();
       }();
       const auto g = c.s[1](x);
       return c.get(c.s[3].call<&Layer::two>(f, g));
     }},
    {"a list of tensors",
     [](Scene& c, Tensor x) { return c.get(c.s[2].call<&Layer::joined>(c.s[0].call<&Layer::pair>(x))); },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0].call<&Layer::pair>(x);
       return c.get(c.s[2].call<&Layer::joined>(f));
     }},
    {"two actors of one worker", [](Scene& c, Tensor x) { return c.get(c.s[1](c.also(c.s[0](x)))); },
     [](Scene& c, Tensor x) {
       const auto f = c.s[0](x), g = c.also(f);
       return c.get(c.s[1](g));
     }},
    {"one that goes straight, and one that is kept",
     [](Scene& c, Tensor x) {
       const auto kept = c.s[1](x);
       return c.get(c.s[3].call<&Layer::two>(c.s[0](x * 2.0), kept));
     },
     [](Scene& c, Tensor x) {
       const auto kept = c.s[1](x), f = c.s[0](x * 2.0);
       return c.get(c.s[3].call<&Layer::two>(f, kept));
     }},
    {"a caller that is an actor",
     [](Scene& c, Tensor x) { return c.get(c.s[2](c.s[3].call<&Layer::inner>(x, c.s[0], c.s[1], true))); },
     [](Scene& c, Tensor x) {
       const auto f = c.s[3].call<&Layer::inner>(x, c.s[0], c.s[1], false);
       return c.get(c.s[2](f));
     }},
    {"a reference to a result, with two users",
     [](Scene& c, Tensor x) {
       const auto h = c.s[0].remote<&Layer::forward>(x);
       auto p = c.s[1](h), q = c.s[2](h);
       return c.get(p) + c.get(q);
     },
     [](Scene& c, Tensor x) {
       const auto h = c.s[0].remote<&Layer::forward>(x);
       const auto f = h.to_here(), g = h.to_here();
       auto p = c.s[1](f), q = c.s[2](g);
       return c.get(p) + c.get(q);
     }},
};

}  // namespace

TEST_CASE("gradients of results that go straight have the bits of those that go through the caller") {
  Scene scene;
  for (const Case& c : kCases)
    for (const Pass pass : {Pass::backward, Pass::grad, Pass::recorded, Pass::none}) {
      INFO(c.name << ", pass " << static_cast<int>(pass));
      const int64_t before = scene.count("arguments_sent");
      const Tensors want = scene.play(c.stored, pass);
      CHECK(scene.count("arguments_sent") == before);
      const Tensors got = scene.play(c.straight, pass);
      CHECK(scene.count("arguments_sent") > before);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        INFO("tensor " << i);
        CHECK(same(got[i], want[i]));
      }
    }
  scene.nothing_left();
}

TEST_CASE("gradients of a chain of calls go straight back") {
  Scene scene;
  {
    autograd::Context step(scene.cluster.worker(0));
    Tensor x = (arange(6) * 0.2).detach();
    x.requires_grad_();
    auto& s = scene.s;
    const Tensor loss = scene.get(s[3](s[2](s[1](s[0](x))))).sum();
    CHECK(scene.count("arguments_sent") == 3);
    CHECK(scene.cluster.worker(0).metrics()["receive_nodes"] == 1);  // of the result alone
    const int64_t gradients = scene.count("gradient_messages_sent");
    scene.get(step.backward_async({loss}));
    CHECK(scene.count("gradient_messages_sent") == gradients + 5);  // one for each stage, and that of x
    scene.get(step.end());
  }
  scene.nothing_left();
}

TEST_CASE("a chain of n stages takes n + 1 messages one after the other, and as many back") {
  constexpr int n = 4;
  Scene scene;
  auto& network = scene.cluster.network();
  network.set_faults({.delay = 10ms});
  auto& s = scene.s;
  const Tensor base = full({1 << 14, 6}, 0.1);  // 384 KiB
  const auto bytes = static_cast<double>(base.nbytes());
  struct Bytes {  // in results
    double all, of_caller;
  };
  const auto sent = [&] {
    uint64_t callers = 0;
    for (const char* w : {"w1", "w2", "w3", "w4"})
      callers += network.counters("w0", w).bytes + network.counters(w, "w0").bytes;
    return Bytes{static_cast<double>(network.counters().bytes) / bytes, static_cast<double>(callers) / bytes};
  };
  struct Took {
    double messages;  // one after the other: the time, in those of a message
    Bytes sent;
  };
  const auto take = [&](auto&& run) {
    const Duration start = scene.cluster.now();
    const Bytes before = sent();
    run();
    const Bytes after = sent();
    return Took{std::chrono::duration<double>(scene.cluster.now() - start) / 10ms,
                {after.all - before.all, after.of_caller - before.of_caller}};
  };
  const auto play = [&](const auto& chain) {
    autograd::Context step(scene.cluster.worker(0));
    Tensor x = base.detach(), y;
    x.requires_grad_();
    const Took forward = take([&] { y = scene.get(chain(x)); });
    const Tensor loss = y.sum();
    const Took back = take([&] { scene.get(step.backward_async({loss})); });
    scene.get(step.end());
    return std::pair(forward, back);
  };
  const auto straight = [&](const Tensor& x) { return s[3](s[2](s[1](s[0](x)))); };
  (void)play(straight);  // connects the workers
  const auto [forward, back] = play(straight);
  CHECK(forward.messages == Approx(n + 1 + n));  // each method waits as long as a message takes
  CHECK(back.messages <= n + 2);                 // with the report of the last part
  for (const Took& took : {forward, back}) {
    CHECK(took.sent.all == Approx(n + 1).margin(0.1));
    CHECK(took.sent.of_caller == Approx(2).margin(0.1));  // what goes in and what comes out
  }
  const auto [to, fro] = play([&](const Tensor& x) {
    const auto f = s[0](x), g = s[1](f), h = s[2](g);
    return s[3](h);
  });
  CHECK(to.messages == Approx(2 * n + n));
  for (const Took& took : {to, fro}) CHECK(took.sent.of_caller == Approx(2 * n).margin(0.1));
  scene.nothing_left();
}

TEST_CASE("what a result with gradients lacks is said as before: a context, or the same one") {
  Scene scene;
  auto& s = scene.s;
  Tensor x = (arange(6) * 0.2).detach();
  const auto text = [&](const auto& future) {
    const auto r = scene.cluster.await(future);
    return r.ok() ? std::string("a value") : std::string(r.error().what());
  };
  for (const bool late :
       {false, true}) {  // whether the result is made after the caller has said where it goes
    const auto make = [&] {
      return late ? s[0](x) : s[0].call<&Layer::at_once>(x);
    };  // whose weight needs gradients
    const auto kept = make();
    const std::string want = text(s[1](kept));
    CHECK_THAT(want, Catch::Contains("no autograd::Context is active"));
    CHECK(text(s[1](make())) == want);
    NoGradGuard off;
    CHECK(text(s[1](make())) == "a value");
  }
  autograd::Context outer(scene.cluster.worker(0));
  auto made = s[0](x);
  {
    autograd::Context inner(scene.cluster.worker(0));
    const auto y = scene.cluster.await(s[1](std::move(made)));
    REQUIRE(y.ok());
    const auto done = scene.cluster.await(inner.backward_async({y.value().sum()}));
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().kind() == ErrorKind::invalid);
  }
}
