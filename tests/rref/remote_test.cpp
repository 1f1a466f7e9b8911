// References to values: results that stay on the worker that computed them.
#include <catch2/catch.hpp>

#include <thread>

#include "rref/any_ref.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

namespace {

std::atomic<int> living{0};

struct Duo {
  Remote<int64_t> a, b;
};

// Computes, keeps, and adds up what others have computed.
struct Sums : Actor {
  explicit Sums(int64_t start) : start(start) {
    if (start < 0) throw std::runtime_error("a negative start");
    ++living;
  }
  ~Sums() override {
    if (start >= 0) --living;
  }
  int64_t add(int64_t n) { return start += n; }
  Remote<int64_t> share(int64_t n) { return self(this).remote<&Sums::add>(n); }
  void fail() { throw std::runtime_error("never works"); }
  int64_t fail_with_number() { throw std::runtime_error("never works"); }
  Task<int64_t> fetch(Remote<int64_t> r) { co_return co_await r.to_here(); }
  Task<int64_t> sum(std::vector<Remote<int64_t>> list, std::map<std::string, Remote<int64_t>> map, Duo pair) {
    int64_t n = 0;
    for (auto& r : list) n += co_await r.to_here();
    for (auto& [k, r] : map) n += co_await r.to_here();
    n += co_await pair.a.to_here();
    co_return n + co_await pair.b.to_here();
  }
  void keep(Remote<int64_t> r) { kept = std::move(r); }
  Remote<int64_t> give() { return kept; }
  void forget() { kept = {}; }
  /// Answers when open() has been called.
  Task<int64_t> slow(int64_t n) {
    co_await gate.future();
    co_return start + n;
  }
  void open() { gate.set(); }
  RRef<Sums> me() { return self(this); }
  int64_t start;
  Remote<int64_t> kept;
  Promise<void> gate;
  static constexpr auto remote =
      methods<&Sums::add, &Sums::share, &Sums::fail, &Sums::fail_with_number, &Sums::fetch, &Sums::sum,
              &Sums::keep, &Sums::give, &Sums::forget, &Sums::slow, &Sums::open, &Sums::me>;
};

void nothing_left(Cluster& cluster) {
  testing::nothing_left(cluster);
  for (const auto& name : cluster.workers())
    for (const char* what : {"owned_objects", "owned_values", "owned_references", "borrowed_references",
                             "pending_references", "actors"})
      while (cluster.metrics(name)[what] != 0) std::this_thread::yield();
  CHECK(living == 0);
}

}  // namespace

TEST_CASE("a result stays where it was computed and is fetched from there, ten at once as well") {
  auto cluster = Cluster::in_process(3, hosting<Sums>());
  for (const char* where : {"w0", "w1"}) {
    auto sums = cluster->spawn<Sums>(where, 5);
    Remote<int64_t> one = sums.remote<&Sums::add>(1);
    CHECK(one.owner_name() == where);
    CHECK(one.to_here().get() == 6);
    CHECK(one.to_here().get() == 6);                         // it is a result, not another call
    CHECK(sums.remote<&Sums::add>(1).to_here().get() == 7);  // nobody keeps this reference
    std::vector<Remote<int64_t>> ten;
    for (int64_t i = 0; i < 10; ++i) ten.push_back(sums.remote<&Sums::add>(1));
    CHECK(sums.call<&Sums::add>(0).get() == 17);  // in order with calls
    for (int64_t i = 9; i >= 0; --i) CHECK(ten[size_t(i)].to_here().get() == 8 + i);
    auto done = sums.remote<&Sums::forget>();
    done.to_here().get();
    done.ready().get();
    CHECK(done.type() == "Remote<nothing>");
  }
  nothing_left(*cluster);
}

TEST_CASE("references to values pass between workers alone, in containers and in structs") {
  auto cluster = Cluster::in_process(4, hosting<Sums>());
  {
    auto a = cluster->spawn<Sums>("w1", 10), b = cluster->spawn<Sums>("w2", 100),
         c = cluster->spawn<Sums>("w3", 0), here = cluster->spawn<Sums>("w0", 1000);
    auto x = a.remote<&Sums::add>(1), y = b.remote<&Sums::add>(1), z = here.remote<&Sums::add>(1);
    for (auto& user : {a, b, c, here}) {
      CHECK(user.call<&Sums::fetch>(x).get() == 11);
      CHECK(user.call<&Sums::sum>(std::vector{x, y, x}, std::map<std::string, Remote<int64_t>>{{"z", z}},
                                  Duo{y, z})
                .get() == 11 + 101 + 11 + 1001 + 101 + 1001);
    }
    c.call<&Sums::keep>(x).get();
    x = {};
    b.call<&Sums::keep>(c.call<&Sums::give>()).get();  // from hand to hand
    c.call<&Sums::forget>().get();
    CHECK(b.call<&Sums::give>().get().to_here().get() == 11);
    auto made = c.call<&Sums::share>(7).get();  // computed by an actor for itself, used elsewhere
    CHECK(made.owner_name() == "w3");
    CHECK(a.call<&Sums::fetch>(made).get() == 7);
    auto actor = a.remote<&Sums::me>();  // a value that is a reference
    CHECK(actor.to_here().get() == a);
    b.call<&Sums::forget>().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a value lives on when its actor has gone, and goes with its last reference") {
  auto cluster = Cluster::in_process(2, hosting<Sums>());
  {
    auto value = cluster->spawn<Sums>("w1", 3).remote<&Sums::add>(4);
    value.ready().get();
    while (living != 0) std::this_thread::yield();
    CHECK(cluster->metrics("w1")["owned_values"] == 1);
    CHECK(value.to_here().get() == 7);
  }
  nothing_left(*cluster);
}

TEST_CASE("what is not there yet is waited for by all who want it, and by nobody's thread") {
  auto cluster = Cluster::in_process(3, hosting<Sums>());
  {
    auto slow = cluster->spawn<Sums>("w1", 1), user = cluster->spawn<Sums>("w2", 0);
    auto value = slow.remote<&Sums::slow>(1);
    auto here = value.to_here(), there = user.call<&Sums::fetch>(value), created = user.call<&Sums::add>(0);
    const Error late = error_of([&] { value.with_timeout(std::chrono::milliseconds(1)).to_here().get(); });
    CHECK(late.kind() == ErrorKind::deadline);
    CHECK_THAT(late.what(), Catch::Contains("fetch of Remote<int64>"));
    CHECK(created.get() == 0);
    CHECK_FALSE(here.is_ready());
    CHECK_FALSE(there.is_ready());
    auto forgotten = slow.remote<&Sums::slow>(5).to_here();  // its reference goes before its value comes
    value = {};
    slow.call<&Sums::open>().get();
    CHECK(here.get() == 2);
    CHECK(there.get() == 2);
    CHECK(forgotten.get() == 6);
  }
  nothing_left(*cluster);
}

TEST_CASE("a computation that fails says so to every user of its reference") {
  auto cluster = Cluster::in_process(3, hosting<Sums>());
  {
    const auto says = [](const std::string& text, auto f) {
      CHECK_THAT(error_of([&] { f().get(); }).what(), Catch::Contains(text));
    };
    auto a = cluster->spawn<Sums>("w1", 1), user = cluster->spawn<Sums>("w2", 0),
         mine = cluster->spawn<Sums>("w0", 1);
    for (auto& owner : {a, mine, user}) {
      auto bad = owner.remote<&Sums::fail_with_number>();
      says("never works", [&] { return bad.to_here(); });
      says("Sums::fail_with_number", [&] { return bad.ready(); });
      says("never works", [&] { return user.call<&Sums::fetch>(bad); });
      says("never works", [&] {
        return user.call<&Sums::sum>(std::vector{bad}, std::map<std::string, Remote<int64_t>>(), Duo());
      });
      says("never works", [&] { return owner.remote<&Sums::fail>().to_here(); });
    }
    for (const char* where : {"w0", "w1"}) {  // the actor could not be made
      auto bad = cluster->spawn<Sums>(where, -1).remote<&Sums::add>(1);
      says("a negative start", [&] { return bad.to_here(); });
      says("a negative start", [&] { return user.call<&Sums::fetch>(bad); });
    }
    says("empty reference", [&] { return Remote<int64_t>().to_here(); });
    // What is not an actor, what is not a value, and what is neither.
    auto value = a.remote<&Sums::add>(1);
    says("it has no methods", [&] { return AnyRef(value).call("add", {Value(int64_t{1})}); });
    says("is an actor, not a value", [&] { return AnyRef(a).call("ref.fetch", {}); });
    CHECK(AnyRef(value).as_remote<int64_t>().to_here().get() == 2);
    CHECK_THAT(error_of([&] { (void)AnyRef(value).as_remote<Tensor>(); }).what(),
               Catch::Contains("Remote<int64>") && Catch::Contains("is no Remote<tensor>"));
    says("expected reference to Remote<int64>",
         [&] { return user.call_by_name("fetch", {internal::to_value(a)}); });
  }
  nothing_left(*cluster);
}

TEST_CASE("values of a cluster that was shut down say so") {
  Remote<int64_t> left;
  RRef<Sums> actor;
  {
    auto cluster = Cluster::in_process(2, hosting<Sums>(), {.leak_check = LeakCheck::off});
    actor = cluster->spawn<Sums>("w1", 1);
    left = actor.remote<&Sums::add>(1);
    (void)actor.remote<&Sums::slow>(1);
  }
  CHECK(error_of([&] { left.to_here().get(); }).kind() == ErrorKind::cancelled);
  CHECK(error_of([&] { actor.remote<&Sums::add>(1); }).kind() == ErrorKind::cancelled);
}

// ---- gradients

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({2}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return mul(x, w); }
  Task<Tensor> forward_of(Remote<Tensor> x) { co_return mul(co_await x.to_here(), w); }
  Tensor weight() { return w; }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote =
      methods<&Scale::forward, &Scale::forward_of, &Scale::weight, &Scale::gradient>;
};

std::vector<float> floats(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE(
    "gradients run back through values: to the arguments, the actor's parameters, and on from a third "
    "worker") {
  auto cluster = Cluster::in_process(4, hosting<Scale, Sums>());
  {
    const char* where = GENERATE("w0", "w1");  // of the value: the driver's worker, another
    auto a = cluster->spawn<Scale>(where, 2.0), b = cluster->spawn<Scale>("w2", 3.0),
         c = cluster->spawn<Scale>("w3", 5.0);
    Tensor x = tensor({1, 10}, float32);
    x.requires_grad_();
    autograd::Context step(*cluster);
    const Remote<Tensor> h = a.remote<&Scale::forward>(x);
    const Tensor y = h.to_here().get();
    CHECK(floats(y) == std::vector<float>{2, 20});
    const Tensor z = b.call<&Scale::forward_of>(h).get(), v = c.call<&Scale::forward_of>(h).get();
    step.backward((y + z + v).sum());  // h is used three times, on three workers
    CHECK(floats(step.grad(x)) == std::vector<float>{18, 18});
    CHECK(floats(a.call<&Scale::gradient>().get()) == std::vector<float>{9, 90});
    CHECK(floats(b.call<&Scale::gradient>().get()) == std::vector<float>{2, 20});
    CHECK(floats(c.call<&Scale::gradient>().get()) == std::vector<float>{2, 20});
    step.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE(
    "a value that was asked for outside any context is fetched inside one, and has its gradients there") {
  auto cluster = Cluster::in_process(3, hosting<Scale, Sums>());
  {
    auto a = cluster->spawn<Scale>("w1", 2.0), b = cluster->spawn<Scale>("w2", 3.0);
    const auto weight = a.remote<&Scale::weight>();                         // a parameter itself
    const auto made = a.remote<&Scale::forward>(tensor({1, 10}, float32));  // and a result of it
    for (int round = 1; round <= 2; ++round) {
      autograd::Context step(*cluster);
      step.backward(weight.to_here().get().sum());
      CHECK(floats(a.call<&Scale::gradient>().get()) == std::vector<float>{1, 1});
      CHECK(floats(b.call<&Scale::forward_of>(weight).get()) == std::vector<float>{6, 6});
      step.end().get();
    }
    {
      autograd::Context step(*cluster);
      step.backward(b.call<&Scale::forward_of>(made).get().sum());
      CHECK(floats(a.call<&Scale::gradient>().get()) == std::vector<float>{3, 30});
      step.end().get();
    }
    NoGradGuard off;
    CHECK(floats(made.to_here().get()) == std::vector<float>{2, 20});
  }
  nothing_left(*cluster);
}

TEST_CASE("what cannot be recorded fails where the value is used") {
  auto cluster = Cluster::in_process(2, hosting<Scale, Sums>());
  {
    auto a = cluster->spawn<Scale>("w1", 2.0);
    Tensor x = tensor({1, 10}, float32);
    const auto made = a.remote<&Scale::forward>(x);
    CHECK_THAT(error_of([&] { made.to_here().get(); }).what(), Catch::Contains("no autograd::Context"));
    x.requires_grad_();
    const auto refused = a.remote<&Scale::forward>(x);
    CHECK_THAT(error_of([&] { refused.to_here().get(); }).what(),
               Catch::Contains("an argument") && Catch::Contains("no autograd::Context"));
  }
  nothing_left(*cluster);
}
