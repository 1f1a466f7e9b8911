// Cuts text into the pieces that a tokenizer looks at one by one.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::llm {

/// Text by a regular expression, as Unicode's categories have it: each match is a piece, and what lies
/// between two. A value; copies share what was compiled. Const members may be called from several threads.
class TextPieces {
 public:
  /// `nfc`: text is composed (Unicode's form C) before it is cut. `invalid`, the text starting with `what`,
  /// for a pattern that is none. `unimplemented` where the build has no ICU.
  TextPieces(const std::string& pattern, bool nfc, const std::string& what);

  /// Pieces in UTF-8, one behind the other. `invalid` for text that is no UTF-8.
  std::vector<std::string> of(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

/// Bytes as UTF-8: what is none becomes U+FFFD, each longest part that could begin a character.
std::string as_utf8(std::string_view bytes);

}  // namespace troupe::llm
