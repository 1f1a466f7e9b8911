// Norms of gradients that a context has in several places: of the actors of several optimizers, of parameters
// here, of rows in servers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/distributed/context.h"
#include "core/async/future.h"
#include "optim/clip.h"

namespace troupe::optim {

/// The gradients that the current context has in some place: of the actors of an optimizer, which is one of
/// these wherever one is expected; of parameters here (gradients_of()); of values in servers
/// (parallel::gradients_of()).
struct ContextGradients {
  std::function<Future<std::vector<double>>(bool largest)> sizes;  ///< as gradient_sizes()
  std::function<Future<void>(double factor)> scale;
  std::vector<std::string> whose = {};  ///< names of those that may not be there twice
};
/// Of leaves of this worker: what a local optimizer steps with step.grad(leaf).
ContextGradients gradients_of(const Tensors& leaves);
/// Scales those of leaves of this worker.
void scale_gradients(const Tensors& leaves, double factor);

/// As clip_grad_norm_(), of all of them as if they were one vector, in the context that is active where it is
/// called; gives the norm before. Also for actors: co_await. In two rounds of messages, the second only if
/// there is something to scale. Of several trainers in one context each has gradients of its own. `invalid`,
/// before anything is sent, if an actor or a leaf is there twice: it would count twice.
///
///   const Future<double> norm = clip_grad_norm({encoder, decoder, gradients_of(words)}, 1.0);
Future<double> clip_grad_norm(std::vector<ContextGradients> all, double max_norm,
                              const ClipOptions& options = {});
/// The same of a context that need not be active here; waits.
///
///   clip_grad_norm(step, {encoder, decoder, gradients_of(head.parameters())}, 1.0);
double clip_grad_norm(const autograd::Context& context, std::vector<ContextGradients> all, double max_norm,
                      const ClipOptions& options = {});

}  // namespace troupe::optim
