#include "troupe/checkpoint/rehearsal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <charconv>
#include <cstdlib>

#include "core/base/error.h"

namespace troupe::internal {
namespace {

std::optional<int64_t> whole(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1) return {};
  return n;
}

}  // namespace

std::string Rehearsal::str() const { return fmt::format("{}:{}:{}", steps, fmt::join(kills, ","), dir); }

Rehearsal Rehearsal::parse(const std::string& text) {
  const auto refuse = [&]() __attribute__((noreturn)) {
    throw_invalid(fmt::format("[job] {} is \"{}\", expected steps, kills and a folder, as 12:6,9:/tmp/folder",
                              kVariable, text));
  };
  const size_t first = text.find(':'),
               second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos || second + 1 == text.size()) refuse();
  const std::string_view all = text, list = all.substr(first + 1, second - first - 1);
  Rehearsal out;
  const auto take = [&](std::string_view number) {
    const auto n = whole(number);
    if (!n) refuse();
    return *n;
  };
  out.steps = take(all.substr(0, first));
  for (size_t from = 0; from < list.size();) {
    const size_t to = std::min(list.find(',', from), list.size());
    out.kills.push_back(take(list.substr(from, to - from)));
    from = to + 1;
  }
  out.dir = text.substr(second + 1);
  return out;
}

std::optional<Rehearsal> Rehearsal::current() {
  const char* text = std::getenv(kVariable);
  return text && *text ? std::optional(parse(text)) : std::nullopt;
}

int64_t restarts() {
  const char* attempt = std::getenv("TROUPE_RESTART");
  return attempt ? std::strtoll(attempt, nullptr, 10) : 0;
}

namespace {

std::atomic<bool> begun_again{false};

}  // namespace

void note_started_again() { begun_again = true; }

bool started_again() {
  if (begun_again) return true;
  // Torchrun's agents do, and Slurm with a job that goes back into its queue.
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"})
    if (const char* count = std::getenv(name); count && std::strtoll(count, nullptr, 10) > 0) return true;
  return restarts() > 0;
}

Checkpoints rehearsed(Checkpoints checkpoints) {
  if (const auto rehearsal = Rehearsal::current())
    return {
        .dir = rehearsal->dir, .resume = false, .every = Rehearsal::kEvery, .keep = 2, .unwitnessed = true};
  return checkpoints;
}

}  // namespace troupe::internal
