#include "parallel/pipeline/schedule/choose_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "core/base/error.h"
#include "parallel/pipeline/schedule/schedule_check.h"

namespace troupe::parallel {
namespace {

// "3" or "4, 3, 2, 1".
Credits parse_credits(const std::string& text, const std::string& list, int workers, int micro_batches) {
  std::vector<int> all;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    std::istringstream word(part);
    int count = 0;
    std::string rest;
    if (!(word >> count) || word >> rest || count < 1)
      throw_invalid(fmt::format("[schedule] \"{}\": expected numbers above 0, as in credits(3)", text));
    all.push_back(count);
  }
  if (all.size() == 1) return credits(workers, micro_batches, all[0]);
  if (all.size() != static_cast<size_t>(workers))
    throw_invalid(fmt::format("[schedule] \"{}\" has {} numbers for {} workers: give one, or one for each",
                              text, all.size(), workers));
  return {micro_batches, all};
}

Schedule parse_table(const std::string& text, int workers, int micro_batches, int chunks) {
  Schedule table = parse_schedule(text);
  if (table.workers() != workers || table.micro_batches != micro_batches || table.chunks != chunks)
    throw_invalid(
        fmt::format("[schedule] the table is for {} workers, {} micro-batches and {} chunks; the pipeline "
                    "has {}, {} and {}",
                    table.workers(), table.micro_batches, table.chunks, workers, micro_batches, chunks));
  check(table);
  return table;
}

bool fits(const Simulation& simulation, const std::vector<int>& most_live) {
  for (size_t w = 0; w < most_live.size(); ++w)
    if (simulation.peak_live[w] > most_live[w]) return false;
  return true;
}

}  // namespace

bool goes_back(std::string_view name) { return name == "zb-v" || name == "dualpipe-v"; }

Policy make_policy(const std::string& text, int workers, int micro_batches, int chunks) {
  if (text.find(':') != std::string::npos) return parse_table(text, workers, micro_batches, chunks);
  if (text == "interleaved") return interleaved(workers, micro_batches, chunks);
  if (text == "looped-bfs") return looped_bfs(workers, micro_batches, chunks);
  if (goes_back(text)) {
    if (chunks != 2)
      throw_invalid(
          fmt::format("[schedule] {} has two chunks for each worker, stages w and {} - w of worker "
                      "w; got {}: set chunks = 2, for twice as many stages as workers",
                      text, 2 * workers * chunks - 1, chunks));
    return text == "zb-v" ? zb_v(workers, micro_batches) : dualpipe_v(workers, micro_batches);
  }
  Policy policy;
  if (text == "gpipe")
    policy = gpipe(workers, micro_batches);
  else if (text == "1f1b")
    policy = one_f_one_b(workers, micro_batches);
  else if (text == "zb-h1")
    policy = zb_h1(workers, micro_batches);
  else if (text == "zb-h2")
    policy = zb_h2(workers, micro_batches);
  else if (text.starts_with("credits(") && text.ends_with(")"))
    policy = parse_credits(text, text.substr(8, text.size() - 9), workers, micro_batches);
  else {
    const std::string near = nearest(text, {"gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2",
                                            "zb-v", "dualpipe-v", "credits(1)", "auto"});
    throw_invalid(fmt::format(
        "[schedule] there is no schedule \"{}\"{}: expected gpipe, 1f1b, interleaved, looped-bfs, "
        "zb-h1, zb-h2, zb-v, dualpipe-v, credits(n), or a table",
        text, near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
  }
  if (chunks > 1)
    throw_invalid(
        fmt::format("[schedule] {} has one chunk for each worker, got {}: use interleaved, looped-bfs, zb-v, "
                    "dualpipe-v, or a table",
                    text, chunks));
  return policy;
}

Choice choose(int workers, int micro_batches, const std::vector<StageTimes>& times,
              std::vector<int> most_live) {
  if (most_live.size() == 1) most_live.assign(static_cast<size_t>(std::max(workers, 0)), most_live[0]);
  if (!most_live.empty() && most_live.size() != static_cast<size_t>(workers))
    throw_invalid(
        fmt::format("[schedule] limits for {} workers, expected 1 or {}", most_live.size(), workers));
  if (std::any_of(most_live.begin(), most_live.end(), [](int n) { return n < 1; }))
    throw_invalid("[schedule] a worker has to keep at least 1 micro-batch");
  // Of equal ones the first: tables need no decisions, and those with whole backwards fewer actions.
  std::vector<Policy> candidates{one_f_one_b(workers, micro_batches), zb_h1(workers, micro_batches),
                                 zb_h2(workers, micro_batches)};
  for (const int depth : {0, workers, 2 * workers - 1}) {
    Credits c = credits(workers, micro_batches, std::max(depth, 1));
    for (size_t w = 0; w < c.of_worker.size(); ++w) {
      if (depth == 0) c.of_worker[w] = workers - static_cast<int>(w);
      if (!most_live.empty()) c.of_worker[w] = std::min(c.of_worker[w], most_live[w]);
    }
    candidates.push_back(std::move(c));
  }
  std::optional<Choice> best;
  std::string others;
  const auto alive = [](const Simulation& s) {
    return std::accumulate(s.peak_live.begin(), s.peak_live.end(), 0);
  };
  for (Policy& policy : candidates) {
    Simulation s = simulate(policy, times);
    const bool fit = fits(s, most_live);
    others += fmt::format("{}{} {:.6g}{}", others.empty() ? "" : ", ", name_of(policy), s.makespan,
                          fit ? "" : " (too much alive)");
    if (!fit) continue;
    const double slack = 1e-9 * s.makespan;
    if (best && (s.makespan > best->predicted.makespan + slack ||
                 (s.makespan > best->predicted.makespan - slack && alive(s) >= alive(best->predicted))))
      continue;
    best = Choice{std::move(policy), std::move(s), {}};
  }
  best->why =
      fmt::format("{}: a step takes {:.6g}; {}", name_of(best->policy), best->predicted.makespan, others);
  return std::move(*best);
}

}  // namespace troupe::parallel
