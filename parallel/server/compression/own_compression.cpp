#include "parallel/server/compression/own_compression.h"

namespace troupe::parallel {
namespace {

auto& compressions_by_name() {
  static internal::parallel::NamedFunctions<BucketReduction> all("[compression]", {{"powersgd", power_sgd}});
  return all;
}

}  // namespace

void register_compression(const std::string& name,
                          internal::parallel::NamedFunctions<BucketReduction>::Make make) {
  for (const char* const own : {"none", "fp16", "bf16", "topk"})
    if (name == own)
      throw_invalid("[compression] there is a \"" + name + "\" already: give yours another name");
  compressions_by_name().add(name, std::move(make));
}

BucketReduction own_compression(const std::string& text) { return compressions_by_name().find(text); }

std::string own_compressions() { return compressions_by_name().names(); }

}  // namespace troupe::parallel
