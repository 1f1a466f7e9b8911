// Calls of every kind, one after the other and side by side.
#include "tests/soak/script.h"

namespace troupe::soak {
namespace {

using namespace std::chrono_literals;

// A few calls at once, some of them with arguments that come later.
Task<void> side_by_side(Script& s, const std::vector<RRef<Unit>>& units) {
  struct Waiting {
    Future<Tensor> future;
    double times;
  };
  const Tensor x = s.tensor();
  std::vector<Waiting> waiting;
  const size_t count = 2 + s.pick(4);
  for (size_t i = 0; i < count; ++i) {
    const auto& unit = units[s.pick(units.size())];
    const auto times = double(s.cluster.numbers.at(unit.id()));
    if (!waiting.empty() && s.chance(2)) {
      const Waiting& before = waiting[s.pick(waiting.size())];
      waiting.push_back({tracked<&Unit::mix>(unit, before.future), times * before.times});
    } else {
      waiting.push_back({tracked<&Unit::mix>(unit, x), times});
    }
  }
  for (auto& w : waiting) {
    const auto r = co_await settled(w.future);
    if (r.ok())
      s.expect("one of several calls", r.value(), x, w.times);
    else
      s.judge("one of several calls", r.error());
  }
}

Task<void> nested(Script& s, const RRef<Unit>& by, const RRef<Unit>& to) {
  const Tensor x = s.tensor();
  const double times = double(s.cluster.numbers.at(by.id())) * double(s.cluster.numbers.at(to.id()));
  const auto r = co_await settled(tracked<&Unit::relay>(by, to, x));
  if (r.ok())
    s.expect("a nested call", r.value(), x, times);
  else
    s.judge("a nested call", r.error());
}

Task<void> slow(Script& s, const RRef<Unit>& unit) {
  const Tensor x = s.tensor();
  const auto takes = static_cast<int64_t>(s.random.below(60'000));
  const bool hurry = s.chance(2);
  const Duration most = hurry ? Duration(1'000'000 + static_cast<int64_t>(s.random.below(60'000'000))) : 60s;
  const auto r = co_await settled(tracked<&Unit::slow>(unit, most, takes, x));
  if (r.ok())
    s.expect("a slow method", r.value(), x, double(s.cluster.numbers.at(unit.id())));
  else
    s.judge("a slow method", r.error(), hurry ? kDeadline : kNone);
}

// A call that would never end is given up: by hand, with its future, by its deadline, with its scope.
Task<void> given_up(Script& s, const RRef<Unit>& unit, const RRef<Unit>& other) {
  const bool nested = s.chance(2);
  const Duration after(static_cast<int64_t>(s.random.below(20'000'000)));
  const auto call = [&](Duration timeout) {
    return nested ? tracked<&Unit::forever_at>(unit, timeout, other) : tracked<&Unit::forever>(unit, timeout);
  };
  const auto failed = [&](const Result<void>& r, unsigned excuses) {
    if (r.ok() && s.alive()) s.cluster.wrong("a call that never ends gave a result");
    if (!r.ok()) s.judge("a call that never ends", r.error(), excuses);
  };
  switch (s.pick(4)) {
    case 0: {
      const auto future = call(0s);
      co_await s.cluster.sleep(after);
      future.cancel();
      const auto r = co_await settled(future);
      failed(r, kCancelled);
      break;
    }
    case 1: {
      const auto future = call(0s);
      co_await s.cluster.sleep(after);
      break;
    }
    case 2: {
      const auto r = co_await settled(call(1ms + after));
      failed(r, kDeadline);
      break;
    }
    default: {
      CallScope scope;
      (void)call(0s);
      (void)tracked<&Unit::slow>(unit, int64_t{30'000}, s.tensor());
      co_await s.cluster.sleep(after);
    }
  }
}

Task<void> throwing(Script& s, const RRef<Unit>& unit) {
  const auto r = co_await settled(tracked<&Unit::throws>(unit));
  if (r.ok() && s.alive()) s.cluster.wrong("a method that throws gave a result");
  if (!r.ok()) s.judge("a method that throws", r.error(), kThrows);
}

Task<void> stillborn(Script& s) {
  const auto unit = s.unit(s.any_worker(), -1);
  const auto r = co_await settled(tracked<&Unit::mix>(unit, s.tensor()));
  if (r.ok() && s.alive()) s.cluster.wrong("an actor whose constructor throws gave a result");
  if (!r.ok()) s.judge("an actor whose constructor throws", r.error(), kThrows);
}

void fire_and_forget(Script& s, const RRef<Unit>& unit) {
  const int64_t token = s.cluster.issued("note", TimePoint::max());
  s.cluster.answered(token, false);  // nobody will say more of it
  try {
    const auto sent = AnyRef(unit).call("note", {Value(token)}, {.one_way = true});
    if (const auto* r = sent.peek(); r && !r->ok()) s.judge("a call without a reply", r->error());
  } catch (const Error& e) {  // the reference can no longer be used
    s.judge("a call without a reply", e);
  }
}

}  // namespace

Task<void> call_program(Script& s) {
  std::vector<RRef<Unit>> units;
  for (size_t i = 0, n = 2 + s.pick(2); i < n; ++i)
    units.push_back(s.unit(s.any_worker(), static_cast<int64_t>(2 + i)));
  for (size_t i = 0, n = 2 + s.pick(5); i < n && s.alive(); ++i) {
    const auto unit = units[s.pick(units.size())];
    switch (s.pick(10)) {
      case 0:
      case 1:
        co_await side_by_side(s, units);
        break;
      case 2:
      case 3:
        co_await nested(s, unit, units[s.pick(units.size())]);
        break;
      case 4:
        co_await slow(s, unit);
        break;
      case 5:
        co_await throwing(s, unit);
        break;
      case 6:
        co_await stillborn(s);
        break;
      case 7:
      case 8:
        co_await given_up(s, unit, units[s.pick(units.size())]);
        break;
      default:
        fire_and_forget(s, unit);
    }
  }
}

}  // namespace troupe::soak
