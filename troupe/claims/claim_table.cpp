#include "troupe/claims/claim_table.h"

#include <algorithm>

namespace troupe::internal {

void ClaimTable::want(const ClaimId& id, ClaimRequest request, Out& out) {
  Claim claim;
  claim.request = std::move(request);
  claims_.emplace(id, std::move(claim));
  undecided_.push_back(id);
  advance(out);
}

ClaimTable::Claim* ClaimTable::in_phase(const ClaimId& id, Phase phase) {
  const auto at = claims_.find(id);
  return at == claims_.end() || at->second.phase != phase ? nullptr : &at->second;
}

void ClaimTable::looked(const ClaimId& id, WorkerId worker, const std::string& refusal, Out& out) {
  Claim* claim = in_phase(id, Phase::looking);
  if (!claim || !claim->pending.erase(worker)) return;
  if (!refusal.empty()) claim->refusals[worker] = refusal;
  if (claim->pending.empty()) choose(id, *claim, out);
}

void ClaimTable::held(const ClaimId& id, WorkerId worker, const std::string& refusal, Out& out) {
  Claim* claim = in_phase(id, Phase::holding);
  if (!claim || !claim->pending.erase(worker)) return;
  if (!refusal.empty()) claim->refusals[worker] = refusal;
  if (claim->pending.empty()) conclude(id, *claim, out);
}

void ClaimTable::freed(const ClaimId& id, WorkerId worker, Out& out) {
  Claim* claim = in_phase(id, Phase::ending);
  if (!claim || !claim->workers.erase(worker)) return;
  if (claim->workers.empty()) claims_.erase(id);
  advance(out);
}

void ClaimTable::let_go(const ClaimId& id, Out& out) {
  const auto at = claims_.find(id);
  if (at == claims_.end() || at->second.phase == Phase::ending) return;
  std::erase(undecided_, id);
  end(id, at->second, out);
  advance(out);
}

void ClaimTable::lost(WorkerId lost, Out& out) {
  lost_.insert(lost);
  std::vector<ClaimId> all;
  for (const auto& [id, claim] : claims_) all.push_back(id);
  for (const ClaimId& id : all) {
    if (id.holder == lost) let_go(id, out);
    const auto at = claims_.find(id);
    if (at == claims_.end()) continue;
    Claim& claim = at->second;
    const bool had = claim.workers.erase(lost) > 0, asked = claim.pending.erase(lost) > 0;
    if (had || asked) claim.refusals[lost] = name_of_(lost) + " was lost";
    const bool over = claim.pending.empty();
    if (claim.phase == Phase::looking && asked && over)
      choose(id, claim, out);
    else if (claim.phase == Phase::holding && had && over)
      conclude(id, claim, out);
    else if (claim.phase == Phase::ending && claim.workers.empty())
      claims_.erase(at);
  }
  advance(out);
}

const ClaimRequest* ClaimTable::find(const ClaimId& id) const {
  const auto at = claims_.find(id);
  return at == claims_.end() ? nullptr : &at->second.request;
}

std::set<WorkerId> ClaimTable::holders() const {
  std::set<WorkerId> all;
  for (const auto& [id, claim] : claims_) all.insert(id.holder);
  return all;
}

ClaimTable::Outlook ClaimTable::outlook(const ClaimRequest& request) const {
  Outlook look;
  for (const WorkerId worker : request.among) {
    if (lost_.contains(worker)) {
      look.refusals[worker] = name_of_(worker) + " was lost";
      continue;
    }
    const Claim* by = nullptr;
    for (const auto& [id, other] : claims_)
      if (other.workers.contains(worker) && !(request.share && other.request.share)) by = &other;
    if (!by)
      look.free.push_back(worker);
    else if (by->phase == Phase::ending)
      ++look.soon;
    else
      look.refusals[worker] = name_of_(worker) + " is claimed by " + by->request.who +
                              (by->request.share ? ", which shares it" : "");
  }
  return look;
}

// Decides what can be decided now.
void ClaimTable::advance(Out& out) {
  while (!undecided_.empty()) {
    const ClaimId id = undecided_.front();
    Claim& claim = claims_.at(id);
    if (claim.phase != Phase::waiting) return;
    begin(id, claim, out);
    if (!undecided_.empty() && undecided_.front() == id) return;
  }
}

void ClaimTable::begin(const ClaimId& id, Claim& claim, Out& out) {
  Outlook look = outlook(claim.request);
  claim.refusals = std::move(look.refusals);
  const size_t count = claim.request.count;
  if (look.free.size() < count && look.free.size() + look.soon >= count) return;  // until these are freed
  if (look.free.empty()) return refuse(id, claim, look.free, out);
  claim.phase = Phase::looking;
  claim.pending.insert(look.free.begin(), look.free.end());
  for (const WorkerId worker : look.free) out.messages.push_back({Ask::look, id, worker});
}

// All have said whether they may be had.
void ClaimTable::choose(const ClaimId& id, Claim& claim, Out& out) {
  Outlook look = outlook(claim.request);
  std::erase_if(look.free, [&](WorkerId w) { return claim.refusals.contains(w); });
  const size_t count = claim.request.count;
  if (look.free.size() < count) {
    claim.phase = Phase::waiting;
    if (look.free.size() + look.soon < count) {
      refuse(id, claim, look.free, out);
      advance(out);
    }
    return;
  }
  claim.phase = Phase::holding;
  claim.workers.insert(look.free.begin(), look.free.begin() + static_cast<ptrdiff_t>(count));
  claim.pending = claim.workers;
  for (const WorkerId worker : claim.workers) out.messages.push_back({Ask::hold, id, worker});
}

// All have answered whether they hold it, or were lost.
void ClaimTable::conclude(const ClaimId& id, Claim& claim, Out& out) {
  std::erase(undecided_, id);
  std::vector<WorkerId> granted;
  for (const WorkerId worker : claim.request.among)
    if (claim.workers.contains(worker) && !claim.refusals.contains(worker)) granted.push_back(worker);
  if (granted.size() == claim.request.count) {
    claim.phase = Phase::granted;
    out.answers.push_back({id, std::move(granted), ""});
    return advance(out);
  }
  const Claim told = claim;
  end(id, claim, out);
  refuse(id, told, granted, out);
  advance(out);
}

void ClaimTable::end(const ClaimId& id, Claim& claim, Out& out) {
  claim.phase = Phase::ending;
  claim.pending.clear();
  for (const WorkerId worker : claim.workers) out.messages.push_back({Ask::free, id, worker});
  if (claim.workers.empty()) claims_.erase(id);
}

namespace {

constexpr size_t kShown = 8;

std::string listed(const std::vector<std::string>& parts, const std::string& between) {
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), kShown); ++i) text += (i ? between : "") + parts[i];
  if (parts.size() > kShown) text += between + "and " + std::to_string(parts.size() - kShown) + " more";
  return text;
}

}  // namespace

// The claim is gone then, unless it ends.
void ClaimTable::refuse(const ClaimId& id, const Claim& claim, const std::vector<WorkerId>& free, Out& out) {
  const ClaimRequest& r = claim.request;
  std::vector<std::string> among, reasons, rest;
  for (const WorkerId worker : r.among) among.push_back(name_of_(worker));
  for (const auto& [worker, reason] : claim.refusals) reasons.push_back(reason);
  for (const WorkerId worker : free) rest.push_back('"' + name_of_(worker) + '"');
  std::string text = "[claim] " + r.who + " wants " + std::to_string(r.count) + " of " + listed(among, ", ") +
                     (r.share ? " to share, and " : " for itself, and ") +
                     (free.empty()       ? "none is free: "
                      : free.size() == 1 ? "1 is free: "
                                         : std::to_string(free.size()) + " are free: ") +
                     listed(reasons, "; ") + ". ";
  const auto alive = std::ranges::count_if(r.among, [&](WorkerId w) { return !lost_.contains(w); });
  const bool possible = static_cast<size_t>(alive) >= r.count;
  text += possible ? "Wait until they end" : "Lost workers do not come back: claim others";
  if (!free.empty()) text += ", or take what is free: Claim(cluster, {" + listed(rest, ", ") + "})";
  if (possible && !r.share) text += "; {.share = true} takes workers of others that share, too";
  out.answers.push_back({id, {}, text});
  std::erase(undecided_, id);
  if (in_phase(id, Phase::waiting)) claims_.erase(id);
}

}  // namespace troupe::internal
