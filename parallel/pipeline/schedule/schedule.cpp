// The text form of schedules.
#include "parallel/pipeline/schedule/schedule.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "core/base/error.h"

namespace troupe::parallel {
namespace {

constexpr std::string_view kLetters = "FBIW";  // by Work
constexpr int kMost = 1 << 20;                 // of micro-batches, chunks and workers

// A number at the start of `text`, which is taken away.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value >= kMost) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<Action> parse_action(std::string_view word) {
  const size_t work = word.empty() ? std::string_view::npos : kLetters.find(word[0]);
  if (work == std::string_view::npos) return std::nullopt;
  word.remove_prefix(1);
  const auto micro_batch = take_number(word);
  if (!micro_batch) return std::nullopt;
  Action action{static_cast<Work>(work), *micro_batch, 0};
  if (!word.empty() && word[0] == '.') {
    word.remove_prefix(1);
    const auto chunk = take_number(word);
    if (!chunk) return std::nullopt;
    action.chunk = *chunk;
  }
  return word.empty() ? std::optional(action) : std::nullopt;
}

[[noreturn]] void complain(size_t line, const std::string& what) {
  throw_invalid("[schedule] line " + std::to_string(line) + ": " + what);
}

// The worker of "w3:".
int parse_worker(const std::string& word, size_t line) {
  std::string_view rest = word;
  if (rest.starts_with('w')) {
    rest.remove_prefix(1);
    if (const auto worker = take_number(rest); worker && rest == ":") return *worker;
  }
  complain(line, "a row begins with its worker, as in \"w0: F0 B0\"; got \"" + word + "\"");
}

}  // namespace

std::string Action::str() const {
  std::string text = kLetters[static_cast<size_t>(work)] + std::to_string(micro_batch);
  return chunk ? text + "." + std::to_string(chunk) : text;
}

std::string Schedule::str() const {
  std::string text = "# " + name + ", " + std::to_string(workers()) + " workers, " +
                     std::to_string(micro_batches) + " micro-batches\n";
  for (int w = 0; w < workers(); ++w) {
    text += "w" + std::to_string(w) + ":";
    for (const Action& a : rows[static_cast<size_t>(w)]) text += " " + a.str();
    text += "\n";
  }
  return text;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule{.name = "custom", .rows = {}};
  std::vector<std::optional<Actions>> rows;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    const auto worker = static_cast<size_t>(parse_worker(word, number));
    if (worker > rows.size())
      complain(number, "row of w" + std::to_string(worker) + ", but there is none of w" +
                           std::to_string(rows.size()) + " before it");
    if (worker < rows.size()) complain(number, "w" + std::to_string(worker) + " has a row already");
    Actions& row = rows.emplace_back(Actions()).value();
    while (words >> word) {
      const auto action = parse_action(word);
      if (!action)
        complain(number, "\"" + word +
                             "\" is no action: F3 (forward of micro-batch 3), B3 (backward), I3 and W3 "
                             "(its input and weight part), F3.1 (of chunk 1)");
      row.push_back(*action);
      schedule.micro_batches = std::max(schedule.micro_batches, action->micro_batch + 1);
      schedule.chunks = std::max(schedule.chunks, action->chunk + 1);
    }
  }
  if (rows.empty()) throw_invalid("[schedule] no rows: expected lines such as \"w0: F0 B0\"");
  for (auto& row : rows) schedule.rows.push_back(std::move(*row));
  return schedule;
}

}  // namespace troupe::parallel
