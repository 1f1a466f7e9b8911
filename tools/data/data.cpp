#include "tools/data/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "core/base/error.h"
#include "data/datasets/token_file.h"
#include "tools/data/tokenize.h"
#include "tools/flags/flags.h"

namespace troupe::tools {
namespace {

constexpr char kDataUsage[] =
    "Usage: troupe data <verb> [arguments]\n\n"
    "  tokenize   write text and lines of JSON as a file of tokens (troupe data tokenize --help)\n"
    "  count      say how many ids files of tokens have, and which (troupe data count --help)\n"
    "  head       print the first ids of a file, or their text (troupe data head --help)\n";

const std::vector<std::string> kSwitches{"--lines", "--replace"};  // flags without a value

void need_files(const std::vector<std::string>& files, const char* verb) {
  if (files.empty())
    throw_invalid(fmt::format("no file given; for instance: troupe data {} tokens.bin", verb));
}

int tokenize_main(const std::vector<std::string>& arguments) {
  TokenizeOptions options;
  Flags flags("troupe data tokenize", "Writes text files and lines of JSON as a file of tokens.");
  flags.rest("FILE...", options.files, "text (UTF-8), or .jsonl: an object in each line, a document each")
      .add("--tokenizer", options.tokenizer, "tokenizer.json or its folder, or a file of tiktoken")
      .add("--pattern", options.pattern, "how a file of tiktoken cuts texts: gpt2, cl100k, qwen")
      .add("-o,--out", options.out, "the file that is written")
      .add("--field", options.field, "with the text, of objects")
      .add(
          "--end", options.end,
          "special token behind each document; none for none; <|endoftext|>, <|end_of_text|>, </s> or <eos>, "
          "which the tokenizer has, unless given")
      .add("--lines", options.lines, "each line of a text file is a document")
      .add("--replace", options.replace,
           "bytes of text files that are no UTF-8 become U+FFFD; else they are an error")
      .add("--bytes", options.bytes, "of an id: 2 or 4; 0: 2 where all ids fit", {0, 4})
      .add("--threads", options.threads, "that encode; 0: as many as cores", {0, 256})
      .footer(
          "Ids lie one behind the other, little-endian, without a header, as nanoGPT and Megatron have "
          "them.\n"
          "Example:  troupe data tokenize books.jsonl --tokenizer gpt2/ -o books.bin");
  if (auto code = flags.parse(files_last(arguments, kSwitches), std::cout, std::cerr)) return *code;
  if (options.files.empty() || options.tokenizer.empty())
    throw_invalid(fmt::format("no {} given; for instance: troupe data tokenize books.txt --tokenizer gpt2/",
                              options.files.empty() ? "file" : "--tokenizer"));
  const Tokenized made = tokenize(options);
  fmt::print("{}: {} ids of {} bytes, of {} document{}{}; the vocabulary has {}\n", options.out, made.ids,
             made.bytes, made.documents, made.documents == 1 ? "" : "s",
             made.end.empty() ? "" : ", " + made.end + " behind each", made.vocabulary);
  return 0;
}

int count_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  int64_t bytes = 2;
  Flags flags("troupe data count", "Says how many ids files of tokens have, and from which to which.");
  flags.rest("FILE...", files, "files of tokens").add("--bytes", bytes, "of an id: 2 or 4", {2, 4});
  if (auto code = flags.parse(files_last(arguments, kSwitches), std::cout, std::cerr)) return *code;
  need_files(files, "count");
  for (const std::string& path : files) {
    const datasets::TokenFile file(path, static_cast<int>(bytes));
    constexpr int64_t kPart = 1 << 20;
    int64_t least = int64_t{1} << 32, most = 0;
    for (int64_t at = 0; at < file.size(); at += kPart)
      for (const int64_t id : file.read(at, std::min(kPart, file.size() - at)).to_vector<int64_t>())
        least = std::min(least, id), most = std::max(most, id);
    fmt::print("{}: {} ids of {} bytes, {} to {}\n", path, file.size(), bytes, least, most);
  }
  return 0;
}

int head_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  std::string tokenizer, pattern = "cl100k";
  int64_t bytes = 2, count = 32;
  Flags flags("troupe data head", "Prints the first ids of files of tokens, or their text.");
  flags.rest("FILE...", files, "files of tokens")
      .add("-n,--ids", count, "so many of each", {1, 1e9})
      .add("--tokenizer", tokenizer, "prints their text: tokenizer.json or its folder, or a file of tiktoken")
      .add("--pattern", pattern, "how a file of tiktoken cuts texts: gpt2, cl100k, qwen")
      .add("--bytes", bytes, "of an id: 2 or 4", {2, 4});
  if (auto code = flags.parse(files_last(arguments, kSwitches), std::cout, std::cerr)) return *code;
  need_files(files, "head");
  for (const std::string& path : files) {
    const datasets::TokenFile file(path, static_cast<int>(bytes));
    const auto ids = file.read(0, std::min(count, file.size())).to_vector<int64_t>();
    if (files.size() > 1) fmt::print("{}:\n", path);
    if (tokenizer.empty())
      fmt::print("{}\n", fmt::join(ids, " "));
    else
      fmt::print("{}\n", tokenizer_at(tokenizer, pattern).decode(ids, false));
  }
  return 0;
}

}  // namespace

int data_main(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "--help" : arguments[0];
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  try {
    if (verb == "tokenize") return tokenize_main(rest);
    if (verb == "count") return count_main(rest);
    if (verb == "head") return head_main(rest);
    if (verb == "--help" || verb == "-h") {
      std::cout << kDataUsage;
      return arguments.empty() ? 2 : 0;
    }
    const auto near = nearest(verb, {"tokenize", "count", "head", "--help"});
    throw_invalid(fmt::format("unknown verb '{}'{} (see troupe data --help)", verb,
                              near.empty() ? "" : "; did you mean " + near + "?"));
  } catch (const Error& e) {
    std::cerr << "troupe data: " << e.message() << "\n";
    return e.kind() == ErrorKind::invalid ? 2 : 1;
  }
}

}  // namespace troupe::tools
