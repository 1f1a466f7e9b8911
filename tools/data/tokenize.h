// Text files as a file of tokens.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llm/tokenizer.h"

namespace troupe::tools {

struct TokenizeOptions {
  std::vector<std::string> files;  ///< .jsonl and .json: an object in each line; others are text
  std::string tokenizer;           ///< tokenizer.json or its folder; another file is one of tiktoken
  std::string pattern = "cl100k";  ///< of that
  std::string out = "tokens.bin";
  std::string field = "text";  ///< of objects
  std::string end;             ///< text of the token behind each document; empty: a usual one; "none"
  bool lines = false;          ///< each line of a text file is a document
  bool replace =
      false;          ///< bytes of text files that are no UTF-8 become U+FFFD, as errors="replace" of Python
  int64_t bytes = 0;  ///< of an id; 0: 2 if all fit
  int64_t threads = 0;  ///< 0: as many as cores
};

struct Tokenized {
  int64_t documents = 0, ids = 0, bytes = 0;
  std::string end;  ///< the token behind documents; empty: none
  int64_t vocabulary = 0;
};

/// Reads a tokenizer.json or its folder; another file is one of tiktoken, which cuts texts by `pattern`.
llm::Tokenizer tokenizer_at(const std::string& path, const std::string& pattern);
/// Writes the file, which appears when it is whole, with a progress bar on standard error. `invalid`, naming
/// file and line, for what is no text.
Tokenized tokenize(const TokenizeOptions& options);

}  // namespace troupe::tools
