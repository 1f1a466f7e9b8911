#include "llm/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/ops.h"

namespace troupe::llm {

namespace {

size_t layers_of(const DecoderOptions& o) {
  return static_cast<size_t>(std::max<int64_t>(o.num_hidden_layers, 0));
}

bool has(const Mesh& mesh, std::string_view dim) {
  return std::ranges::any_of(mesh.dims(), [&](const MeshDim& d) { return d.name == dim; });
}

// The layer gets the elements of the table, of which both have the same rows.
void tie(tp::Head& head, const tp::VocabularyEmbedding& table) { head.weight = table.weight; }

nn::Linear undrawn(const DecoderOptions& o) {
  nn::Linear whole(1, 1, false, o.dtype);
  whole.weight = empty({o.vocab_size, o.hidden_size}, o.dtype);
  return whole;
}

// Calls f with the name and the module of each projection of a layer that has it.
template <class F>
void for_each_projection(DecoderLayer& layer, const F& f) {
  f("q_proj", layer.self_attn.q_proj), f("k_proj", layer.self_attn.k_proj),
      f("v_proj", layer.self_attn.v_proj);
  f("o_proj", layer.self_attn.o_proj);
  if (layer.mlp.gate_proj) f("gate_proj", *layer.mlp.gate_proj);
  f("up_proj", layer.mlp.up_proj), f("down_proj", layer.mlp.down_proj);
}

Tensor positions_of(const Tensor& x) {
  return ops::unsqueeze(arange(x.size(1), TensorOptions{int64, x.device()}), 0);
}

}  // namespace

Decoder::Decoder(const DecoderOptions& options) {
  make(options, parallel::StageLayers(layers_of(options), 0, 1));
}

Decoder::Decoder(const Mesh& mesh, const DecoderOptions& options) {
  if (has(mesh, "tp")) tp_ = mesh["tp"];
  const size_t layers = layers_of(options);
  make(options, has(mesh, "pp") ? parallel::StageLayers(mesh, layers) : parallel::StageLayers(layers, 0, 1));
}

void Decoder::make(const DecoderOptions& o, const parallel::StageLayers& own) {
  check(o);
  options_ = o;
  options_.lora.reset();
  const bool first = own.first(), last = own.last();
  whole_ = first && last && tp_.size() <= 1;
  if (first) {
    embed_tokens.emplace(tp_, o.vocab_size, o.hidden_size, tp::LinearOptions{.dtype = o.dtype});
    if (!o.rotary) embed_positions.emplace(o.max_position_embeddings, o.hidden_size, o.dtype);
  }
  for (const size_t i : own) layers.try_emplace(i, tp_, o, static_cast<int64_t>(i));
  if (last) {
    norm.emplace(o.hidden_size, o);
    lm_head.emplace(tp_, undrawn(o));
    if (o.tie_word_embeddings && first)
      tie(lm_head->module, embed_tokens->module);
    else
      nn::init::normal_(lm_head->module.weight, 0, o.initializer_range);
  }
  const NoGradGuard no_grad;
  if (first) ops::mul_(embed_tokens->module.weight, o.initializer_range);
  if (embed_positions) ops::mul_(embed_positions->weight, o.initializer_range);
  if (o.lora) adapt(*o.lora);
}

void Decoder::adapt(const LoraOptions& lora) {
  if (options_.lora) throw_invalid("[lora] there are adapters already: merge or drop them first");
  check(lora);
  requires_grad_(false);
  for (auto& [number, layer] : layers)
    for_each_projection(layer, [&](const std::string& name, auto& projection) {
      if (std::ranges::find(lora.target_modules, name) != lora.target_modules.end()) projection.adapt(lora);
    });
  options_.lora = lora;
}

void Decoder::drop_adapters(bool merge) {
  for (auto& [number, layer] : layers)
    for_each_projection(layer, [&](const std::string&, auto& projection) { projection.drop_adapter(merge); });
  options_.lora.reset();
  requires_grad_(true);
}

void Decoder::reset(Generator& generator) {
  const bool tied = options_.tie_word_embeddings && first() && last();
  nn::Module::reset(generator);
  const NoGradGuard no_grad;
  if (first()) ops::mul_(embed_tokens->module.weight, options_.initializer_range);
  if (embed_positions) ops::mul_(embed_positions->weight, options_.initializer_range);
  if (last() && !tied) nn::init::normal_(lm_head->module.weight, 0, options_.initializer_range, generator);
}

DecoderPass Decoder::pass_of(const Tensor& positions) const {
  DecoderPass pass;
  if (!options_.rotary) return pass;
  const auto table = [&](ops::RotaryOptions rope) {
    if (rope.scaling == "dynamic") rope.sequence_length = ops::max(positions).item<int64_t>() + 1;
    return ops::rotary_table(positions.select(0, 0), options_.head_width(), rope);
  };
  pass.global = table(options_.rope);
  if (options_.local_rope) pass.local = table(*options_.local_rope);
  return pass;
}

Tensor Decoder::embedded(const Tensor& sum, const Tensor& positions) const {
  Tensor x = sum;
  if (options_.embedding_scale != 1)  // as a number of the dtype: published models round it
    x = ops::mul(x, full({}, options_.embedding_scale, x.options()));
  if (!embed_positions) return x;
  const int64_t last = positions.numel() ? ops::max(positions).item<int64_t>() : 0;
  if (last >= options_.max_position_embeddings)
    throw_invalid(
        fmt::format("[decoder] position {} has no embedding: max_position_embeddings is {}, so give at most "
                    "that many tokens",
                    last, options_.max_position_embeddings));
  return ops::add(x, ops::embedding(positions, embed_positions->weight));
}

Tensor Decoder::capped(const Tensor& logits) const {
  const double cap = options_.logit_softcap;
  return cap > 0 ? ops::mul(ops::tanh(ops::div(logits, cap)), cap) : logits;
}

Tensor Decoder::hidden(const Tensor& ids, const Tensor& positions, Past* past) {
  if (!whole_)
    throw_invalid(
        "[decoder] this is a part of a model that lies on a mesh: call its forward() in a method, or its "
        "Pipelines");
  if (!ids.defined() || ids.dim() != 2 || !ids.numel())
    throw_invalid(fmt::format("[decoder] the tokens are {}, expected int64 [batch, time]", ids.summary()));
  DecoderPass pass = pass_of(positions);
  pass.past = past;
  Tensor x = embedded(embed_tokens->module(ids).summand, positions);
  for (auto& [number, layer] : layers) {
    x = layer.attended(x, layer.attend(x, pass).summand);
    x = layer.fed(x, layer.feed(x).summand);
  }
  return x;
}

Tensor Decoder::operator()(const Tensor& ids) {
  return capped(lm_head->module(
      (*norm)(hidden(ids, ids.defined() && ids.dim() == 2 ? positions_of(ids) : ids, nullptr))));
}

Tensor Decoder::next_alone(const Tensor& ids, const Tensor& positions, const Tensor& last_of, Past* past) {
  const Tensor x = hidden(ids, positions, past).select(0, 0);
  return capped(lm_head->module((*norm)(ops::index_select(x, 0, last_of))));
}

Device Decoder::device() const {
  if (last()) return norm->weight.device();
  return layers.empty() ? cpu : layers.begin()->second.input_layernorm.weight.device();
}

Task<Tensor> Decoder::forward(Tensor x) {
  const Tensor positions = positions_of(x);
  if (first()) {
    const auto looking_up = (*embed_tokens)(x);
    const Tensor sum = co_await looking_up;
    x = embedded(sum, positions);
  }
  const DecoderPass pass = pass_of(positions);
  for (auto& [number, layer] : layers) {
    const auto running = layer(x, pass);
    x = co_await running;
  }
  if (last()) {
    const auto ending = (*lm_head)((*norm)(x));
    x = co_await ending;
    x = capped(x);
  }
  co_return x;
}

Task<Tensor> Decoder::loss(Tensor logits, Tensor next) {
  const int64_t rows = next.numel();
  Tensor flat = ops::reshape(logits, {rows, logits.size(-1)}), targets = ops::reshape(next, {rows});
  if (tp_.size() <= 1) co_return ops::cross_entropy(flat, targets);
  const Tensor counted = ops::reshape(ops::nonzero(ops::ne(targets, -100)), {-1});
  if (counted.numel() < rows)
    flat = ops::index_select(flat, 0, counted), targets = ops::index_select(targets, 0, counted);
  const auto summing = lm_head->module.cross_entropy(flat, targets);
  co_return co_await summing;
}

Task<Tensor> Decoder::next(Tensor ids, Tensor positions, Tensor last_of, Past* past) {
  if (!first() || !last())
    throw_invalid(
        "[decoder] this is a stage of a pipeline: text is generated by a whole model, or by ranks of \"tp\" "
        "alone");
  DecoderPass pass = pass_of(positions);
  pass.past = past;
  const auto looking_up = (*embed_tokens)(ids);
  Tensor x = co_await looking_up;
  x = embedded(x, positions);
  for (auto& [number, layer] : layers) {
    const auto running = layer(x, pass);
    x = co_await running;
  }
  x = ops::index_select(x.select(0, 0), 0, last_of);
  const auto ending = (*lm_head)((*norm)(x));
  x = co_await ending;
  x = capped(x);
  if (tp_.size() <= 1) co_return x;
  const auto joining = tp::join(x, tp_, 1);
  co_return co_await joining;
}

void Decoder::members(nn::Members& m) {
  if (embed_tokens) m("model.embed_tokens", *embed_tokens);
  if (embed_positions) m("model.embed_positions", *embed_positions);
  for (auto& [number, layer] : layers) m(fmt::format("model.layers.{}", number), layer);
  if (norm) m("model.norm", *norm);
  if (lm_head) m("lm_head", *lm_head);
}

std::string Decoder::str() const {
  return fmt::format("Decoder({}, {} layers, {} wide)", options_.model_type, options_.num_hidden_layers,
                     options_.hidden_size);
}

std::vector<std::vector<parallel::StageParameter>> tied_stages(const DecoderOptions& options, size_t stages) {
  if (!options.tie_word_embeddings || stages <= 1) return {};
  return {{{0, "model.embed_tokens.weight"}, {static_cast<int>(stages) - 1, "lm_head.weight"}}};
}

}  // namespace troupe::llm
