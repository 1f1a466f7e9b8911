#include "parallel/sharded/sharded_module.h"

#include "nn/make.h"
#include "nn/sequential.h"

namespace troupe::parallel {

ShardedModule::ShardedModule(const Value& spec) : net_(nn::make(spec)) {
  if (auto* layers = dynamic_cast<nn::Sequential*>(net_.get()))
    for (size_t i = 0; i < layers->size(); ++i) parts_.emplace_back(std::to_string(i), &(*layers)[i]);
  else
    parts_.emplace_back("", net_.get());
}

Task<Tensor> ShardedModule::forward(Tensor x) {
  for (PartBeside& part : parts_) {
    std::function<Tensor()> run = [layer = part.layer, x] { return (*layer)(x); };
    x = co_await part.use(std::move(run));
  }
  co_return x;
}

}  // namespace troupe::parallel
