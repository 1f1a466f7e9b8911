#include "parallel/context/transformer.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/ops.h"
#include "parallel/tensor/copied.h"

namespace troupe::cp {

namespace {

using internal::parallel::entered;

void refuse_dropout(double dropout) {
  if (dropout != 0)
    throw_invalid(
        fmt::format("[context transformer] dropout is {}, and weights of attention over a cut sequence "
                    "are not thinned: give .dropout = 0",
                    dropout));
}

void check_input(const Tensor& x, int64_t width) {
  if (!x.defined() || x.dim() != 3 || x.size(2) != width)
    throw_invalid(fmt::format("[context transformer] the input is {}, expected [batch, some of time, {}]",
                              x.defined() ? x.summary() : "undefined", width));
}

// `own` has repeated parameters.
Task<Tensor> attend(tp::Attention own, Tensor x, Group group, Sequence sequence, AttentionOptions options) {
  const int64_t heads = own.own_heads();
  Tensor mixed = own.projected(x);
  if (heads) {  // a rank without any is without them on all ranks of the sequence
    const int64_t some = mixed.size(2) / 3;
    const Tensor parts =
        ops::permute(ops::reshape(mixed, {x.size(0), x.size(1), 3, heads, some / heads}), {2, 0, 3, 1, 4});
    Task<Tensor> attending =
        attention(ops::select(parts, 0, 0), ops::select(parts, 0, 1), ops::select(parts, 0, 2),
                  std::move(group), std::move(sequence), std::move(options));
    mixed = co_await std::move(attending);
    mixed = ops::reshape(ops::transpose(mixed, 1, 2), {x.size(0), x.size(1), some});
  }
  const tp::Part part = own.out_proj(mixed);
  co_return co_await part;
}

}  // namespace

Attention::Attention(Ranks ranks, int64_t width, int64_t heads, const Options& options, Way way)
    : ranks_(std::move(ranks)),
      options_{.way = way,
               .causal = options.causal,
               .layer = fmt::format("cp::Attention({}, {} heads)", width, heads)},
      whole_(ranks_.heads, width, heads, options) {
  refuse_dropout(options.dropout);
}

Task<Tensor> Attention::operator()(Tensor x, Sequence sequence) {
  check_input(x, whole_.out_proj.weight.size(0));
  Task<Tensor> attending =
      attend(entered(whole_, ranks_.copies), std::move(x), ranks_.sequence, std::move(sequence), options_);
  co_return co_await std::move(attending);
}

std::string Attention::str() const { return options_.layer; }

TransformerEncoderLayer::TransformerEncoderLayer(Ranks ranks, int64_t width, int64_t heads,
                                                 const Options& options, Way way)
    : ranks_(std::move(ranks)),
      width_(width),
      heads_(heads),
      options_{.way = way, .causal = options.causal, .layer = str()},
      whole_(ranks_.heads, width, heads, options) {
  refuse_dropout(options.dropout);
}

std::string TransformerEncoderLayer::str() const {
  return fmt::format("cp::TransformerEncoderLayer({}, {} heads)", width_, heads_);
}

Task<Tensor> TransformerEncoderLayer::operator()(Tensor x, Sequence sequence) {
  check_input(x, width_);
  tp::TransformerEncoderLayer own = entered(whole_, ranks_.copies);
  Task<Tensor> attending = attend(own.self_attn, own.norm_first() ? own.norm1(x) : x, ranks_.sequence,
                                  std::move(sequence), options_);
  Tensor sum = co_await std::move(attending);
  x = own.attended(x, sum);
  const tp::Part feeding = own.feed(x);
  sum = co_await feeding;
  co_return own.fed(x, sum);
}

}  // namespace troupe::cp
