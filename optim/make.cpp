// Optimizers by name.
#include <fmt/format.h>

#include "optim/optim.h"

namespace troupe::optim {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const ValueMap& options, Tensors params);
};

template <class O>
constexpr Entry entry() {
  return {O::kName, [](const ValueMap& options, Tensors params) -> std::unique_ptr<Optimizer> {
            return std::make_unique<O>(std::move(params), O::Options::from(options));
          }};
}

constexpr Entry kOptimizers[] = {entry<SGD>(),     entry<Adam>(),     entry<AdamW>(),
                                 entry<Adamax>(),  entry<RMSprop>(),  entry<Rprop>(),
                                 entry<Adagrad>(), entry<Adadelta>(), entry<LAMB>()};

}  // namespace

std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, Tensors params) {
  std::vector<std::string> known;
  for (const Entry& e : kOptimizers) {
    if (name == e.name) return e.make(options, std::move(params));
    known.push_back(e.name);
  }
  const std::string near = nearest(name, known);
  throw_invalid(fmt::format(
      "[optim] unknown optimizer \"{}\"; {}", name,
      near.empty() ? fmt::format("known: {}", fmt::join(known, ", ")) : "did you mean \"" + near + "\"?"));
}

}  // namespace troupe::optim
