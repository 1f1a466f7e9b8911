#include "tools/data/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "data/datasets/prefetch.h"
#include "data/formats/file.h"
#include "data/streams/source.h"
#include "llm/text_pieces.h"
#include "tools/flags/progress.h"

namespace troupe::tools {
namespace {

using datasets::MappedFile;
using datasets::SourcePtr;

// A text file as one document, or one for each line that has something.
class TextFile final : public datasets::Source {
 public:
  TextFile(const std::string& path, bool lines) : file_(MappedFile::open(path, "tokenize", "a text file")) {
    if (!lines) return;
    const std::string_view text = file_->text();
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      if (end > at) lines_.emplace_back(at, end - at);
      at = end + 1;
    }
    by_line_ = true;
  }
  int64_t size() const override { return by_line_ ? std::ssize(lines_) : 1; }
  datasets::Sample read(int64_t number) const override {
    if (!by_line_) return {{"text", std::string(file_->text())}};
    const auto [at, length] = lines_[static_cast<size_t>(number)];
    return {{"text", std::string(file_->text().substr(at, length))}};
  }

 private:
  const std::shared_ptr<const MappedFile> file_;
  bool by_line_ = false;
  std::vector<std::pair<size_t, size_t>> lines_;
};

bool is_json(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".json"); }

std::string usual_end(const llm::Tokenizer& tokenizer) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
    if (tokenizer.special(name)) return name;
  return "";
}

int64_t width_of(const TokenizeOptions& options, int64_t vocabulary) {
  constexpr int64_t kTwo = 1 << 16;
  if (options.bytes == 0) return vocabulary <= kTwo ? 2 : 4;
  if (options.bytes != 2 && options.bytes != 4)
    throw_invalid(fmt::format("--bytes {}: expected 2 or 4", options.bytes));
  if (options.bytes == 2 && vocabulary > kTwo)
    throw_invalid(
        fmt::format("--bytes 2: the tokenizer has {} ids, which do not fit; leave it out", vocabulary));
  return options.bytes;
}

// Some documents of one file, which are encoded by one thread.
struct Piece {
  size_t file;
  int64_t first, count;
};

std::vector<Piece> pieces_of(const std::vector<SourcePtr>& sources) {
  constexpr int64_t kDocuments = 64;
  std::vector<Piece> out;
  for (size_t f = 0; f < sources.size(); ++f)
    for (int64_t at = 0; at < sources[f]->size(); at += kDocuments)
      out.push_back({f, at, std::min(kDocuments, sources[f]->size() - at)});
  return out;
}

class Encoder {
 public:
  Encoder(const TokenizeOptions& options, const llm::Tokenizer& tokenizer, const std::string& end,
          const std::vector<SourcePtr>& sources)
      : options_(options), tokenizer_(tokenizer), sources_(sources) {
    if (!end.empty()) end_ = tokenizer.special(end);
    if (!end.empty() && !end_)
      throw_invalid(fmt::format("--end '{}': the tokenizer has no special token of that text", end));
  }
  std::vector<int64_t> operator()(const Piece& piece) const {
    std::vector<int64_t> ids;
    for (int64_t i = piece.first; i < piece.first + piece.count; ++i) {
      const datasets::Sample sample = sources_[piece.file]->read(i);
      const auto at = sample.find(is_json(options_.files[piece.file]) ? options_.field : "text");
      const auto* text = at == sample.end() ? nullptr : at->second.get_if<std::string>();
      const auto where = [&] { return fmt::format("{}, document {}", options_.files[piece.file], i + 1); };
      if (!text)
        throw_invalid(fmt::format("{}: the field \"{}\" is {}, expected text (--field)", where(),
                                  options_.field, at == sample.end() ? "not there" : at->second.describe()));
      try {
        const auto all = tokenizer_.encode(options_.replace ? llm::as_utf8(*text) : *text, false);
        ids.insert(ids.end(), all.begin(), all.end());
      } catch (const Error& e) {
        throw Error(e.kind(), where() + ": " + e.message());
      }
      if (end_) ids.push_back(*end_);
    }
    return ids;
  }

 private:
  const TokenizeOptions& options_;
  const llm::Tokenizer& tokenizer_;
  const std::vector<SourcePtr>& sources_;
  std::optional<int64_t> end_;
};

}  // namespace

llm::Tokenizer tokenizer_at(const std::string& path, const std::string& pattern) {
  const bool ours = path.ends_with(".json") || std::filesystem::is_directory(path);
  return ours ? llm::Tokenizer(path) : llm::Tokenizer::tiktoken(path, pattern);
}

Tokenized tokenize(const TokenizeOptions& options) {
  const llm::Tokenizer tokenizer = tokenizer_at(options.tokenizer, options.pattern);
  Tokenized out;
  out.vocabulary = tokenizer.vocab_size();
  out.bytes = width_of(options, out.vocabulary);
  out.end = options.end == "none" ? "" : options.end.empty() ? usual_end(tokenizer) : options.end;
  std::vector<SourcePtr> sources;
  const auto json = std::ranges::find_if(options.files, is_json);
  if (options.replace && json != options.files.end())
    throw_invalid(
        fmt::format("--replace is for text files, and {} is JSON, which has to be UTF-8: write two "
                    "files of tokens",
                    *json));
  for (const std::string& path : options.files)
    sources.push_back(is_json(path) ? datasets::json_lines({path})
                                    : std::make_shared<const TextFile>(path, options.lines));
  const auto pieces = pieces_of(sources);
  const Encoder encode(options, tokenizer, out.end, sources);
  datasets::AtomicFile file(options.out, "tokenize");
  const int64_t threads = options.threads ? options.threads : usable_cores();
  datasets::Prefetch<std::vector<int64_t>> ahead(
      [&](int64_t i) { return std::optional(encode(pieces[static_cast<size_t>(i)])); },
      {.threads = threads, .ahead = 4 * threads}, std::ssize(pieces),
      [](const std::vector<int64_t>& ids) { return ids.size() * sizeof(int64_t); });
  Progress bar({.total = std::ssize(pieces), .label = "tokenize"});
  for (int64_t done = 0; const auto ids = ahead.next();) {
    std::vector<unsigned char> bytes;
    bytes.reserve(ids->size() * static_cast<size_t>(out.bytes));
    for (const int64_t id : *ids)
      for (int64_t b = 0; b < out.bytes; ++b)
        bytes.push_back(static_cast<unsigned char>(id >> (8 * b) & 0xff));
    file.write(bytes.data(), bytes.size());
    out.ids += std::ssize(*ids);
    out.documents += pieces[static_cast<size_t>(done)].count;
    bar.update(++done, {}, std::ssize(*ids));
  }
  bar.finish();
  if (out.ids == 0) throw_invalid(fmt::format("{}: there is no text in it", options.files.front()));
  file.commit();
  return out;
}

}  // namespace troupe::tools
