#include "llm/paged_cache.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"

namespace troupe::llm {

PagedCache::PagedCache(Decoder& model, const CacheOptions& options)
    : book_(options.pages, options.page_size) {
  const int64_t width = model.options().head_width();
  for (auto& [number, layer] : model.layers) {
    const Tensor& weight = layer.self_attn.k_proj.linear.weight;
    const Shape shape{options.pages, options.page_size, weight.size(0) / width, width};
    layers_[static_cast<int64_t>(number)] = {zeros(shape, weight.options()), zeros(shape, weight.options())};
  }
}

void PagedCache::begin(std::vector<TextTokens> texts) {
  for (const auto& [text, count] : texts)
    if (!book_.reserve(text, length(text) + count))
      throw_invalid(fmt::format(
          "[cache] text {} has {} tokens and gets {}, for which there are no pages: {} of {} are free", text,
          length(text), count, book_.free_pages(), book_.pages()));
  pass_ = std::move(texts);
}

void PagedCache::end() {
  for (const auto& [text, count] : pass_) lengths_[text] += count;
  pass_.clear();
}

void PagedCache::close(int64_t text) { book_.close(text), lengths_.erase(text); }

int64_t PagedCache::length(int64_t text) const {
  const auto at = lengths_.find(text);
  return at == lengths_.end() ? 0 : at->second;
}

// Writes rows [tokens, key heads, width] behind those that the text has.
void PagedCache::keep(const Tensor& all, int64_t text, const Tensor& rows) const {
  const auto& pages = book_.pages_of(text);
  const int64_t size = book_.page_size(), first = length(text);
  for (int64_t done = 0; done < rows.size(0);) {
    const int64_t at = first + done, in_page = at % size, n = std::min(size - in_page, rows.size(0) - done);
    ops::copy_(all.select(0, pages[static_cast<size_t>(at / size)]).slice(0, in_page, in_page + n),
               rows.slice(0, done, done + n));
    done += n;
  }
}

// All that a text has of it: [1, key heads, length, width].
Tensor PagedCache::kept(const Tensor& all, int64_t text, int64_t length) const {
  const auto& pages = book_.pages_of(text);
  const std::vector<int64_t> used(pages.begin(),
                                  pages.begin() + static_cast<std::ptrdiff_t>(book_.pages_for(length)));
  const Tensor found = ops::index_select(all, 0, tensor(used).to(all.device()));
  const Tensor rows =
      found.reshape({found.size(0) * found.size(1), found.size(2), found.size(3)}).slice(0, 0, length);
  return ops::unsqueeze(ops::transpose(rows, 0, 1), 0);
}

Tensor PagedCache::attend(int64_t number, const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionRule& rule) {
  const Layer& layer = layers_.at(number);
  Tensors mixed;
  int64_t from = 0;
  for (const auto& [text, count] : pass_) {
    const auto of = [&](const Tensor& x) { return x.slice(2, from, from + count); };
    keep(layer.keys, text, ops::transpose(of(k).select(0, 0), 0, 1));
    keep(layer.values, text, ops::transpose(of(v).select(0, 0), 0, 1));
    const int64_t before = length(text);
    const Tensor keys = before ? kept(layer.keys, text, before + count) : of(k);
    const Tensor values = before ? kept(layer.values, text, before + count) : of(v);
    mixed.push_back(llm::attend(of(q), keys, values, rule));
    from += count;
  }
  return mixed.size() == 1 ? mixed[0] : ops::cat(mixed, 2);
}

}  // namespace troupe::llm
