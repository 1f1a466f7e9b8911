// What crosses between actors: values of every form, many calls at once, answers that come later.
#include <catch2/catch.hpp>

#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using testing::error_of;

namespace {

struct Record {
  std::string name;
  std::pair<int64_t, double> numbers;
  Bytes bytes;
  std::vector<Tensor> tensors;
};
using Nested = std::map<std::string, std::vector<std::tuple<Tensor, std::optional<Tensor>>>>;

struct Peer : Actor {
  explicit Peer(int64_t id) : id(id) {}
  void set_next(RRef<Peer> peer) { next = peer; }
  Task<void> greet() { co_await next.call<&Peer::receive>(tensor(double(id), DType::float64)); }
  void receive(Tensor from) { seen.push_back(int64_t(from.item())); }
  std::vector<int64_t> who() { return seen; }

  Tensor echo(Tensor t) { return t; }
  Tensor shifted(Tensor t, double by) { return ops::add(t, tensor(by)); }
  Nested nested(Nested n) { return n; }
  Record record(Record r) { return r; }
  int64_t plus_one(int64_t n) { return n + 1; }
  Tensor work(Tensor a) { return ops::matmul(a, a); }

  Task<int64_t> simple(int64_t n) { co_return n; }
  Task<int64_t> manual() { co_return co_await answer.future(); }
  void set_answer(int64_t n) { answer.set(n); }
  Task<int64_t> chained(RRef<Peer> other) {
    co_return co_await other.call<&Peer::plus_one>(1).then([](int64_t n) { return n * 10; });
  }
  Task<int64_t> nests(RRef<Peer> other, RRef<Peer> third) {
    co_return co_await other.call<&Peer::chained>(third) + 1;
  }
  Task<int64_t> steps(RRef<Peer> other, int64_t count) {
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i) n = co_await other.call<&Peer::plus_one>(n);
    co_return n;
  }
  Task<int64_t> fan_out(RRef<Peer> a, RRef<Peer> b, int64_t count) {
    std::vector<Future<int64_t>> calls;
    for (int64_t i = 0; i < count; ++i) calls.push_back((i % 2 ? a : b).call<&Peer::plus_one>(i));
    int64_t sum = 0;
    for (int64_t n : co_await all(calls)) sum += n;
    co_return sum;
  }
  Task<int64_t> deep(RRef<Peer> other, RRef<Peer> self, int64_t depth) {
    if (depth == 0) co_return 0;
    co_return co_await other.call<&Peer::deep>(self, other, depth - 1) + 1;
  }

  int64_t id;
  RRef<Peer> next;
  std::vector<int64_t> seen;
  Promise<int64_t> answer;
  static constexpr auto remote =
      methods<&Peer::set_next, &Peer::greet, &Peer::receive, &Peer::who, &Peer::echo, &Peer::shifted,
              &Peer::nested, &Peer::record, &Peer::plus_one, &Peer::work, &Peer::simple, &Peer::manual,
              &Peer::set_answer, &Peer::chained, &Peer::nests, &Peer::steps, &Peer::fan_out, &Peer::deep>;
};

Tensor ramp(int64_t n) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(float(i) + float(n) / 128);
  return tensor(v);
}

}  // namespace

TEST_CASE("in a ring every actor sees its predecessor, once") {
  constexpr int64_t kPeers = 4;
  auto cluster = Cluster::in_process(kPeers, hosting<Peer>());
  std::vector<RRef<Peer>> ring;
  for (int64_t i = 0; i < kPeers; ++i) ring.push_back(cluster->spawn<Peer>("w" + std::to_string(i), i));
  for (size_t i = 0; i < ring.size(); ++i) ring[i].call<&Peer::set_next>(ring[(i + 1) % ring.size()]).get();
  std::vector<Future<void>> greetings;
  for (auto& peer : ring) greetings.push_back(peer.call<&Peer::greet>());
  for (auto& g : greetings) g.get();
  for (int64_t i = 0; i < kPeers; ++i)
    CHECK(ring[size_t(i)].call<&Peer::who>().get() == std::vector<int64_t>{(i + kPeers - 1) % kPeers});
  for (auto& peer : ring) peer.call<&Peer::set_next>(RRef<Peer>()).get();
}

TEST_CASE("a hundred calls in flight with tensors of 0 to 99 elements have their own results") {
  auto cluster = Cluster::in_process(2, hosting<Peer>());
  for (const char* worker : {"w0", "w1"}) {
    auto peer = cluster->spawn<Peer>(worker, 0);
    std::vector<Future<Tensor>> echoes;
    for (int64_t n = 0; n < 100; ++n) echoes.push_back(peer.call<&Peer::echo>(ramp(n)));
    for (int64_t n = 0; n < 100; ++n) REQUIRE(bit_equal(echoes[size_t(n)].get(), ramp(n)));
  }
}

TEST_CASE("nested containers and structs arrive equal, one tensor in two places as well") {
  auto cluster = Cluster::in_process(2, hosting<Peer>());
  const Tensor twice = ramp(5), once = tensor({1, 2, 3});
  for (const char* worker : {"w0", "w1"}) {
    auto peer = cluster->spawn<Peer>(worker, 0);
    const Nested sent = {{"a", {{twice, once}, {once, std::nullopt}}}, {"b", {{twice, twice}}}, {"c", {}}};
    const Nested got = peer.call<&Peer::nested>(sent).get();
    REQUIRE(got.size() == 3);
    REQUIRE(got.at("a").size() == 2);
    REQUIRE(got.at("b").size() == 1);
    CHECK(got.at("c").empty());
    const auto& [t, o] = got.at("a")[0];
    CHECK(bit_equal(t, twice));
    REQUIRE(o);
    CHECK(bit_equal(*o, once));
    CHECK(bit_equal(std::get<0>(got.at("a")[1]), once));
    CHECK_FALSE(std::get<1>(got.at("a")[1]));
    CHECK(bit_equal(std::get<0>(got.at("b")[0]), twice));
    CHECK(bit_equal(std::get<1>(got.at("b")[0]).value(), twice));

    const Record record{"r", {-3, 0.5}, {std::byte{0}, std::byte{255}}, {twice, once, twice}};
    const Record back = peer.call<&Peer::record>(record).get();
    CHECK(back.name == "r");
    CHECK(back.numbers == record.numbers);
    CHECK(back.bytes == record.bytes);
    REQUIRE(back.tensors.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(bit_equal(back.tensors[i], record.tensors[i]));
  }
}

TEST_CASE("a tensor and a number are arguments side by side") {
  auto cluster = Cluster::in_process(2, hosting<Peer>());
  for (const char* worker : {"w0", "w1"})
    CHECK(cluster->spawn<Peer>(worker, 0)
              .call<&Peer::shifted>(tensor({1, 2}, float32), 0.5)
              .get()
              .to_vector<float>() == std::vector<float>{1.5, 2.5});
}

TEST_CASE("a thousand light calls and twenty heavy ones, all in flight at once") {
  auto cluster = Cluster::in_process(3, hosting<Peer>());
  const std::vector<RRef<Peer>> peers = {cluster->spawn<Peer>("w0", 0), cluster->spawn<Peer>("w1", 0),
                                         cluster->spawn<Peer>("w2", 0)};
  std::vector<Future<int64_t>> light;
  std::vector<Future<Tensor>> heavy;
  for (int64_t i = 0; i < 1000; ++i) {
    light.push_back(peers[size_t(i) % 3].call<&Peer::plus_one>(i));
    if (i % 50 == 0)  // 1 MiB there and back; each element of the product of constants is 512 c^2
      heavy.push_back(peers[size_t(i) % 3].call<&Peer::work>(full({512, 512}, double(i / 50))));
  }
  REQUIRE(heavy.size() == 20);
  for (int64_t i = 0; i < 1000; ++i) REQUIRE(light[size_t(i)].get() == i + 1);
  for (int64_t i = 0; i < 20; ++i)
    REQUIRE(bit_equal(heavy[size_t(i)].get(), full({512, 512}, double(512 * i * i))));
}

TEST_CASE("methods that answer later: at once, by another message, chained, nested, in steps, fanned out") {
  auto cluster = Cluster::in_process(3, hosting<Peer>());
  for (const char* worker : {"w0", "w1"}) {  // remote, and beside the caller
    auto a = cluster->spawn<Peer>(worker, 0), b = cluster->spawn<Peer>("w2", 0),
         c = cluster->spawn<Peer>("w1", 0);
    CHECK(a.call<&Peer::simple>(7).get() == 7);
    auto manual = a.call<&Peer::manual>(), again = a.call<&Peer::manual>();
    a.call<&Peer::plus_one>(0).get();  // comes after both, and finds them waiting
    CHECK_FALSE(manual.is_ready());
    a.call<&Peer::set_answer>(42).get();
    CHECK(manual.get() == 42);
    CHECK(again.get() == 42);
    CHECK(a.call<&Peer::chained>(b).get() == 20);
    CHECK(a.call<&Peer::nests>(b, c).get() == 21);
    CHECK(a.call<&Peer::steps>(b, 20).get() == 20);
    CHECK(a.call<&Peer::fan_out>(b, c, 20).get() == 20 * 21 / 2);
  }
}

TEST_CASE("two threads carry 200 nested calls at once") {
  auto cluster = Cluster::in_process(3, hosting<Peer>(), {.threads = 2});
  auto a = cluster->spawn<Peer>("w1", 0), b = cluster->spawn<Peer>("w2", 0);
  std::vector<Future<int64_t>> calls;
  for (int i = 0; i < 200; ++i)
    calls.push_back((i % 2 ? a : b).call<&Peer::deep>(i % 2 ? b : a, i % 2 ? a : b, 6));
  for (auto& c : calls) CHECK(c.get() == 6);
}
