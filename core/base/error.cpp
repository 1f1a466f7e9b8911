#include "core/base/error.h"

#include <algorithm>
#include <typeinfo>

#include "core/base/ascii.h"
#include "core/base/out_of_memory.h"
#include "core/base/type_name.h"
#include "core/base/visible.h"

namespace troupe {

std::string_view name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::failed:
      return "failed";
    case ErrorKind::overloaded:
      return "overloaded";
    case ErrorKind::deadline:
      return "deadline";
    case ErrorKind::disconnected:
      return "disconnected";
    case ErrorKind::cancelled:
      return "cancelled";
    case ErrorKind::unimplemented:
      return "unimplemented";
  }
  return "?";
}

namespace {

// Head and tail, in whole characters of UTF-8.
std::string shortened(std::string text, size_t most) {
  if (text.size() <= most) return text;
  const auto within = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  size_t head = most / 2, tail = text.size() - most / 2;
  while (head > 0 && within(head)) --head;
  while (tail < text.size() && within(tail)) ++tail;
  return text.substr(0, head) + " ... [" + std::to_string(tail - head) + " of " +
         std::to_string(text.size()) + " bytes left out] ... " + text.substr(tail);
}

// Errors travel, so they are short, and end on terminals, so they hold nothing that those obey.
constexpr size_t kMaxText = size_t{16} << 10;
constexpr size_t kMaxTrail = 64;   // calls
constexpr size_t kMaxName = 1024;  // of one
constexpr std::string_view kLeftOut = "... calls left out: ";

std::string readable(std::string text, size_t most) { return shortened(visible(text, "\n\t"), most); }

// A long trail keeps its innermost and its outermost calls, and a count between them.
void add_to(std::vector<std::string>& trail, std::string call) {
  trail.push_back(readable(std::move(call), kMaxName));
  if (trail.size() <= kMaxTrail) return;
  const auto middle = trail.begin() + kMaxTrail / 2;
  const bool counts = middle->starts_with(kLeftOut);
  const uint64_t before = counts ? std::strtoull(middle->c_str() + kLeftOut.size(), nullptr, 10) : 1;
  *middle = std::string(kLeftOut) + std::to_string(before + 1);
  trail.erase(middle + 1);
}

}  // namespace

Error::Error(ErrorKind kind, std::string message)
    : kind_(kind), message_(readable(std::move(message), kMaxText)) {
  render();
}

Error::Error(ErrorKind kind, std::string message, std::vector<std::string> trail, std::string worker)
    : kind_(kind), message_(readable(std::move(message), kMaxText)), worker_(std::move(worker)) {
  for (auto& call : trail) add_to(trail_, std::move(call));
  render();
}

Error::Error(const Error&) = default;
Error::Error(Error&&) noexcept = default;
Error& Error::operator=(const Error&) = default;
Error& Error::operator=(Error&&) noexcept = default;
Error::~Error() = default;

Error Error::with_worker(std::string worker) && {
  worker_ = std::move(worker);
  return std::move(*this);
}

Error Error::crossing(std::string call) && {
  add_to(trail_, std::move(call));
  render();
  return std::move(*this);
}

void Error::render() {
  what_ = message_;
  for (const auto& call : trail_) what_ += "\n  in " + call;
}

Error current_error() {
  try {
    throw;
  } catch (Error& e) {
    return e;
  } catch (const OutOfMemory& e) {
    return Error(ErrorKind::failed, e.what());
  } catch (const std::bad_alloc&) {  // has a name for a text
    return Error(ErrorKind::failed, "out of memory");
  } catch (const std::exception& e) {
    return Error(ErrorKind::failed, readable_name(typeid(e)) + ": " + e.what());
  } catch (...) {
    return Error(ErrorKind::failed, "an exception that is no std::exception");
  }
}

namespace {

// In lower case, without anything between.
std::string letters_of(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '_' && c != '-') out += lower(c);
  return out;
}

}  // namespace

void throw_error(ErrorKind kind, std::string message) { throw Error(kind, std::move(message)); }

std::string nearest(std::string_view got, const std::vector<std::string>& known) {
  std::string best;
  if (got.empty()) return best;
  for (const auto& candidate : known)
    if (letters_of(candidate) == letters_of(got)) return candidate;  // LayerNorm, layer_norm
  // Near: a third of the letters, at least two, but never all of them.
  size_t best_distance = std::min(std::max<size_t>(2, got.size() / 3), got.size() - 1) + 1;
  for (const auto& candidate : known) {
    if (got.size() > candidate.size() + best_distance) continue;
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= got.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        size_t replace = diagonal + (got[i - 1] != candidate[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
      }
    }
    if (row.back() < best_distance) best_distance = row.back(), best = candidate;
  }
  return best;
}

}  // namespace troupe
