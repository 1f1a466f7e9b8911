// Servers of dense parameters: exact updates, waiting, and input that is wrong.
#include <catch2/catch.hpp>
#include <latch>
#include <thread>

#include "optim/optim.h"
#include "parallel/server/served_table.h"
#include "parallel/server/server.h"
#include "rref/ref_table.h"
#include "tests/parallel/hands.h"
#include "tests/support/error_of.h"
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
Tensors gradients_of(const Tensors& like, uint64_t seed) {
  Tensors out;
  for (const Tensor& t : like) out.push_back(some(t.shape(), seed++));
  return out;
}
bool same(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!bit_equal(a[i], b[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("parameters are cut into blocks of equal size that hold every element once") {
  using Blocks = std::vector<std::vector<Extent>>;
  CHECK(cut({10}, 4, 1, 100) == Blocks{{{0, 0, 10}}});
  CHECK(cut({10}, 4, 2, 100) == Blocks{{{0, 0, 5}}, {{0, 5, 10}}});
  CHECK(cut({3, 0, 4}, 4, 2, 100) == Blocks{{{0, 0, 3}, {1, 0, 0}, {2, 0, 1}}, {{2, 1, 4}}});
  CHECK(cut({10}, 4, 2, 8) ==
        Blocks{{{0, 0, 2}}, {{0, 2, 4}}, {{0, 4, 6}}, {{0, 6, 8}}, {{0, 8, 9}}, {{0, 9, 10}}});
  CHECK(cut({1}, 4, 5, 100) == Blocks{{{0, 0, 1}}});
  CHECK(cut({0}, 4, 2, 100) == Blocks{{{0, 0, 0}}});
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Generator random(seed);
    std::vector<int64_t> numels(1 + random.below(6));
    for (auto& n : numels) n = static_cast<int64_t>(random.below(50));
    const int64_t servers = 1 + static_cast<int64_t>(random.below(5)),
                  bytes = 4 + static_cast<int64_t>(random.below(90));
    std::vector<int64_t> at(numels.size(), 0);
    int64_t least = 1 << 20, most = 0;
    const auto blocks = cut(numels, 4, servers, bytes);
    for (const auto& block : blocks) {
      int64_t size = 0;
      for (const Extent& e : block) {
        REQUIRE(e.begin == at[size_t(e.tensor)]);
        at[size_t(e.tensor)] = e.end;
        size += e.end - e.begin;
      }
      least = std::min(least, size), most = std::max(most, size);
    }
    REQUIRE(at == numels);
    REQUIRE(most * 4 <= bytes);
    REQUIRE(most - least <= 1);
  }
  CHECK_THAT(invalid_text([] { (void)cut({1}, 4, 0, 8); }), Catch::Contains("0 servers"));
  CHECK_THAT(invalid_text([] { (void)cut({1}, 4, 1, 3); }), Catch::Contains("blocks of 3 bytes"));
}

TEST_CASE("the optimizer of a server does what the same optimizer does at home, in blocks of any size") {
  const Tensors start{some({6, 5}, 1), some({7}, 2), some({}, 3)};
  const std::vector<std::pair<std::string, ValueMap>> all{
      {"sgd", {{"lr", 0.1}}},
      {"sgd", {{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.01}}},
      {"adam", {{"lr", 0.1}}},
      {"adamw", {{"lr", 0.1}, {"weight_decay", 0.1}}},
      {"adagrad", {{"lr", 0.1}}}};
  for (const auto& [name, options] : all)
    for (const int64_t bytes : {4096, 36}) {
      INFO(name << " in blocks of " << bytes);
      Scene s(start, {.optimizer = name, .options = options}, 1, bytes);
      Tensors home;
      for (const Tensor& t : start) home.push_back(t.clone_data().requires_grad_());
      const auto optimizer = optim::make(name, options, home);
      for (uint64_t step = 0; step < 4; ++step) {
        REQUIRE(same(s.pull(0), home));
        const Tensors gradients = gradients_of(start, 10 * step);
        s.push(0, gradients, 3);
        optimizer->step(gradients);
      }
      CHECK(same(s.values(), home));
    }
}

TEST_CASE("a step is the exact weighted mean, with the same bits whoever comes first") {
  const Tensors start{some({33}, 1)};
  std::vector<Tensors> ends;
  for (const std::string policy : {"bsp", "ssp(0)", "local(1)"})
    for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
      Scene s(start, with_policy(policy, 3), 3);
      if (policy == "local(1)")
        REQUIRE(s.cluster.await(set_options(s.served, {{"lr", 0.1}})).ok());  // is not used
      for (uint64_t step = 0; step < 3; ++step) {
        for (size_t i : {0, 1, 2}) s.pull(i);
        for (const size_t i : order) s.push(i, gradients_of(start, 7 * step + i), double(i));
      }
      ends.push_back(s.values());
    }
  for (size_t i = 1; i < 6; ++i) CHECK(same(ends[i], ends[0]));
  for (size_t i = 7; i < 9; ++i) CHECK(same(ends[i], ends[6]));
  auto expected = start[0].to_vector<double>();
  for (uint64_t step = 0; step < 3; ++step) {
    const auto b = gradients_of(start, 7 * step + 1)[0].to_vector<double>(),
               c = gradients_of(start, 7 * step + 2)[0].to_vector<double>();
    for (size_t k = 0; k < expected.size(); ++k) expected[k] -= 0.5 * (b[k] + 2 * c[k]) / 3;
  }
  for (size_t k = 0; k < expected.size(); ++k)
    CHECK(ends[0][0].to_vector<double>()[k] == Approx(expected[k]).epsilon(1e-5));
}

TEST_CASE("under bsp a pull waits for the others' pushes, and no longer") {
  const Tensors start{zeros({2})}, one{ones({2})};
  Scene s(start, with_policy("bsp", 2), 1);
  const auto early = s.hands[0].call<&Hand::pull>();
  s.cluster.settle();
  CHECK_FALSE(early.is_ready());  // two trainers are expected
  s.add(1);
  CHECK(s.cluster.await(early).ok());
  s.pull(1);
  s.push(0, one);
  const auto waiting = s.hands[0].call<&Hand::pull>();
  s.cluster.settle();
  CHECK_FALSE(waiting.is_ready());
  CHECK(s.report().missing == std::vector<std::string>{"t1"});
  s.push(1, one);
  CHECK(s.cluster.await(waiting).value()[0].to_vector<float>() == std::vector<float>{-0.5, -0.5});
}

TEST_CASE("a read says at least which version it wants, and waits for it") {
  const Tensors start{zeros({1})}, one{ones({1})};
  Scene s(start, with_policy("async", 2), 2);
  const auto wanted = read(s.served, 2);
  s.pull(0), s.pull(1);
  s.push(0, one);
  s.cluster.settle();
  CHECK_FALSE(wanted.is_ready());
  s.push(1, one, 3);
  CHECK(s.cluster.await(wanted).value()[0].item() == Approx(-0.5 * (0.5 + 0.75)));  // weights 1 of 2, 3 of 4
}

TEST_CASE("values that a trainer has read do not change under it, on the server's own worker either") {
  const Tensors start{full({4}, 2.0)};
  const auto cluster = Cluster::in_process(1, hosting<Hand>());
  const Served served = serve(cluster->here(), {"w0"}, start, with_policy("bsp"));
  served.servers[0].ready().get();
  start[0].fill_(7);  // copied
  const auto hand = cluster->spawn<Hand>("w0", served, "t0");
  const Tensors seen = hand.call<&Hand::pull>().get();
  hand.call<&Hand::push>(Tensors{ones({4})}, 1.0).get();
  CHECK(seen[0].to_vector<float>() == std::vector<float>(4, 2.f));
  CHECK(read(served).get()[0].to_vector<float>() == std::vector<float>(4, 1.5f));
}

TEST_CASE("delayed steps are w -= lr g(w of one step before), whoever is fast") {
  const Tensors start{ones({1})};
  for (const bool fast_first : {true, false}) {
    Scene s(start, with_policy("delayed", 2), 2);
    double before = 1, now = 1;  // g(w) = w
    std::vector<double> seen{1};
    for (int step = 0; step < 6; ++step) {
      const double next = now - 0.5 * before;
      before = step == 0 ? 1 : now, now = next;
      seen.push_back(before);
    }
    for (size_t step = 0; step < 6; ++step)
      for (const size_t i : fast_first ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0}) {
        const Tensors w = s.pull(i);
        CHECK(w[0].item() == Approx(seen[step]));
        s.push(i, w);
      }
    CHECK(s.report().delays == std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {1, 10}});
    CHECK(s.report().weights == std::vector<std::pair<int64_t, double>>{{0, 2}, {1, 10}});
  }
}

TEST_CASE("local steps are averaged, with SlowMo's momentum") {
  const auto cluster = Cluster::in_process(1, {});
  const double beta = 0.5, alpha = 0.8;
  const Served served =
      serve(cluster->here(), {"w0"}, {full({1}, 10.0)}, with_policy("local(4, 0.5, 0.8)", 2));
  Client a(served), b(served);
  double x = 10, u = 0;
  for (int round = 0; round < 3; ++round) {
    for (Client* c : {&a, &b}) {
      const Tensors w = c->pull().get();
      CHECK(w[0].item() == Approx(x));
      CHECK(c->local_steps() == 4);
      c->push_values({ops::mul(w[0], c == &a ? 0.5 : 0.8)}, c == &a ? 1 : 3).get();
    }
    const double mean = (1 * 0.5 * x + 3 * 0.8 * x) / 4;
    u = beta * u + (x - mean);
    x -= alpha * u;
  }
  CHECK(read(served).get()[0].item() == Approx(x));
  set_policy(served, ServerPolicy::parse("bsp")).get();
  const Tensors w = a.pull().get();
  CHECK(a.local_steps() == 0);
  CHECK_THAT(invalid_text([&] { (void)a.push_values(w); }), Catch::Contains("outside of local(H)"));
}

TEST_CASE("a policy changes while trainers wait: they go on at once") {
  const Tensors start{zeros({1})}, one{ones({1})};
  Scene s(start, with_policy("bsp", 2), 2);
  s.pull(0), s.pull(1);
  s.push(0, one);
  const auto waiting = s.hands[0].call<&Hand::pull>();
  s.cluster.settle();
  REQUIRE_FALSE(waiting.is_ready());
  REQUIRE(s.cluster.await(set_policy(s.served, ServerPolicy::parse("async"))).ok());
  CHECK(s.cluster.await(waiting).value()[0].item() == -0.25);  // half a step: the held gradient
  s.push(0, one);
  REQUIRE(s.cluster.await(set_policy(s.served, ServerPolicy::parse("bsp"))).ok());
  s.push(1, one);  // of long ago
  s.pull(0);
  s.push(0, one);
  CHECK(s.values()[0].item() == -1);
  CHECK(s.report().policy == "bsp");
}

TEST_CASE("a quorum step closes on the first, and the late one is told, and goes on with the others") {
  const Tensors start{zeros({1})}, one{ones({1})};
  Scene s(start, with_policy("quorum(2)", 3), 3);
  for (size_t i : {0, 1, 2}) s.pull(i);
  CHECK_FALSE(s.push(0, one).late);
  CHECK_FALSE(s.push(1, {full({1}, 4.0)}, 2).late);
  CHECK(s.values()[0].item() == -1.5);  // (1 + 2 * 4) / 3, at a rate of 0.5
  CHECK(s.push(2, one, 100).late);
  CHECK(s.values()[0].item() == -1.5);
  CHECK(s.report().late == 1);
  s.pull(2), s.pull(0);
  s.push(2, one), s.push(0, one);
  CHECK(s.values()[0].item() == -2);
}

TEST_CASE("what is wrong is refused with what was expected, and the step stays open") {
  const Tensors start{zeros({2, 3}), zeros({4})};
  Scene s(start, with_policy("bsp", 1), 1);
  const Tensors good{ones({2, 3}), ones({4})};
  CHECK_THAT(s.refusal(0, good), Catch::Contains("push before the first pull"));
  s.pull(0);
  CHECK_THAT(s.refusal(0, {good[0]}), Catch::Contains("1 gradients for 2 parameters"));
  CHECK_THAT(s.refusal(0, {good[1], good[0]}),
             Catch::Contains("gradient 0 is float32 [4]; its parameter has the shape [2, 3]"));
  CHECK_THAT(s.refusal(0, {good[0].to(float64), good[1]}),
             Catch::Contains("trainer \"t0\" pushes float64 [2, 3] as gradient 0; expected float32"));
  for (const double bad : {std::nan(""), HUGE_VAL})
    CHECK_THAT(s.refusal(0, {good[0], full({4}, bad)}),
               Catch::Contains("invalid") && Catch::Contains("gradient 1 with NaN or infinite"));
  CHECK_THAT(s.refusal(0, good, -1), Catch::Contains("weight of -1"));
  CHECK(same(s.values(), start));
  s.push(0, good);
  CHECK_THAT(s.refusal(0, good), Catch::Contains("that step is closed for it"));
  CHECK(s.values()[1].to_vector<float>() == std::vector<float>(4, -0.5f));
  // The same from below: what no Client does.
  const auto& server = s.served.servers[0];
  const auto text = [&](const auto& future) {
    const auto r = s.cluster.await(future);
    return r.ok() ? "no error" : std::string(r.error().what());
  };
  CHECK_THAT(text(server.call<&Server::push>("t0", VersionStamp{}, Packed{{good[0]}, {}}, 1.0)),
             Catch::Contains("1 gradients; expected 2"));
  CHECK_THAT(text(server.call<&Server::push>("t9", VersionStamp{}, Packed{good, {}}, 1.0)),
             Catch::Contains("no trainer \"t9\"; there are: t0"));
  CHECK_THAT(text(server.call<&Server::pull>("t9", 0, parallel::Compression())),
             Catch::Contains("no trainer"));
  CHECK_THAT(text(server.call<&Server::join>("t0", WorkerId(2))), Catch::Contains("has joined already"));
  CHECK_THAT(text(server.call<&Server::leave>("t9")), Catch::Contains("no trainer"));
  CHECK_THAT(text(server.call_by_name("set_policy", {Value("ssp(-3)")})),
             Catch::Contains("expected bsp, ssp(s)"));
  CHECK_THAT(text(set_options(s.served, {{"lr", -1.0}})), Catch::Contains("lr"));
  const auto made = [&](const Tensors& t, const ServerOptions& options) {
    return text(s.cluster.here(0).spawn<Server>(1, t, options).call<&Server::report>());
  };
  CHECK_THAT(made({zeros({2}, int64)}, {}), Catch::Contains("expected a floating tensor"));
  CHECK_THAT(made(start, {.optimizer = "sdg"}), Catch::Contains("did you mean \"sgd\""));
  CHECK_THAT(made(start, {.trainers = 0}), Catch::Contains("0 trainers"));
  const Here here(internal::rref::RefTable::of(s.cluster.worker(0)));
  CHECK_THAT(invalid_text([&] { serve(here, {}, start, {}); }), Catch::Contains("on 0 workers"));
  CHECK_THAT(invalid_text([&] { serve(here, {"w1"}, {start[0], zeros({1}, float64)}, {}); }),
             Catch::Contains("expected one dtype"));
  CHECK_THAT(invalid_text([&] { serve(here, {"w1", "w2"}, start, {.optimizer = "lamb"}); }),
             Catch::Contains("lamb needs whole tensors"));
}

TEST_CASE("what one block would refuse is refused before any block has a part of it") {
  const Tensors start{zeros({4}), zeros({4})}, good{ones({4}), ones({4})};
  Scene s(start, with_policy("bsp"), 1, 8);  // four blocks of two elements
  REQUIRE(s.served.servers.size() == 4);
  s.pull(0);
  CHECK_THAT(s.refusal(0, {good[0], tensor({1., 1., std::nan(""), 1.}, float32)}),
             Catch::Contains("a gradient 1 with NaN or infinite elements; the step is open"));
  CHECK_THAT(s.refusal(0, {good[0], good[1].to(float64)}),
             Catch::Contains("pushes float64 [4] as gradient 1; expected float32 [4]"));
  CHECK_FALSE(s.push(0, good).late);
  for (const Tensor& value : s.values()) CHECK(value.to_vector<float>() == std::vector<float>(4, -0.5f));
}

TEST_CASE("the rate goes down with the delay, if it is told to") {
  const Tensors start{zeros({1})}, one{ones({1})};
  ServerOptions options = with_policy("async", 2);
  options.lr_by_delay = true;
  Scene s(start, options, 2);
  s.pull(0), s.pull(1);
  s.push(0, one);
  CHECK(s.values()[0].item() == -0.25);
  s.push(1, one);  // one update has come in between
  CHECK(s.values()[0].item() == -0.375);
  CHECK(s.report().delays == std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 1}});
}

TEST_CASE(
    "every server's staleness is in the metrics of its worker, as in its report, until the server goes") {
  const auto cluster = Cluster::in_process(2, {});
  const Tensors start{zeros({2}), zeros({2})}, one{ones({2}), ones({2})};
  const auto shown = [&](const std::string& part) {
    std::map<std::string, int64_t> out;
    for (const auto& [name, value] : cluster->metrics("w1"))
      if (name.find(part) != std::string::npos) out[name] = value;
    return out;
  };
  {
    const Served served = serve(cluster->here(), {"w1"}, start, with_policy("quorum(1)", 2), {.bytes = 8});
    REQUIRE(served.servers.size() == 2);
    Client a(served), b(served);
    for (int i = 0; i < 3; ++i) {
      (void)a.pull().get(), (void)b.pull().get();
      CHECK_FALSE(a.push(one).get().late);
      if (i == 0) CHECK(b.push(one).get().late);
    }
    set_policy(served, ServerPolicy::parse("async")).get();
    b.push(one).get();
    const std::vector<ServerReport> reports = report(served).get();
    CHECK(reports[0].late >= 1);
    for (const auto& [what, of] : {std::pair<std::string, std::function<int64_t(const ServerReport&)>>{
                                       "late", [](const auto& r) { return r.late; }},
                                   {"aborted", [](const auto& r) { return r.aborted; }},
                                   {"lost", [](const auto& r) { return r.lost; }}}) {
      const auto metrics = shown("." + what);
      REQUIRE(metrics.size() == 2);
      for (const auto& [name, value] : metrics) {
        CHECK_THAT(name, Catch::StartsWith("Server#0:"));
        CHECK(value == of(reports[0]));
      }
    }
    const auto delays = shown(".delay_");
    CHECK(delays.size() == 2 * reports[0].delays.size());
    for (const auto& [delay, gradients] : reports[0].delays) {
      const auto of = shown(".delay_" + std::to_string(delay));
      REQUIRE(of.size() == 2);
      for (const auto& [name, value] : of) CHECK(value == gradients);
    }
    const ServedTable table = serve_table(cluster->here(), {"w1"}, 10, 2, with_policy("bsp"));
    TableClient rows(table);
    (void)rows.pull(zeros({1}, int64)).get();
    rows.push(zeros({1}, int64), zeros({1, 2})).get();
    CHECK(shown("Table#0:").size() == 4);
    CHECK(shown("Table#0:").begin()->first.ends_with(".aborted"));
  }
  while (!shown("#0:").empty()) std::this_thread::yield();
}

TEST_CASE("a step moves the bytes of its gradients and of its values, and at most 2 % more") {
  const int64_t n = 100'000;
  for (const int64_t bytes : {4 << 20, 40'000}) {
    Scene s({zeros({n})}, with_policy("bsp"), 1, bytes);
    s.pull(0);
    const auto at = [&](const char* from, const char* to) {
      return double(s.cluster.network().counters(from, to).bytes);
    };
    const double up = at("w2", "w1"), down = at("w1", "w2");
    const Tensor gradient = ones({n});
    for (int i = 0; i < 3; ++i) s.cluster.await(s.hands[0].call<&Hand::push_pull>(Tensors{gradient}, 1.0));
    CHECK(at("w2", "w1") - up >= 3 * 4 * n);
    CHECK(at("w2", "w1") - up <= 1.02 * 3 * 4 * n);
    CHECK(at("w1", "w2") - down >= 3 * 4 * n);
    CHECK(at("w1", "w2") - down <= 1.02 * 3 * 4 * n);
  }
}

TEST_CASE("a busy server is told its policy and who left although nobody keeps the futures") {
  auto cluster = Cluster::in_process(1, hosting<Server>());
  const Served served = serve(cluster->here(), {"w0"}, {some({4}, 1)}, with_policy("bsp"));
  Client client(served, {.name = "t0"});
  REQUIRE(parallel::report(served).get().at(0).trainers == std::vector<std::string>{"t0"});
  std::latch started(1), go_on(1);
  std::thread holds([&] {
    const auto held = served.servers[0].local([&](Server&) { started.count_down(), go_on.wait(); });
    held.get();
  });
  started.wait();
  (void)set_policy(served, ServerPolicy::parse("async"));
  (void)client.leave();
  go_on.count_down();
  holds.join();
  const ServerReport report = parallel::report(served).get().at(0);
  CHECK(report.policy == ServerPolicy::parse("async").str());
  CHECK(report.trainers.empty());
}
