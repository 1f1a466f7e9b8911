// The gradients that a context has in servers, for norms over them and others.
#pragma once
#include "autograd/distributed/optim/context_gradients.h"
#include "parallel/server/served_table.h"

namespace troupe::parallel {

/// Of what was pulled in the current context, between the backward pass and push_context(). An optimizer's
/// clip_grad_norm() counts its own actors only; this counts both:
///
///   optim::clip_grad_norm(step, {optimizer, gradients_of(words)}, 1.0);
///
/// Several pulls of one trainer are added up first, as its push does. `invalid` where pulls or pushes are
/// compressed, since gradients then stay with the trainers: optim::clip_norm_ them there, and push() them.
optim::ContextGradients gradients_of(const Served& served);
optim::ContextGradients gradients_of(const ServedTable& table);

}  // namespace troupe::parallel
