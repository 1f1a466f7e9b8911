// Feeds of several ranks whose readers are other workers: no row comes twice or never, whoever is killed.
#include <catch2/catch.hpp>

#include <optional>

#include "core/base/log.h"
#include "data/datasets/token_file.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "troupe/data.h"
#include "troupe/simulated.h"

using namespace troupe;
using Catch::Contains;
using troupe::testing::invalid_text;

namespace {

struct FeedSetup {
  std::vector<std::string> files;
  int64_t epochs = 1, block = 1;
  uint64_t seed = 0;
  bool filters = false;
};

datasets::Pipeline sim_windows(const FeedSetup& setup, int64_t rows) {
  datasets::Pipeline out(datasets::token_windows(setup.files, {.context = 2}));
  out.shuffle({.seed = setup.seed, .block = setup.block, .together = 3}).batch(rows).repeat(setup.epochs);
  if (setup.filters)
    out.filter([](const datasets::Sample& s) {
      return s.at("x").get_if<Tensor>()->select(0, 0).item<int64_t>() % 3 != 1;
    });
  return out;
}

struct FeedSplit {
  int64_t rank = 0, ranks = 1, rows = 1, threads = 1, ahead = 4;
  std::vector<std::string> readers;
};

datasets::FeedOptions options_of(const Here& here, const FeedSplit& split) {
  datasets::FeedOptions out{
      .ahead = {.threads = split.threads, .ahead = split.ahead}, .rank = split.rank, .ranks = split.ranks};
  if (!split.readers.empty()) out.readers = datasets::readers(here, split.readers);
  return out;
}

// The first id of each window says which it is.
std::optional<std::vector<int64_t>> ids_of(const std::optional<datasets::FedBatch>& batch) {
  if (!batch) return {};
  if (batch->rows == 0) return std::vector<int64_t>();
  return batch->tensor("x").select(1, 0).contiguous().to_vector<int64_t>();
}

struct FedRank : Actor {
  FedRank(const FeedSetup& setup, const FeedSplit& split, const StateDict& place)
      : feed(datasets::recipe<sim_windows>(setup, split.rows), options_of(here(), split)) {
    if (!place.empty()) feed.load_state(place);
  }
  Task<std::optional<std::vector<int64_t>>> next() { co_return ids_of(co_await datasets::later(feed)); }
  StateDict place() { return feed.state(); }
  datasets::Feed feed;
  static constexpr auto remote = methods<&FedRank::next, &FedRank::place>;
};

const std::vector<std::string>& token_files() {
  static const testing::Folder folder;
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out;
    int64_t id = 0;
    for (const int64_t size : {3, 21, 12, 5, 32}) {
      std::vector<int64_t> ids(static_cast<size_t>(size));
      for (int64_t& i : ids) i = id++;
      datasets::write_token_file(out.emplace_back(folder.path / (std::to_string(size) + ".bin")), ids);
    }
    return out;
  }();
  return all;
}

struct Draw {
  Generator random = next_generator();
  int64_t operator()(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random.below(static_cast<uint64_t>(most - least + 1)));
  }
  // Some of them, in an order.
  std::vector<std::string> some(std::vector<std::string> all, int64_t count) {
    std::vector<std::string> out;
    while (std::ssize(out) < count && !all.empty()) {
      const auto at = all.begin() + (*this)(0, std::ssize(all) - 1);
      out.push_back(*at);
      all.erase(at);
    }
    return out;
  }
};

// Ranks on other workers, of which each may be lost, until one fails: then others go on from the last place
// that was kept, in other numbers.
void all_rows_once(SimulatedCluster& cluster) {
  Draw draw;
  FeedSetup setup{draw.some(token_files(), draw(1, 5)), draw(1, 2), draw(1, 9), draw.random.next(),
                  draw(0, 2) == 0};
  std::vector<int64_t> expected, got;
  {
    datasets::Feed undisturbed(sim_windows(setup, 1));
    while (const auto ids = ids_of(undisturbed.next()))
      expected.insert(expected.end(), ids->begin(), ids->end());
  }
  StateDict kept;
  size_t kept_rows = 0;
  for (bool over = false; !over;) {
    auto living = cluster.here().workers();
    std::erase(living, "w0");
    FeedSplit split{.ranks = draw(1, 3), .rows = draw(1, 9), .threads = draw(1, 2), .ahead = draw(1, 6)};
    const auto on = draw.some(living, split.ranks);
    split.ranks = std::max<int64_t>(std::ssize(on), 1);
    living.push_back("w0");
    std::vector<RRef<FedRank>> ranks;
    for (split.rank = 0; split.rank < split.ranks; ++split.rank) {
      split.readers = draw.some(living, draw(0, 3));
      const std::string worker = on.empty() ? "w0" : on[static_cast<size_t>(split.rank)];
      ranks.push_back(cluster.spawn<FedRank>(worker, setup, split, kept));
    }
    for (int64_t steps = draw(1, 20); steps > 0 && !over; --steps) {
      std::vector<Future<std::optional<std::vector<int64_t>>>> parts;
      for (auto& rank : ranks) parts.push_back(rank.call<&FedRank::next>());
      bool lost = false;
      for (auto& part : parts) {
        const auto& result = part.wait();
        if (!result.ok() && result.error().kind() != ErrorKind::disconnected) throw result.error();
        lost = lost || !result.ok();
        if (lost) continue;
        if (result.value()) got.insert(got.end(), result.value()->begin(), result.value()->end());
        over = !result.value();
      }
      if (!lost && draw(0, 2) && steps > 1 && !over) continue;
      const auto place = ranks.front().call<&FedRank::place>();
      if (lost || !place.wait().ok()) {
        got.resize(kept_rows), over = false;
        break;
      }
      kept = place.get(), kept_rows = got.size();
    }
  }
  if (got != expected)
    throw std::runtime_error(std::to_string(got.size()) + " rows of " + std::to_string(expected.size()) +
                             ", or in another order");
}

// Lost readers are what this is about.
struct Quiet {
  Quiet() { internal::log::set_level(internal::log::Level::off); }
  ~Quiet() { internal::log::set_level(internal::log::Level::warning); }
};

}  // namespace

TEST_CASE(
    "ranks and their readers give each row once and in its order in 1000 runs in which some are killed") {
  const Quiet quiet;
  const SimulateResult result =
      simulate("feeds", all_rows_once, {.workers = 7, .runs = 1000, .kills = 3, .resets = 1});
  INFO(result.failure.value_or(""));
  CHECK_FALSE(result.failure);
  CHECK(result.faults > 1000);
}

TEST_CASE("a feed reads on when its readers are lost one after the other") {
  const Quiet quiet;
  SimulatedCluster cluster(1, 4);
  const FeedSetup setup{token_files(), 1, 4, 5, false};
  datasets::Feed undisturbed(sim_windows(setup, 4));
  datasets::Feed feed(
      datasets::recipe<sim_windows>(setup, 4),
      {.ahead = {.threads = 2, .ahead = 5}, .readers = datasets::readers(cluster, {"w1", "w2", "w3"})});
  for (int step = 0;; ++step) {
    if (step % 4 == 2 && step < 12) cluster.kill("w" + std::to_string(1 + step / 4));
    const auto expected = ids_of(undisturbed.next());
    CHECK(ids_of(feed.next()) == expected);
    if (!expected) break;
  }
  const auto report = feed.report();
  CHECK(report.rows == undisturbed.report().rows);
  CHECK((report.rows_per_second() > 0 && report.waited <= report.spent));
  CHECK(cluster.metrics("w0")["feed_rows"] == 2 * report.rows);  // of both
  CHECK_FALSE(SimulatedCluster(2, 2).metrics("w1").contains("feed_rows"));
}

TEST_CASE("readers draw no random numbers of the program and read in no context of a step") {
  const FeedSetup setup{token_files(), 1, 4, 5, false};
  const auto drawn = [&](bool reads) {
    SimulatedCluster cluster(1, 3);
    manual_seed(3);
    datasets::FeedOptions options;
    if (reads) options.readers = datasets::readers(cluster, {"w1", "w2"});
    datasets::Feed feed(datasets::recipe<sim_windows>(setup, 4), options);
    autograd::Context context(cluster);
    (void)feed.next();
    CHECK(cluster.metrics("w1")["contexts"] == 0);
    return next_generator().next();
  };
  CHECK(drawn(true) == drawn(false));
}

TEST_CASE("a feed whose cluster has ended gives what came before and then says so at each call") {
  const FeedSetup setup{token_files(), 1, 4, 5, false};
  datasets::Feed undisturbed(sim_windows(setup, 4));
  std::optional<SimulatedCluster> cluster;
  cluster.emplace(1, 3);
  datasets::Feed feed(datasets::recipe<sim_windows>(setup, 4),
                      {.ahead = {.ahead = 2}, .readers = datasets::readers(*cluster, {"w1", "w2"})});
  CHECK(ids_of(feed.next()) == ids_of(undisturbed.next()));
  const auto arrival = feed.arrival();
  REQUIRE(arrival);
  arrival->get();
  cluster.reset();
  const auto next = [&]() -> std::string {
    std::optional<std::vector<int64_t>> ids;
    try {
      ids = ids_of(feed.next());
    } catch (const Error& e) {
      return e.message();
    }
    CHECK(ids == ids_of(undisturbed.next()));
    return "";
  };
  CHECK(next().empty());
  const std::string said = next();
  CHECK_THAT(said, Contains("has been shut down"));
  for (int i = 0; i < 2; ++i) CHECK(next() == said);
}

TEST_CASE("what readers cannot do is said") {
  SimulatedCluster cluster(1, 3);
  const FeedSetup setup{token_files(), 1, 4, 5, false};
  const auto reading = [&](const datasets::Pipeline& pipeline, const std::vector<std::string>& workers) {
    return invalid_text([&] { datasets::Feed(pipeline, {.readers = datasets::readers(cluster, workers)}); });
  };
  CHECK_THAT(reading(sim_windows(setup, 4), {"w1"}), Contains("let recipe<f>(arguments...) make it"));
  CHECK_THAT(reading(datasets::recipe<sim_windows>(setup, 4).batch(3), {"w1"}),
             Contains("change nothing of it"));
  CHECK_THAT(reading(datasets::recipe<sim_windows>(setup, 4), {}), Contains("0 readers with 1 threads each"));
  CHECK_THAT(reading(datasets::recipe<sim_windows>(setup, 4), {"w7"}), Contains("w7"));
  // A place of its own where each process looks for files, say.
  const auto other = datasets::detail::with_recipe(datasets::recipe<sim_windows>(setup, 4), {"nobody's", {}});
  datasets::Feed unknown(other, {.readers = datasets::readers(cluster, {"w1"})});
  for (int i = 0; i < 2; ++i)
    CHECK_THAT(invalid_text([&] { (void)unknown.next(); }), Contains("knows no recipe nobody's"));
  FeedSetup shorter = setup;
  shorter.files.pop_back();
  const auto differs = datasets::detail::with_recipe(datasets::recipe<sim_windows>(setup, 4),
                                                     *datasets::recipe<sim_windows>(shorter, 4).made_by());
  datasets::Feed mixed(differs, {.readers = datasets::readers(cluster, {"w1"})});
  CHECK_THAT(invalid_text([&] { (void)mixed.next(); }), Contains("gives another pipeline for a reader"));
}
