#include "llm/generate.h"

#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/view.h"

namespace troupe::llm {

PassTokens tokens_of(const TextStep& step, const PagedCache& cache, Device device) {
  std::vector<int64_t> positions;
  for (const auto& [text, count] : step.texts)
    for (int64_t i = 0; i < count; ++i) positions.push_back(cache.length(text) + i);
  const auto row = [&](const std::vector<int64_t>& v) { return ops::unsqueeze(tensor(v).to(device), 0); };
  return {row(step.ids), row(positions), tensor(step.last, TensorOptions{int64}).to(device)};
}

std::vector<std::vector<int64_t>> generate(Decoder& model, const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& options, const BatchLimits& limits) {
  const DecoderOptions& o = model.options();
  TextBatch batch(o.vocab_size, o.rotary ? 0 : o.max_position_embeddings, limits);
  std::vector<int64_t> numbers;
  for (const auto& prompt : prompts) numbers.push_back(batch.add(prompt, options));
  PagedCache cache(model, limits.cache);
  const NoGradGuard no_grad;
  while (!batch.idle()) {
    const TextStep step = batch.plan();
    for (const int64_t text : step.closed) cache.close(text);
    const PassTokens tokens = tokens_of(step, cache, model.device());
    cache.begin(step.texts);
    const Tensor logits = model.next_alone(tokens.ids, tokens.positions, tokens.last, &cache);
    cache.end();
    batch.finish(logits.to(cpu));
  }
  std::vector<std::vector<int64_t>> out;
  for (const int64_t number : numbers) out.push_back(batch.take(number));
  return out;
}

}  // namespace troupe::llm
