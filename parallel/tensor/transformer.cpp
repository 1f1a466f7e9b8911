#include "parallel/tensor/transformer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "nn/mixed_heads.h"
#include "ops/ops.h"
#include "parallel/tensor/own_dropout.h"

namespace troupe::tp {

namespace {

std::vector<int64_t> times(std::vector<int64_t> sizes, int64_t factor) {
  for (int64_t& s : sizes) s *= factor;
  return sizes;
}

}  // namespace

Attention::Attention(Group group, int64_t width, int64_t heads, const Options& options)
    : Attention(std::move(group), *std::make_unique<nn::MultiheadAttention>(width, heads, options), heads,
                options) {}

Attention::Attention(Group group, nn::MultiheadAttention& whole, int64_t heads, const Options& options)
    : out_proj(
          group, whole.out_proj,
          times(even_sizes(heads, std::max<size_t>(group.size(), 1)), whole.out_proj.weight.size(0) / heads)),
      group_(std::move(group)),
      rank_(rank_in(group_)),
      width_(whole.out_proj.weight.size(0)),
      heads_(heads),
      options_(options),
      sizes_(even_sizes(heads, std::max<size_t>(group_.size(), 1))),
      dropout_(own_dropout(options.dropout, whole, "dropout.generator", group_)) {
  take(whole);
}

Placements Attention::placements() const {
  Placement weight{{3 * width_, width_}, 0, {}}, bias{{3 * width_}, 0, {}};
  const Placement heads = Placement::cut({width_}, 0, times(sizes_, width_ / heads_), rank_);
  for (int64_t i = 0; i < 3; ++i)  // of queries, keys and values
    weight.ranges.push_back({i * width_ + heads.ranges[0].from, heads.ranges[0].size});
  bias.ranges = weight.ranges;
  Placements all{{"in_proj_weight", weight}};
  if (options_.bias) all.emplace("in_proj_bias", bias);
  return all;
}

void Attention::take(nn::MultiheadAttention& whole) {
  const auto places = placements();
  put(in_proj_weight, places.at("in_proj_weight").of(whole.in_proj_weight), group_);
  if (options_.bias) put(in_proj_bias, places.at("in_proj_bias").of(whole.in_proj_bias), group_);
  out_proj.take(whole.out_proj);
  dropout_ = own_dropout(options_.dropout, whole, "dropout.generator", group_);
}

Tensor Attention::projected(const Tensor& x) const {
  const Tensor repeated = enter(checked(x), group_, group_.size() > 1 ? str() : "");
  return ops::linear(repeated, in_proj_weight, in_proj_bias);
}

const Tensor& Attention::checked(const Tensor& x) const {
  if (!x.defined() || x.dim() != 3 || x.size(2) != width_)
    throw_invalid(fmt::format("[attention] the input is {}, expected [batch, time, {}]",
                              x.defined() ? x.summary() : "undefined", width_));
  return x;
}

Part Attention::operator()(const Tensor& x) { return of_projected(projected(x)); }

Part Attention::of_repeated(const Tensor& x) {
  return of_projected(ops::linear(x, in_proj_weight, in_proj_bias));
}

Part Attention::of_projected(const Tensor& projected) {
  const int64_t heads = own_heads();
  return out_proj(heads ? nn::mixed_heads(projected, heads, options_.causal, dropout_) : projected);
}

void Attention::members(nn::Members& m) {
  m("in_proj_weight", in_proj_weight), m("in_proj_bias", in_proj_bias), m("out_proj", out_proj);
  m("dropout", dropout_);
}

void Attention::reset(Generator& generator) {
  nn::MultiheadAttention whole(width_, heads_, options_);
  whole.reset(generator);
  take(whole);
}

std::string Attention::str() const { return fmt::format("Attention({}, {} heads)", width_, heads_); }

TransformerEncoderLayer::TransformerEncoderLayer(Group group, int64_t width, int64_t heads,
                                                 const Options& options)
    : TransformerEncoderLayer(std::move(group), nn::TransformerEncoderLayer(width, heads, options), width,
                              heads, options) {}

TransformerEncoderLayer::TransformerEncoderLayer(Group group, nn::TransformerEncoderLayer whole,
                                                 int64_t width, int64_t heads, const Options& o)
    : self_attn(group, whole.self_attn, heads,
                {.dropout = o.dropout, .bias = o.bias, .causal = o.causal, .dtype = o.dtype}),
      linear1(group, whole.linear1),
      linear2(group, whole.linear2),
      norm1(whole.norm1),
      norm2(whole.norm2),
      dropout(own_dropout(o.dropout, whole, "dropout.generator", group)),
      dropout1(whole.dropout1),
      dropout2(whole.dropout2),
      group_(group),
      width_(width),
      heads_(heads),
      options_(o) {}

Task<Tensor> TransformerEncoderLayer::operator()(Tensor x) {
  const Part attending = attend(x);
  Tensor sum = co_await attending;
  x = attended(x, sum);
  const Part feeding = feed(x);
  sum = co_await feeding;
  co_return fed(x, sum);
}

Part TransformerEncoderLayer::attend(const Tensor& x) { return self_attn(norm_first() ? norm1(x) : x); }

Tensor TransformerEncoderLayer::attended(const Tensor& x, const Tensor& sum) {
  const Tensor y = ops::add(x, dropout1(sum));
  return norm_first() ? y : norm1(y);
}

Part TransformerEncoderLayer::feed(const Tensor& x) {
  const Tensor wide = linear1(norm_first() ? norm2(x) : x);
  return linear2(dropout(activated(wide)));
}

Tensor TransformerEncoderLayer::activated(const Tensor& wide) const {
  return options_.activation == "gelu" ? ops::gelu(wide) : ops::relu(wide);
}

// Each rank uses the weights, which are copies, for its own positions.
Tensor TransformerEncoderLayer::normed(const nn::LayerNorm& norm, const char* name,
                                       const Tensor& piece) const {
  nn::LayerNorm own = norm;
  const std::string layer = str() + "." + name;
  if (norm.weight.defined()) own.weight = enter(norm.weight, group_, layer + ".weight");
  if (norm.bias.defined()) own.bias = enter(norm.bias, group_, layer + ".bias");
  return own(piece);
}

// The rank's piece of the mask of one process.
Tensor TransformerEncoderLayer::thinned(nn::Dropout& layer, const Tensor& piece,
                                        const std::vector<int64_t>& times) const {
  if (layer.idle()) return piece;
  const auto rank = static_cast<ptrdiff_t>(group_.rank());
  const int64_t time = std::accumulate(times.begin(), times.end(), int64_t{0}),
                from = std::accumulate(times.begin(), times.begin() + rank, int64_t{0});
  const NoGradGuard off;
  const Tensor mask = layer(ones({piece.size(0), time, width_}, piece.options()));
  const Tensor own = ops::slice(mask, 1, from, from + piece.size(1));
  const GradMode on(true);
  return ops::mul(piece, own);
}

Task<Tensor> TransformerEncoderLayer::of_pieces(Tensor x, std::vector<int64_t> times) {
  const size_t n = std::max<size_t>(group_.size(), 1), rank = rank_in(group_);
  if (!x.defined() || x.dim() != 3 || x.size(2) != width_ || times.size() != n || times[rank] != x.size(1))
    throw_invalid(
        fmt::format("[transformer] rank {} of {} has {}, and times {}: expected [batch, its time, {}]", rank,
                    n, x.defined() ? x.summary() : "an undefined tensor", times, width_));
  if (n == 1) {
    Task<Tensor> whole = (*this)(x);
    co_return co_await std::move(whole);
  }
  const auto gathering = gather(norm_first() ? normed(norm1, "norm1", x) : x, group_, 1, times);
  const Tensor all = co_await gathering;
  const auto attending = sum_scatter(self_attn.of_repeated(all), 1, times);
  Tensor sum = co_await attending;
  x = ops::add(x, thinned(dropout1, sum, times));
  if (!norm_first()) x = normed(norm1, "norm1", x);
  const auto again = gather(norm_first() ? normed(norm2, "norm2", x) : x, group_, 1, times);
  const Tensor fed_in = co_await again;
  const Tensor wide = ops::linear(fed_in, linear1.weight, linear1.bias);
  const auto feeding = sum_scatter(linear2(dropout(activated(wide))), 1, times);
  sum = co_await feeding;
  x = ops::add(x, thinned(dropout2, sum, times));
  co_return norm_first() ? x : normed(norm2, "norm2", x);
}

Tensor TransformerEncoderLayer::fed(const Tensor& x, const Tensor& sum) {
  const Tensor y = ops::add(x, dropout2(sum));
  return norm_first() ? y : norm2(y);
}

void TransformerEncoderLayer::members(nn::Members& m) {
  m("self_attn", self_attn), m("linear1", linear1), m("dropout", dropout), m("linear2", linear2);
  m("norm1", norm1), m("norm2", norm2), m("dropout1", dropout1), m("dropout2", dropout2);
}

void TransformerEncoderLayer::reset(Generator& generator) {
  nn::TransformerEncoderLayer whole(width_, heads_, options_);
  whole.reset(generator);
  self_attn.take(whole.self_attn);
  linear1.take(whole.linear1), linear2.take(whole.linear2);
  norm1.reset(generator), norm2.reset(generator);
  dropout1 = whole.dropout1, dropout2 = whole.dropout2;
  dropout = own_dropout(options_.dropout, whole, "dropout.generator", group_);
}

std::string TransformerEncoderLayer::str() const {
  return fmt::format("TransformerEncoderLayer({}, {} heads)", width_, heads_);
}

}  // namespace troupe::tp
