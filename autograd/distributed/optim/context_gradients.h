// Norms of gradients that a context has in several kinds of places: of actors' parameters, of rows in
// servers.
#pragma once
#include <functional>
#include <vector>

#include "core/async/future.h"
#include "optim/clip.h"

namespace troupe::optim {

/// The gradients that the current context has in some place. What an optimizer's actors have is one such
/// place (DistributedOptimizer::gradients()), values in servers are another (parallel::gradients_of()).
struct ContextGradients {
  std::function<Future<std::vector<double>>(bool largest)> sizes;  ///< as gradient_sizes()
  std::function<Future<void>(double factor)> scale;
};

/// As clip_grad_norm_(), of all of them as if they were one vector, in the context that is active where it is
/// called; gives the norm before. Also for actors: co_await. In two rounds of messages, the second only if
/// there is something to scale. Of several trainers in one context each has gradients of its own.
///
///   clip_grad_norm({optimizer.gradients(), gradients_of(words)}, 1.0).get();
Future<double> clip_grad_norm(std::vector<ContextGradients> all, double max_norm,
                              const ClipOptions& options = {});

}  // namespace troupe::optim
