#include "parallel/server/gradients_came.h"

#include <fmt/format.h>

#include "actors/worker/worker.h"
#include "autograd/distributed/dist_engine.h"
#include "autograd/hooks.h"
#include "core/base/call_frame.h"
#include "parallel/server/server_base.h"

namespace troupe::parallel {

void GradientsCame::note_pull(const Tensors& values) {
  if (context_ != frame().context || pushed_) came_.reset();
  context_ = frame().context, pushed_ = false;
  if (!came_) came_ = std::make_shared<std::atomic<bool>>(false);
  for (const Tensor& t : values)
    if (t.requires_grad())
      autograd::register_hook(t, [came = came_](const Tensor&) {
        *came = true;
        return Tensor();
      }).keep();
}

void GradientsCame::check(const std::string& what, const std::string& trainer) const {
  if (!came_ || context_ != frame().context) refuse_not_pulled(what, trainer);
  if (auto* engine = frame().worker ? frame().worker->extension<autograd::DistEngine>() : nullptr)
    if (const auto state = engine->contexts().find(context_); state && !state->running().empty())
      throw_invalid(fmt::format(
          "{} push_context() of trainer \"{}\" while a backward pass of the context is under way; "
          "expected one that has ended: wait for it first",
          what, trainer));
  if (!*came_)
    throw_invalid(fmt::format(
        "{} push_context() of trainer \"{}\", and no gradient has come for what it pulled in this "
        "context; expected a backward pass, and that it has ended, or weight 0, which ends the "
        "trainer's step without a gradient",
        what, trainer));
}

}  // namespace troupe::parallel
