#include "parallel/module/cut_layer.h"

#include <algorithm>

#include "nn/make.h"
#include "ops/arithmetic.h"
#include "parallel/context/transformer.h"
#include "parallel/experts/experts.h"
#include "parallel/tensor/copied.h"

namespace troupe::internal::parallel {
namespace {

using troupe::parallel::Experts;
using troupe::parallel::ExpertsOptions;

bool has_dim(const Mesh& mesh, const std::string& dim) {
  return std::ranges::find(mesh.dims(), dim, &MeshDim::name) != mesh.dims().end();
}

// A field of a specification, which has all of them.
template <class T>
T field(const ValueMap& spec, const char* name) {
  return Codec<T>::from(spec.at(name));
}

nn::TransformerEncoderLayerOptions layer_options(const ValueMap& spec) {
  return {.dim_feedforward = field<int64_t>(spec, "dim_feedforward"),
          .dropout = field<double>(spec, "dropout"),
          .activation = field<std::string>(spec, "activation"),
          .layer_norm_eps = field<double>(spec, "layer_norm_eps"),
          .norm_first = field<bool>(spec, "norm_first"),
          .bias = field<bool>(spec, "bias"),
          .causal = field<bool>(spec, "causal"),
          .dtype = field<DType>(spec, "dtype")};
}

nn::MultiheadAttentionOptions attention_options(const ValueMap& spec) {
  return {.dropout = field<double>(spec, "dropout"),
          .bias = field<bool>(spec, "bias"),
          .causal = field<bool>(spec, "causal"),
          .dtype = field<DType>(spec, "dtype")};
}

// Who has what of a layer on a mesh.
struct LayerRanks {
  explicit LayerRanks(const Mesh& mesh) : sequence(group_along(mesh, "cp")), heads(group_along(mesh, "tp")) {
    std::vector<std::string> dims;
    for (const char* dim : {"ep", "cp"})
      if (has_dim(mesh, dim)) dims.emplace_back(dim);
    if (!dims.empty()) copies = mesh.across(dims);
  }
  bool pieces() const { return copies.size() > 1; }
  troupe::cp::Ranks cp() const { return {sequence, heads, copies}; }
  Group sequence, heads, copies;
};

class WholeLayer final : public CutLayer {
 public:
  explicit WholeLayer(std::shared_ptr<nn::Layer> layer) : layer_(std::move(layer)) {}
  Task<Tensor> run(Tensor x, troupe::cp::Sequence) override { co_return (*layer_)(x); }
  void members(nn::Members& m) override { m("", *layer_); }
  std::string str() const override { return layer_->str(); }

 private:
  std::shared_ptr<nn::Layer> layer_;
};

// Each rank has some heads of M, and all rows and positions.
template <class M>
class OfHeads final : public CutLayer {
 public:
  template <class... A>
  explicit OfHeads(A&&... args) : layer_(std::forward<A>(args)...) {}
  Task<Tensor> run(Tensor x, troupe::cp::Sequence) override {
    const auto running = layer_(x);
    co_return co_await running;
  }
  void members(nn::Members& m) override { m("", layer_); }
  std::string str() const override { return layer_.str(); }

 private:
  M layer_;
};

// Each rank has some positions, or rows, and of M some heads.
template <class M>
class OfPieces final : public CutLayer {
 public:
  template <class... A>
  explicit OfPieces(A&&... args) : layer_(std::forward<A>(args)...) {}
  bool of_pieces() const override { return true; }
  Task<Tensor> run(Tensor x, troupe::cp::Sequence sequence) override {
    Task<Tensor> running = layer_(std::move(x), std::move(sequence));
    co_return co_await std::move(running);
  }
  void members(nn::Members& m) override { m("", layer_); }
  std::string str() const override { return layer_.str(); }

 private:
  M layer_;
};

ExpertsOptions experts_options(const nn::TransformerEncoderLayerOptions& o, const CutOptions& cut) {
  if (!o.bias)
    throw_invalid(
        "[mesh module] a transformer layer has no biases, and experts have: leave out bias = false");
  if (o.dropout != 0)
    throw_invalid("[mesh module] a transformer layer with experts has no dropout: give it dropout = 0");
  return {.top_k = cut.top_k,
          .capacity = cut.capacity,
          .normalize = cut.normalize,
          .shared = cut.shared,
          .activation = o.activation,
          .dtype = o.dtype};
}

// A transformer layer with experts in the place of its two linear layers.
class MixtureLayer final : public CutLayer {
 public:
  MixtureLayer(const LayerRanks& ranks, int64_t width, int64_t heads,
               const nn::TransformerEncoderLayerOptions& o, const CutOptions& cut, troupe::cp::Way way)
      : norm_first_(o.norm_first),
        attention_(ranks.cp(), width, heads, {.causal = o.causal, .dtype = o.dtype}, way),
        experts_(ranks.copies, width, o.dim_feedforward, cut.experts, experts_options(o, cut)),
        norm1_(ranks.copies, width, nn::LayerNormOptions{.eps = o.layer_norm_eps, .dtype = o.dtype}),
        norm2_(ranks.copies, width, nn::LayerNormOptions{.eps = o.layer_norm_eps, .dtype = o.dtype}) {}
  bool of_pieces() const override { return true; }
  Task<Tensor> run(Tensor x, troupe::cp::Sequence sequence) override {
    Task<Tensor> attending = attention_(norm_first_ ? norm1_(x) : x, std::move(sequence));
    x = ops::add(x, co_await std::move(attending));
    if (!norm_first_) x = norm1_(x);
    Task<troupe::parallel::Mixture> mixing = experts_(norm_first_ ? norm2_(x) : x);
    const troupe::parallel::Mixture mixed = co_await std::move(mixing);
    x = ops::add(x, mixed.y);
    co_return norm_first_ ? x : norm2_(x);
  }
  void members(nn::Members& m) override {
    m("self_attn", attention_), m("experts", experts_), m("norm1", norm1_), m("norm2", norm2_);
  }
  std::string str() const override { return "transformer layer with " + experts_.str(); }

 private:
  const bool norm_first_;
  troupe::cp::Attention attention_;
  Experts experts_;
  tp::Copied<nn::LayerNorm> norm1_, norm2_;
};

const std::string& name_in(const ValueMap& spec) { return *spec.at("module").get_if<std::string>(); }

}  // namespace

Group group_along(const Mesh& mesh, const std::string& dim) {
  return has_dim(mesh, dim) ? mesh[dim] : Group();
}

bool is_cut(const Value& spec) {
  const std::string& name = name_in(*spec.get_if<ValueMap>());
  return name == "transformer_encoder_layer" || name == "multihead_attention";
}

std::unique_ptr<CutLayer> cut_layer(const Value& value, const Mesh& mesh, const CutOptions& options) {
  const ValueMap& spec = *value.get_if<ValueMap>();
  if (!is_cut(value)) return std::make_unique<WholeLayer>(nn::make(value));
  const LayerRanks ranks(mesh);
  const troupe::cp::Way way = options.ring ? troupe::cp::Way::ring : troupe::cp::Way::heads;
  const auto width = field<int64_t>(spec, "width"), heads = field<int64_t>(spec, "heads");
  if (name_in(spec) == "multihead_attention") {
    const auto o = attention_options(spec);
    if (!ranks.pieces()) return std::make_unique<OfHeads<tp::Attention>>(ranks.heads, width, heads, o);
    return std::make_unique<OfPieces<troupe::cp::Attention>>(ranks.cp(), width, heads, o, way);
  }
  const auto o = layer_options(spec);
  if (options.experts) return std::make_unique<MixtureLayer>(ranks, width, heads, o, options, way);
  if (!ranks.pieces())
    return std::make_unique<OfHeads<tp::TransformerEncoderLayer>>(ranks.heads, width, heads, o);
  return std::make_unique<OfPieces<troupe::cp::TransformerEncoderLayer>>(ranks.cp(), width, heads, o, way);
}

}  // namespace troupe::internal::parallel
