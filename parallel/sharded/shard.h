// How much of a model's training state each replica keeps (ZeRO).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace troupe::parallel {

/// What is divided over the replicas of a model, so that each keeps its piece alone.
enum class Shard : uint8_t {
  none,       ///< nothing: each has all
  state,      ///< the optimizer's state (ZeRO stage 1)
  gradients,  ///< and the gradients (stage 2)
  all,        ///< and the parameters, of parts that are parallel::Sharded<...> (stage 3)
};
/// "Shard::state".
constexpr const char* word(Shard shard) {
  constexpr const char* words[] = {"Shard::none", "Shard::state", "Shard::gradients", "Shard::all"};
  return words[static_cast<size_t>(shard)];
}
/// How often something is done to a part of a model.
enum class Per : uint8_t {
  use,   ///< in each call, and in each pass over it
  step,  ///< once
};
/// "state" as Shard::state. `invalid` for what is none of the four.
inline Shard shard_named(std::string_view text) {
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all})
    if (std::string_view(word(shard)).substr(7) == text) return shard;
  throw_invalid("[shard] \"" + std::string(text) + "\": expected none, state, gradients or all");
}

/// "step" as Per::step. `invalid` for what is neither.
inline Per per_named(std::string_view text) {
  if (text == "use") return Per::use;
  if (text == "step") return Per::step;
  throw_invalid("[shard] gather or reduce is \"" + std::string(text) + "\"; expected use or step");
}

}  // namespace troupe::parallel
