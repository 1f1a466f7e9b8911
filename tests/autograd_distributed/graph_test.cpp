// What calls record: where the graph is cut, which tensors are linked, and which workers know of it.
#include <catch2/catch.hpp>
#include <thread>

#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Looker : Actor {
  // x + y, having looked at where both came from: "Receive 0, Receive 1, same, Receive".
  std::tuple<Tensor, std::string> look(Tensor x, Tensor y) {
    Tensor sum = ops::add(x, y);
    const Edge a = x.grad_fn(), b = y.grad_fn();
    std::string seen = a.node->name() + " " + std::to_string(a.input) + ", " + b.node->name() + " " +
                       std::to_string(b.input) + ", " + (a.node.get() == b.node.get() ? "same" : "two");
    for (const Edge& e : sum.grad_fn().node->next())
      seen += ", " + std::string(e.node.get() == a.node.get() ? "to it" : "elsewhere");
    return {sum, seen};
  }
  Tensor add(Tensor x, Tensor y) { return ops::add(x, y); }
  Task<Tensor> add_there(Tensor x, Tensor y, RRef<Looker> next) {
    co_return co_await next.call<&Looker::add>(x, y);
  }
  int64_t context(Tensor) { return static_cast<int64_t>(frame().context); }
  Task<int64_t> context_there(Tensor x, RRef<Looker> next) {
    co_return co_await next.call<&Looker::context>(x);
  }
  // The sum of (i + 1) x_i, and for each x_i its place among those that are linked, or -1.
  std::tuple<Tensor, std::vector<int64_t>> weigh(std::vector<Tensor> xs) {
    std::vector<int64_t> places;
    Tensor sum = zeros({2});
    for (size_t i = 0; i < xs.size(); ++i) {
      places.push_back(xs[i].requires_grad() ? int64_t(xs[i].gradient_edge().input) : -1);
      sum = ops::add(sum, ops::mul(xs[i], full({2}, double(i + 1))));
    }
    return {sum, places};
  }
  std::string needs_text(std::vector<Tensor> xs) {
    std::string out;
    for (const auto& x : xs) out += x.requires_grad() ? '1' : '0';
    return out;
  }
  static constexpr auto remote = methods<&Looker::look, &Looker::add, &Looker::add_there, &Looker::context,
                                         &Looker::context_there, &Looker::weigh, &Looker::needs_text>;
};

Tensor leaf(std::vector<float> v) {
  Tensor t = tensor(v);
  t.requires_grad_();
  return t;
}
// "contexts sends receives" of a worker.
std::string nodes(Cluster& cluster, const std::string& worker) {
  auto m = cluster.metrics(worker);
  return std::to_string(m["contexts"]) + " " + std::to_string(m["send_nodes"]) + " " +
         std::to_string(m["receive_nodes"]);
}

}  // namespace

TEST_CASE("a call with two tensors is one send and one receive on either side") {
  auto cluster = Cluster::in_process(2, hosting<Looker>());
  const Tensor x = leaf({1, 2}), y = leaf({10, 20});
  for (const std::string worker : {"w1", "w0"}) {
    auto looker = cluster->spawn<Looker>(worker);
    autograd::Context context(*cluster);
    const auto sent_before = cluster->metrics(worker)["gradient_messages_sent"];
    auto [sum, seen] = looker.call<&Looker::look>(x, y).get();
    CHECK(seen == "Receive 0, Receive 1, same, to it, to it");
    CHECK(sum.grad_fn().node->name() == "Receive");
    CHECK(sum.grad_fn().node->next().empty());
    if (worker == "w1") {
      CHECK(nodes(*cluster, "w0") == "1 1 1");
      CHECK(nodes(*cluster, "w1") == "1 1 1");
    } else {
      CHECK(nodes(*cluster, "w0") == "1 2 2");
      CHECK(nodes(*cluster, "w1") == "0 0 0");
    }
    context.backward(sum.sum());
    CHECK(context.grad(x).to_vector<float>() == std::vector<float>{1, 1});
    CHECK(context.grad(y).to_vector<float>() == std::vector<float>{1, 1});
    // One message back for both leaves: they are edges of one send.
    CHECK(cluster->metrics(worker)["gradient_messages_sent"] - sent_before == (worker == "w1" ? 1 : 2));
    sum = {};
    context.end().get();
    // The threads that handled the last messages may still be letting go of them: a leak would hang here.
    for (const char* w : {"w0", "w1"})
      while (nodes(*cluster, w) != "0 0 0") std::this_thread::yield();
  }
}

TEST_CASE("who passes a call on has two sends and two receives") {
  auto cluster = Cluster::in_process(3, hosting<Looker>());
  auto middle = cluster->spawn<Looker>("w1"), far = cluster->spawn<Looker>("w2");
  autograd::Context context(*cluster);
  Tensor sum = middle.call<&Looker::add_there>(leaf({1}), leaf({2}), far).get();
  CHECK(sum.item() == 3);
  CHECK(nodes(*cluster, "w0") == "1 1 1");
  CHECK(nodes(*cluster, "w1") == "1 2 2");
  CHECK(nodes(*cluster, "w2") == "1 1 1");
}

TEST_CASE("a call that comes home leaves two sends and two receives on both workers") {
  auto cluster = Cluster::in_process(2, hosting<Looker>());
  auto away = cluster->spawn<Looker>("w1"), home = cluster->spawn<Looker>("w0");
  autograd::Context context(*cluster);
  Tensor sum = away.call<&Looker::add_there>(leaf({1}), leaf({2}), home).get();
  CHECK(sum.item() == 3);
  CHECK(nodes(*cluster, "w0") == "1 2 2");
  CHECK(nodes(*cluster, "w1") == "1 2 2");
}

TEST_CASE("without gradients nothing is recorded, and callees know the context all the same") {
  auto cluster = Cluster::in_process(3, hosting<Looker>());
  auto a = cluster->spawn<Looker>("w1"), b = cluster->spawn<Looker>("w2"),
       here = cluster->spawn<Looker>("w0");
  const Tensor x = tensor({1}, float32);
  CHECK(a.call<&Looker::context>(x).get() == 0);
  autograd::Context context(*cluster);
  const auto id = static_cast<int64_t>(context.id());
  CHECK(a.call<&Looker::context>(x).get() == id);
  CHECK(here.call<&Looker::context>(x).get() == id);
  CHECK(a.call<&Looker::context_there>(x, b).get() == id);
  for (const auto& name : cluster->workers()) {
    auto m = cluster->metrics(name);
    CHECK(m["send_nodes"] == 0);
    CHECK(m["receive_nodes"] == 0);
  }
}

TEST_CASE("of ten tensors in one call exactly those that need gradients are linked, in order") {
  auto cluster = Cluster::in_process(2, hosting<Looker>());
  for (const char* worker : {"w0", "w1"}) {
    auto looker = cluster->spawn<Looker>(worker);
    std::vector<Tensor> xs;
    for (int i = 0; i < 10; ++i) xs.push_back(i % 2 ? full({2}, i, float32) : leaf({float(i), float(i)}));
    autograd::Context context(*cluster);
    auto [sum, places] = looker.call<&Looker::weigh>(xs).get();
    CHECK(places == std::vector<int64_t>{0, -1, 1, -1, 2, -1, 3, -1, 4, -1});
    context.backward(sum.sum());
    for (int i = 0; i < 10; ++i) {
      if (i % 2) continue;
      INFO("tensor " << i);
      const Tensor gradient = context.grad(xs[size_t(i)]);
      REQUIRE(gradient.defined());
      CHECK(gradient.to_vector<float>() == std::vector<float>{float(i + 1), float(i + 1)});
    }
  }
}

TEST_CASE("a callee sees which arguments need gradients, and that none does under NoGradGuard") {
  auto cluster = Cluster::in_process(2, hosting<Looker>());
  const std::vector<Tensor> xs = {leaf({1}), tensor({1}, float32), ops::mul(leaf({1}), leaf({2})),
                                  tensor({1})};
  for (const char* worker : {"w0", "w1"}) {
    auto looker = cluster->spawn<Looker>(worker);
    autograd::Context context(*cluster);
    CHECK(looker.call<&Looker::needs_text>(xs).get() == "1010");
    NoGradGuard guard;
    CHECK(looker.call<&Looker::needs_text>(xs).get() == "0000");
  }
}
