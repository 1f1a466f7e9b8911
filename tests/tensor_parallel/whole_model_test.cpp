// One file of a model that lies in pieces with ranks, and what ranks of another layout take from it.
#include "parallel/tensor/whole_model.h"
#include "parallel/mesh/actor_mesh.h"

#include <catch2/catch.hpp>

#include <deque>

#include "data/formats/safetensors.h"
#include "parallel/tensor/transformer.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr int64_t kWords = 11, kWidth = 12, kHeads = 4;

// Two blocks of a transformer in one or two stages, with an embedding before and a head behind.
struct Net : nn::Module {
  explicit Net(const Mesh& mesh) : stage(mesh.coordinate("pp")), stages(mesh.size("pp")) {
    const Group tp = mesh["tp"];
    if (stage == 0) embed.emplace(tp, kWords, kWidth);
    for (size_t b = 0; b < 2; ++b)
      if (b * stages / 2 == stage) {
        numbers.push_back(b);
        blocks.emplace_back(tp, kWidth, kHeads, nn::TransformerEncoderLayerOptions{.dim_feedforward = 20});
      }
    if (stage + 1 == stages) head.emplace(tp, kWidth, kWords);
  }
  void members(nn::Members& m) override {
    if (embed) m("embed", *embed);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(numbers[i]), blocks[i]);
    if (head) m("head", *head);
  }
  size_t stage, stages;
  std::vector<size_t> numbers;
  std::optional<tp::VocabularyEmbedding> embed;
  std::deque<tp::TransformerEncoderLayer> blocks;
  std::optional<tp::Head> head;
};

struct WholeRank : nn::ModuleActor<Net> {
  explicit WholeRank(Mesh mesh) : ModuleActor(mesh) {}
  static constexpr auto remote = methods<>;
};

struct World {
  explicit World(const std::vector<MeshDim>& dims) {
    size_t ranks = 1;
    for (const MeshDim& d : dims) ranks *= d.size;
    cluster = Cluster::in_process(static_cast<int>(ranks) + 1, hosting<WholeRank>());
    std::vector<Place> places;
    for (size_t i = 1; i <= ranks; ++i) places.emplace_back(i);
    model.emplace(parallel::spawn<WholeRank>(cluster->here(), Mesh(*cluster, dims, places)));
  }
  std::unique_ptr<Cluster> cluster;
  std::optional<parallel::ActorMesh<WholeRank>> model;
};

using State = std::map<std::string, Tensor>;

void check_equal(const State& a, const State& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    CAPTURE(name);
    REQUIRE(b.contains(name));
    CHECK(ops::equal(tensor, b.at(name)));
  }
}

const std::vector<std::vector<MeshDim>> kLayouts{{{"pp", 1}, {"tp", 1}},
                                                 {{"pp", 1}, {"tp", 2}},
                                                 {{"tp", 3}, {"pp", 2}},
                                                 {{"dp", 2}, {"pp", 2}, {"tp", 2}}};

}  // namespace

TEST_CASE("a model is gathered to a file from any layout, and any layout takes it from there") {
  Folder folder;
  State first;
  for (const auto& from : kLayouts) {
    World world(from);
    const std::string file = (folder.path / "from.safetensors").string(),
                      again = (folder.path / "again.safetensors").string();
    if (!first.empty()) {
      datasets::write_safetensors(file, first);
      parallel::load_whole(*world.model, file);
    }
    parallel::gather_to(*world.model, again);
    const State state = datasets::read_safetensors(again);
    if (first.empty()) {
      for (const auto& [name, tensor] : state) first[name] = tensor.clone_data();
      CHECK(first.at("block0.self_attn.in_proj_weight").shape() == Shape{3 * kWidth, kWidth});
    }
    check_equal(first, state);
  }
}

TEST_CASE("files and ranks that do not fit together are refused, and nothing is changed") {
  Folder folder;
  World world({{"pp", 2}, {"tp", 2}});
  const std::string good = (folder.path / "good.safetensors").string(),
                    bad = (folder.path / "bad.safetensors").string();
  parallel::gather_to(*world.model, good);
  const State state = datasets::read_safetensors(good);
  const auto refused = [&](State other, const std::string& text) {
    datasets::write_safetensors(bad, other);
    CHECK_THAT(invalid_text([&] { parallel::load_whole(*world.model, bad); }), Catch::Contains(text));
    parallel::gather_to(*world.model, bad);
    check_equal(state, datasets::read_safetensors(bad));
  };
  State other;
  for (const auto& [name, tensor] : state) other[name] = tensor.clone_data() + 1;
  State less = other;
  less.erase("head.bias");
  refused(less, "has no head.bias");
  State more = other;
  more["extra"] = ones({2});
  refused(more, "has extra, which none of the 4 actors has");
  State shape = other;
  shape["head.bias"] = ones({kWords + 1});
  refused(shape, "head.bias is [12]");
  CHECK_THAT(
      text_of([&] { parallel::load_whole(*world.model, (folder.path / "none.safetensors").string()); }),
      Catch::Contains("none.safetensors"));

  const auto& ranks = world.model->actors();
  CHECK_THAT(invalid_text([&] { parallel::gather_to({ranks[0]}, bad); }), Catch::Contains("give all ranks"));
  CHECK_THAT(invalid_text([&] { parallel::gather_to(std::vector<AnyRef>(), bad); }),
             Catch::Contains("no actors"));
  check_equal(state, datasets::read_safetensors(bad));
}
