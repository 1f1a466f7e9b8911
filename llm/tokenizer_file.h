// Files of byte-level tokenizers.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llm/byte_pairs.h"

namespace troupe::llm {

/// What a file says.
struct TokenizerFile {
  struct Added {
    std::string text;
    int64_t id = 0;
    bool special = false;
  };
  BytePairs pairs;
  std::string pattern;                 ///< that cuts texts
  bool composed = false;               ///< text is in Unicode's form C before
  std::vector<Added> added;            ///< tokens that are found in texts before that
  std::vector<int64_t> before, after;  ///< ids around each text
  int64_t size = 0;                    ///< one more than the largest id of the pairs
  std::string what;                    ///< the file, for errors
};

TokenizerFile read_tokenizer_json(const std::string& path);
TokenizerFile read_tiktoken(const std::string& path, const std::string& pattern,
                            const std::map<std::string, int64_t>& special);
/// The regular expression of that name; else the name.
std::string token_pattern(const std::string& name);

}  // namespace troupe::llm
