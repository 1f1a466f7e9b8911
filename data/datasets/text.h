// Text as numbers: one for each character of a vocabulary; and windows of it to learn from.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/generator.h"
#include "core/tensor/tensor.h"
#include "data/datasets/dataset.h"

namespace troupe::datasets {

/// Characters (Unicode code points) and their numbers: their place in the sorted set. A value.
class Vocabulary {
 public:
  /// The characters that occur in a text. `invalid`, naming the byte, if it is no UTF-8.
  explicit Vocabulary(std::string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  /// All of them in order, as UTF-8; Vocabulary(v.characters()) equals v.
  std::string characters() const;
  /// int64 [characters]. `invalid`, naming byte and character: no UTF-8, or a character that is not in the
  /// vocabulary.
  Tensor encode(std::string_view text) const;
  /// The text of int64 numbers of any shape, row by row. `invalid`: a number outside [0, size()).
  std::string decode(const Tensor& ids) const;
  bool operator==(const Vocabulary& o) const { return characters_ == o.characters_; }

 private:
  friend struct Text read_text(const std::string&);
  friend struct Text read_text(const std::string&, const Vocabulary&);
  Vocabulary(std::string_view text, const std::string& where);
  Tensor encode(std::string_view text, const std::string& where) const;

  std::vector<char32_t> characters_;     // sorted
  std::array<int32_t, 128> ascii_ = {};  // their numbers; -1: not in the vocabulary
};

/// A text file as numbers.
struct Text {
  Vocabulary vocabulary;
  Tensor ids;  ///< int64 [characters]
};

/// Reads a UTF-8 file with the vocabulary of its own characters, or with a given one. Bytes are taken as they
/// are: line ends are not changed. `invalid`, naming file and byte, as Vocabulary.
Text read_text(const std::string& path);
Text read_text(const std::string& path, const Vocabulary& vocabulary);

/// Windows of `context` numbers and the numbers that follow each: x and y int64 [windows, context], with
/// y[i][j] = ids[i * step + j + 1]. `step` 0 means context: windows side by side. They are views of ids,
/// which a Loader gathers into batches. `invalid`: ids not int64 [n], or too short for one window.
Dataset windows(const Tensor& ids, int64_t context, int64_t step = 0);

/// `count` windows that begin anywhere, drawn with `random`: x and y int64 [count, context], copies.
Dataset random_windows(const Tensor& ids, int64_t context, int64_t count, Generator& random);

}  // namespace troupe::datasets
