// The examples of docs/howto/load-data.md, run (tests/readme.py checks that they are the same).
#include <catch2/catch.hpp>

#include "core/tensor/creation.h"
#include "data/datasets/csv.h"
#include "data/datasets/idx.h"
#include "data/datasets/loader.h"
#include "data/datasets/prefetch.h"
#include "data/datasets/text.h"
#include "data/datasets/token_file.h"
#include "data/formats/npy.h"
#include "data/formats/safetensors.h"
#include "data/streams/feed.h"
#include "ops/operators.h"
#include "tests/support/folder.h"

using namespace troupe;
using troupe::testing::Folder;

namespace {

struct Model {  // as nn::Module
  Tensor weight = tensor({1, 2}, float32);
  std::map<std::string, Tensor> state_dict() const { return {{"weight", weight}}; }
  void load_state_dict(const std::map<std::string, Tensor>& state) { weight = state.at("weight"); }
};

}  // namespace

TEST_CASE("the guide's readers", "[data][guide]") {
  Folder dir;
  Generator random(1);
  {
    const std::string path = dir.file("a.csv", "x,y,kind\n1,2,cat\n3,,dog\n5,6,dog\n");
    datasets::CsvOptions options{.label = "kind", .missing = datasets::Missing::skip_row};
    options.classes = datasets::csv_classes(path, options);  // the texts of the labels, sorted
    const datasets::CsvTable table =
        datasets::read_csv(path, options);  // values [rows, columns], labels [rows]
    datasets::Loader loader(table.dataset(), {.batch_size = 32, .seed = 1});
    CHECK(loader.size() == 2);
  }
  {
    const std::string path = dir.file("a.txt", "To be, or not to be, that is the question: whether it");
    const datasets::Text text = datasets::read_text(path);  // ids int64 [characters]
    datasets::Loader in_order(datasets::windows(text.ids, 8), {.batch_size = 4, .shuffle = false});
    const datasets::Dataset drawn = datasets::random_windows(text.ids, 8, 4, random);  // x and y [4, 8]
    const std::string again = text.vocabulary.decode(drawn.x);
    CHECK(in_order.batches() == 2);
    CHECK(again.size() == 32);
  }
  const std::string path = dir.path / "model";
  Model model;
  const Tensor weights = model.weight;
  {
    datasets::write_safetensors(path, model.state_dict(), {{"step", "100"}});
    model.load_state_dict(datasets::read_safetensors(path));
    const datasets::Safetensors file(path);  // or look first: entries(), metadata(), one tensor at a time
    CHECK(bit_equal(model.weight, weights));
    CHECK(file.metadata().at("step") == "100");
  }
  datasets::write_npy(path, weights);
  const Tensor same = datasets::read_npy(path);
  CHECK(bit_equal(same, weights));
  {
    const std::string images = dir.file("images", std::string("\0\0\x8\3\0\0\0\2\0\0\0\1\0\0\0\1\0\xff", 18)),
                      labels = dir.file("labels", std::string("\0\0\x8\1\0\0\0\2\x1a\1", 10));
    const datasets::Dataset letters{datasets::images(images), datasets::labels(labels) - 1};
    CHECK(letters.y.to_vector<int64_t>() == std::vector<int64_t>{25, 0});
  }
}

TEST_CASE("the guide's feed", "[data][guide]") {
  const Folder dir;
  const std::string wiki = (dir.path / "wiki.bin").string(), code = (dir.path / "code.bin").string();
  datasets::write_token_file(wiki, std::vector<int64_t>(100, 1));
  datasets::write_token_file(code, std::vector<int64_t>(100, 2));
  int64_t rows = 0, of_wiki = 0;
  const auto tokens = datasets::mixed({{datasets::token_windows({wiki}, {.context = 8}), 0.7},
                                       {datasets::token_windows({code}, {.context = 8}), 0.3}});
  datasets::Feed feed(datasets::Pipeline(tokens).shuffle({.seed = 1}).batch(4).repeat(2),
                      {.ahead = {.threads = 2}});
  while (const auto batch = feed.next()) {  // tensor("x") and tensor("y") int64 [4, 8]
    rows += batch->rows;
    for (int64_t r = 0; r < batch->rows; ++r)
      of_wiki += batch->tensor("x").select(0, r).to_vector<int64_t>()[0] == 1;
  }
  CHECK(rows == 48);
  CHECK(of_wiki == 34);
}

TEST_CASE("the guide's orders and prefetch", "[data][guide]") {
  const uint64_t seed = 1;
  const int64_t epoch = 0, rank = 0, ranks = 2, size = 32;
  // clang-format off: as in the guide
  const datasets::Order all = datasets::shuffled(1000, seed, epoch);  // same seed and epoch, same order
  const datasets::Order mine = datasets::shard(all, rank, ranks);     // this rank's part, as long as others'
  const std::vector<datasets::Order> batches = datasets::batches(mine, 32);
  // clang-format on
  CHECK(batches.size() == 16);
  {
    const datasets::Dataset set{zeros({10, 1}), zeros({10}, int64)};
    const datasets::Loader loader(set, {.batch_size = 64, .seed = seed, .rank = rank, .ranks = ranks});
    CHECK(loader.rows() == 5);
  }

  std::vector<Tensor> sequences;
  for (int64_t i = 0; i < size; ++i) sequences.push_back(zeros({1 + i % 9}, int64));
  int64_t rounds = 0;
  const auto buckets =
      datasets::length_buckets(datasets::shuffled(size, seed, epoch), datasets::lengths(sequences),
                               {.batch_size = 4, .group = ranks, .seed = seed}, epoch);
  for (const datasets::Order& rows : datasets::shard(buckets, rank, ranks)) {
    const datasets::Padded batch =
        datasets::pad_rows(sequences, rows);  // values [batch, longest], lengths, mask
    CHECK(batch.values.size(0) == 4);
    ++rounds;
  }
  CHECK(rounds == 4);

  Folder dir;
  datasets::CsvReader reader(dir.file("a.csv", "x,y\n1,0\n2,1\n3,2\n"), {.label = "y"});
  datasets::Prefetch<datasets::CsvTable> parts([&](int64_t) {
    datasets::CsvTable part = reader.read(2);
    return part.rows() > 0 ? std::optional(std::move(part)) : std::nullopt;
  });
  int64_t seen = 0;
  for (const datasets::CsvTable& part : parts) seen += part.rows();
  CHECK(seen == 3);

  const datasets::Loader loader({zeros({6, 1}), zeros({6}, int64)}, {.batch_size = 2});
  for (const datasets::Batch& batch : datasets::prefetch(loader.epoch(epoch), {.threads = 2, .ahead = 4})) {
    CHECK(batch.x.shape() == Shape{2, 1});
  }
}
