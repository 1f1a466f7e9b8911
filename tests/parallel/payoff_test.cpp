// When encoding pays, told with times that the test makes up.
#include "parallel/server/compression/compression_tuner.h"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::parallel;
using namespace std::chrono_literals;

namespace {

// A link: messages take `latency` and bytes at `ns_per_byte`; making one of 1,000,000 bytes smaller by
// `ratio` takes `cost`.
struct Link {
  Duration latency{0};
  double ns_per_byte = 0;
  Duration cost{0};
  double ratio = 2;
};

// How many of the last 100 of `count` messages were encoded.
int encoded(const Link& link, int count, CompressionTuner payoff = CompressionTuner(), WireTimes wire = {}) {
  constexpr int64_t kBytes = 1'000'000;
  int last = 0;
  for (int i = 0; i < count; ++i) {
    const bool encode = payoff.next(wire);
    const auto bytes = encode ? static_cast<int64_t>(kBytes / link.ratio) : kBytes;
    if (encode) payoff.coded(kBytes - bytes, link.cost);
    wire.took(bytes, encode,
              link.latency + Duration(static_cast<int64_t>(link.ns_per_byte * static_cast<double>(bytes))));
    last += encode && i >= count - 100;
  }
  return last;
}

}  // namespace

TEST_CASE("encoding stays on where the bytes that it saves take longer, and is switched off elsewhere") {
  const Link slow{100us, 100, 1ms}, shared_memory{20us, 0.2, 1ms};  // 80 Mb/s; 5 GB/s
  CHECK(encoded(slow, 1000) == 100);
  CHECK(encoded(shared_memory, 1000) == 0);
  // 500 kB at 2 ns are 1 ms: what it costs decides.
  CHECK(encoded({0us, 2, 999us}, 1000) == 100);
  CHECK(encoded({0us, 2, 1001us}, 1000) == 0);
}

TEST_CASE("the time that any message takes is no reason to make messages smaller") {
  CHECK(encoded({10ms, 0.2, 200us}, 1000) == 0);
  CHECK(encoded({10ms, 0.2, 200us, 32}, 1000) == 0);  // saves 194 us
  CHECK(encoded({10ms, 0.2, 190us, 32}, 1000) == 100);
  CHECK(encoded({10ms, 0, 0us}, 1000) == 0);
}

TEST_CASE("a message that had to wait does not make the link look slow") {
  CompressionTuner payoff;
  WireTimes wire;
  for (int i = 0; i < 100; ++i) {
    wire.took(1'000'000, false, i % 4 ? 50ms : 200us);
    payoff.coded(500'000, i % 4 ? 9ms : 1ms);
  }
  CHECK(wire.ns_per_byte() == Approx(0.2));
  CHECK_FALSE(payoff.pays(wire));
  for (int i = 0; i < 10; ++i) wire.took(1'000'000, false, 50ms);  // the link has become slow
  CHECK(payoff.pays(wire));
}

TEST_CASE("it looks again, ever more rarely, and goes back when things have changed") {
  CompressionTuner payoff;
  WireTimes wire;
  Link link{0us, 0.2, 1ms};
  std::vector<int> looks;
  int on_after = 0;
  for (int i = 0; i < 3000; ++i) {
    if (i == 1500) link.ns_per_byte = 100;
    const bool encode = payoff.next(wire);
    if (encode && i >= 4 && i < 1500) looks.push_back(i);
    if (encode && i >= 1500 && on_after == 0) on_after = i;
    const int64_t bytes = encode ? 500'000 : 1'000'000;
    if (encode) payoff.coded(1'000'000 - bytes, link.cost);
    wire.took(bytes, encode, Duration(static_cast<int64_t>(link.ns_per_byte * static_cast<double>(bytes))));
  }
  CHECK(looks == std::vector<int>{8, 16, 32, 64, 128, 256, 512, 1024});
  CHECK(on_after > 1500);
  CHECK(on_after <= 1510);
  CHECK(encoded({0us, 0.2, 1ms}, 1000, CompressionTuner(true)) == 100);  // always
}

TEST_CASE("nothing is encoded before both things were measured, or where nothing becomes smaller") {
  CompressionTuner payoff;
  WireTimes wire;
  CHECK(wire.ns_per_byte() == 0);
  CHECK_FALSE(payoff.pays(wire));
  CHECK_FALSE(payoff.next(wire));
  wire.took(0, false, 1s);
  CHECK(wire.ns_per_byte() == 0);
  wire.took(10, false, 1s);
  CHECK(wire.ns_per_byte() == 1e8);
  payoff.coded(0, 1ms);
  CHECK_FALSE(payoff.pays(wire));
  payoff.coded(5, 1ms);
  CHECK(payoff.pays(wire));
}
