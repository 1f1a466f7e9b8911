// The program's stream: seeded, repeatable, and shared by threads.
#include "core/base/seed_stream.h"

#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

#include "core/base/call_frame.h"

using namespace troupe;

namespace {

std::vector<uint64_t> drawn(int n) {
  std::vector<uint64_t> out;
  for (int i = 0; i < n; ++i) out.push_back(current_stream().next());
  return out;
}

}  // namespace

TEST_CASE("a seed decides about the numbers of the program's stream") {
  manual_seed(3);
  const auto first = drawn(5);
  CHECK(drawn(5) != first);
  manual_seed(3);
  CHECK(drawn(5) == first);
  manual_seed(4);
  CHECK(drawn(5) != first);
  Generator same(3);
  for (const uint64_t n : first) CHECK(same.next() == n);
}

TEST_CASE("a stream goes on from where it was") {
  manual_seed(3);
  (void)drawn(5);
  const auto at = current_stream().position();
  const auto next = drawn(5);
  manual_seed(8);
  current_stream().set_position(at);
  CHECK(drawn(5) == next);
}

TEST_CASE("no two generators of a stream are the same, and no number goes to two threads") {
  manual_seed(0);
  std::set<uint64_t> firsts;
  for (int i = 0; i < 1000; ++i) firsts.insert(next_generator().next());
  CHECK(firsts.size() == 1000);
  manual_seed(1);
  std::vector<std::vector<uint64_t>> of(4);
  std::vector<std::thread> threads;
  for (auto& mine : of) threads.emplace_back([&mine] { mine = drawn(10000); });
  for (auto& t : threads) t.join();
  std::set<uint64_t> all;
  for (const auto& mine : of) all.insert(mine.begin(), mine.end());
  CHECK(all.size() == 40000);
  CHECK(current_stream().position().counter == 40000);
}

TEST_CASE("the stream of a frame is the current one there") {
  manual_seed(2);
  SeedStream other(2);
  CallFrame at;
  at.seed_stream = &other;
  const auto first = drawn(3);
  {
    const CallFrameScope scope(at);
    CHECK(drawn(3) == first);
    manual_seed(5);
  }
  CHECK(current_stream().position().counter == 3);
  CHECK(other.position() == Generator(5).position());
}
