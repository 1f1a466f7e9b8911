// Wrong links and messages from a peer: errors, and the worker goes on.
#include <catch2/catch.hpp>

#include "autograd/distributed/dist_engine.h"
#include "core/base/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Scale : Actor {
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w = full({1}, 2.0).requires_grad_();
  static constexpr auto remote = methods<&Scale::forward, &Scale::gradient>;
};

Tensor leaf(float v) {
  Tensor t = tensor({v});
  t.requires_grad_();
  return t;
}

// A pass as ever.
void still_works(Cluster& cluster, const RRef<Scale>& a) {
  autograd::Context context(cluster);
  const Tensor x = leaf(7);
  Tensor y = a.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
  context.backward(ops::add(y, x));
  CHECK(context.grad(x).item() == 5);
  CHECK(a.call<&Scale::gradient>().get().item() == 2 * 7 * 2);
  context.end().get();
}

Value any_value(Generator& random, uint64_t context, int depth) {
  switch (random.below(depth > 2 ? 6 : 8)) {
    case 0:
      return Value(static_cast<int64_t>(random.below(4)));
    case 1:
      return Value(static_cast<int64_t>(random.below(~uint64_t{0})));
    case 2:
      return Value(static_cast<int64_t>(context));
    case 3:
      return {};
    case 4:
      return Value(std::string("text"));
    case 5:
      return Value(ones({int64_t(random.below(3))}, random.below(2) ? float32 : int64));
    default: {
      ValueList list;
      for (uint64_t i = 0, n = random.below(5); i < n; ++i)
        list.push_back(any_value(random, context, depth + 1));
      return Value(std::move(list));
    }
  }
}

}  // namespace

TEST_CASE("links that do not fit their message are refused, and a pair that is unknown fails its pass only") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1");
  internal::actors::Worker& worker = cluster->worker();
  auto& engine = *worker.extension<autograd::DistEngine>();
  {
    autograd::Context context(*cluster);
    const auto incoming = [&](internal::net::GradLink link, uint64_t in, Tensor argument) {
      internal::net::Call call;
      call.context = in;
      call.link = std::move(link);
      call.args = {Value(std::move(argument))};
      const Ref<internal::actors::Invocation> invocation(new internal::actors::Invocation(
          worker.as_host(), 1, std::move(call), [](internal::net::Reply&) {}));
      engine.incoming_call(*invocation);
      invocation->complete(Value());
    };
    const Tensor x = tensor({1}, float32);
    const auto refused = [&](internal::net::GradLink link, uint64_t in, const Tensor& t,
                             const std::string& text) {
      const Error e = error_of([&] { incoming(std::move(link), in, t); });
      CHECK(e.kind() == ErrorKind::invalid);
      CHECK_THAT(e.what(), Catch::Contains(text));
    };
    refused({.pair = 5, .tensors = {0}}, 0, x, "outside any context");
    refused({.pair = 5, .tensors = {1}}, context.id(), x, "names a tensor");
    refused({.pair = 5, .tensors = {0, 4000000000}}, context.id(), x, "names a tensor");
    refused({.pair = 5, .tensors = {0}}, context.id(), tensor({1}), "names a tensor");
    refused({.pair = 5, .tensors = {0, 0}}, context.id(), x, "twice");
    refused({.pair = 5, .tensors = {0}}, context.id() + 1, x, "has made no context");
    refused({.pair = 5, .tensors = {0}}, (uint64_t{77} << 40) | 1, x, "77");

    Tensor recorded = a.call<&Scale::forward>(x).get();  // so w1 knows the context
    Tensor received = tensor({1}, float32);              // linked to a pair that w1 has never made
    incoming({.pair = 999, .tensors = {0}, .shared = true}, context.id(), received);
    CHECK(received.requires_grad());
    const Error unknown = error_of([&] { context.backward(received); });
    CHECK(unknown.kind() == ErrorKind::invalid);
    CHECK_THAT(unknown.what(), Catch::Contains("no message of this number"));
    received = recorded = {};
    context.end().get();
  }
  still_works(*cluster, a);
  nothing_left(*cluster);
}

TEST_CASE("random messages to the services of passes are errors or nothing, and passes work after them") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1");
  Generator random(1);
  size_t refused = 0;
  {
    autograd::Context context(*cluster);
    Tensor y = a.call<&Scale::forward>(leaf(1)).get();  // w1 has a state and a pair
    for (int i = 0; i < 3000; ++i) {
      const char* services[] = {"grad.backward", "grad.reach", "grad.want",   "grad.finish",
                                "grad.report",   "grad.drop",  "grad.broken", "grad.joined"};
      ValueList args;
      const size_t which = random.below(8);
      if (which < 4 && random.below(2)) {  // nearly right
        args = {Value(int64_t(random.below(3) << 40 | random.below(9))),
                Value(int64_t(random.below(64))),
                Value(int64_t(random.below(99))),
                Value(int64_t(random.below(99))),
                Value(int64_t(random.below(3))),
                Value(ValueList{any_value(random, context.id(), 2)}),
                Value()};
      } else {
        for (uint64_t k = 0, n = random.below(8); k < n; ++k)
          args.push_back(any_value(random, context.id(), 0));
      }
      try {
        cluster->worker().call_service(1, services[which], std::move(args)).get();
      } catch (const Error&) {
        ++refused;
      }
    }
    y = {};
    context.end().get();
  }
  CHECK(refused > 1000);
  still_works(*cluster, a);
  nothing_left(*cluster);
}
