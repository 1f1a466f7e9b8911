#include "ops/function_catalog.h"

#include <algorithm>

namespace troupe::ops {
namespace {

struct Described {
  std::string type;
  Value value;
};

// A default of an attribute, which fixes the type.
Described described(const AttrValue& value) {
  return std::visit(
      [](const auto& x) -> Described {
        using T = std::decay_t<decltype(x)>;
        return {Codec<T>::name(), Codec<T>::to(x)};
      },
      value);
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// Parameters in that order; one before a tensor that must be given has no default.
void put_in_order(std::vector<Parameter>& parameters, const std::vector<std::string>& order) {
  std::vector<Parameter> out;
  for (const std::string& name : order) out.push_back(*std::ranges::find(parameters, name, &Parameter::name));
  for (size_t i = 0; i + 1 < out.size(); ++i)
    if (std::any_of(out.begin() + static_cast<int64_t>(i), out.end(),
                    [](const Parameter& p) { return !p.standard; }))
      out[i].standard.reset();
  parameters = std::move(out);
}

}  // namespace

std::vector<std::string> input_names(const Op& op) {
  std::vector<std::string> out = words(op.inputs);
  out.resize(static_cast<size_t>(std::max(op.max_inputs, 1)));
  return out;
}

Entry entry_of(const Op& op) {
  Entry out{op.name, op.text, {}, "tensor"};
  const std::vector<std::string> names = input_names(op);
  if (op.max_inputs < 0) {
    out.parameters.push_back({names[0], Codec<Tensors>::name()});
  } else {
    for (int i = 0; i < op.max_inputs; ++i) {
      Parameter p{names[static_cast<size_t>(i)], Codec<Tensor>::name()};
      if (i >= op.min_inputs) p.standard = Value();
      out.parameters.push_back(std::move(p));
    }
  }
  for (const Attr& attr : op.attrs.list()) {
    auto [type, value] = described(attr.value);
    out.parameters.push_back({std::string(attr.name), std::move(type), std::move(value)});
  }
  if (*op.order) put_in_order(out.parameters, words(op.order));
  return out;
}

}  // namespace troupe::ops
