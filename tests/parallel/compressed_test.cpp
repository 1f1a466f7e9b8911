// Servers whose trainers compress what they send and read: bytes on the wire, learning, and switching off.
#include <catch2/catch.hpp>

#include "parallel/server/served_table.h"
#include "parallel/server/server.h"
#include "parallel/server/table.h"
#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;
using namespace std::chrono_literals;

namespace {

Tensor some(const Shape& shape, uint64_t seed) {
  Generator random(seed);
  return randn(shape, random);
}
ServerOptions with(const std::string& pull, const std::string& push, int64_t trainers = 1) {
  return {.options = {{"lr", 0.5}},
          .trainers = trainers,
          .pull = Compression::parse(pull),
          .push = Compression::parse(push)};
}

// Hold clients on w2, and do what the test tells them.
struct Hand : Actor {
  explicit Hand(Served served) : client(std::move(served)) {}
  Task<Tensors> pull() {
    const auto values = client.pull();
    co_return co_await values;
  }
  Task<Pushed> push(Tensors gradients, double weight) {
    const auto pushed = client.push(gradients, weight);
    co_return co_await pushed;
  }
  Task<Tensors> push_pull(Tensors gradients) {
    const auto values = client.push_pull(gradients);
    co_return co_await values;
  }
  Client client;
  static constexpr auto remote = methods<&Hand::pull, &Hand::push, &Hand::push_pull>;
};
struct TableHand : Actor {
  explicit TableHand(ServedTable table) : client(std::move(table)) {}
  Task<Tensor> pull(Tensor ids) {
    const auto rows = client.pull(ids);
    co_return co_await rows;
  }
  Task<Pushed> push(Tensor ids, Tensor gradients) {
    const auto pushed = client.push(ids, gradients);
    co_return co_await pushed;
  }
  TableClient client;
  static constexpr auto remote = methods<&TableHand::pull, &TableHand::push>;
};

// The driver on w0, servers on w1, the trainer on w2.
struct Scene {
  explicit Scene(const internal::net::Faults& faults = {.delay = 1ms})
      : cluster(1, 3, hosting<Server, Table, Hand, TableHand>(), {.timeout = 0s}) {
    cluster.network().set_faults(faults);
  }
  Here here() { return Here(internal::rref::RefTable::of(cluster.worker(0))); }
  double up() { return double(cluster.network().counters("w2", "w1").bytes); }
  double down() { return double(cluster.network().counters("w1", "w2").bytes); }
  template <class F>
  auto await(const F& future) {
    return cluster.await(future).value();
  }
  SimulatedCluster cluster;
};

void check_bytes(double got, double formula) {
  CHECK(got >= formula);
  CHECK(got <= 1.02 * formula);
}

}  // namespace

TEST_CASE("pushes and pulls take the bytes of the formula, and at most 2 % more, compressed or not") {
  constexpr int64_t kElements = 1 << 19, kSteps = 3;
  for (const auto& [pull, push] : std::vector<std::pair<std::string, std::string>>{{"none", "none"},
                                                                                   {"fp16", "none"},
                                                                                   {"none", "bf16"},
                                                                                   {"bf16", "fp16"},
                                                                                   {"fp16", "topk(0.05)"},
                                                                                   {"none", "1bit"}})
    for (const bool together : {false, true}) {
      INFO("pull " << pull << ", push " << push << ", push_pull " << together);
      Scene s;
      const Served served = serve(s.here(), {"w1"}, {zeros({kElements})}, with(pull, push));
      const auto hand = s.cluster.here(0).spawn<Hand>(2, served);
      s.await(hand.call<&Hand::pull>());
      const double up = s.up(), down = s.down();
      const Tensor gradient = some({kElements}, 1);
      for (int64_t i = 0; i < kSteps; ++i)
        if (together) {
          s.await(hand.call<&Hand::push_pull>(Tensors{gradient}));
        } else {
          s.await(hand.call<&Hand::push>(Tensors{gradient}, 1.0));
          s.await(hand.call<&Hand::pull>());
        }
      const auto formula = [&](const std::string& how) {
        return double(kSteps * packed_bytes(Compression::parse(how), kElements, float32));
      };
      check_bytes(s.up() - up, formula(push));
      check_bytes(s.down() - down, formula(pull));
    }
}

TEST_CASE("a table's pulls and pushes take the bytes of the distinct rows and of their numbers") {
  constexpr int64_t kRows = 10'000, kWidth = 64, kDistinct = 2000, kSteps = 3;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 3 * kDistinct; ++i) ids.push_back(i % kDistinct * 5);
  for (const std::string how : {"none", "fp16", "bf16"}) {
    INFO(how);
    Scene s;
    const ServedTable table = serve_table(s.here(), {"w1", "w1"}, kRows, kWidth, with(how, how));
    const auto hand = s.cluster.here(0).spawn<TableHand>(2, table);
    s.await(hand.call<&TableHand::pull>(tensor(ids)));
    const double up = s.up(), down = s.down();
    for (int64_t i = 0; i < kSteps; ++i) {
      s.await(hand.call<&TableHand::push>(tensor(ids), some({3 * kDistinct, kWidth}, 2)));
      s.await(hand.call<&TableHand::pull>(tensor(ids)));
    }
    const double numbers = 8 * kDistinct,
                 rows = double(packed_bytes(Compression::parse(how), kDistinct * kWidth, float32));
    check_bytes(s.up() - up, kSteps * (2 * numbers + rows));
    check_bytes(s.down() - down, kSteps * rows);
  }
}

TEST_CASE("logistic regression of three trainers learns as well with each compression under BSP") {
  constexpr int64_t kFeatures = 60, kTrainers = 3, kEach = 64;
  const Tensor truth = some({kFeatures, 3}, 1);
  const auto loss_after = [&](const std::string& pull, const std::string& push) {
    const auto cluster = Cluster::in_process(2, {});
    const Served served = serve(cluster->here(), {"w1"}, {zeros({kFeatures, 3}), zeros({3})},
                                with(pull, push, kTrainers), {.bytes = 400});
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < kTrainers; ++i) clients.push_back(std::make_unique<Client>(served));
    double loss = 0;
    for (uint64_t step = 0; step < 150; ++step) {
      loss = 0;
      for (uint64_t i = 0; i < kTrainers; ++i) {
        const Tensor x = some({kEach, kFeatures}, 1000 + step * kTrainers + i),
                     y = ops::matmul(x, truth).argmax(1);
        autograd::Context context(*cluster);
        const Tensors w = clients[i]->pull().get();
        const Tensor here = cross_entropy(add(matmul(x, w[0]), w[1]), y);
        context.backward(here);
        clients[i]->push_context(kEach).get();  // held until all have pushed
        loss += here.item() / kTrainers;
      }
    }
    nothing_left(*cluster);
    return loss;
  };
  const double plain = loss_after("none", "none");
  CHECK(plain < 0.25);
  for (const auto& [pull, push, most] :
       std::vector<std::tuple<std::string, std::string, double>>{{"fp16", "fp16", 1.01},
                                                                 {"bf16", "bf16", 1.02},
                                                                 {"none", "topk(0.1)", 1.1},
                                                                 {"bf16", "1bit", 1.1}}) {
    const double loss = loss_after(pull, push);
    INFO("pull " << pull << ", push " << push << ": " << loss << ", without " << plain);
    CHECK(loss < most * plain);
    CHECK(loss > 0.5 * plain);
  }
}

TEST_CASE("a step is the mean of what was sent, and what was not sent comes with later steps") {
  const auto cluster = Cluster::in_process(2, {});
  const Tensor start = zeros({8, 10});
  const Served served = serve(cluster->here(), {"w1", "w1"}, {start}, with("none", "topk(0.1)"));
  Client client(served);
  Tensor sum = zeros({8, 10});
  (void)client.pull().get();
  for (uint64_t step = 0; step < 30; ++step) {
    const Tensor gradient = some({8, 10}, step % 3 ? 1 : 2);
    sum = add(sum, gradient);
    client.push({gradient}, 0).get();  // counts for nothing, and makes nothing good
    (void)client.pull().get();
    client.push({gradient}).get();
    (void)client.pull().get();
  }
  CHECK(report(served).get()[0].version == 30);
  // What is owed stays bounded: a few steps' worth, of which one is 0.5 times the largest element.
  const Tensor owed = sub(mul(sum, -0.5), read(served).get()[0]);
  CHECK(owed.abs().amax().item() > 0.1);
  CHECK(owed.abs().amax().item() < 0.3 * sum.abs().amax().item());
}

TEST_CASE("a push that is refused or comes too late takes nothing from what is kept") {
  const auto cluster = Cluster::in_process(2, {});
  const Tensor a = some({20}, 1), b = some({20}, 2), big = full({20}, 100.0);
  for (const bool together : {false, true}) {
    INFO("push_pull " << together);
    const auto options = [&](const std::string& policy) {
      ServerOptions out = with("none", "topk(0.25)", 2);
      out.policy = ServerPolicy::parse(policy);
      return out;
    };
    const auto push = [&](Client& client, const Tensor& gradient) {
      if (!together) return client.push({gradient}).then([](const Pushed&) {});
      return client.push_pull({gradient}).then([](const Tensors&) {});
    };
    // Two blocks; each trainer's two pushes bring what is largest of a, and of what is left of a and b.
    const Served served = serve(cluster->here(), {"w1"}, {zeros({20})}, options("async"), {.bytes = 40});
    REQUIRE(served.servers.size() == 2);
    Client client(served), other(served);
    (void)client.pull().get(), (void)other.pull().get();
    client.push({a}).get();
    CHECK_THAT(invalid_text([&] { push(client, big).get(); }), Catch::Contains("that step is closed for it"));
    (void)client.pull().get();
    set_policy(served, ServerPolicy::parse("quorum(1)")).get();
    (void)client.pull().get(), (void)other.pull().get();
    other.push({zeros({20})}).get();
    push(client, big).get();
    CHECK(report(served).get()[0].late == 1);
    set_policy(served, ServerPolicy::parse("async")).get();
    const Tensor before = read(served).get()[0];
    (void)client.pull().get();
    client.push({b}).get();
    const Tensor moved =
        mul(sub(before, read(served).get()[0]), 4.0);  // half of the weight, at a rate of 0.5
    Tensors residual;
    const Compression how = Compression::parse("topk(0.25)");
    for (const int64_t from : {0, 10}) {
      residual.clear();
      (void)pack({a.slice(0, from, from + 10)}, how, &residual);
      const Packed packed = pack({b.slice(0, from, from + 10)}, how, &residual);
      const Tensor expected = unpack(packed, {{float32, {10}}})[0];
      CHECK(difference(moved.slice(0, from, from + 10), expected, 1e-5, 1e-5) == "");
    }
  }
}

TEST_CASE("gradients of a context stay with the trainer, and are those of all pulls in it") {
  const auto cluster = Cluster::in_process(3, {});
  const Tensors start{some({3, 4}, 1), some({4}, 2)};
  const Tensor x = some({5, 3}, 3);
  for (const std::string pull : {"none", "fp16"})
    for (const std::string push : {"bf16", "topk(1)"}) {
      INFO(pull << ", " << push);
      const Served served = serve(cluster->here(), {"w1", "w2"}, start, with(pull, push), {.bytes = 20});
      Client client(served);
      {
        autograd::Context unused(*cluster);
        unused.backward(client.pull().get()[0].sum());
      }
      autograd::Context context(*cluster);
      const Tensors w = client.pull().get(), again = client.pull().get();
      context.backward(add(matmul(x, w[0]).sum(), mul(again[1], 3.0).sum()));
      client.push_context().get();
      const Tensors now = read(served).get();
      const Tensor expected = sub(start[0], mul(x.sum({0}).reshape({3, 1}).expand({3, 4}), 0.5));
      CHECK(difference(now[0], expected, 1e-2, 1e-2) == "");
      CHECK(difference(now[1], sub(start[1], full({4}, 1.5)), 1e-6, 1e-6) == "");
      CHECK(report(served).get()[0].version == 1);
    }
  const auto table = serve_table(cluster->here(), {"w1", "w2"}, 10, 2, with("bf16", "fp16"));
  const Tensor ids = tensor({1, 3, 1}), one = tensor({4}), all = tensor({0, 1, 2, 3, 4, 5});
  TableClient words(table);
  const Tensor before = read(table, all).get();
  {
    autograd::Context context(*cluster);
    const Tensor a = words.pull(ids).get(), b = words.pull(one).get();
    CHECK(a.shape() == Shape{3, 2});
    context.backward(add(a.sum(), mul(b, 2.0).sum()));
    words.push_context().get();
  }
  CHECK(difference(sub(before, read(table, all).get()),
                   tensor({{0, 0}, {1, 1}, {0, 0}, {0.5, 0.5}, {1, 1}, {0, 0}}), 1e-6, 1e-6) == "");
  {
    autograd::Context context(*cluster);
    (void)words.pull(ids).get();
    CHECK_FALSE(words.push_context(0).get().late);  // without a backward pass: a push of no rows
  }
  nothing_left(*cluster);
}

TEST_CASE("compression that cannot be is refused, with what to do") {
  const auto cluster = Cluster::in_process(2, {});
  const Tensors start{zeros({4})};
  CHECK(
      invalid_text([&] { serve(cluster->here(), {"w1"}, start, with("topk(0.1)", "none")); }) ==
      "[server] pulls compressed as \"topk(0.1)\": a pull brings whole values, of which that leaves out the "
      "most; expected none, fp16 or bf16 for pulls, and topk(0.1) for pushes");
  CHECK_THAT(invalid_text([&] { serve_table(cluster->here(), {"w1"}, 4, 2, with("1bit", "none")); }),
             Catch::Contains("[table] pulls compressed as \"1bit\""));
  CHECK_THAT(invalid_text([&] { serve_table(cluster->here(), {"w1"}, 4, 2, with("fp16", "1bit")); }),
             Catch::Contains("expected none, fp16 or bf16 for a table"));
  const Served served = serve(cluster->here(), {"w1"}, start, with("fp16", "1bit"));
  Client client(served, {.name = "t"});
  (void)client.pull().get();
  const auto& server = served.servers[0];
  const auto refused = [&](const auto& future) { return invalid_text([&] { (void)future.get(); }); };
  CHECK_THAT(refused(server.call<&Server::pull>("t", 0, Compression::parse("1bit"))),
             Catch::Contains("[server] pulls compressed as \"1bit\""));
  {
    autograd::Context context(*cluster);
    CHECK_THAT(refused(server.call<&Server::pull>("t", 0, Compression::parse("fp16"))),
               Catch::Contains("gradients would not run back through it"));
  }
  CHECK_THAT(refused(server.call<&Server::push>("t", VersionStamp{0, 0}, Packed{{start[0]}, {3}}, 1.0)),
             Catch::Contains("tensor 0 of 1 does not unpack"));
  CHECK_THAT(invalid_text([&] { client.push_context().get(); }), Catch::Contains("outside of a context"));
  const Tensor bad = full({4}, NAN);
  CHECK_THAT(refused(client.push({bad})), Catch::Contains("a gradient 0 with NaN or infinite elements"));
  CHECK_FALSE(client.push({ones({4})}).get().late);  // the step was open, and nothing bad is kept
  CHECK(read(served).get()[0].to_vector<float>() == std::vector<float>(4, -0.5f));
}

TEST_CASE("a push of weight 0 counts for nothing, whatever is in it") {
  for (const char* how : {"none", "fp16", "1bit", "topk(1)"}) {
    INFO(how);
    const auto cluster = Cluster::in_process(2, {});
    const Tensors start{zeros({4})};
    const Served served = serve(cluster->here(), {"w1"}, start,
                                {.options = {{"lr", 0.5}}, .trainers = 2, .push = Compression::parse(how)});
    Client a(served, {.name = "a"}), b(served, {.name = "b"});
    (void)a.pull().get(), (void)b.pull().get();
    const auto nothing = a.push({full({4}, NAN)}, 0);
    CHECK_FALSE(b.push({ones({4})}, 3).get().late);
    CHECK_FALSE(nothing.get().late);
    CHECK(read(served).get()[0].to_vector<float>()[0] == -0.5f);
  }
}
