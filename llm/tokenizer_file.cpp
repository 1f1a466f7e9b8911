#include "llm/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "core/base/error.h"
#include "data/formats/file.h"
#include "data/formats/json_fields.h"

namespace troupe::llm {

using datasets::JsonFields;

namespace {

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kAfterGpt2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The bytes that letters stand for in GPT-2's files: printable ones themselves, others those from U+0100 on.
std::map<std::string, char> letters() {
  std::map<std::string, char> out;
  int others = 0;
  for (int b = 0; b < 256; ++b) {
    const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const int point = shown ? b : 256 + others++;
    const std::string letter = point < 128 ? std::string(1, static_cast<char>(point))
                                           : std::string{static_cast<char>(0xc0 | point >> 6),
                                                         static_cast<char>(0x80 | (point & 0x3f))};
    out[letter] = static_cast<char>(b);
  }
  return out;
}

// Empty: one of its letters stands for no byte.
std::optional<std::string> bytes_of_letters(const std::string& token) {
  static const auto of = letters();
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const size_t n = static_cast<unsigned char>(token[i]) < 0x80 ? 1 : 2;
    const auto at = of.find(token.substr(i, n));
    if (at == of.end()) return {};
    bytes += at->second, i += n;
  }
  return bytes;
}

// Empty: it is none.
std::optional<std::string> decoded_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return {};
    bits = bits << 6 | static_cast<uint32_t>(digit), count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xff);
  }
  return out;
}

// How a tokenizer.json cuts texts: by the expression of its Split, or by that which ByteLevel has of its own.
std::string pattern_of(const JsonFields& pre) {
  const std::string type = pre.text("type");
  const auto refuse_prefix = [](const JsonFields& byte_level) {
    if (byte_level.truth("add_prefix_space", true))
      byte_level.refuse("add_prefix_space is true, expected false");
  };
  if (type == "ByteLevel") {
    refuse_prefix(pre);
    if (!pre.truth("use_regex", true))
      pre.refuse("use_regex is false, expected true where there is no Split");
    return kGpt2;
  }
  if (type != "Sequence")
    pre.refuse(fmt::format("type is \"{}\", expected ByteLevel, or a Sequence of Split and ByteLevel", type));
  const auto* list = pre.find("pretokenizers") ? pre.find("pretokenizers")->get_if<ValueList>() : nullptr;
  if (!list || list->size() != 2) pre.refuse("pretokenizers is no list of two, Split and ByteLevel");
  const JsonFields split((*list)[0], pre.what() + ": Split"), bytes((*list)[1], pre.what() + ": ByteLevel");
  if (split.text("type") != "Split") split.refuse("type", *split.find("type"), "\"Split\"");
  if (bytes.text("type") != "ByteLevel") bytes.refuse("type", *bytes.find("type"), "\"ByteLevel\"");
  refuse_prefix(bytes);
  if (bytes.truth("use_regex", true)) bytes.refuse("use_regex is true, expected false behind a Split");
  std::string behavior = split.text("behavior");
  if (behavior != "Isolated" && behavior != "isolated")
    split.refuse("behavior", *split.find("behavior"), "\"Isolated\"");
  if (split.truth("invert", false)) split.refuse("invert is true, expected false");
  const JsonFields pattern = split.inner("pattern");
  return pattern.text("Regex");
}

bool is_composed(const JsonFields& f) {
  if (!f.has("normalizer")) return false;
  const JsonFields normalizer = f.inner("normalizer");
  if (normalizer.text("type") != "NFC")
    normalizer.refuse("type", *normalizer.find("type"), "\"NFC\", or no normalizer");
  return true;
}

// What the post-processor puts around a text.
void read_around(const JsonFields& post, std::vector<int64_t>& before, std::vector<int64_t>& after) {
  const std::string type = post.text("type");
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    const auto* all = post.find("processors") ? post.find("processors")->get_if<ValueList>() : nullptr;
    if (!all) post.refuse("processors is no list");
    for (const Value& each : *all) read_around({each, post.what()}, before, after);
    return;
  }
  if (type != "TemplateProcessing")
    post.refuse(fmt::format("type is \"{}\", expected ByteLevel or TemplateProcessing", type));
  const auto* single = post.find("single") ? post.find("single")->get_if<ValueList>() : nullptr;
  if (!single) post.refuse("single is no list");
  const JsonFields special = post.inner("special_tokens");
  bool passed = false;
  for (const Value& each : *single) {
    const JsonFields part(each, post.what() + ": single");
    if (part.has("Sequence")) {
      passed = true;
      continue;
    }
    const std::string id = part.inner("SpecialToken").text("id");
    const JsonFields token = special.inner(id);
    const auto* ids = token.find("ids") ? token.find("ids")->get_if<ValueList>() : nullptr;
    if (!ids) token.refuse("ids is no list");
    for (const Value& v : *ids) {
      const auto* n = v.get_if<int64_t>();
      if (!n) token.refuse("ids", v, "whole numbers");
      (passed ? after : before).push_back(*n);
    }
  }
}

void read_merges(const JsonFields& model, BytePairs& pairs) {
  const Value* value = model.find("merges");
  const auto* merges = value ? value->get_if<ValueList>() : nullptr;
  if (!merges) model.refuse("merges is no list");
  for (const Value& each : *merges) {
    std::string left, right;
    if (const auto* text = each.get_if<std::string>()) {
      const size_t space = text->find(' ');
      if (space == std::string::npos) model.refuse("merges", each, "two tokens with a space between");
      left = text->substr(0, space), right = text->substr(space + 1);
    } else if (const auto* two = each.get_if<ValueList>(); two && two->size() == 2 &&
                                                           (*two)[0].get_if<std::string>() &&
                                                           (*two)[1].get_if<std::string>()) {
      left = *(*two)[0].get_if<std::string>(), right = *(*two)[1].get_if<std::string>();
    } else {
      model.refuse("merges", each, "two tokens");
    }
    const auto a = bytes_of_letters(left), b = bytes_of_letters(right);
    if (!a || !b) model.refuse("merges", each, "letters that stand for bytes");
    pairs.add_merge(*a, *b);
  }
}

}  // namespace

std::string token_pattern(const std::string& name) {
  if (name == "gpt2") return kGpt2;
  if (name == "cl100k") return fmt::format(kAfterGpt2, R"(\p{N}{1,3})");
  if (name == "qwen") return fmt::format(kAfterGpt2, R"(\p{N})");
  return name;
}

TokenizerFile read_tokenizer_json(const std::string& path) {
  std::error_code none;
  const auto file = std::filesystem::is_directory(path, none) ? std::filesystem::path(path) / "tokenizer.json"
                                                              : std::filesystem::path(path);
  const JsonFields f = datasets::read_json_fields(file.string(), "tokenizer");
  const JsonFields model = f.inner("model");
  if (model.text("type", "BPE") != "BPE") model.refuse("type", *model.find("type"), "\"BPE\"");
  if (model.truth("byte_fallback", false))
    model.refuse(
        "byte_fallback is true: this is a tokenizer of SentencePiece, expected one of bytes (ByteLevel)");
  for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (const Value* v = model.find(field);
        v && !(v->get_if<std::string>() && v->get_if<std::string>()->empty()))
      model.refuse(field, *v, "null");
  TokenizerFile out;
  try {
    const JsonFields vocabulary = model.inner("vocab");
    for (const auto& [token, id] : vocabulary.all()) {
      const auto* number = id.get_if<int64_t>();
      if (!number || *number < 0) vocabulary.refuse(token, id, "an id");
      out.size = std::max(out.size, *number + 1);
      if (auto bytes = bytes_of_letters(token)) out.pairs.add(std::move(*bytes), *number);
    }
    read_merges(model, out.pairs);
  } catch (const Error& e) {
    if (e.message().starts_with('[')) throw;
    model.refuse(e.message());
  }
  if (model.truth("ignore_merges", false)) out.pairs.take_whole_pieces();
  if (const Value* added = f.find("added_tokens"))
    for (const Value& each : *added->get_if<ValueList>()) {
      const JsonFields token(each, f.what() + ": added_tokens");
      for (const char* field : {"single_word", "lstrip", "rstrip", "normalized"})
        if (std::string(field) != "normalized" && token.truth(field, false))
          token.refuse(std::string(field) + " is true, expected false");
      out.added.push_back({token.text("content"), token.whole("id"), token.truth("special", false)});
    }
  out.pattern = pattern_of(f.inner("pre_tokenizer")), out.composed = is_composed(f), out.what = f.what();
  if (f.has("post_processor")) read_around(f.inner("post_processor"), out.before, out.after);
  return out;
}

TokenizerFile read_tiktoken(const std::string& path, const std::string& pattern,
                            const std::map<std::string, int64_t>& special) {
  const auto file = datasets::MappedFile::open(path, "tokenizer", "a file of tiktoken");
  TokenizerFile out;
  out.what = "[tokenizer] " + path;
  std::string_view rest = file->text();
  for (int64_t line = 1; !rest.empty(); ++line) {
    const std::string_view all = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(all.size() + 1, rest.size()));
    if (all.empty()) continue;
    const size_t space = all.find(' ');
    const auto bytes = decoded_base64(all.substr(0, space));
    int64_t id = -1;
    const std::string_view number =
        space == std::string_view::npos ? std::string_view() : all.substr(space + 1);
    const auto end = std::from_chars(number.data(), number.data() + number.size(), id);
    if (!bytes || bytes->empty() || number.empty() || end.ptr != number.data() + number.size() || id < 0)
      throw_invalid(fmt::format("{}: line {} is \"{}\", expected a token in base64 and its id", out.what,
                                line, all.substr(0, 60)));
    try {
      out.pairs.add(*bytes, id);
    } catch (const Error& e) {
      throw_invalid(fmt::format("{}: line {}: {}", out.what, line, e.message()));
    }
    out.size = std::max(out.size, id + 1);
  }
  out.pairs.merge_by_id(), out.pairs.take_whole_pieces();
  for (const auto& [text, id] : special) out.added.push_back({text, id, true});
  out.pattern = token_pattern(pattern);
  return out;
}

}  // namespace troupe::llm
