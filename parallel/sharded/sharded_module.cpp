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

std::vector<MemberPart*> ShardedModule::member_parts() {
  std::vector<MemberPart*> all;
  for (LayerPart& own : parts_) all.push_back(&own.part);
  return all;
}

Task<Tensor> ShardedModule::forward(Tensor x) {
  for (LayerPart& own : parts_) {
    std::function<Tensor()> run = [layer = own.layer, x] { return (*layer)(x); };
    x = co_await own.part.use(std::move(run));
  }
  co_return x;
}

}  // namespace troupe::parallel
