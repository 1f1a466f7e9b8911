#include "autograd/distributed/optim/step_all.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/async/future_combinators.h"
#include "core/base/call_frame.h"

namespace troupe::optim {
namespace {

using Parts = std::vector<StepPart>;

void check(const Parts& all) {
  if (all.empty()) throw_invalid("[step_all] takes at least one optimizer");
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const StepPart &a = all[j], &b = all[i];
      if (b.client && a.client == b.client)
        throw_invalid(
            fmt::format("[step_all] {} and {} are pushes of the same client, which would push twice", j, i));
      if (!b.client && b.optimizer && a.optimizer == b.optimizer)
        throw_invalid(
            fmt::format("[step_all] {} and {} are the same optimizer, which would step twice", j, i));
    }
}

// When all have ended, so that nobody is on the way when the error is heard.
template <class T>
Future<std::vector<Result<T>>> settled(const std::vector<Future<T>>& futures) {
  Promise<std::vector<Result<T>>> promise;
  all(futures).on_ready([promise, futures](const auto&) {
    std::vector<Result<T>> results;
    for (const auto& f : futures) results.push_back(*f.peek());
    promise.set(std::move(results));
  });
  return promise.future();
}

// An error that asking throws is an answer, too.
template <class T, class F>
Future<T> asked(const F& ask) {
  try {
    return ask();
  } catch (...) {
    return Future<T>::failed(current_error());
  }
}

// A loss tells more than what failed for it.
const Error* worst(const std::vector<const Error*>& errors) {
  const auto lost =
      std::ranges::find_if(errors, [](const Error* e) { return e->kind() == ErrorKind::disconnected; });
  return errors.empty() ? nullptr : lost != errors.end() ? *lost : errors.front();
}

// The answers, part by part.
Future<std::vector<std::vector<double>>> ready(const Parts& all, bool sizes) {
  std::vector<Future<std::vector<double>>> answers;
  for (const StepPart& part : all)
    answers.push_back(asked<std::vector<double>>([&] { return part.ready(sizes); }));
  return settled(answers).then([](const std::vector<Result<std::vector<double>>>& results) {
    std::vector<const Error*> errors;
    std::vector<std::vector<double>> values;
    for (const auto& r : results)
      if (r.ok())
        values.push_back(r.value());
      else
        errors.push_back(&r.error());
    if (const Error* e = worst(errors))
      throw Error(e->kind(), "[step_all] nobody has stepped, since one cannot: " + e->message(), e->trail(),
                  e->worker());
    return values;
  });
}

// Two steps of one actor are made one after the other: each may wait for others of its model.
bool share_actors(const Parts& all) {
  std::vector<AnyRef> seen;
  for (const StepPart& part : all)
    for (const AnyRef& a : part.actors) {
      if (std::ranges::find(seen, a) != seen.end()) return true;
      seen.push_back(a);
    }
  return false;
}

Future<StepReport> make(const Parts& all, const std::vector<double>& factors);

Future<StepReport> make_in_turn(const Parts& all, const std::vector<double>& factors) {
  const Parts first(all.begin(), all.begin() + 1), rest(all.begin() + 1, all.end());
  const std::vector<double> of_rest(factors.begin() + 1, factors.end());
  return make(first, {factors[0]}).then([rest, of_rest, in = frame()](const StepReport& before) {
    if (rest.empty()) return Future<StepReport>::ready(before);
    const CallFrameScope scope(in);
    return make_in_turn(rest, of_rest).then([before](StepReport report) {
      report.owners.insert(report.owners.begin(), before.owners.begin(), before.owners.end());
      return report;
    });
  });
}

Future<StepReport> make(const Parts& all, const std::vector<double>& factors) {
  if (share_actors(all)) return make_in_turn(all, factors);
  std::vector<Future<StepReport>> answers;
  for (size_t i = 0; i < all.size(); ++i)
    answers.push_back(asked<StepReport>([&] { return all[i].make(factors[i]); }));
  return settled(answers).then([](const std::vector<Result<StepReport>>& results) {
    StepReport whole;
    for (const auto& r : results) {
      if (!r.ok()) {
        whole.owners.push_back({.actor = "a part", .worker = r.error().worker(), .error = r.error()});
        continue;
      }
      const auto& owners = r.value().owners;
      whole.owners.insert(whole.owners.end(), owners.begin(), owners.end());
    }
    return whole;
  });
}

Future<void> leave_out(const Parts& all) {
  std::vector<Future<void>> answers;
  for (const StepPart& part : all)
    if (part.leave_out) answers.push_back(asked<void>(part.leave_out));
  return troupe::all(answers).then([](const std::vector<Unit>&) {});
}

void throw_failed(const StepReport& report) {
  if (auto error = report.error("the step, which stands on all others,")) throw *error;
}

std::shared_ptr<StepWatch> watch_of(const Parts& all) {
  std::shared_ptr<StepWatch> watch;
  for (const StepPart& part : all)
    if (part.watch) watch = part.watch;
  return watch;
}

// In the active context, on a thread that may wait.
void make_watched(const Parts& all, const std::vector<double>& factors) {
  const auto watch = watch_of(all);
  if (watch) {
    std::vector<AnyRef> actors;
    for (const StepPart& part : all) actors.insert(actors.end(), part.actors.begin(), part.actors.end());
    watch->before_step(actors);
  }
  StepReport report = make(all, factors).get();
  if (watch) watch->after_step(report);
  throw_failed(report);
}

}  // namespace

void step_all(const autograd::Context& context, Parts all) {
  check_may_block("step_all");
  check(all);
  autograd::Context::Guard guard(context);
  (void)ready(all, false).get();
  make_watched(all, std::vector<double>(all.size(), 1));
}

bool step_all(const autograd::Context& context, Parts all, LossScaler& scaler) {
  check_may_block("step_all");
  check(all);
  size_t known = 0;
  bool finite = true;
  for (const StepPart& part : all) {
    const auto noted = part.optimizer ? scaler.unscaled(part.optimizer) : std::nullopt;
    if (!noted) continue;
    ++known;
    finite &= *noted;
  }
  if (known > 0 && known < all.size())
    throw_invalid(fmt::format(
        "[step_all] the gradients of {} of {} optimizers and pushes are unscaled already: unscale "
        "those of all, or of none; those of a push by unscale_(step, scaler, {{optimizer, "
        "gradients_of(served)}})",
        known, all.size()));
  autograd::Context::Guard guard(context);
  const auto sizes = ready(all, known == 0 || !finite).get();  // a step that is left out may have any
  if (known == 0) {
    for (const auto& of_part : sizes)
      finite &= std::ranges::all_of(of_part, [](double size) { return std::isfinite(size); });
    bool noted = false;
    for (const StepPart& part : all)
      if (part.optimizer && !part.client) scaler.note_unscaled(part.optimizer, finite), noted = true;
    if (!noted) scaler.note_unscaled(nullptr, finite);
  }
  if (!finite) {
    leave_out(all).get();
    return false;
  }
  make_watched(all, std::vector<double>(all.size(), known == 0 ? 1 / scaler.scale() : 1));
  return true;
}

Future<void> step_all(Parts all) {
  check(all);
  if (!frame().context)
    throw_invalid(
        "[step_all] no context is active here, which would have the gradients: call it between the backward "
        "pass and the end of autograd::Context step(cluster)");
  if (watch_of(all))
    throw_invalid("[step_all] in job.attempt() the driver steps: optim::step_all(step, {...})");
  return ready(all, false).then([all, in = frame()](const std::vector<std::vector<double>>&) {
    const CallFrameScope scope(in);
    return make(all, std::vector<double>(all.size(), 1)).then(throw_failed);
  });
}

}  // namespace troupe::optim
