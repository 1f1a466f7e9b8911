// A backward pass in two parts: first the gradients that somebody waits for, then the rest.
#pragma once
#include <memory>

#include "autograd/region.h"

namespace troupe::internal::autograd {

/// What a stage of a pipeline does: the gradients of its inputs go to the stage before at once, those of its
/// parameters can wait. No step's work is done twice: one that lies between (the product of a Linear) gives
/// the gradient of its input in the first part, and that of its weight in the second. In between, it keeps
/// what it saved and the gradient of its result.
///
/// Both parts give the bits of one pass. Holds the graph. Not synchronized; on one thread at a time.
class SplitPass {
 public:
  /// Of `roots`, with respect to `inputs`, leaves or results. `invalid` if one of them needs no gradient; no
  /// inputs: the first part does nothing.
  SplitPass(const Tensors& roots, const Tensors& inputs);
  ~SplitPass();
  /// The graph goes on in other actors, or has a step that waits and leaves nothing for later
  /// (WaitingRule::leaves_for_later()): then this cannot run, but Context::backward can.
  bool leaves_actor() const;
  /// A step waits: then the first part is first_part_meeting()'s.
  bool waits() const;
  /// The first part, with the gradients of the roots as backward() takes them. Gives those of the inputs;
  /// undefined where an input is not reached. Throws as autograd::grad; nothing may follow then.
  /// `invalid`, before anything has run, if leaves_actor() or waits().
  Tensors inputs(const Tensors& grads = {});
  /// What the first part is: the region, whose roots are expected, is to be supplied with the gradients.
  /// `invalid` if leaves_actor(), or the second time.
  struct FirstPart {
    Region region;
    std::vector<Edge> roots;
    Tensors grads;
  };
  FirstPart begin(const Tensors& grads);
  /// The second: what all other leaves get goes into `sink`. Throws as run(). The graph is let go of.
  void rest(Sink& sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::internal::autograd
