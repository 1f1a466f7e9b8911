// The sends and receives of which devices make operations of groups: launched in groups as the library does
// it, where a send waits for its receive, they end on all ranks with every element in its place.
#include "collective/device_request.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "core/tensor/creation.h"

using namespace troupe;
using namespace troupe::internal::collective;

namespace {

struct RankOfDevices {
  Request request;
  std::vector<bool> done;  // of its steps
  size_t begun = 0;        // steps that are launched
  size_t groups = 0, most = 0;

  const std::vector<DeviceStep>& steps() const { return request.work.steps; }
  // The next ones, once all that are launched have ended. As the launcher divides them.
  bool launch() {
    for (size_t i = 0; i < begun; ++i)
      if (!done[i]) return false;
    if (begun == steps().size()) return false;
    const size_t first = begun;
    while (begun < steps().size() && begun < first + kMostSteps &&
           steps()[begun].group == steps()[first].group)
      ++begun;
    ++groups;
    most = std::max(most, begun - first);
    return true;
  }
};

// The first of rank `r` that is launched, has not ended and goes to, or comes from, `other`.
size_t first_open(const RankOfDevices& r, DeviceStep::Kind kind, size_t other) {
  for (size_t i = 0; i < r.begun; ++i)
    if (!r.done[i] && r.steps()[i].kind == kind && r.steps()[i].root == other) return i;
  return SIZE_MAX;
}

bool meet_one(std::vector<RankOfDevices>& ranks) {
  for (size_t from = 0; from < ranks.size(); ++from)
    for (size_t i = 0; i < ranks[from].begun; ++i) {
      const DeviceStep& send = ranks[from].steps()[i];
      if (ranks[from].done[i] || send.kind != DeviceStep::send) continue;
      if (first_open(ranks[from], DeviceStep::send, send.root) != i) continue;
      RankOfDevices& there = ranks[send.root];
      const size_t k = first_open(there, DeviceStep::receive, from);
      if (k == SIZE_MAX) continue;
      const Tensor& to = there.steps()[k].to;
      REQUIRE(send.from.nbytes() == to.nbytes());
      std::memcpy(to.bytes(), send.from.bytes(), to.nbytes());
      ranks[from].done[i] = there.done[k] = true;
      return true;
    }
  return false;
}

// Runs them; what waits for ever stays open.
void run(std::vector<RankOfDevices>& ranks) {
  for (RankOfDevices& r : ranks) r.done.resize(r.steps().size());
  for (bool moved = true; moved;) {
    moved = false;
    for (RankOfDevices& r : ranks) moved |= r.launch();
    while (meet_one(ranks)) moved = true;
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    INFO("rank " << r);
    CHECK(std::ranges::count(ranks[r].done, false) == 0);
    CHECK(ranks[r].most <= kMostSteps);
  }
}

std::vector<RankOfDevices> ranks_of(const std::vector<Described>& all) {
  std::vector<Description> descriptions;
  std::vector<GroupMember> members;
  for (size_t r = 0; r < all.size(); ++r) {
    descriptions.push_back(all[r].description);
    members.push_back({static_cast<WorkerId>(r), "w" + std::to_string(r)});
  }
  std::vector<RankOfDevices> ranks;
  for (size_t r = 0; r < all.size(); ++r) {
    Request request = request_of(all[r], descriptions, {r, all.size()}, members);
    send_by_devices(request, r, all[r].brings.empty() ? Tensor() : all[r].brings[0]);
    CHECK(request.signature.on_devices);
    ranks.push_back({std::move(request), {}});
  }
  return ranks;
}

// Those of a pair have their own number, and some are empty.
Tensor block(size_t from, size_t to) {
  return full({static_cast<int64_t>((from + 3 * to) % 4)}, static_cast<double>(1000 * from + to));
}

const std::vector<size_t> kRanks{2, 3, 5, 33, 34, 70};

}  // namespace

TEST_CASE("all_to_all by sends and receives of devices ends, however many ranks there are") {
  for (const size_t n : kRanks) {
    INFO(n << " ranks");
    std::vector<Described> all;
    for (size_t r = 0; r < n; ++r) {
      Tensors blocks;
      for (size_t k = 0; k < n; ++k) blocks.push_back(block(r, k));
      all.push_back(all_to_all_of(std::move(blocks), {}, {r, n}));
    }
    auto ranks = ranks_of(all);
    run(ranks);
    for (size_t r = 0; r < n; ++r) {
      const Tensors got = ranks[r].request.results(r);
      REQUIRE(got.size() == n);
      for (size_t k = 0; k < n; ++k) CHECK(got[k].equal(block(k, r)));
      CHECK(ranks[r].groups == (n + 30) / 32);
    }
  }
}

TEST_CASE("gather and scatter by sends and receives of devices end, however many ranks there are") {
  for (const size_t n : kRanks)
    for (const size_t root : {size_t{0}, n - 1}) {
      INFO(n << " ranks, root " << root);
      std::vector<Described> gathers, scatters;
      std::vector<int64_t> rows;
      Tensors parts;
      for (size_t r = 0; r < n; ++r) parts.push_back(block(r, 0));
      for (const Tensor& part : parts) rows.push_back(part.size(0));
      Tensor joined = empty({std::accumulate(rows.begin(), rows.end(), int64_t{0})});
      size_t at = 0;
      for (const Tensor& part : parts) {
        std::memcpy(joined.bytes() + at, part.bytes(), part.nbytes());
        at += part.nbytes();
      }
      for (size_t r = 0; r < n; ++r) {
        gathers.push_back(gather_of(Collective::gather, parts[r], root, {}, {r, n}));
        scatters.push_back(scatter_of(r == root ? joined : Tensor(), root, rows, {r, n}));
      }
      auto gathering = ranks_of(gathers), scattering = ranks_of(scatters);
      run(gathering);
      run(scattering);
      for (size_t r = 0; r < n; ++r) {
        const Tensors gathered = gathering[r].request.results(r);
        CHECK(gathered[0].defined() == (r == root));
        if (r == root) CHECK(gathered[0].equal(joined));
        CHECK(scattering[r].request.results(r)[0].equal(parts[r]));
      }
    }
}

TEST_CASE("devices take part in an operation unless no rank has anything for another") {
  const auto needed = [](Collective c, std::vector<size_t> counts) {
    return needs_devices({c, 2, 0, std::move(counts)});
  };
  CHECK_FALSE(needed(Collective::gather, {0, 0}));
  CHECK(needed(Collective::gather, {3, 0}));
  CHECK(needed(Collective::scatter, {0, 1}));
  CHECK_FALSE(needed(Collective::all_to_all, {4, 0, 0, 5}));
  CHECK(needed(Collective::all_to_all, {0, 0, 1, 0}));
}
