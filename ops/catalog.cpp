#include "ops/catalog.h"

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

}  // namespace

Entry entry_of(const Op& op) {
  Entry out{op.name, op.text, {}, "tensor"};
  std::string_view names = op.inputs;
  if (op.max_inputs < 0) {
    out.parameters.push_back({std::string(names), Codec<Tensors>::name()});
  } else {
    for (int i = 0; i < op.max_inputs; ++i) {
      const size_t end = std::min(names.find(' '), names.size());
      Parameter p{std::string(names.substr(0, end)), Codec<Tensor>::name()};
      if (i >= op.min_inputs) p.standard = Value();
      out.parameters.push_back(std::move(p));
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  for (const Attr& attr : op.attrs.list()) {
    auto [type, value] = described(attr.value);
    out.parameters.push_back({std::string(attr.name), std::move(type), std::move(value)});
  }
  return out;
}

}  // namespace troupe::ops
