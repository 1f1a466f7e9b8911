// Schedules, run over an interpreter in memory: every operation, way, number of ranks and sizes that do not
// divide.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "collective/schedule/choice.h"
#include "core/base/error.h"
#include "tests/collective/schedule_run.h"

using namespace troupe;
using namespace troupe::testing::schedules;
using namespace troupe::internal::collective;
using Catch::Contains;

namespace {

std::vector<Collective> all_collectives() {
  std::vector<Collective> all;
  for (int i = 0; i < kCollectiveCount; ++i) all.push_back(static_cast<Collective>(i));
  return all;
}
std::vector<Way> ways(Collective c) {
  std::vector<Way> all;
  for (int i = 0; i < kWayCount; ++i)
    if (offers(c, static_cast<Way>(i))) all.push_back(static_cast<Way>(i));
  return all;
}

// All blocks of `each` elements.
Problem even(Collective c, size_t n, size_t each, size_t root = 0) {
  Problem p{c, n, root};
  if (is_one_tensor(c))
    p.counts = {n * each};
  else if (c == Collective::all_to_all)
    p.counts.assign(n * n, each);
  else if (c != Collective::barrier)
    p.counts.assign(n, each);
  return p;
}
// Blocks of any size, of which every third is empty.
Problem uneven(Collective c, size_t n, size_t most, uint64_t seed) {
  Generator random(seed);
  Problem p = even(c, n, 0, random.below(n));
  for (size_t& x : p.counts) x = random.below(3) ? random.below(most + 1) : 0;
  return p;
}

}  // namespace

TEST_CASE("every way of every operation gives every rank its elements, whatever the sizes") {
  for (const Collective c : all_collectives())
    for (const Way w : ways(c))
      for (size_t n = 1; n <= 17; ++n)
        for (uint64_t seed = 0; seed < 3; ++seed) {
          check_run(uneven(c, n, 9, seed), w, seed ? seed + 1 : kOnePiece, seed);
          if (is_one_tensor(c)) {
            const size_t total = seed ? 5 * n + seed : n / 2;  // some blocks are empty
            check_run({c, n, n - 1, {total}}, w, seed ? 2 : kOnePiece, seed);
          }
        }
}

TEST_CASE("roots are any ranks") {
  for (const Collective c :
       {Collective::reduce, Collective::broadcast, Collective::scatter, Collective::gather})
    for (const Way w : ways(c))
      for (size_t n : {2, 3, 5, 6, 7, 8, 11, 16})
        for (size_t root = 0; root < n; ++root) check_run(even(c, n, 3, root), w, 2, root);
}

TEST_CASE("64 and 256 ranks") {
  for (const Collective c : all_collectives())
    for (const Way w : ways(c)) {
      check_run(even(c, 64, 1, 5), w, kOnePiece, 1);
      if (c != Collective::all_to_all &&
          (w == Way::ring || w == Way::doubling || w == Way::halving || w == Way::tree))
        check_run(is_one_tensor(c) ? Problem{c, 256, 3, {300}} : even(c, 256, 1, 3), w, kOnePiece, 2);
    }
}

TEST_CASE("what is sent, and in how many rounds, is what the formulas say") {
  for (const Collective c : all_collectives())
    for (const Way w : ways(c))
      for (size_t n : {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 32}) {
        CAPTURE(name(c), name(w), n);
        const Problem p = even(c, n, 16, n / 2);  // 16: halving divides by powers of two up to 16 of n * 16
        const Outcome out = check_run(p, w, kOnePiece, n);
        const Cost formula = cost(c, w, n, static_cast<double>(p.elements()));
        Sent most;
        for (const Sent& s : out.sent) {
          most.messages = std::max(most.messages, s.messages);
          most.elements = std::max(most.elements, s.elements);
        }
        CHECK(most.messages == formula.messages);
        CHECK(static_cast<double>(most.elements) == Approx(formula.elements).epsilon(1e-12));
        CHECK(out.rounds <= formula.rounds);
        CHECK(out.rounds + !std::has_single_bit(n) >= formula.rounds);
        // In chunks there are more messages, and not more bytes.
        const Outcome in_chunks = check_run(p, w, 5, n);
        for (size_t r = 0; r < n; ++r) {
          CHECK(in_chunks.sent[r].messages >= out.sent[r].messages);
          CHECK(std::abs(static_cast<double>(in_chunks.sent[r].elements) -
                         static_cast<double>(out.sent[r].elements)) <=
                0.25 * static_cast<double>(p.elements()));
        }
      }
}

TEST_CASE("the bytes that each rank sends, to the element, where sizes do not divide") {
  // all_reduce of a tensor whose blocks are bounded by count * k / n.
  for (size_t n : {2, 3, 5, 8, 13}) {
    const size_t count = 7 * n + n / 2;
    const auto block = [&](size_t k) { return count * (k % n + 1) / n - count * (k % n) / n; };
    const Problem p{Collective::all_reduce, n, 0, {count}};
    const Outcome direct = check_run(p, Way::direct, kOnePiece, 1),
                  ring = check_run(p, Way::ring, kOnePiece, 1);
    for (size_t r = 0; r < n; ++r) {
      CHECK(direct.sent[r].elements == count - block(r) + (n - 1) * block(r));
      CHECK(ring.sent[r].elements == 2 * count - block(r) - block(r + 1));
    }
  }
  // A reduce_scatter where one rank has no rows: the others send nothing for it, but a message that they are
  // there.
  const Problem p{Collective::reduce_scatter, 3, 0, {4, 0, 2}};
  const Outcome out = check_run(p, Way::direct, kOnePiece, 1);
  CHECK(out.sent[0].elements == 2);
  CHECK(out.sent[1].elements == 6);
  CHECK(out.sent[2].elements == 4);
  for (const Sent& s : out.sent) CHECK(s.messages == 2);
}

TEST_CASE("large blocks begin where a tensor may, and are as large as each other but for a hundredth") {
  for (const size_t n : {2, 3, 5, 16})
    for (const size_t count : {n * 4096, n * 10'000 + 1, size_t{6'553'600}, size_t{700'001}})
      for (const size_t piece : {kOnePiece, size_t{32'768}}) {
        const Problem p{Collective::all_reduce, n, 0, {count}};
        std::vector<int> times(count);
        for (size_t chunk = 0; chunk < chunks(p, Way::direct, piece); ++chunk)
          for (size_t r = 0; r < n; ++r) {
            const Schedule schedule = steps(p, Way::direct, r, piece, chunk);
            for (const Send& s : schedule.at(1).sends) {
              if (s.to != (r + 1) % n) continue;
              CAPTURE(n, count, piece, chunk, r);
              if (s.range.size >= 4096) CHECK(s.range.from % 64 == 0);
              if (piece == kOnePiece)
                CHECK(std::abs(static_cast<double>(s.range.size) * static_cast<double>(n) -
                               static_cast<double>(count)) <= 0.02 * static_cast<double>(count));
              for (size_t i = s.range.from; i < s.range.end(); ++i) ++times[i];
            }
          }
        CHECK(std::ranges::count(times, 1) == static_cast<ptrdiff_t>(count));
      }
}

TEST_CASE("no rank is done before it has heard of all") {
  using enum Collective;
  for (const Collective c : {all_reduce, reduce, reduce_scatter, broadcast, all_gather, barrier})
    for (const Way w : ways(c))
      for (size_t n = 2; n <= 18; ++n)
        for (const size_t root : {size_t{0}, n / 2, n - 1}) {
          CAPTURE(name(c), name(w), n, root);
          const Problem p = even(c, n, 0, root);  // of empty tensors, too
          CHECK(all_heard_of_all(p, w));
        }
}

TEST_CASE("a ring of 256 has two peers per rank, and direct all others") {
  for (const auto& [way, peers] : {std::pair{Way::ring, 2}, {Way::doubling, 8}, {Way::direct, 255}}) {
    std::map<size_t, int> met;
    for (const Step& s : steps({Collective::all_reduce, 256, 0, {1000}}, way, 7)) {
      for (const Send& x : s.sends) ++met[x.to];
      for (const Receive& x : s.receives) ++met[x.from];
    }
    CHECK(static_cast<int>(met.size()) == peers);
  }
}

TEST_CASE("schedules print as tables") {
  CHECK(table({Collective::all_reduce, 2, 0, {5}}, Way::direct) ==
        "all_reduce by direct, 2 ranks\n"
        "r0 step 0: [2, 5)->r1 +[0, 2)<-r1\n"
        "r0 step 1: [0, 2)->r1 [2, 5)<-r1\n"
        "r1 step 0: [0, 2)->r0 +[2, 5)<-r0\n"
        "r1 step 1: [2, 5)->r0 [0, 2)<-r0\n");
  CHECK(table({Collective::reduce, 3, 0, {4}}, Way::tree) ==
        "reduce by tree, 3 ranks\n"
        "r0 step 0: [0, 0)->r1 [0, 0)->r2 +[0, 4)<-r1\n"
        "r0 step 1: +[0, 4)<-r2\n"
        "r1 step 0: [0, 4)->r0 [0, 0)->r2 [0, 0)<-r0 [0, 0)<-r2\n"
        "r2 step 0: [0, 4)->r0 [0, 0)->r1 [0, 0)<-r0 [0, 0)<-r1\n");
  CHECK(table({Collective::all_gather, 2, 0, {3, 1}}, Way::ring, 2) ==
        "all_gather by ring, 2 ranks\n"
        "r0 chunk 0 step 0: [0, 2)->r1 [3, 4)<-r1\n"
        "r1 chunk 0 step 0: [3, 4)->r0 [0, 2)<-r0\n"
        "r0 chunk 1 step 0: [2, 3)->r1\n"
        "r1 chunk 1 step 0: [2, 3)<-r0\n");
}

TEST_CASE("what is no operation is refused, and the way out is named") {
  CHECK_THROWS_WITH(steps({Collective::all_gather, 2, 0, {1, 1}}, Way::tree, 0),
                    Contains("[all_gather] it is not done by tree: choose one of direct, ring"));
  CHECK_THROWS_WITH(steps({Collective::broadcast, 2, 2, {1}}, Way::tree, 0),
                    Contains("the root is rank 2 of a group of 2"));
  CHECK_THROWS_WITH(steps({Collective::all_to_all, 3, 0, {1, 1, 1}}, Way::direct, 0),
                    Contains("3 sizes for a group of 3, which needs 9"));
  CHECK_THROWS_WITH(steps({Collective::barrier, 0, 0, {}}, Way::whole, 0), Contains("no ranks"));
  CHECK_THROWS_WITH(steps({Collective::barrier, 2, 0, {}}, Way::whole, 2),
                    Contains("rank 2 of a group of 2"));
  CHECK_THROWS_WITH(chunks({Collective::all_reduce, 2, 0, {1}}, Way::direct, 0), Contains("not 0"));
}

TEST_CASE("the way is chosen by size, ranks, hosts and where tensors lie, and says why") {
  using enum Way;
  const auto way = [](Collective c, size_t ranks, size_t bytes) { return choose({c, ranks, bytes}).way; };
  const auto all_reduce = [&](size_t ranks, size_t bytes) {
    return way(Collective::all_reduce, ranks, bytes);
  };
  CHECK(all_reduce(4, 32 << 10) == whole);
  CHECK(all_reduce(4, (32 << 10) + 1) == direct);
  CHECK(all_reduce(2, 128 << 10) == whole);
  CHECK(all_reduce(16, 25 << 20) == direct);
  CHECK(all_reduce(17, 4096) == doubling);
  CHECK(all_reduce(32, 1 << 20) == halving);
  CHECK(all_reduce(33, 1 << 20) == ring);
  CHECK(all_reduce(32, 25 << 20) == ring);
  CHECK(way(Collective::broadcast, 8, 100) == tree);
  CHECK(way(Collective::broadcast, 8, 1 << 20) == direct);
  CHECK(way(Collective::broadcast, 64, 1 << 20) == ring);
  CHECK(way(Collective::reduce, 64, 100) == tree);
  CHECK(way(Collective::all_gather, 64, 100) == ring);
  CHECK(way(Collective::barrier, 3, 0) == doubling);
  // Blocks that the others can read are lent within a host, whole, and not between hosts.
  const Setting on_one_host{Collective::all_reduce, 2, 25 << 20};
  const Choice lent = choose(on_one_host);
  CHECK(lent.way == direct);
  CHECK(lent.lends);
  CHECK(lent.piece_bytes == 16 << 20);
  CHECK(why_chosen(on_one_host) ==
        "direct: 25 MiB are many bytes, so they go in blocks; all members are on one host, so messages say "
        "where the bytes lie, and have none");
  CHECK(choose({Collective::all_reduce, 4, 256 << 10}).lends);
  CHECK_FALSE(choose({Collective::all_reduce, 4, 255 << 10}).lends);
  const Setting on_four_hosts{Collective::all_reduce, 4, 25 << 20, {4, 1, 1}};
  const Choice sent = choose(on_four_hosts);
  CHECK_FALSE(sent.lends);
  CHECK(sent.piece_bytes == 512 << 10);
  CHECK(why_chosen(on_four_hosts) ==
        "direct: 25 MiB are many bytes, so they go in blocks; the busiest of 4 ranks sends 37.5 MiB in 2 "
        "rounds; "
        "4 hosts share no memory");
  CHECK_THAT(why_chosen({Collective::all_reduce, 20, 100}),
             Contains("doubling: 100 bytes are few bytes, so few rounds count; 20 ranks "));
  for (const Collective c : all_collectives())
    for (size_t n = 1; n < 70; ++n)
      for (size_t bytes = 1; bytes < 100 << 20; bytes *= 8) {
        const Choice choice = choose({c, n, bytes});
        if (!offers(c, choice.way) || why_chosen({c, n, bytes}).empty() || !choice.piece_bytes)
          FAIL(name(c) << " of " << n << " ranks");
      }
}
