// Samples of files, in an order that any place can be gone back to.
#include "data/streams/feed.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "core/tensor/creation.h"
#include "data/datasets/token_file.h"
#include "data/streams/permutation.h"
#include "data/streams/reading_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::datasets;
using Catch::Contains;
using troupe::testing::Folder;
using troupe::testing::invalid_text;

namespace {

// Sample i is {"n": i}, and "ids", i % 5 + 1 times i, if they are wanted.
class Numbers final : public datasets::Source {
 public:
  Numbers(int64_t size, bool ids) : size_(size), ids_(ids) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t i) const override {
    Sample out{{"n", i}};
    if (ids_) out["ids"] = full({i % 5 + 1}, i);
    return out;
  }

 private:
  const int64_t size_;
  const bool ids_;
};
SourcePtr numbers(int64_t n) { return std::make_shared<const Numbers>(n, false); }
SourcePtr lists(int64_t n) { return std::make_shared<const Numbers>(n, true); }

std::vector<int64_t> all_of(Feed& feed, int64_t most = 1 << 20) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < most; ++i) {
    const auto batch = feed.next();
    if (!batch) break;
    if (batch->rows == 0) continue;
    for (const int64_t n : batch->tensor("n").to_vector<int64_t>()) out.push_back(n);
  }
  return out;
}

template <class F>
std::string failed_text(F&& f) {
  return troupe::testing::error_text(ErrorKind::failed, f);
}

std::vector<int64_t> first_numbers(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<int64_t> sorted(std::vector<int64_t> list) {
  std::ranges::sort(list);
  return list;
}

}  // namespace

TEST_CASE("orders of any size have each number once", "[data]") {
  for (const int64_t n : {1, 2, 3, 4, 5, 17, 64, 1000, 4097}) {
    std::set<int64_t> seen, in_blocks;
    const internal::Permutation order(n, 7);
    const internal::BlockOrder blocks(n, 10, 3, 7);
    for (int64_t i = 0; i < n; ++i) seen.insert(order(i)), in_blocks.insert(blocks(i));
    CHECK(std::ssize(seen) == n);
    CHECK((*seen.begin() == 0 && *seen.rbegin() == n - 1));
    CHECK(in_blocks == seen);
  }
  // Far places are as near as the first.
  const internal::Permutation large(int64_t{1} << 60, 3);
  CHECK(large((int64_t{1} << 60) - 1) < int64_t{1} << 60);
  // So are blocks that are longer than all of them, and more of these together.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& [block, together] :
       std::vector<std::pair<int64_t, int64_t>>{{kMost, 64}, {kMost, kMost}, {10, kMost}}) {
    const internal::BlockOrder all(35, block, together, 7), same(35, std::min<int64_t>(block, 35), 4, 7);
    for (int64_t i = 0; i < 35; ++i) CHECK(all(i) == same(i));
  }
}

TEST_CASE("an order in blocks reads so many blocks at a time", "[data]") {
  const internal::BlockOrder order(1000, 10, 4, 1);
  for (int64_t first = 0; first < 1000; first += 40) {
    std::set<int64_t> blocks;
    for (int64_t i = first; i < first + 40; ++i) blocks.insert(order(i) / 10);
    CHECK(blocks.size() == 4);
  }
}

TEST_CASE("a feed gives each sample of an epoch once, in an order of its own", "[data]") {
  const int64_t n = GENERATE(1, 7, 100), rows = GENERATE(1, 8, 300), threads = GENERATE(1, 3);
  Feed feed(Pipeline(numbers(n)).shuffle({.seed = 3, .block = 4, .together = 3}).batch(rows).repeat(2),
            {.ahead = {.threads = threads}});
  const auto all = all_of(feed);
  REQUIRE(std::ssize(all) == 2 * n);
  const std::vector<int64_t> first(all.begin(), all.begin() + n), second(all.begin() + n, all.end());
  CHECK(sorted(first) == first_numbers(n));
  CHECK(sorted(second) == first_numbers(n));
  if (n == 100) CHECK(first != second);
  CHECK(feed.report().rows == 2 * n);
  CHECK_FALSE(feed.next());
}

TEST_CASE("ranks have each batch together, also where functions take samples away", "[data]") {
  const bool filters = GENERATE(false, true), drops = GENERATE(false, true);
  const int64_t ranks = GENERATE(2, 3, 5);
  Pipeline pipeline(numbers(50));
  pipeline.shuffle({.seed = 1}).batch(8, {.drop_last = drops}).repeat(2);
  if (filters) pipeline.filter([](const Sample& s) { return *s.at("n").get_if<int64_t>() % 3 != 0; });
  Feed whole(pipeline);
  std::vector<std::unique_ptr<Feed>> feeds;
  for (int64_t r = 0; r < ranks; ++r)
    feeds.push_back(std::make_unique<Feed>(pipeline, FeedOptions{.rank = r, .ranks = ranks}));
  for (;;) {
    const auto expected = whole.next();
    std::vector<int64_t> got;
    for (auto& feed : feeds) {
      const auto part = feed->next();
      REQUIRE(bool(part) == bool(expected));
      if (!part) continue;
      CHECK((part->epoch == expected->epoch && part->index == expected->index));
      if (part->rows)
        for (const int64_t n : part->tensor("n").to_vector<int64_t>()) got.push_back(n);
    }
    if (!expected) break;
    CHECK(got == expected->tensor("n").to_vector<int64_t>());
  }
}

TEST_CASE(
    "a feed goes on from a place with other ranks, rows and threads, and no sample comes twice or never",
    "[data]") {
  Generator random(static_cast<uint64_t>(GENERATE(range(0, 60))));
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random.below(static_cast<uint64_t>(most))) + 1;
  };
  const int64_t n = draw(120), epochs = draw(3);
  Pipeline pipeline(numbers(n));
  pipeline.shuffle({.seed = random.next(), .block = draw(20), .together = draw(5)}).repeat(epochs);
  const bool filters = random.below(2);
  const auto keeps = [](int64_t i) { return i % 4 != 1; };
  if (filters) pipeline.filter([&](const Sample& s) { return keeps(*s.at("n").get_if<int64_t>()); });
  std::vector<int64_t> expected;
  {
    Feed undisturbed(Pipeline(pipeline).batch(1));
    expected = all_of(undisturbed);
  }
  std::vector<int64_t> got;
  StateDict place;
  for (bool more = true; more;) {
    const int64_t ranks = draw(4), rows = draw(20);
    std::vector<std::unique_ptr<Feed>> feeds;
    for (int64_t r = 0; r < ranks; ++r) {
      feeds.push_back(std::make_unique<Feed>(
          Pipeline(pipeline).batch(rows),
          FeedOptions{.ahead = {.threads = draw(3), .ahead = draw(4)}, .rank = r, .ranks = ranks}));
      if (!place.empty()) feeds.back()->load_state(place);
    }
    for (int64_t batches = draw(6); more && batches > 0; --batches)
      for (auto& feed : feeds) {
        const auto part = feed->next();
        if (!(more = bool(part))) break;
        if (part->rows)
          for (const int64_t i : part->tensor("n").to_vector<int64_t>()) got.push_back(i);
      }
    place = feeds.front()->state();
    for (auto& feed : feeds)
      CHECK(feed->state().at("place").to_vector<int64_t>() == place.at("place").to_vector<int64_t>());
  }
  CHECK(got == expected);
  CHECK(std::ranges::all_of(got, [&](int64_t i) { return !filters || keeps(i); }));
}

TEST_CASE("packed rows go on from any place with the same bits", "[data]") {
  const int64_t length = GENERATE(1, 3, 7, 50);
  const auto pipeline = Pipeline(lists(40)).shuffle({.seed = 5}).pack("ids", length).batch(2).repeat(2);
  std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> all;
  std::vector<StateDict> places;
  Feed feed(pipeline);
  places.push_back(feed.state());
  while (const auto batch = feed.next()) {
    all.emplace_back(batch->tensor("ids").to_vector<int64_t>(),
                     batch->tensor("segment").to_vector<int64_t>());
    CHECK(batch->tensor("ids").size(1) == length);
    places.push_back(feed.state());
  }
  REQUIRE(all.size() == places.size() - 1);
  for (size_t i = 0; i < all.size(); i += 1 + i / 4) {
    Feed again(pipeline, {.ahead = {.threads = 2}});
    again.load_state(places[i]);
    const auto batch = again.next();
    REQUIRE(batch);
    CHECK(batch->tensor("ids").to_vector<int64_t>() == all[i].first);
    CHECK(batch->tensor("segment").to_vector<int64_t>() == all[i].second);
    CHECK(batch->index == static_cast<int64_t>(i));
  }
  // Segments are samples: where they are equal, ids are; and they count from 0.
  for (const auto& [ids, segments] : all)
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i % static_cast<size_t>(length) == 0)
        CHECK(segments[i] == 0);
      else
        CHECK((ids[i] == ids[i - 1]) == (segments[i] == segments[i - 1]));
    }
}

TEST_CASE("fields of several lengths are padded to the longest of a batch", "[data]") {
  Feed feed(Pipeline(lists(7)).batch(4, {.pad = {{"ids", -1}}, .pad_to = 4}));
  const auto first = feed.next(), second = feed.next();
  REQUIRE((first && second && !feed.next()));
  CHECK(first->tensor("ids").shape() == Shape{4, 4});
  CHECK(first->tensor("ids_length").to_vector<int64_t>() == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(first->tensor("ids").to_vector<int64_t>() ==
        std::vector<int64_t>{0, -1, -1, -1, 1, 1, -1, -1, 2, 2, 2, -1, 3, 3, 3, 3});
  CHECK(second->tensor("ids").shape() == Shape{3, 8});
  Feed bare(Pipeline(lists(7)).batch(4));
  CHECK_THAT(invalid_text([&] { (void)bare.next(); }),
             Contains("the field \"ids\" is tensor int64 [1] and tensor int64 [2] in one batch: name it in"));
}

TEST_CASE("functions draw the same random numbers for a sample wherever it is made", "[data]") {
  const auto noisy = Pipeline(numbers(30))
                         .shuffle({.seed = 2})
                         .map([](Sample s, Generator& random) {
                           return Sample{{"n", s.at("n")}, {"noise", random.uniform()}};
                         })
                         .batch(5);
  Feed one(noisy), three(noisy, {.ahead = {.threads = 3}});
  for (int i = 0; i < 6; ++i)
    CHECK(one.next()->tensor("noise").to_vector<double>() ==
          three.next()->tensor("noise").to_vector<double>());
}

TEST_CASE("numbers and truths and text of samples are columns of a batch", "[data]") {
  Feed feed(Pipeline(numbers(3))
                .map([](Sample s) {
                  const int64_t n = *s.at("n").get_if<int64_t>();
                  return Sample{
                      {"n", n}, {"odd", n % 2 == 1}, {"half", 0.5 * double(n)}, {"text", std::to_string(n)}};
                })
                .batch(3));
  const auto batch = feed.next();
  CHECK(batch->tensor("odd").dtype() == boolean);
  CHECK(batch->tensor("odd").to(int64).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 0});
  CHECK(batch->tensor("half").to_vector<double>() == std::vector<double>{0, 0.5, 1});
  CHECK(std::get<std::string>(batch->fields.at("text").get_if<ValueList>()->at(2).v) == "2");
}

TEST_CASE("samples that cannot be read are counted, or end the feed", "[data]") {
  const auto fails = [](Sample s) {
    if (*s.at("n").get_if<int64_t>() == 3) throw_invalid("[mine] 3 is broken");
    return Sample{{"n", s.at("n")}};
  };
  Feed strict(Pipeline(numbers(8)).map(fails).batch(8));
  CHECK_THAT(invalid_text([&] { (void)strict.next(); }), Contains("3 is broken"));
  Feed skips(Pipeline(numbers(8)).map(fails).batch(8).skip_broken());
  CHECK(all_of(skips) == std::vector<int64_t>{0, 1, 2, 4, 5, 6, 7});
  CHECK(skips.report().broken == 1);
}

TEST_CASE("a place in another order is refused", "[data]") {
  Feed feed(Pipeline(numbers(8)).shuffle({.seed = 1}));
  Feed other(Pipeline(numbers(8)).shuffle({.seed = 2})), longer(Pipeline(numbers(9)).shuffle({.seed = 1}));
  CHECK_THAT(invalid_text([&] { other.load_state(feed.state()); }),
             Contains("the place is in another order"));
  CHECK_THAT(invalid_text([&] { longer.load_state(feed.state()); }),
             Contains("were 8, 1, 1024, 64, 0, and are 9"));
  CHECK_THAT(invalid_text([&] { feed.load_state({}); }), Contains("no \"order\" of a Feed"));
  CHECK_THAT(invalid_text([&] { (void)feed.next()->tensor("y"); }),
             Contains("no tensor \"y\"; it has n (tensor int64 [1])"));
}

TEST_CASE("a plan of readers asks for each chunk until it has come whoever is lost", "[data]") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Generator random(seed);
    const auto draw = [&](int64_t most) {
      return static_cast<int64_t>(random.below(static_cast<uint64_t>(most)));
    };
    const auto readers = static_cast<size_t>(draw(4) + 1);
    const int64_t ahead = draw(6) + 1, chunks = draw(40);
    datasets::detail::ReadingPlan plan(readers, ahead, chunks);
    std::map<int64_t, size_t> asked;  // and not answered
    std::set<int64_t> came;
    int64_t taken = 0;
    while (!plan.over() && plan.anyone()) {
      while (const auto order = plan.ask()) {
        CHECK_FALSE(plan.is_lost(order->reader));
        CHECK(asked.emplace(order->chunk, order->reader).second);
        CHECK((order->chunk >= taken && order->chunk < std::min(taken + ahead, chunks)));
        CHECK_FALSE(came.contains(order->chunk));
      }
      CHECK(std::ssize(asked) + std::ssize(came) == std::min(ahead, chunks - taken));
      if (draw(12) == 0) {
        const auto lost = static_cast<size_t>(draw(static_cast<int64_t>(readers)));
        plan.lost(lost);
        std::erase_if(asked, [&](const auto& a) { return a.second == lost; });
      } else if (!asked.empty()) {
        const auto at = std::next(asked.begin(), draw(std::ssize(asked)));
        came.insert(at->first), plan.came(at->first), asked.erase(at);
      }
      while (plan.there()) {
        CHECK((plan.next() == taken && came.erase(taken) == 1));
        plan.take(), ++taken;
      }
    }
    if (plan.over()) CHECK(taken == chunks);
  }
  datasets::detail::ReadingPlan even(2, 4, 100);
  std::vector<size_t> who;
  while (const auto order = even.ask()) who.push_back(order->reader);
  CHECK(who == std::vector<size_t>{0, 1, 0, 1});
}

TEST_CASE("windows of several token files lie side by side", "[data]") {
  const Folder folder;
  const std::string a = (folder.path / "a.bin").string(), b = (folder.path / "b.bin").string();
  write_token_file(a, {0, 1, 2, 3, 4, 5, 6});
  write_token_file(b, {10, 11, 12, 13});
  const auto windows = token_windows({a, b}, {.context = 3});
  REQUIRE(windows->size() == 3);
  const auto x = [&](int64_t i) { return windows->read(i).at("x").get_if<Tensor>()->to_vector<int64_t>(); };
  const auto y = [&](int64_t i) { return windows->read(i).at("y").get_if<Tensor>()->to_vector<int64_t>(); };
  CHECK((x(0) == std::vector<int64_t>{0, 1, 2} && y(0) == std::vector<int64_t>{1, 2, 3}));
  CHECK((x(1) == std::vector<int64_t>{3, 4, 5} && y(1) == std::vector<int64_t>{4, 5, 6}));
  CHECK((x(2) == std::vector<int64_t>{10, 11, 12} && y(2) == std::vector<int64_t>{11, 12, 13}));
  CHECK_THAT(invalid_text([&] { token_windows({b}, {.context = 4}); }),
             Contains("none has the 5 ids of a window"));
  CHECK_THAT(invalid_text([&] { token_windows({}); }), Contains("no file was given"));
}

TEST_CASE("a mixture gives each source its share, however long it is", "[data]") {
  const auto source =
      mixed({{range_of(numbers(100), 0, 10), 0.3}, {range_of(numbers(100), 50, 50), 0.7}}, 2000);
  int64_t small = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    const int64_t n = *source->read(i).at("n").get_if<int64_t>();
    small += n < 10;
    CHECK(std::abs(double(small) - 0.3 * double(i + 1)) <= 1);
  }
  CHECK(mixed({{numbers(3)}, {numbers(4)}})->size() == 7);
  CHECK_THAT(invalid_text([&] { mixed({{numbers(3), 0}}); }), Contains("has the weight 0: expected above 0"));
  CHECK_THAT(invalid_text([&] { mixed({}); }), Contains("has no source"));
}

TEST_CASE("lines of JSON are samples, and what is none is named by file and line", "[data]") {
  const Folder folder;
  const std::string path = (folder.path / "a.jsonl").string();
  {
    std::ofstream file(path);
    for (int i = 0; i < 200; ++i)
      file << "{\"n\": " << i << ", \"text\": \"t" << i << "\"}" << (i % 7 ? "\n" : "\r\n\n");
    file << "[1, 2]\n{\"n\": 3";
  }
  const auto lines = json_lines({path});
  REQUIRE(lines->size() == 202);
  for (const int64_t i : {0, 1, 63, 64, 65, 199}) {
    CHECK(*lines->read(i).at("n").get_if<int64_t>() == i);
    CHECK(*lines->read(i).at("text").get_if<std::string>() == "t" + std::to_string(i));
  }
  CHECK_THAT(invalid_text([&] { lines->read(200); }),
             Contains("a.jsonl, line 230: has list of 2, expected an object"));
  CHECK_THAT(invalid_text([&] { lines->read(201); }), Contains("a.jsonl, line 231"));
  CHECK_THAT(invalid_text([&] { json_lines({}); }), Contains("no file was given"));
  const std::string none = (folder.path / "none.jsonl").string();
  std::ofstream(none) << "\n \n";
  CHECK_THAT(invalid_text([&] { json_lines({none}); }), Contains("none.jsonl has no lines"));
}

TEST_CASE("lines of a file of several chunks are found, whatever their lengths", "[data]") {
  const Folder folder;
  const std::string path = (folder.path / "a.jsonl").string();
  constexpr int64_t kLines = 3000;
  {
    std::ofstream file(path);
    for (int64_t i = 0; i < kLines; ++i)
      file << std::string(static_cast<size_t>(i % 3), '\n') << "{\"n\": " << i << ", \"text\": \""
           << std::string(static_cast<size_t>(i * 7919 % 2000), 'x') << "\"}\n";
  }
  const auto lines = json_lines({path, path});
  REQUIRE(lines->size() == 2 * kLines);
  for (int64_t i = 0; i < 2 * kLines; ++i) {
    const Sample sample = lines->read(i);
    if (*sample.at("n").get_if<int64_t>() != i % kLines ||
        static_cast<int64_t>(sample.at("text").get_if<std::string>()->size()) != i % kLines * 7919 % 2000)
      FAIL("line " << i);
  }
}

TEST_CASE("a file that is written to while it is read is an error, not the end of the process", "[data]") {
  const Folder folder;
  const std::string lines = (folder.path / "a.jsonl").string(), ids = (folder.path / "a.bin").string();
  const auto fill = [&] {
    {
      std::ofstream file(lines);
      for (int i = 0; i < 20000; ++i) file << "{\"n\": 1}\n";
    }
    write_token_file(ids, std::vector<int64_t>(100000, 7));
  };
  fill();
  const std::vector<SourcePtr> sources = {json_lines({lines}), token_windows({ids}, {.context = 16})};
  fill();  // in place, and under the same name
  std::filesystem::last_write_time(lines,
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  CHECK_THAT(
      failed_text([&] { sources[0]->read(3); }),
      Contains("a.jsonl: was written to while it was read (180000 bytes when it was opened, 180000 now)"));
  CHECK(sources[1]->read(6000).at("x").get_if<Tensor>()->select(0, 0).item<int64_t>() == 7);
  const auto cut = json_lines({lines});
  std::filesystem::resize_file(lines, 9);
  for (const int64_t i : {0, 19999})
    CHECK_THAT(failed_text([&] { cut->read(i); }), Contains("180000 bytes when it was opened, 9 now"));
  const auto ids_cut = token_windows({ids}, {.context = 16});
  std::filesystem::resize_file(ids, 2);
  CHECK_THAT(failed_text([&] { ids_cut->read(6000); }), Contains("a.bin: was written to"));
  Feed feed(Pipeline(cut).skip_broken().batch(4));
  CHECK_THAT(failed_text([&] { feed.next(); }), Contains("was written to"));
}
