// Upper layers run an actor's own methods as part of their work in its mailbox.
#include "actors/cell/call_inline.h"
#include "actors/worker/worker.h"

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Scale : Actor {
  Tensor w = tensor({2, 3}, float64).requires_grad_();
  Tensor scale(Tensor x) { return mul(x, w); }
  Task<int64_t> waits() {
    co_await opened.future();
    co_return 7;
  }
  void open() { opened.set(); }
  void fails() { throw std::runtime_error("no scale"); }
  Promise<void> opened;
  static constexpr auto remote = methods<&Scale::scale, &Scale::waits, &Scale::open, &Scale::fails>;
};

// The method named by the first argument, with the rest.
void forward_to(Actor&, internal::actors::Invocation& call) {
  ValueList args = std::move(call.call().args);
  const auto method = internal::from_value<std::string>(args.at(0));
  args.erase(args.begin());
  internal::actors::call_inline(method, std::move(args))
      .on_ready(
          [call = Ref<internal::actors::Invocation>(&call)](const Result<Value>& r) { call->complete(r); });
}

// The gradient of w, by a local pass from what the method gave.
void gradient(Actor& actor, internal::actors::Invocation& call) {
  GradMode on(true);
  const Future<Value> called = internal::actors::call_inline("scale", std::move(call.call().args));
  const Value y = called.peek()->value();
  autograd::backward(sum(*y.get_if<Tensor>()));
  call.complete(Value(static_cast<Scale&>(actor).w.grad()));
}

struct Fixture {
  SimulatedCluster cluster{1, 2, hosting<Scale>()};
  AnyRef scale;
  Fixture() {
    cluster.worker(1).add_actor_method("test.forward_to", forward_to);
    cluster.worker(1).add_actor_method("test.gradient", gradient);
    scale = cluster.here(0).spawn<Scale>(1);
  }
  Result<Value> ask(const std::string& method, ValueList args) {
    return cluster.await(scale.call(method, std::move(args)));
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "what a method gives in place keeps its history in the actor") {
  const Result<Value> r = ask("test.gradient", {Value(tensor({5, 7}, float64))});
  REQUIRE(r.ok());
  CHECK(r.value().get_if<Tensor>()->to_vector<double>() == std::vector<double>{5, 7});
  CHECK(cluster.worker(1).metrics().at("send_nodes") == 0);  // nothing was recorded on the way
}

TEST_CASE_METHOD(Fixture, "a coroutine method that runs in place gives its result when it ends") {
  const auto waiting = scale.call("test.forward_to", {Value("waits")});
  REQUIRE(ask("test.gradient", {Value(tensor({1, 1}, float64))}).ok());  // a later message has its turn
  CHECK_FALSE(waiting.is_ready());
  REQUIRE(ask("test.forward_to", {Value("open")}).ok());
  CHECK(std::get<int64_t>(cluster.await(waiting).value().v) == 7);
}

TEST_CASE_METHOD(Fixture, "errors of a method in place are those of a call") {
  const Error threw = ask("test.forward_to", {Value("fails")}).error();
  CHECK(threw.kind() == ErrorKind::failed);
  CHECK(std::string(threw.what()).find("no scale") != std::string::npos);
  REQUIRE(threw.trail().size() >= 1);
  CHECK(threw.trail()[0] == "Scale::fails on w1 (Scale#0:1)");
  CHECK(ask("test.forward_to", {Value("weigh")}).error().message().find("has no such method") !=
        std::string::npos);
  CHECK(ask("test.forward_to", {Value("scale")}).error().message().find("takes 1 arguments") !=
        std::string::npos);
  CHECK(testing::invalid_text([] { (void)internal::actors::call_inline("scale", {}); }) ==
        "[call] scale can run in place only in an actor; this thread runs none");
}
