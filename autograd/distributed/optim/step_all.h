// A step of several optimizers that all of them make, or none.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/distributed/context.h"
#include "autograd/distributed/optim/step_report.h"
#include "autograd/distributed/optim/step_watch.h"
#include "core/async/future.h"
#include "optim/loss_scaler.h"
#include "rref/any_ref.h"

namespace troupe::optim {

/// One part of a step that several make together: an optimizer of actors, which is one of these wherever one
/// is expected; a trainer's push to servers (Client::part() of parallel).
struct StepPart {
  /// Whether it could step now, with the gradients of the active context; an error if not. With `sizes` the
  /// largest element of each gradient.
  std::function<Future<std::vector<double>>(bool sizes)> ready;
  /// Steps with the gradients times `factor`; failures are in the report.
  std::function<Future<StepReport>(double factor)> make;
  std::function<Future<void>()> leave_out = {};  ///< of a step that nobody makes; null: it does nothing
  std::vector<AnyRef> actors = {};
  const void* optimizer = nullptr;  ///< or servers: as LossScaler knows it; null: of none
  const void* client = nullptr;     ///< of a push: who pushes; null: it is no push
  std::shared_ptr<StepWatch> watch = {};
};

/// One step of several optimizers, whole: all are asked first whether they can, and if one cannot, or its
/// worker is lost, nobody steps and this throws. Then all step. A worker that is lost from then on takes its
/// actors with it; all that live have stepped, and the error says so. In job.attempt() it is one step, which
/// is made again or stands as a whole.
///
///   optim::step_all(step, {generator, critic, words.part()});
///
/// `invalid` if an optimizer, or a push of one client, is there twice. Waits; two rounds of messages.
void step_all(const autograd::Context& context, std::vector<StepPart> all);
/// Takes the gradients of a loss that scaler.scale() has multiplied: nobody steps unless those of all are
/// finite. True if they do. `invalid` if some have been unscaled before, and not all: those of a push by
/// unscale_(step, scaler, {optimizer, gradients_of(served)}).
bool step_all(const autograd::Context& context, std::vector<StepPart> all, LossScaler& scaler);
/// For actors, in the context that is active where it is called: co_await step_all({encoder, decoder}).
Future<void> step_all(std::vector<StepPart> all);

}  // namespace troupe::optim
