#include "parallel/tensor/own_dropout.h"

#include "core/base/generator.h"
#include "parallel/tensor/linear.h"

namespace troupe::tp {

nn::Dropout own_dropout(double p, nn::Module& whole, const std::string& generator, const Group& group) {
  const Tensor state = whole.rng_state().at(generator);
  const auto seed = static_cast<uint64_t>(state.to_vector<int64_t>().at(0));
  nn::Dropout own(p, splitmix64(seed + rank_in(group)));
  if (group.size() <= 1) own.load_rng_state({{"generator", state}});
  return own;
}

}  // namespace troupe::tp
