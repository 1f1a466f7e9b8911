#include "parallel/data/shared_buffers.h"

#include "core/graph/node.h"
#include "core/tensor/creation.h"

namespace troupe::parallel {

SharedBuffers::SharedBuffers(Tensors all) : all_(std::move(all)), numbers_(all_.size()) {
  for (const Tensor& t : all_) versions_.push_back(t.version());
}

Tensor SharedBuffers::numbers() {
  for (size_t i = 0; i < all_.size(); ++i)
    if (all_[i].version() != versions_[i]) ++numbers_[i], versions_[i] = all_[i].version();
  return tensor(numbers_, int64);
}

void SharedBuffers::take(const Tensors& of_first, const Tensor& numbers) {
  const NoGradGuard guard;
  const auto came = numbers.to_vector<int64_t>();
  for (size_t i = 0; i < all_.size(); ++i) {
    if (came.at(i) == numbers_[i] && all_[i].version() == versions_[i]) continue;
    all_[i].copy_(of_first.at(i));
    numbers_[i] = came[i], versions_[i] = all_[i].version();
  }
}

}  // namespace troupe::parallel
