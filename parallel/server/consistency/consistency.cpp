#include "parallel/server/consistency/consistency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/codec/plain_struct.h"

namespace troupe::parallel {

namespace {
using PolicyKind = ServerPolicy::Kind;
constexpr double kLeastWeight = 1e-100, kMostWeight = 1e100;
}  // namespace

void check_trainers(int64_t expected) {
  if (expected < 1) throw_invalid(fmt::format("[server] {} trainers; expected at least 1", expected));
}

Consistency::Consistency(ServerPolicy policy, int64_t expected) : policy_(policy), expected_(expected) {
  check_trainers(expected);
  policy_ = ServerPolicy::parse(policy.str());  // made by hand, it may have any numbers
}

// ---- checkpoints

namespace {

struct SavedTrainer {
  int64_t step = 0;
  std::optional<VersionStamp> reading;
  bool missed = false;
  std::optional<double> weight;
};
struct SavedHeld {
  double weight = 0;
  std::vector<int64_t> versions;
  std::vector<double> weights;
};
struct SavedConsistency {
  std::string policy;
  int64_t joined = 0, open = 0, version = 0, first_delayed = 0;
  std::map<std::string, SavedTrainer> trainers;
  std::map<int64_t, SavedHeld> held;
  StalenessLedger staleness;
};

}  // namespace

Value Consistency::saved() const {
  SavedConsistency out{policy_.str(), joined_, open_, version_, first_delayed_, {}, {}, staleness_};
  for (const auto& [name, t] : trainers_) out.trainers[name] = {t.step, t.reading, t.missed, t.weight};
  for (const auto& [step, held] : held_) out.held[step] = {held.weight, held.versions, held.weights};
  return internal::to_value(std::move(out));
}

void Consistency::load(Value saved) {
  auto from = internal::from_value<SavedConsistency>(std::move(saved));
  std::vector<std::string> then;
  for (const auto& [name, t] : from.trainers) then.push_back(name);
  if (then != trainers())
    throw_invalid(fmt::format("[server] the trainers are {}; in the checkpoint they are {}",
                              trainers_.empty() ? "none" : fmt::format("{}", fmt::join(trainers(), ", ")),
                              then.empty() ? "none" : fmt::format("{}", fmt::join(then, ", "))));
  policy_ = ServerPolicy::parse(from.policy);
  joined_ = from.joined, open_ = from.open, version_ = from.version, first_delayed_ = from.first_delayed;
  for (auto& [name, t] : from.trainers) trainers_[name] = {t.step, t.reading, t.missed, t.weight};
  held_.clear();
  for (auto& [step, held] : from.held)
    held_[step] = {held.weight, std::move(held.versions), std::move(held.weights)};
  staleness_ = std::move(from.staleness);
}

// ---- who is there

const Consistency::Trainer& Consistency::at(const std::string& trainer) const {
  const auto it = trainers_.find(trainer);
  if (it == trainers_.end())
    throw_invalid(fmt::format(
        "[server] there is no trainer \"{}\"; there are: {}. It has not joined, has left, or was lost",
        trainer, trainers_.empty() ? "none" : fmt::format("{}", fmt::join(trainers(), ", "))));
  return it->second;
}

std::vector<std::string> Consistency::trainers() const {
  std::vector<std::string> names;
  for (const auto& [name, trainer] : trainers_) names.push_back(name);
  return names;
}

std::vector<std::string> Consistency::missing() const {
  std::vector<std::string> names;
  for (const auto& [name, trainer] : trainers_)
    if (trainer.step <= open_) names.push_back(name);
  return names;
}

void Consistency::join(const std::string& trainer) {
  const auto [it, is_new] = trainers_.try_emplace(trainer);
  if (!is_new)
    throw_invalid("[server] a trainer \"" + trainer + "\" has joined already; expected another name");
  it->second.step = open_;
  ++joined_;
}

void Consistency::leave(const std::string& trainer) {
  at(trainer);
  trainers_.erase(trainer);
  find_open();
}

bool Consistency::lose(const std::string& trainer) {
  const auto it = trainers_.find(trainer);
  if (it == trainers_.end()) return false;
  const bool in_open_step = it->second.step <= open_;
  trainers_.erase(it);
  ++staleness_.lost;
  if (!policy_.abort_on_loss || !policy_.holds() || !in_open_step) return find_open(), false;
  held_.clear();
  ++staleness_.aborted;
  for (auto& [name, other] : trainers_)
    if (other.step > open_) {
      other.step = open_;
      other.reading.reset();
    }
  return true;
}

// Where pushes are updates at once, the oldest open step is that of the last trainer.
void Consistency::find_open() {
  if (policy_.holds() || trainers_.empty()) return;
  open_ = trainers_.begin()->second.step;
  for (const auto& [name, trainer] : trainers_) open_ = std::min(open_, trainer.step);
}

// ---- a step of a trainer

bool Consistency::may_read(const std::string& trainer) const {
  const int64_t ahead = at(trainer).step - open_;
  if (joined_ < expected_) return false;
  switch (policy_.kind) {
    case PolicyKind::async:
      return true;
    case PolicyKind::ssp:
      return ahead <= policy_.bound;
    case PolicyKind::delayed:
      return ahead <= 1;
    default:
      return ahead <= 0;
  }
}

Consistency::Reading Consistency::read(const std::string& name) {
  at(name);
  Trainer& trainer = trainers_.at(name);
  Reading reading{{trainer.step, version_, policy_.kind == PolicyKind::local ? policy_.bound : 0}};
  reading.previous =
      policy_.kind == PolicyKind::delayed && trainer.step == open_ && version_ > first_delayed_;
  if (reading.previous) --reading.stamp.version;
  trainer.reading = reading.stamp;
  trainer.missed = false;
  return reading;
}

void Consistency::check_push(const std::string& name, const VersionStamp& stamp, double weight) const {
  const Trainer& trainer = at(name);
  const auto refuse = [&](const std::string& why) {
    throw_invalid(fmt::format("[server] trainer \"{}\" pushes for step {}: {}", name, stamp.step, why));
  };
  // Their sum has an inverse, and the inverse a meaning.
  if (weight != 0 && !(weight >= kLeastWeight && weight <= kMostWeight))
    refuse(fmt::format("a weight of {}; expected 0, or {} to {}", weight, kLeastWeight, kMostWeight));
  if (!trainer.reading)
    refuse(stamp.step >= 0 && stamp.step < trainer.step
               ? "that step is closed for it; it is to pull first, for step " + std::to_string(trainer.step)
               : "it has not pulled for that step");
  if (stamp.step != trainer.reading->step)
    refuse(fmt::format("expected a gradient for step {}, which it has pulled for", trainer.reading->step));
  if (stamp.version < 0 || stamp.version > version_)
    refuse(fmt::format("computed on version {}; there are versions 0 to {}", stamp.version, version_));
}

Consistency::Verdict Consistency::push(const std::string& name, const VersionStamp& stamp, double weight) {
  check_push(name, stamp, weight);
  Trainer& trainer = trainers_.at(name);
  const bool other_kind = (trainer.reading->local_steps > 0) != (policy_.kind == PolicyKind::local);
  trainer.reading.reset();
  if (trainer.missed || other_kind) {
    ++staleness_.late;
    return {Taken::never, trainer.step};
  }
  trainer.weight = weight;
  const int64_t step = trainer.step++;
  if (policy_.holds()) {
    Held& held = held_[step];
    held.weight += weight;
    held.versions.push_back(stamp.version);
    held.weights.push_back(weight);
    return {Taken::later, step};
  }
  const double total = weights(weight);
  Verdict verdict{Taken::now, step, total > 0 ? 1 / total : 0, version_ - stamp.version};
  verdict.factor *= weight;
  staleness_.note(verdict.delay, weight);
  ++version_;
  find_open();
  return verdict;
}

double Consistency::weights(double of_newcomers) const {
  double total = 0;
  for (const auto& [name, trainer] : trainers_) total += trainer.weight.value_or(of_newcomers);
  return total;
}

// ---- steps that close

Consistency::Closing Consistency::closed(int64_t step, const Held& held, double factor) {
  Closing closing{step, held.weight > 0 ? factor : 0};
  for (size_t i = 0; i < held.versions.size(); ++i) {
    const int64_t delay = version_ - held.versions[i];
    staleness_.note(delay, held.weights[i]);
    closing.delay += static_cast<double>(delay) / static_cast<double>(held.versions.size());
  }
  if (closing.factor > 0) ++version_;
  return closing;
}

std::optional<Consistency::Closing> Consistency::close() {
  if (!policy_.holds() || joined_ < expected_) return std::nullopt;
  const auto held = held_.find(open_);
  const size_t pushes = held == held_.end() ? 0 : held->second.versions.size();
  const size_t wanted = std::min(static_cast<size_t>(std::max<int64_t>(policy_.bound, 1)), trainers_.size());
  const bool all = missing().empty() && (pushes > 0 || !trainers_.empty());
  if (!all && !(policy_.kind == PolicyKind::quorum && pushes > 0 && pushes >= wanted)) return std::nullopt;
  const Held sum = held == held_.end() ? Held{} : held->second;
  held_.erase(open_);
  const Closing closing = closed(open_, sum, 1 / sum.weight);
  ++open_;
  for (auto& [name, trainer] : trainers_)
    if (trainer.step < open_) {
      trainer.step = open_;
      trainer.missed = trainer.reading.has_value();
    }
  return closing;
}

std::vector<Consistency::Closing> Consistency::set_policy(const ServerPolicy& policy) {
  const ServerPolicy before = policy_, after = ServerPolicy::parse(policy.str());
  const bool other_kind = (before.kind == PolicyKind::local) != (after.kind == PolicyKind::local);
  std::vector<Closing> closings;
  if (!after.holds() || other_kind) {
    for (const auto& [step, held] : held_) {
      const double mean = held.weight / static_cast<double>(held.versions.size());
      const double total = after.holds() ? held.weight : std::max(weights(mean), held.weight);
      closings.push_back(closed(step, held, 1 / total));
    }
    held_.clear();
  }
  policy_ = after;
  if (after.kind == PolicyKind::delayed && before.kind != PolicyKind::delayed) first_delayed_ = version_;
  if (after.holds() && (!before.holds() || other_kind)) {
    for (const auto& [name, trainer] : trainers_) open_ = std::max(open_, trainer.step);
    for (auto& [name, trainer] : trainers_) trainer.step = open_;
  }
  find_open();
  return closings;
}

}  // namespace troupe::parallel
