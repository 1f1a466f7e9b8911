#include "nn/make.h"

#include <vector>

#include "core/base/error.h"
#include "nn/sequential.h"

namespace troupe::nn {
namespace {

using Made = std::shared_ptr<Layer>;

constexpr int kDeepest = 100;  // layers in layers: each takes some of the stack

const Maker<Made>& found(std::string_view name) {
  static const std::vector<Entry> entries(modules().begin(), modules().end());
  return modules()[size_t(&find_entry(entries, name, "[nn] unknown module") - entries.data())];
}

/// A specification in one form.
struct Plan {
  const Maker<Made>* maker;
  ValueList arguments;
};

Plan plan_of(std::string_view module, ValueList positional, ValueMap named) {
  const Maker<Made>& m = found(module);
  if (m.name == "sequential" && !positional.empty()) {  // the layers themselves, or a list of them
    const bool listed = positional.size() == 1 && positional[0].get_if<ValueList>();
    if (!listed) positional = ValueList(1, Value(std::move(positional)));
  }
  return {&m, complete(m, std::move(positional), std::move(named))};
}

Plan plan_of(const Value& spec) {
  if (const auto* name = spec.get_if<std::string>()) return plan_of(*name, {}, {});
  if (const auto* layers = spec.get_if<ValueList>()) return plan_of("sequential", ValueList(1, *layers), {});
  const auto* map = spec.get_if<ValueMap>();
  const auto at = map ? map->find("module") : ValueMap::const_iterator();
  const auto* name = map && at != map->end() ? at->second.get_if<std::string>() : nullptr;
  if (!name)
    throw_invalid(
        "[nn] a module is described by its name (\"relu\"), by a map ({module = \"linear\", in = 2, out "
        "= 1}) or by a list of these, got " +
        (map ? text_of(spec) : spec.describe()));
  ValueMap named = *map;
  named.erase("module");
  return plan_of(*name, {}, std::move(named));
}

void check_depth(int depth) {
  if (depth > kDeepest)
    throw_invalid("[nn] layers are nested more than " + std::to_string(kDeepest) +
                  " deep; nest fewer of them");
}

// The layers of a sequential.
ValueList& layers_of(Plan& plan) {
  auto* layers = plan.arguments[0].get_if<ValueList>();
  if (!layers)
    throw_invalid("sequential: layers: expected a list, got " + plan.arguments[0].describe() + ": " +
                  plan.maker->signature());
  return *layers;
}

Made built(const Value& spec, int depth) {
  check_depth(depth);
  Plan plan = plan_of(spec);
  if (plan.maker->name != "sequential") return plan.maker->make(std::move(plan.arguments));
  auto out = std::make_shared<Sequential>();
  for (const Value& layer : layers_of(plan)) out->add(built(layer, depth + 1));
  return out;
}

Value spec_of(Plan plan, int depth) {
  check_depth(depth);
  if (plan.maker->name == "sequential")
    for (Value& layer : layers_of(plan)) layer = spec_of(plan_of(layer), depth + 1);
  ValueMap out{{"module", plan.maker->name}};
  for (size_t i = 0; i < plan.arguments.size(); ++i)
    out.emplace(plan.maker->parameters[i].name, std::move(plan.arguments[i]));
  return out;
}

}  // namespace

Value spec_of(std::string_view module, ValueList positional, ValueMap named) {
  return spec_of(plan_of(module, std::move(positional), std::move(named)), 0);
}

std::shared_ptr<Layer> make(const Value& spec) { return built(spec, 0); }

}  // namespace troupe::nn
