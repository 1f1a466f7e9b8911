// Optimizers by name.
#include <fmt/format.h>

#include <type_traits>

#include "optim/optim.h"
#include "optim/optimizer_catalog.h"

namespace troupe::optim {
namespace {

// All of them: calls f(std::type_identity<O>()) for each type of optimizer.
template <class F>
void for_each_optimizer(F&& f) {
  const auto all = [&]<class... O>(std::type_identity<O>... types) { (f(types), ...); };
  all(std::type_identity<SGD>(), std::type_identity<Adam>(), std::type_identity<AdamW>(),
      std::type_identity<Adamax>(), std::type_identity<RMSprop>(), std::type_identity<Rprop>(),
      std::type_identity<Adagrad>(), std::type_identity<Adadelta>(), std::type_identity<LAMB>(),
      std::type_identity<NAdam>(), std::type_identity<RAdam>(), std::type_identity<Lion>(),
      std::type_identity<Adafactor>(), std::type_identity<Muon>());
}

// What `f` gives for the optimizer type of that name.
template <class F>
std::unique_ptr<Optimizer> of_name(const std::string& name, F&& f) {
  std::unique_ptr<Optimizer> made;
  std::vector<std::string> known;
  for_each_optimizer([&]<class O>(std::type_identity<O> type) {
    known.push_back(O::kName);
    if (!made && name == O::kName) made = f(type);
  });
  if (made) return made;
  if (name == "lbfgs")
    throw_invalid(
        "[optim] lbfgs takes the loss as a function, several times in a step: make an optim::LBFGS of the "
        "parameters of one worker");
  const std::string near = nearest(name, known);
  throw_invalid(fmt::format(
      "[optim] unknown optimizer \"{}\"; {}", name,
      near.empty() ? fmt::format("known: {}", fmt::join(known, ", ")) : "did you mean \"" + near + "\"?"));
}

// What the fields of its options say.
template <class Options>
Entry entry_of(const Options& options) {
  Entry out{Options::kName, Options::kText, {}};
  Options::fields(options, [&](const char* name, const auto& value, auto...) {
    using T = std::decay_t<decltype(value)>;
    out.parameters.push_back({name, Codec<T>::name(), Codec<T>::to(value)});
  });
  return out;
}

}  // namespace

std::span<const Entry> optimizers() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> out;
    for_each_optimizer(
        [&]<class O>(std::type_identity<O>) { out.push_back(entry_of(typename O::Options())); });
    return out;
  }();
  return all;
}

std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, Tensors params) {
  return of_name(name, [&]<class O>(std::type_identity<O>) {
    return std::make_unique<O>(std::move(params), options_from_map<typename O::Options>(options));
  });
}

std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, NoParameters none) {
  return of_name(name, [&]<class O>(std::type_identity<O>) {
    using Options = typename O::Options;
    return std::make_unique<O>(none, std::vector<Options>{options_from_map<Options>(options)});
  });
}

std::unique_ptr<Optimizer> make(const std::string& name, std::vector<OptionGroup> groups) {
  if (groups.empty()) throw_invalid("[optim] an optimizer needs the options of at least one group");
  return of_name(name, [&]<class O>(std::type_identity<O>) {
    std::vector<typename O::Options> options;
    std::vector<typename O::Group> all;
    bool any = false;
    for (OptionGroup& g : groups) {
      options.push_back(options_from_map<typename O::Options>(g.options));
      any |= !g.params.empty();
      all.push_back({std::move(g.params), options.back()});
    }
    return any ? std::make_unique<O>(std::move(all))
               : std::make_unique<O>(NoParameters(), std::move(options));
  });
}

}  // namespace troupe::optim
