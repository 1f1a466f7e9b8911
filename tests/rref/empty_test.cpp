// Every public method of the types of troupe/troupe.h in their empty state: made by default, moved from,
// ended.
#include <catch2/catch.hpp>

#include "data/datasets/prefetch.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/server/served_table.h"
#include "tests/support/error_of.h"
#include "troupe/profile.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

struct Box : Actor {
  int64_t get() { return 1; }
  Tensor tensor(Tensor t) { return t; }
  Task<int64_t> awaits_empty() {
    Future<int64_t> none;
    co_return co_await none;
  }
  Task<int64_t> one() { co_return 1; }
  Task<int64_t> awaits_twice() {
    Task<int64_t> task = one();
    const int64_t first = co_await task;
    co_return first + co_await task;
  }
  Task<int64_t> awaits_moved() {
    Task<int64_t> task = one();
    const Task<int64_t> other = std::move(task);
    co_return co_await task;
  }
  static constexpr auto remote =
      methods<&Box::get, &Box::tensor, &Box::awaits_empty, &Box::awaits_twice, &Box::awaits_moved>;
};

void refused(const std::function<void()>& use, const std::string& part) {
  CHECK_THAT(invalid_text(use), Contains(part));
}

}  // namespace

TEST_CASE("every use of an empty reference is an error that says so") {
  auto cluster = Cluster::in_process(2, hosting<Box>());
  RRef<Box> given = cluster->spawn<Box>("w1");
  const RRef<Box> moved_to = std::move(given);
  const auto everything = [](const internal::rref::RefBase& r) {
    CHECK_FALSE(r);
    CHECK(r.str() == "empty reference");
    CHECK(r.hash() == 0);
    CHECK(r == internal::rref::RefBase());
    CHECK_FALSE(r.handle());
    refused([&] { (void)r.owner(); }, "empty reference");
    refused([&] { (void)r.owner_name(); }, "empty reference");
    refused([&] { (void)r.is_here(); }, "empty reference");
    refused([&] { (void)r.id(); }, "empty reference");
    refused([&] { (void)r.type(); }, "empty reference");
    refused([&] { (void)r.ready(); }, "empty reference");
    refused([&] { (void)r.worker(); }, "empty reference");
  };
  for (const RRef<Box>& r :
       {RRef<Box>(), given, RRef<Box>().with_timeout(Duration(5)).when_full(OnFull::fail)}) {
    everything(r);
    refused([&] { (void)r.call<&Box::get>(); }, "empty reference");
    refused([&] { (void)r.remote<&Box::get>(); }, "empty reference");
    refused([&] { r.tell<&Box::get>(); }, "empty reference");
    refused([&] { (void)r.call_by_name("get", {}); }, "empty reference");
    refused([&] { (void)r.local([](Box& b) { return b.get(); }); }, "empty reference");
    refused([&] { cluster->set_name(r, "box").get(); }, "empty reference");
  }
  const Remote<Tensor> value;
  everything(value);
  refused([&] { (void)value.to_here().get(); }, "empty reference");
  refused([&] { (void)value.with_timeout(Duration(5)).to_here().get(); }, "empty reference");
  const AnyRef any;
  everything(any);
  refused([&] { (void)any.call("get", {}); }, "empty reference");
  CHECK_FALSE(any.as<Box>());
  CHECK_FALSE(any.as_remote<Tensor>());
  refused([&] { optim::Distributed<optim::SGD>({any}, {.lr = 0.1}); }, "empty reference");
  refused([&] { optim::Distributed<optim::SGD>({}, {.lr = 0.1}); }, "at least one actor");
  refused([&] { (void)nn::remote_parameters(any); }, "empty reference");
  refused([&] { (void)nn::remote_state_dict(any); }, "empty reference");
  refused([&] { (void)nn::load_remote_state_dict(any, {}); }, "empty reference");
  refused([&] { (void)nn::set_remote_training(any); }, "empty reference");
  refused([&] { (void)nn::remote_training(any); }, "empty reference");
}

TEST_CASE("an empty future as an argument, in a scope or awaited is an error that says so") {
  auto cluster = Cluster::in_process(2, hosting<Box>());
  const RRef<Box> box = cluster->spawn<Box>("w1");
  refused([&] { (void)box.call<&Box::tensor>(Future<Tensor>()); }, "empty future");
  {
    CallScope scope;
    refused([&] { scope.add(Future<int>()); }, "empty future");
    scope.join();
  }
  refused([&] { box.call<&Box::awaits_empty>().get(); }, "empty future");
  refused([&] { box.call<&Box::awaits_twice>().get(); }, "was awaited before");
  refused([&] { box.call<&Box::awaits_moved>().get(); }, "it was moved from");
}

TEST_CASE("every use of a context after its end is an error that says so") {
  auto cluster = Cluster::in_process(2, hosting<Box>(), {.leak_check = LeakCheck::off});
  const RRef<Box> box = cluster->spawn<Box>("w1");
  const Tensor w = ones({2}).requires_grad_();
  autograd::Context context(*cluster);
  const Tensor loss = ops::sum(box.call<&Box::tensor>(w).get());
  context.end().get();
  context.end().get();  // a second time: nothing to do
  refused([&] { context.backward(loss); }, "the context has ended");
  refused([&] { context.backward(Tensors{loss}, {}); }, "the context has ended");
  refused([&] { (void)context.backward_async(loss); }, "the context has ended");
  refused([&] { (void)context.backward_async(Tensors{loss}); }, "the context has ended");
  refused([&] { (void)context.grad({loss}, {w}); }, "the context has ended");
  refused([&] { (void)context.grad_async({loss}, {w}); }, "the context has ended");
  refused([&] { (void)context.grad(w); }, "the context has ended");
  refused([&] { (void)context.workers(); }, "the context has ended");
  refused([&] { autograd::Context::Guard guard(context); }, "the context has ended");
  refused([&] { (void)box.call<&Box::tensor>(w).get(); }, "the context has ended");
  refused([&] { autograd::context_gradient(w); }, "the context has ended");
  refused([&] { autograd::context_backward(loss).get(); }, "context");
  CHECK(context.id() != 0);
}

TEST_CASE("a default-made pipeline, server, client, loader or Here is an error that says so") {
  auto cluster = Cluster::in_process(2, hosting<Box>());
  const RRef<Box> box = cluster->spawn<Box>("w1");
  refused([&] { parallel::Pipeline(cluster->here(), {}); }, "stage");
  refused([&] { parallel::Pipeline(cluster->here(), {parallel::Stage{}}); }, "[pipeline]");

  const parallel::Served none;
  refused([&] { parallel::Client{none}; }, "no servers");
  refused([&] { (void)parallel::read(none); }, "no servers");
  refused([&] { (void)parallel::set_policy(none, {}); }, "no servers");
  refused([&] { (void)parallel::set_options(none, {}); }, "no servers");
  refused([&] { (void)parallel::report(none); }, "no servers");
  const parallel::ServedTable no_table;
  const Tensor ids = tensor({0});
  refused([&] { parallel::TableClient{no_table}; }, "no servers");
  refused([&] { (void)parallel::read(no_table, ids); }, "no servers");
  refused([&] { (void)no_table.server_of(0); }, "no servers");

  const auto served = parallel::serve(cluster->here(), {"w1"}, {zeros({2})}, {.options = {{"lr", 0.1}}});
  parallel::Client client(served);
  const parallel::Client moved_to = std::move(client);
  const Tensors gradients{zeros({2})};
  refused([&] { (void)client.pull(); }, "empty client");
  refused([&] { (void)client.push(gradients); }, "empty client");
  refused([&] { (void)client.push_pull(gradients); }, "empty client");
  refused([&] { (void)client.push_context(); }, "empty client");
  refused([&] { (void)client.push_values(gradients); }, "empty client");
  refused([&] { (void)client.leave(); }, "empty client");
  refused([&] { (void)client.version(); }, "empty client");
  refused([&] { (void)client.step(); }, "empty client");
  refused([&] { (void)client.local_steps(); }, "empty client");
  refused([&] { (void)client.name(); }, "empty client");
  CHECK(moved_to.pull().get().size() == 1);
  refused([&] { (void)moved_to.push(gradients, -1).get(); }, "weight");
  const auto table = parallel::serve_table(cluster->here(), {"w1"}, 4, 2, {.options = {{"lr", 0.1}}});
  parallel::TableClient words(table);
  const parallel::TableClient others = std::move(words);
  refused([&] { (void)words.pull(ids); }, "empty client");
  refused([&] { (void)words.push(ids, zeros({1, 2})); }, "empty client");
  refused([&] { (void)words.push_context(); }, "empty client");
  refused([&] { (void)words.leave(); }, "empty client");
  CHECK(others.pull(ids).get().shape() == Shape{1, 2});
  refused([&] { (void)others.pull(Tensor()).get(); }, "ids");

  Here here = cluster->here();
  const Here kept = std::move(here);
  refused([&] { (void)here.spawn<Box>("w1"); }, "empty Here");
  refused([&] { (void)here.spawn_named<Box>("w1/box"); }, "empty Here");
  refused([&] { (void)here.drop_name("w1/box"); }, "empty Here");
  refused([&] { (void)here.lookup<Box>("w1/box"); }, "empty Here");
  refused([&] { (void)here.lookup_any("w1/box"); }, "empty Here");
  refused([&] { (void)here.objects("w1"); }, "empty Here");
  refused([&] { (void)here.names("w1"); }, "empty Here");
  refused([&] { (void)here.name(); }, "empty Here");
  refused([&] { (void)here.id(); }, "empty Here");
  refused([&] { (void)here.workers(); }, "empty Here");
  refused([] { (void)troupe::here(); }, "no worker runs on this thread");
  refused([&] { (void)self<Box>(nullptr); }, "this thread runs");

  const datasets::Loader loader({zeros({4, 1}), zeros({4, 1})}, {.batch_size = 2});
  datasets::Epoch epoch = loader.epoch(0);
  const datasets::Epoch other = std::move(epoch);
  refused([&] { (void)epoch.batch(0); }, "empty epoch");
  refused([&] { (void)epoch.order(); }, "empty epoch");
  refused([] { datasets::Loader({}); }, "[loader]");
  auto ahead = datasets::prefetch(other);
  auto taken = std::move(ahead);
  refused([&] { (void)ahead.next(); }, "empty one");
  CHECK(taken.next());

  autograd::HookHandle().remove();
  autograd::WatchHandle().remove();
  Profile profile(*cluster);
  (void)profile.end();
  refused([&] { (void)profile.end(); }, "profile");
  refused([] { ProfileSpan("a span"); }, "profile");
}

TEST_CASE("after a shutdown every use of the cluster is an error that says so") {
  auto cluster = Cluster::in_process(2, hosting<Box>());
  RRef<Box> box = cluster->spawn<Box>("w1");
  CHECK(box.call<&Box::get>().get() == 1);
  const Here here = cluster->here();
  cluster->shutdown();
  cluster->shutdown();
  const auto ended = [](const std::function<void()>& use) {
    CHECK_THAT(error_text(ErrorKind::cancelled, use), Contains("shut") && !Contains("no error"));
  };
  ended([&] { (void)cluster->spawn<Box>("w1"); });
  ended([&] { box.call<&Box::get>().get(); });
  ended([&] { (void)box.remote<&Box::get>().to_here().get(); });
  ended([&] { box.ready().get(); });
  ended([&] { (void)cluster->metrics("w1"); });
  ended([&] { cluster->lookup<Box>("w1/box").get(); });
  ended([&] { here.objects("w1").get(); });
  cluster.reset();
  ended([&] { (void)box.owner_name(); });
  ended([&] { box.call<&Box::get>().get(); });
  ended([&] { (void)here.workers(); });
}
