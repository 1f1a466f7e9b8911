// The module of an actor: a ModuleActor's own, or what the constructor of another one made.
#pragma once
#include <optional>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/optim/any_module_actor.h"
#include "nn/made_parts.h"

namespace troupe::nn {

/// For one use, in the actor's mailbox.
class HeldModule {
 public:
  explicit HeldModule(Actor& actor) {
    if (auto* held = dynamic_cast<internal::AnyModuleActor*>(&actor))
      module_ = &held->any_module();
    else if (actor.made_parts())
      made_.emplace(*actor.made_parts());
    if (made_ && made_->empty()) made_.reset();
    if (made_) module_ = &*made_;
  }
  /// `invalid` if there is none.
  HeldModule(Actor& actor, const internal::actors::Invocation& call) : HeldModule(actor) {
    if (!module_)
      throw_invalid("[nn] actor " + call.cell()->label() +
                    " has no module, nor a tensor that needs gradients");
  }
  explicit operator bool() const { return module_; }
  Module* get() const { return module_; }
  Module* operator->() const { return module_; }

 private:
  std::optional<MadeModule> made_;
  Module* module_ = nullptr;
};

}  // namespace troupe::nn
