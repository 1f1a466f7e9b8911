// Optimizers by name.
#include <fmt/format.h>

#include <type_traits>

#include "optim/optim.h"

namespace troupe::optim {
namespace {

// What `f` gives for the optimizer type of that name.
template <class F>
std::unique_ptr<Optimizer> of_name(const std::string& name, F&& f) {
  std::unique_ptr<Optimizer> made;
  std::vector<std::string> known;
  const auto try_one = [&]<class O>(std::type_identity<O> type) {
    known.push_back(O::kName);
    if (!made && name == O::kName) made = f(type);
  };
  const auto try_all = [&]<class... O>(std::type_identity<O>... types) { (try_one(types), ...); };
  try_all(std::type_identity<SGD>(), std::type_identity<Adam>(), std::type_identity<AdamW>(),
          std::type_identity<Adamax>(), std::type_identity<RMSprop>(), std::type_identity<Rprop>(),
          std::type_identity<Adagrad>(), std::type_identity<Adadelta>(), std::type_identity<LAMB>());
  if (made) return made;
  const std::string near = nearest(name, known);
  throw_invalid(fmt::format(
      "[optim] unknown optimizer \"{}\"; {}", name,
      near.empty() ? fmt::format("known: {}", fmt::join(known, ", ")) : "did you mean \"" + near + "\"?"));
}

}  // namespace

std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, Tensors params) {
  return of_name(name, [&]<class O>(std::type_identity<O>) {
    return std::make_unique<O>(std::move(params), O::Options::from(options));
  });
}

std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, NoParameters none) {
  return of_name(name, [&]<class O>(std::type_identity<O>) {
    return std::make_unique<O>(none, O::Options::from(options));
  });
}

}  // namespace troupe::optim
