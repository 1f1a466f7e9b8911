// Keys and values of texts that are being generated, in pages that they share.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "llm/decoder.h"
#include "llm/page_book.h"

namespace troupe::llm {

/// How large a cache is.
struct CacheOptions {
  int64_t pages = 256;
  int64_t page_size = 16;  ///< tokens in each
};

/// Tokens of a text in a pass, behind those that it has kept.
struct TextTokens {
  int64_t text = 0, count = 0;
};

/// The cache of one rank: of each layer two tensors [pages, page_size, key heads, head_dim] (Kwon et al.
/// 2023). Not synchronized.
class PagedCache final : public Past {
 public:
  /// For this model, with the heads that its rank has.
  PagedCache(Decoder& model, const CacheOptions& options);

  /// Takes the room that a pass needs, which comes next. `invalid` where there is too little.
  void begin(std::vector<TextTokens> texts);
  /// The pass is over: its tokens are kept.
  void end();
  /// Forgets a text, and frees its pages.
  void close(int64_t text);
  /// Tokens that are kept of it.
  int64_t length(int64_t text) const;
  const PageBook& book() const& { return book_; }
  PageBook book() && { return std::move(book_); }

  Tensor attend(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionRule& rule) override;

 private:
  struct Layer {
    Tensor keys, values;
  };
  void keep(const Tensor& pages_of_layer, int64_t text, const Tensor& rows) const;
  Tensor kept(const Tensor& pages_of_layer, int64_t text, int64_t length) const;

  PageBook book_;
  std::map<int64_t, Layer> layers_;
  std::map<int64_t, int64_t> lengths_;
  std::vector<TextTokens> pass_;
};

}  // namespace troupe::llm
