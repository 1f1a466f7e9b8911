// Parts that are made of some members of a module, or of an actor.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "parallel/sharded/sharded.h"

namespace troupe::parallel {

/// A part whose parameters are those of some modules, beside whatever else what has it is made of.
class MemberPart final : public ShardedPart {
 public:
  using Modules = std::vector<std::pair<std::string, nn::Module*>>;
  MemberPart(std::string n, Modules m) : name(std::move(n)), modules(std::move(m)) {}
  using ShardedPart::refuse_cut;
  using ShardedPart::sum_of;
  using ShardedPart::use;
  const std::string name;  ///< in what has it; empty: the part is that
  const Modules modules;   ///< by their names there
};

/// What has such parts: a module, or an actor.
class HasMemberParts {
 public:
  virtual std::vector<MemberPart*> member_parts() = 0;

 protected:
  ~HasMemberParts() = default;
};

}  // namespace troupe::parallel
