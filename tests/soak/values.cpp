// Results that stay where they were computed, and names: asked for before they are there, handed on, dropped.
#include "tests/soak/script.h"

namespace troupe::soak {
namespace {

using namespace std::chrono_literals;
using Ref = RRef<Unit>;

// A reference to `times` kOne, or to an error.
struct Computed {
  Remote<Tensor> value;
  double times;
};

Computed compute(Script& s, const Ref& unit) {
  const auto times = double(s.cluster.numbers.at(unit.id()));
  if (s.chance(3)) return {left_there<&Unit::mix>(unit, kOne), times};
  return {left_there<&Unit::slow>(unit, static_cast<int64_t>(s.random.below(20'000)), kOne), times};
}

void expect(Script& s, const char* what, const Result<std::pair<double, Tensor>>& r) {
  if (r.ok())
    s.expect(what, r.value().second, kOne, r.value().first);
  else
    s.judge(what, r.error());
}

// Fetched twice at once: it was computed once.
Task<void> fetch_here(Script& s, Computed c) {
  const auto first = c.value.to_here(), second = c.value.to_here();
  c.value = {};  // who waits for it gets it
  for (const auto& future : {first, second}) {
    const auto r = co_await settled(future);
    if (r.ok())
      s.expect("a value", r.value(), kOne, c.times);
    else
      s.judge("a value", r.error());
  }
}

Task<void> fetch_there(Script& s, Computed c, const Ref& unit) {
  const auto r = co_await settled(tracked<&Unit::fetch>(unit, c.value, c.times));
  expect(s, "a value fetched by another", r);
}

Task<void> keep(Script& s, Computed c, const Ref& keeper, const Ref& other) {
  const auto kept = co_await settled(tracked<&Unit::keep_value>(keeper, c.value, c.times));
  if (!kept.ok()) s.judge("keeping a value", kept.error());
  c.value = {};
  if (s.chance(2)) {
    const auto handed = co_await settled(tracked<&Unit::hand_value>(keeper, other));
    if (!handed.ok()) s.judge("handing a value on", handed.error());
  }
  const auto r = co_await settled(tracked<&Unit::fetch_kept>(s.chance(2) ? keeper : other));
  expect(s, "a kept value", r);
}

Task<void> broken(Script& s, const Ref& unit) {
  const auto value = left_there<&Unit::throws>(unit);
  const auto r = co_await settled(value.to_here());
  if (r.ok() && s.alive()) s.cluster.wrong("the value of a method that throws is there");
  if (!r.ok()) s.judge("the value of a method that throws", r.error(), kThrows);
}

// Given up while it is computed, or waited for.
Task<void> given_up(Script& s, Computed c) {
  const auto future = c.value.to_here();
  co_await s.cluster.sleep(Duration(static_cast<int64_t>(s.random.below(20'000'000))));
  future.cancel();
  const auto r = co_await settled(future);
  if (!r.ok()) s.judge("a value that is given up", r.error(), kCancelled);
}

// The future must fail with `invalid` because of what a name stands for.
template <class T>
Task<void> refused(Script& s, const char* what, Future<T> future) {
  const auto r = co_await settled(future);
  if (r.ok() && s.alive()) s.cluster.wrong(std::string(what) + " was not refused");
  if (!r.ok()) s.judge(what, r.error(), kRefused);
}

// A name that nobody else uses is what it was given to, from then on until it is dropped.
Task<void> name(Script& s, const Ref& unit, const Ref& seeker, const Ref& other) {
  const Here here(s.process.references);
  const std::string bare = "n" + std::to_string(s.random.below(1'000'000'000)),
                    full = unit.owner_name() + "/" + bare;
  const auto lookup = [&] { return s.attempt([&] { return here.lookup<Unit>(full); }); };
  const Tensor x = s.tensor();
  const double times = double(s.cluster.numbers.at(unit.id())) * double(s.cluster.numbers.at(seeker.id()));
  s.cluster.names.insert(full);
  Future<Tensor> early;
  const bool waits = s.chance(2);
  if (waits) early = tracked<&Unit::find>(seeker, full, true, x);
  const auto given = co_await settled(here.set_name(unit, bare));
  if (!given.ok()) s.judge("giving a name", given.error());
  if (given.ok()) {
    const auto found = co_await settled(lookup());
    if (!found.ok()) s.judge("a lookup", found.error());
    if (found.ok() && !(found.value() == unit) && s.alive())
      s.cluster.wrong("a name stands for another unit");
    if (other.owner() == unit.owner() && !(other == unit))
      co_await refused(s, "a name that is taken", here.set_name(other, bare));
  }
  if (waits) {
    const auto r = co_await settled(early);
    if (r.ok())
      s.expect("who waited for a name", r.value(), x, times);
    else
      s.judge("who waited for a name", r.error(), given.ok() ? kNone : kDeadline);
  }
  if (s.chance(5) || !s.alive()) co_return;  // it stays
  const auto dropped = co_await settled(s.attempt([&] { return here.drop_name(full); }));
  if (!dropped.ok()) s.judge("dropping a name", dropped.error(), given.ok() ? kNone : kRefused);
  if (!dropped.ok() || !given.ok() || !s.alive()) co_return;
  s.cluster.names.erase(full);
  co_await refused(s, "a name that was dropped", lookup());
}

}  // namespace

Task<void> value_program(Script& s) {
  std::vector<Ref> units;
  for (size_t i = 0, n = 2 + s.pick(3); i < n; ++i)
    units.push_back(s.unit(s.any_worker(), static_cast<int64_t>(2 + i)));
  const auto any = [&] { return units[s.pick(units.size())]; };
  for (size_t i = 0, n = 3 + s.pick(5); i < n && s.alive(); ++i) {
    const Ref unit = any(), second = any(), third = any();
    switch (s.pick(8)) {
      case 0:
        co_await fetch_here(s, compute(s, unit));
        break;
      case 1:
        co_await fetch_there(s, compute(s, unit), second);
        break;
      case 2:
      case 3:
        co_await keep(s, compute(s, unit), second, third);
        break;
      case 4:
        co_await broken(s, unit);
        break;
      case 5:
        co_await given_up(s, compute(s, unit));
        break;
      case 6:
        (void)compute(s, unit);  // nobody asks for it
        break;
      default:
        co_await name(s, unit, second, third);
    }
  }
}

Task<void> drop_own_names(Script& s) {
  const Here here(s.process.references);
  const auto names = co_await settled(here.names(s.process.id));
  if (!names.ok()) co_return s.judge("the names of a worker", names.error());
  for (const auto& [bare, type] : names.value()) {
    const std::string full = s.process.name + "/" + bare;
    if (!s.cluster.names.contains(full)) s.cluster.wrong("the name " + full + " is there still");
    const auto dropped = co_await settled(here.drop_name(full));
    if (!dropped.ok()) s.judge("dropping a name that is left", dropped.error());
  }
}

}  // namespace troupe::soak
