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

struct Head {
  int worker = 0;
  std::vector<int64_t> stages;
};

// "w3:" or "w3=3,4:".
Head parse_head(const std::string& word, size_t line) {
  std::string_view rest = word;
  Head head;
  const auto take = [&](char c) {
    const bool there = rest.starts_with(c);
    if (there) rest.remove_prefix(1);
    return there;
  };
  const auto parse = [&] {
    const auto worker = take('w') ? take_number(rest) : std::nullopt;
    if (!worker) return false;
    head.worker = *worker;
    for (bool more = take('='); more; more = take(',')) {
      const auto stage = take_number(rest);
      if (!stage) return false;
      head.stages.push_back(*stage);
    }
    return rest == ":";
  };
  if (!parse())
    complain(line,
             "a row begins with its worker, as in \"w0: F0 B0\"" +
                 std::string(word.find('=') == std::string::npos
                                 ? ""
                                 : ", or with the stages of its chunks, too, as in \"w0=0,3: F0 F0.1\"") +
                 "; got \"" + word + "\"");
  return head;
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
    text += "w" + std::to_string(w);
    for (size_t c = 0; !stages_of.empty() && c < stages_of.at(static_cast<size_t>(w)).size(); ++c)
      text += (c ? "," : "=") + std::to_string(stages_of[static_cast<size_t>(w)][c]);
    text += ":";
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
    Head head = parse_head(word, number);
    const auto worker = static_cast<size_t>(head.worker);
    if (worker > rows.size())
      complain(number, "row of w" + std::to_string(worker) + ", but there is none of w" +
                           std::to_string(rows.size()) + " before it");
    if (worker < rows.size()) complain(number, "w" + std::to_string(worker) + " has a row already");
    if (worker > 0 && head.stages.empty() != schedule.stages_of.empty())
      complain(number,
               "the stages of its chunks are named for some workers, and for others not: name those of "
               "w" +
                   std::to_string(schedule.stages_of.empty() ? 0 : worker) + ", too");
    if (!head.stages.empty()) {
      schedule.chunks = std::max(schedule.chunks, static_cast<int>(head.stages.size()));
      schedule.stages_of.push_back(std::move(head.stages));
    }
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
