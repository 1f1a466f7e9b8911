// Strict UTF-8, and numbers of characters.
#include "data/datasets/text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/formats/file.h"

namespace troupe::datasets {
namespace {

std::string hex(const char* form, unsigned value) {
  char out[16];
  std::snprintf(out, sizeof out, form, value);
  return out;
}

// The character at `at`, which moves behind it. Refuses what RFC 3629 does: stray and missing continuation
// bytes, forms that are longer than needed, surrogates, and beyond U+10FFFF.
char32_t next(std::string_view text, size_t& at, const std::string& where) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  if (first < 0x80) return text[at++];
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  bool right = first >= 0xC2 && first <= 0xF4 && length <= text.size() - at;
  char32_t c = first & (0xFFu >> (length + 1));
  for (size_t i = 1; right && i < length; ++i) {
    right = (byte(at + i) & 0xC0) == 0x80;
    c = c << 6 | (byte(at + i) & 0x3Fu);
  }
  if (!right || c < kLeast[length] || (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF)
    throw_invalid(where + "no UTF-8 at byte " + std::to_string(at) + ", which is " + hex("0x%02X", first));
  at += length;
  return c;
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int tail = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  out += static_cast<char>((0xF00u >> (tail + 1) & 0xFF) | c >> 6 * tail);
  for (int i = tail - 1; i >= 0; --i) out += static_cast<char>(0x80 | (c >> 6 * i & 0x3F));
}

void check_ids(const Tensor& ids, int64_t context) {
  if (!ids.defined() || ids.dtype() != int64 || ids.dim() != 1)
    throw_invalid("[windows] ids are " + ids.summary() + ", expected int64 [n]");
  if (context < 1) throw_invalid("[windows] context " + std::to_string(context) + ", expected at least 1");
  if (ids.numel() <= context)
    throw_invalid("[windows] " + std::to_string(ids.numel()) + " ids, expected at least " +
                  std::to_string(context) + " + 1 for one window and its targets");
}

constexpr const char* kHere = "[text] ";

}  // namespace

Vocabulary::Vocabulary(std::string_view text) : Vocabulary(text, kHere) {}

Vocabulary::Vocabulary(std::string_view text, const std::string& where) {
  std::array<bool, 128> ascii{};
  std::set<char32_t> others;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next(text, at, where);
    if (c < 128) {
      ascii[c] = true;
    } else {
      others.insert(c);
    }
  }
  for (char32_t c = 0; c < 128; ++c) {
    ascii_[c] = ascii[c] ? static_cast<int32_t>(characters_.size()) : -1;
    if (ascii[c]) characters_.push_back(c);
  }
  characters_.insert(characters_.end(), others.begin(), others.end());
}

std::string Vocabulary::characters() const {
  std::string out;
  for (const char32_t c : characters_) append(out, c);
  return out;
}

Tensor Vocabulary::encode(std::string_view text) const { return encode(text, kHere); }

Tensor Vocabulary::encode(std::string_view text, const std::string& where) const {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const Tensor ids = empty({std::count_if(text.begin(), text.end(), starts)}, int64);
  int64_t* to = ids.data<int64_t>();
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    const char32_t c = next(text, at, where);  // throws before a stray byte could make one id too many
    int64_t id = -1;
    if (c < 128) {
      id = ascii_[c];
    } else if (const auto found = std::lower_bound(characters_.begin(), characters_.end(), c);
               found != characters_.end() && *found == c) {
      id = found - characters_.begin();
    }
    if (id < 0)
      throw_invalid(where + "the character " + hex("U+%04X", static_cast<unsigned>(c)) +
                    (c < ' ' ? "" : " (" + std::string(text.substr(from, at - from)) + ")") + " at byte " +
                    std::to_string(from) + " is not among the " + std::to_string(size()) +
                    " of the vocabulary");
    *to++ = id;
  }
  return ids;
}

std::string Vocabulary::decode(const Tensor& ids) const {
  if (!ids.defined() || ids.dtype() != int64)
    throw_invalid("[text] cannot decode " + ids.summary() + ", expected int64 numbers");
  const Tensor rows = ids.contiguous_data();
  std::string out;
  for (int64_t i = 0, n = rows.numel(); i < n; ++i) {
    const int64_t id = rows.data<int64_t>()[i];
    if (id < 0 || id >= size())
      throw_invalid("[text] number " + std::to_string(id) + " at place " + std::to_string(i) +
                    ", expected 0 to " + std::to_string(size() - 1));
    append(out, characters_[static_cast<size_t>(id)]);
  }
  return out;
}

namespace {

std::shared_ptr<const MappedFile> open_text(const std::string& path, const std::string& where) {
  auto file = MappedFile::open(path, "text", "a text file");
  if (const std::string other = instead(file->text()); !other.empty())
    throw_invalid(where + "no text" + other);
  return file;
}

}  // namespace

Text read_text(const std::string& path) {
  const std::string where = "[text] " + path + ": ";
  const auto file = open_text(path, where);
  Vocabulary vocabulary(file->text(), where);
  Tensor ids = vocabulary.encode(file->text(), where);
  return {std::move(vocabulary), std::move(ids)};
}

Text read_text(const std::string& path, const Vocabulary& vocabulary) {
  const std::string where = "[text] " + path + ": ";
  return {vocabulary, vocabulary.encode(open_text(path, where)->text(), where)};
}

Dataset windows(const Tensor& ids, int64_t context, int64_t step) {
  check_ids(ids, context);
  if (step < 0) throw_invalid("[windows] step " + std::to_string(step) + ", expected 0 or more");
  if (step == 0) step = context;
  const Tensor row = ids.contiguous_data();
  const int64_t count = (row.numel() - 1 - context) / step + 1;
  return {row.alias({count, context}, {step, 1}, row.storage_offset()),
          row.alias({count, context}, {step, 1}, row.storage_offset() + 1)};
}

Dataset random_windows(const Tensor& ids, int64_t context, int64_t count, Generator& random) {
  check_ids(ids, context);
  if (count < 0)
    throw_invalid("[windows] " + std::to_string(count) + " windows asked for, expected 0 or more");
  const Tensor row = ids.contiguous_data();
  const Dataset out{empty({count, context}, int64), empty({count, context}, int64)};
  int64_t *x = out.x.data<int64_t>(), *y = out.y.data<int64_t>();
  for (int64_t i = 0; i < count; ++i, x += context, y += context) {
    const int64_t* from = row.data<int64_t>() + random.below(static_cast<uint64_t>(row.numel() - context));
    std::copy_n(from, context, x);
    std::copy_n(from + 1, context, y);
  }
  return out;
}

}  // namespace troupe::datasets
