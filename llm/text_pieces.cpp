#include "llm/text_pieces.h"

#include <fmt/format.h>

#include "core/base/error.h"
#ifdef TROUPE_ICU
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/ustring.h>
#endif

namespace troupe::llm {

#ifdef TROUPE_ICU

namespace {

// ICU's \s is not Unicode's white space, by which other tokenizers go.
std::string with_white_space(std::string pattern) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = pattern.find(from, at)) != std::string::npos; at += to.size())
      pattern.replace(at, from.size(), to);
  };
  replace("\\s", "\\p{White_Space}"), replace("\\S", "\\P{White_Space}");
  return pattern;
}

void check(UErrorCode code, const std::string& what) {
  if (U_FAILURE(code)) throw_invalid(fmt::format("{}: {}", what, u_errorName(code)));
}

}  // namespace

struct TextPieces::Compiled {
  std::unique_ptr<icu::RegexPattern> pattern;
  const icu::Normalizer2* composed = nullptr;  // ICU's own
};

TextPieces::TextPieces(const std::string& pattern, bool nfc, const std::string& what) {
  auto made = std::make_shared<Compiled>();
  UErrorCode code = U_ZERO_ERROR;
  UParseError where;
  made->pattern.reset(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(with_white_space(pattern)), where, code));
  check(code, fmt::format("{}: the regular expression {}", what, pattern));
  if (nfc) made->composed = icu::Normalizer2::getNFCInstance(code);
  check(code, what);
  compiled_ = std::move(made);
}

std::vector<std::string> TextPieces::of(std::string_view text) const {
  UErrorCode code = U_ZERO_ERROR;
  int32_t length = 0;
  u_strFromUTF8(nullptr, 0, &length, text.data(), static_cast<int32_t>(text.size()), &code);
  if (code != U_BUFFER_OVERFLOW_ERROR && U_FAILURE(code)) throw_invalid("[tokenizer] the text is no UTF-8");
  icu::UnicodeString whole =
      icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  code = U_ZERO_ERROR;
  if (compiled_->composed) whole = compiled_->composed->normalize(whole, code);
  check(code, "[tokenizer] the text");
  std::vector<std::string> pieces;
  const auto add = [&](int32_t from, int32_t to) {
    if (from < to) whole.tempSubStringBetween(from, to).toUTF8String(pieces.emplace_back());
  };
  const std::unique_ptr<icu::RegexMatcher> matcher(compiled_->pattern->matcher(whole, code));
  check(code, "[tokenizer] the text");
  matcher->setStackLimit(0, code);
  int32_t end = 0;
  while (matcher->find(code)) {
    add(end, matcher->start(code)), add(matcher->start(code), matcher->end(code));
    end = matcher->end(code);
  }
  check(code, "[tokenizer] the text");
  add(end, whole.length());
  return pieces;
}

std::string as_utf8(std::string_view bytes) {
  std::string out;
  icu::UnicodeString::fromUTF8(icu::StringPiece(bytes.data(), static_cast<int32_t>(bytes.size())))
      .toUTF8String(out);
  return out;
}

#else

struct TextPieces::Compiled {};

TextPieces::TextPieces(const std::string&, bool, const std::string& what) {
  throw_error(ErrorKind::unimplemented, what +
                                            ": this build has no ICU, which cuts texts for tokenizers: "
                                            "install Debian's libicu-dev, and build again");
}
std::vector<std::string> TextPieces::of(std::string_view) const { return {}; }
std::string as_utf8(std::string_view bytes) { return std::string(bytes); }

#endif

}  // namespace troupe::llm
