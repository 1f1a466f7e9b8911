// The modules and parameters that an object made in its constructor, without a list of them.
#pragma once
#include <vector>

#include "core/graph/construction_scope.h"
#include "nn/module.h"

namespace troupe::nn {

/// Those that are alive and part of no other one of them, in the order of their construction.
std::vector<Module*> modules_of(const MadeParts& parts);

/// All of that as one module: children "0", "1", ... and the tensors that are nobody's, "tensor0", ... For
/// one use, while the parts are alive.
class MadeModule final : public Module {
 public:
  explicit MadeModule(MadeParts& parts);
  void members(Members& m) override;
  std::string str() const override { return "the parts of an actor"; }
  bool empty() const { return modules_.empty() && tensors_.empty(); }

 private:
  std::vector<Module*> modules_;
  Tensors tensors_;
};

}  // namespace troupe::nn
