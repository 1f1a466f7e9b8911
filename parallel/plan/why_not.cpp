#include "parallel/plan/why_not.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/base/readable_bytes.h"

namespace troupe::parallel {
namespace {

struct Share {
  const char* name;
  double LayoutCost::* seconds;
};
constexpr std::array kShares{Share{"computing", &LayoutCost::compute},
                             Share{"waiting for other workers", &LayoutCost::bubble},
                             Share{"sums and exchanges of ranks in the layers", &LayoutCost::sums},
                             Share{"sums of gradients over replicas", &LayoutCost::gradients},
                             Share{"the optimizer", &LayoutCost::optimizer}};

std::string memory_parts(const LayoutCost& c) {
  return fmt::format("{} parameters, {} gradients, {} optimizer, {} activations, {} before",
                     bytes_text(c.parameters), bytes_text(c.gradient_bytes), bytes_text(c.state),
                     bytes_text(c.activations), bytes_text(c.before));
}

}  // namespace

std::string bytes_text(double bytes) { return readable_bytes(static_cast<int64_t>(bytes)); }

std::string readable_seconds(double seconds) {
  if (seconds >= 10) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 0.1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

std::string kind_of(const PlannedLayout& layout) {
  std::string axes;
  const auto add = [&](const char* word) { axes += (axes.empty() ? "" : " and ") + std::string(word); };
  if (layout.dp > 1) add("replicas");
  if (layout.pp > 1) add(layout.chunks > 1 ? "stages in chunks" : "stages");
  if (layout.ep > 1) add("divided experts");
  if (layout.cp > 1) add("cut sequences");
  if (layout.tp > 1) add("ranks");
  if (axes.empty()) return "one worker";
  if (axes.find(" and ") == std::string::npos) axes += " alone";
  if (layout.shard != Shard::none) axes += ", shard " + std::string(word(layout.shard)).substr(7);
  if (layout.checkpoint != Checkpoint::never) axes += ", with checkpoints";
  return axes;
}

std::string what_binds(const LayoutCost& cost) {
  std::vector<std::pair<double, const char*>> parts;
  for (const Share& s : kShares) parts.emplace_back(cost.*(s.seconds) / std::max(cost.step, 1e-12), s.name);
  std::ranges::stable_sort(parts, std::greater<>(), &std::pair<double, const char*>::first);
  std::string text;
  for (const auto& [part, name] : parts)
    if (part >= 0.01) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, part * 100);
  return text;
}

std::vector<NotTaken> why_not(const PlanRow& best, const KindsOfLayouts& kinds, double memory_limit) {
  std::vector<std::pair<double, NotTaken>> all;
  for (const auto& [kind, of] : kinds) {
    if (kind == kind_of(best.layout)) continue;
    const LayoutCost& cost = of.row.cost;
    const std::string which = of.row.layout.str();
    if (!of.fits) {
      all.emplace_back(INFINITY,
                       NotTaken{kind, fmt::format("{}: memory, {} of {} ({})", which, bytes_text(cost.memory),
                                                  bytes_text(memory_limit), memory_parts(cost))});
      continue;
    }
    const Share* most = &kShares[0];
    for (const Share& s : kShares)
      if (cost.*(s.seconds) - best.cost.*(s.seconds) > cost.*(most->seconds) - best.cost.*(most->seconds))
        most = &s;
    const double more = cost.step - best.cost.step,
                 of_it = cost.*(most->seconds) - best.cost.*(most->seconds);
    std::string why = fmt::format("{}: {} a step, {} more", which, readable_seconds(cost.step),
                                  readable_seconds(std::max(0.0, more)));
    if (of_it > 0)
      why += fmt::format("; {}: {} instead of {}", most->name, readable_seconds(cost.*(most->seconds)),
                         readable_seconds(best.cost.*(most->seconds)));
    all.emplace_back(more, NotTaken{kind, std::move(why)});
  }
  std::ranges::stable_sort(all, {}, &std::pair<double, NotTaken>::first);
  std::vector<NotTaken> out;
  for (auto& [more, one] : all) out.push_back(std::move(one));
  return out;
}

std::vector<NotTaken> impossible_kinds(const ModelProfile& profile, bool stages,
                                       const PlannedWorkers& workers, int64_t batch) {
  std::vector<NotTaken> all;
  const auto count = static_cast<int64_t>(workers.size());
  int64_t heads = 1;
  for (const LayerCost& l : profile.layers) heads = std::max(heads, l.sums ? l.heads : 1);
  if (profile.cuts_layers && count > heads)
    all.push_back({"ranks alone", fmt::format("tp {}: the layers have {} heads", count, heads)});
  if (profile.cuts_layers && count > workers.most_on_a_host())
    all.push_back(
        {"ranks over hosts", fmt::format("tp {}: a host has {} workers, and ranks sum in every layer", count,
                                         workers.most_on_a_host())});
  if (stages && count > static_cast<int64_t>(profile.layers.size()))
    all.push_back(
        {"stages alone", fmt::format("pp {}: the model has {} layers", count, profile.layers.size())});
  int64_t fewest = 2;  // stages of that many workers
  while (count > 1 && count % fewest != 0) ++fewest;
  if (stages && count > 1 && 2 * fewest > static_cast<int64_t>(profile.layers.size()))
    all.push_back({"stages in chunks",
                   fmt::format("pp {} in 2 chunks: the model has {} layers", fewest, profile.layers.size())});
  if (count > batch)
    all.push_back({"replicas alone", fmt::format("dp {}: a step has {} rows", count, batch)});
  return all;
}

}  // namespace troupe::parallel
