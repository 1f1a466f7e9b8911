// Norms of gradients that a context has in several places: of the actors of several optimizers, of parameters
// here, of rows in servers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/distributed/context.h"
#include "core/async/future.h"
#include "optim/clip.h"
#include "optim/loss_scaler.h"

namespace troupe::optim {

/// The gradients that the current context has in some place: of the actors of an optimizer, which is one of
/// these wherever one is expected; of parameters here (gradients_of()); of values in servers
/// (parallel::gradients_of()).
struct ContextGradients {
  std::function<Future<std::vector<double>>(bool largest)> sizes;  ///< as gradient_sizes()
  /// `wide`: bfloat16 and float16 ones become float32, so that nothing is lost.
  std::function<Future<void>(double factor, bool wide)> scale;
  std::vector<std::string> whose = {};  ///< names of those that may not be there twice
  const void* optimizer = nullptr;      ///< or servers: as LossScaler knows it; null: of none
};
/// Of leaves of this worker: what a local optimizer steps with step.grad(leaf).
ContextGradients gradients_of(const Tensors& leaves);
/// Scales those of leaves of this worker; `wide` as above.
void scale_gradients(const Tensors& leaves, double factor, bool wide = false);

/// As clip_grad_norm_(), of all of them as if they were one vector, in the context that is active where it is
/// called; gives the norm before. Also for actors: co_await. In two rounds of messages, the second only if
/// there is something to scale. Of several trainers in one context each has gradients of its own. `invalid`,
/// before anything is sent, if an actor, a server or a leaf is there twice: it would count twice.
///
///   const Future<double> norm = clip_grad_norm({encoder, decoder, gradients_of(words)}, 1.0);
Future<double> clip_grad_norm(std::vector<ContextGradients> all, double max_norm,
                              const ClipOptions& options = {});
/// The same of a context that need not be active here; waits.
///
///   clip_grad_norm(step, {encoder, decoder, gradients_of(head.parameters())}, 1.0);
double clip_grad_norm(const autograd::Context& context, std::vector<ContextGradients> all, double max_norm,
                      const ClipOptions& options = {});

/// As LossScaler::unscale_, of all of them: divides them by the scaler's scale, and notes for all optimizers
/// and servers among them whether the gradients of all are finite, which it gives. The scaler, and the
/// optimizers, have to live until then. Two rounds of messages. Between the backward pass and the step of
/// each optimizer, or the push of each trainer at servers, which pushes with weight 0 if they are not:
///
///   const bool finite = optim::unscale_(step, scaler, {optimizer, gradients_of(words)});
///   optim::clip_grad_norm(step, {optimizer, gradients_of(words)}, 1.0);
///   optimizer.step(step, scaler);  // or leaves it out
///   (void)client.push_context(finite ? rows : 0);
///   scaler.update();
Future<bool> unscale_(LossScaler& scaler, std::vector<ContextGradients> all);
/// The same of a context that need not be active here; waits.
bool unscale_(const autograd::Context& context, LossScaler& scaler, std::vector<ContextGradients> all);

}  // namespace troupe::optim
