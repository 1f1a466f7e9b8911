#include "parallel/module/mesh_module.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/make.h"
#include "parallel/context/attention.h"
#include "parallel/tensor/convert.h"
#include "parallel/tensor/placement.h"

namespace troupe::parallel {

using internal::parallel::CutLayer;
using internal::parallel::group_along;

namespace {

// The layers of one stage: a sequential's, or what it is itself.
struct StageSpec {
  explicit StageSpec(const Value& given) {
    const auto* map = given.get_if<ValueMap>();
    const auto at = map ? map->find("module") : ValueMap::const_iterator();
    const auto* name = map && at != map->end() ? at->second.get_if<std::string>() : nullptr;
    in_list = given.get_if<ValueList>() || (name && *name == "sequential");
    const Value whole = nn::spec_of(
        "sequential", {in_list && map ? map->at("layers") : (in_list ? given : Value(ValueList(1, given)))});
    layers = *whole.get_if<ValueMap>()->at("layers").get_if<ValueList>();
  }
  bool in_list = false;
  ValueList layers;
};

}  // namespace

class MeshModule::Net final : public nn::Module {
 public:
  // The layers of earlier stages draw their initial values first, as in one process.
  Net(const Mesh& mesh, const ValueList& stages, const CutOptions& options) {
    const size_t own = mesh.coordinate(options.stages);
    if (stages.size() != mesh.size(options.stages))
      throw_invalid(fmt::format("[mesh module] {} specifications for {} stages: give one for each",
                                stages.size(), mesh.size(options.stages)));
    bool any = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      const StageSpec spec(stages[s]);
      for (const Value& layer : spec.layers) {
        any = any || internal::parallel::is_cut(layer);
        if (s > own) continue;
        auto made = internal::parallel::cut_layer(layer, s == own ? mesh : Mesh(), options);
        if (s == own)
          layers.push_back(std::move(made));
        else
          ++first;
      }
      if (s == own) in_list = spec.in_list;
    }
    if (!any)
      throw_invalid(
          "[mesh module] the mesh cuts layers, and the model has none that are cut: "
          "transformer_encoder_layer "
          "and multihead_attention are, in the list of a stage; or leave out the dimensions tp, cp and ep");
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < layers.size(); ++i) m(std::to_string(first + i), *layers[i]);
  }
  // The name that it has in the whole model.
  std::string whole_name(const std::string& name) const {
    if (!in_list) return fmt::format("{}.{}", first, name);
    size_t number = 0;
    const size_t dot = name.find('.');
    for (const char c : name.substr(0, dot)) number = number * 10 + static_cast<size_t>(c - '0');
    return std::to_string(first + number) + name.substr(std::min(dot, name.size()));
  }

  std::vector<std::unique_ptr<CutLayer>> layers;
  size_t first = 0;  // its number in the whole model
  bool in_list = false;
};

MeshModule::MeshModule(Mesh mesh, const ValueList& stages, const CutOptions& options)
    : rows_(group_along(mesh, "ep")),
      times_(group_along(mesh, "cp")),
      net_(std::make_unique<Net>(mesh, stages, options)) {}

MeshModule::~MeshModule() = default;

nn::Module& MeshModule::any_module() { return *net_; }

void MeshModule::load_stage(const std::map<std::string, Tensor>& state) {
  std::map<std::string, Tensor> whole;
  for (const auto& [name, tensor] : state) whole[net_->whole_name(name)] = tensor;
  tp::load_whole_state(*net_, whole);
}

Task<Tensor> MeshModule::forward(Tensor x) {
  const size_t ranks = std::max<size_t>(times_.size(), 1);
  cp::Sequence sequence(0, ranks);
  std::vector<int64_t> rows;
  bool cut = false;
  for (size_t i = 0; i <= net_->layers.size(); ++i) {
    CutLayer* const layer = i < net_->layers.size() ? net_->layers[i].get() : nullptr;
    const bool of_pieces = layer && layer->of_pieces();
    if (of_pieces && !cut) {
      if (!x.defined() || x.dim() != 3)
        throw_invalid(fmt::format("[mesh module] {} takes [batch, time, width], got {}", layer->str(),
                                  x.defined() ? x.summary() : "undefined"));
      sequence = cp::Sequence(x.size(1), ranks);
      rows = tp::even_sizes(x.size(0), std::max<size_t>(rows_.size(), 1));
      x = cp::cut(tp::cut(x, rows_, 0, rows), times_, 1, sequence);
    } else if (cut && !of_pieces) {
      const auto times = cp::join(x, times_, 1, sequence);
      x = co_await times;
      const auto joined = tp::join(x, rows_, 0, rows);
      x = co_await joined;
    }
    cut = of_pieces;
    if (!layer) break;
    Task<Tensor> running = layer->run(std::move(x), sequence);
    x = co_await std::move(running);
  }
  co_return x;
}

}  // namespace troupe::parallel
