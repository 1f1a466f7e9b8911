// References that are handed from worker to worker, kept, given back and dropped. An actor keeps only units
// that are older than itself: circles are not collected, by design.
#include "tests/soak/script.h"

namespace troupe::soak {
namespace {

using Ref = RRef<Unit>;

// Uses a reference, wherever it came from.
Task<void> use(Script& s, Ref unit) {
  const Tensor x = s.tensor();
  const auto r = co_await settled(tracked<&Unit::mix>(unit, x));
  if (r.ok())
    s.expect("a call of a reference", r.value(), x, double(s.cluster.numbers.at(unit.id())));
  else
    s.judge("a call of a reference", r.error());
}

Task<void> use_kept(Script& s, Ref keeper) {
  const Tensor x = s.tensor();
  const auto r = co_await settled(tracked<&Unit::use_kept>(keeper, x));
  if (r.ok())
    s.expect("a call of a kept reference", r.value().second, x,
             double(r.value().first) * double(s.cluster.numbers.at(keeper.id())));
  else
    s.judge("a call of a kept reference", r.error());
}

std::map<std::string, std::vector<Ref>> thrice(const Ref& a, const Ref& b) {
  return {{"a", {a, a}}, {"none", {}}, {"b", {b}}};
}

template <class T>
Task<void> done(Script& s, const char* what, Future<T> future) {
  const auto r = co_await settled(std::move(future));
  if (!r.ok()) s.judge(what, r.error());
}

// Waits for it, lets it go on, or gives it up.
Task<void> maybe_done(Script& s, const char* what, Future<void> future) {
  const size_t how = s.pick(6);
  if (how < 4) co_await done(s, what, future);
  if (how == 4) let_run(future);
}

}  // namespace

Task<void> reference_program(Script& s) {
  std::vector<Ref> units;  // oldest first
  for (size_t i = 0, n = 2 + s.pick(3); i < n; ++i)
    units.push_back(s.unit(s.any_worker(), static_cast<int64_t>(2 + i)));
  for (size_t i = 0, n = 3 + s.pick(6); i < n && s.alive(); ++i) {
    const size_t young = 1 + s.pick(units.size() - 1), old = s.pick(young);
    const Ref keeper = units[young], kept = units[old];
    switch (s.pick(8)) {
      case 0: {
        auto sent = tracked<&Unit::keep>(keeper, kept);
        co_await maybe_done(s, "keeping a reference", sent);
        break;
      }
      case 1: {
        auto sent = tracked<&Unit::keep_many>(keeper, thrice(kept, units[0]));
        co_await maybe_done(s, "keeping references", sent);
        break;
      }
      case 2: {
        const auto r = co_await settled(tracked<&Unit::give>(keeper));
        if (!r.ok()) {
          s.judge("getting references", r.error());
          break;
        }
        std::vector<Ref> got = r.value();
        if (!got.empty()) co_await use(s, got[s.pick(got.size())]);
        break;
      }
      case 3:
        co_await use_kept(s, keeper);
        break;
      case 4: {
        auto sent = tracked<&Unit::hand>(kept, keeper);  // what the older one keeps is older still
        co_await maybe_done(s, "handing references on", sent);
        break;
      }
      case 5: {
        const auto r = co_await settled(tracked<&Unit::make>(keeper, int64_t(s.any_worker())));
        if (r.ok())
          co_await use(s, r.value());
        else
          s.judge("an actor made by another", r.error());
        break;
      }
      case 6:
        co_await done(s, "forgetting references", tracked<&Unit::forget>(keeper));
        break;
      default:  // the last handle goes while others may be on their way
        if (units.size() > 2) units.erase(units.begin() + static_cast<ptrdiff_t>(s.pick(units.size())));
    }
  }
}

}  // namespace troupe::soak
