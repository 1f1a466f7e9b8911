#include "parallel/pipeline/skip_links.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"

namespace troupe {

Value Codec<parallel::SkipLink>::to(parallel::SkipLink link) {
  ValueList both(2);
  both[0].v = link.stage, both[1].v = link.slot;
  return both;
}
parallel::SkipLink Codec<parallel::SkipLink>::from(Value value) {
  auto both = Codec<std::vector<int64_t>>::from(std::move(value));
  if (both.size() != 2)
    throw_invalid("expected a " + name() + ", got " + std::to_string(both.size()) + " numbers");
  return {both[0], both[1]};
}

namespace parallel {

size_t StageLinks::slots(bool forward) const {
  size_t count = 1;
  if (forward) return count + takes.size();
  for (const auto& users : gives) count += users.size();
  return count;
}

int64_t StageLinks::source(bool forward, size_t slot) const {
  if (forward) return takes.at(slot - 1).stage;
  for (const auto& users : gives) {
    if (slot <= users.size()) return users[slot - 1].stage;
    slot -= users.size();
  }
  throw_invalid("[pipeline] there is no such skip");
}

std::vector<StageLinks> connect_skips(const std::vector<SkipNames>& stages) {
  std::vector<StageLinks> links(stages.size());
  std::map<std::string, std::pair<size_t, size_t>> made;  // by name: stage, and position among its skips
  for (size_t s = 0; s < stages.size(); ++s) {
    for (size_t k = 0; k < stages[s].takes.size(); ++k) {
      const std::string& name = stages[s].takes[k];
      const auto from = made.find(name);
      if (from == made.end())
        throw_invalid(fmt::format(
            "[pipeline] stage {} takes the skip \"{}\", and no stage before it gives one of that name", s,
            name));
      const auto [source, index] = from->second;
      auto& users = links[source].gives[index];
      if (!users.empty() && users.back().stage == static_cast<int64_t>(s))
        throw_invalid(fmt::format("[pipeline] stage {} takes the skip \"{}\" twice", s, name));
      users.push_back({static_cast<int64_t>(s), static_cast<int64_t>(k) + 1});
      links[s].takes.push_back({static_cast<int64_t>(source), 0});
    }
    for (const std::string& name : stages[s].gives) {
      const auto [at, is_new] = made.try_emplace(name, s, links[s].gives.size());
      if (!is_new)
        throw_invalid(fmt::format("[pipeline] stages {} and {} both give a skip \"{}\": names are for one",
                                  at->second.first, s, name));
      links[s].gives.emplace_back();
    }
  }
  for (const auto& [name, from] : made)
    if (links[from.first].gives[from.second].empty())
      throw_invalid(fmt::format("[pipeline] stage {} gives the skip \"{}\", and no stage behind it takes it",
                                from.first, name));
  // Where gradients come back to: all users of a skip in turn.
  for (size_t s = 0; s < stages.size(); ++s) {
    int64_t slot = 0;
    for (const auto& users : links[s].gives)
      for (const SkipLink& user : users)
        links[static_cast<size_t>(user.stage)].takes[static_cast<size_t>(user.slot) - 1].slot = ++slot;
  }
  return links;
}

bool JoinBuffer::put(bool forward, SkipLink to, int64_t micro_batch, size_t slots, Value what) {
  Parts& parts = parts_[{forward, to.stage, micro_batch}];
  if (parts.values.empty()) parts.values.resize(slots), parts.here.resize(slots), parts.missing = slots;
  const auto slot = static_cast<size_t>(to.slot);
  if (to.slot < 0 || slot >= parts.here.size() || parts.here[slot])
    throw_invalid(fmt::format("[pipeline] value {} of {} came for the {} of micro-batch {} in stage {}{}",
                              to.slot, parts.here.size(), forward ? "forward" : "backward", micro_batch,
                              to.stage, slot < parts.here.size() ? ", twice" : ""));
  parts.values[slot] = std::move(what);
  parts.here[slot] = true;
  return --parts.missing == 0;
}

ValueList JoinBuffer::take(bool forward, int64_t stage, int64_t micro_batch) {
  auto node = parts_.extract({forward, stage, micro_batch});
  return node.empty() ? ValueList() : std::move(node.mapped().values);
}

}  // namespace parallel
}  // namespace troupe
