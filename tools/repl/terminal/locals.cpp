// Locals of a line at the prompt stay: `local` goes from the statements that stand in no block.
#include <algorithm>
#include <string_view>

#include "core/base/ascii.h"
#include "tools/repl/terminal/prompt.h"

namespace troupe::repl {
namespace {

// Walks over a text of Lua, token by token.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}
  size_t at() const { return at_; }
  bool ended() const { return at_ >= text_.size(); }
  void skip_space() {
    while (!ended() && is_space(text_[at_])) ++at_;
  }
  /// A name, a number, a string, a comment, or one character.
  std::string_view token() {
    const size_t from = at_;
    const char c = text_[at_];
    if (is_word(c)) {
      while (!ended() && is_word(text_[at_])) ++at_;
    } else if (text_.substr(at_, 2) == "--") {
      at_ += 2;
      if (!skip_long()) at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"' || c == '\'') {
      for (++at_; !ended() && text_[at_] != c; ++at_)
        if (text_[at_] == '\\') ++at_;
      at_ = std::min(at_ + 1, text_.size());
    } else if (!skip_long()) {
      ++at_;
    }
    return text_.substr(from, at_ - from);
  }
  void back_to(size_t at) { at_ = at; }

 private:
  // [[...]], [==[...]==]
  bool skip_long() {
    size_t open = at_;
    if (open >= text_.size() || text_[open] != '[') return false;
    for (++open; open < text_.size() && text_[open] == '='; ++open) {
    }
    if (open >= text_.size() || text_[open] != '[') return false;
    const std::string close = "]" + std::string(open - at_ - 1, '=') + "]";
    const size_t end = text_.find(close, open);
    at_ = end == text_.npos ? text_.size() : end + close.size();
    return true;
  }
  std::string_view text_;
  size_t at_ = 0;
};

// Behind `local`: "a, b <close>" as "a, b"; empty if something else stands there, and then nothing is read.
std::string names_at(Walk& walk) {
  const size_t from = walk.at();
  std::string names;
  for (;;) {
    walk.skip_space();
    if (walk.ended()) break;
    const std::string_view name = walk.token();
    if (!is_word(name[0]) || is_digit(name[0])) break;
    names += (names.empty() ? "" : ", ") + std::string(name);
    size_t end = walk.at();
    walk.skip_space();
    if (!walk.ended() && walk.token() == "<") {
      while (!walk.ended() && walk.token() != ">") {
      }
      end = walk.at();
      walk.skip_space();
    } else {
      walk.back_to(end);
      walk.skip_space();
    }
    const size_t next = walk.at();
    if (walk.ended() || walk.token() != ",") {
      walk.back_to(next);
      return names;
    }
  }
  walk.back_to(from);
  return {};
}

}  // namespace

std::string at_prompt(const std::string& text) {
  std::string out;
  Walk walk(text);
  int depth = 0;
  while (!walk.ended()) {
    const size_t from = walk.at();
    const std::string_view token = walk.token();
    if (token == "function" || token == "do" || token == "if" || token == "repeat" || token == "(" ||
        token == "{" || token == "[")
      ++depth;
    else if (token == "end" || token == "until" || token == ")" || token == "}" || token == "]")
      --depth;
    if (token != "local" || depth != 0) {
      out += text.substr(from, walk.at() - from);
      continue;
    }
    const size_t behind = walk.at();
    walk.skip_space();
    const size_t what = walk.at();
    if (!walk.ended() && walk.token() == "function") {
      walk.back_to(what);  // a global function
      continue;
    }
    walk.back_to(behind);
    const std::string names = names_at(walk);
    out += names.empty() ? "local" : names + " ";
    if (names.empty()) continue;
    const bool assigned = !walk.ended() && text[walk.at()] == '=' && text.compare(walk.at(), 2, "==") != 0;
    if (!assigned) out += "= nil ";
  }
  return out;
}

}  // namespace troupe::repl
