#include "script/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/dispatch/op.h"
#include "ops/dispatch/promote.h"
#include "ops/function_catalog.h"

namespace troupe::script {
namespace {

struct Known {
  Entry entry;
  const ops::Op* op = nullptr;  // one of these two
  const Maker<Value>* function = nullptr;
};

const std::map<std::string, Known, std::less<>>& known() {
  static const auto all = [] {
    std::map<std::string, Known, std::less<>> out;
    for (const ops::Op* op : ops::all_ops())
      if (!op->internal) out[op->name] = {ops::entry_of(*op), op};
    for (const Maker<Value>& f : ops::functions()) out[f.name] = {f, nullptr, &f};
    return out;
  }();
  return all;
}

std::optional<Scalar> number_of(const Value& value) {
  if (const auto* i = value.get_if<int64_t>()) return Scalar(*i);
  if (const auto* d = value.get_if<double>()) return Scalar(*d);
  if (const auto* b = value.get_if<bool>()) return Scalar(*b);
  return {};
}

[[noreturn]] void wrong(const Known& known, const std::string& text) {
  throw_invalid(fmt::format("[{}] {}: {}", known.entry.name, text, known.entry.signature()));
}

ops::AttrValue attribute_of(const Known& known, const ops::Attr& standard, const Value& value) {
  const auto refuse = [&](const char* wanted) __attribute__((noreturn)) {
    wrong(known, fmt::format("{} takes {}, got {}", standard.name, wanted, value.describe()));
  };
  const auto whole = [&](const Value& v) -> int64_t {
    if (const auto* i = v.get_if<int64_t>()) return *i;
    if (const auto* d = v.get_if<double>(); d && std::trunc(*d) == *d && std::abs(*d) < 0x1p63)
      return static_cast<int64_t>(*d);
    refuse("whole numbers");
  };
  const auto number = [&](const Value& v) -> double {
    if (const auto* d = v.get_if<double>()) return *d;
    if (const auto* i = v.get_if<int64_t>()) return static_cast<double>(*i);
    refuse("a number");
  };
  const auto list = [&]<class T>(std::vector<T>, const auto& element) {
    std::vector<T> out;
    if (const auto* values = value.get_if<ValueList>())
      for (const Value& v : *values) out.push_back(element(v));
    else if (const auto* map = value.get_if<ValueMap>(); !map || !map->empty())
      out.push_back(element(value));
    return out;
  };
  return std::visit(
      [&]<class T>(const T&) -> ops::AttrValue {
        if constexpr (std::is_same_v<T, bool>) {
          if (const auto* b = value.get_if<bool>()) return *b;
          refuse("true or false");
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return whole(value);
        } else if constexpr (std::is_same_v<T, double>) {
          return number(value);
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (const auto* s = value.get_if<std::string>()) return *s;
          refuse("a string");
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          return list(std::vector<int64_t>(), whole);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          return list(std::vector<double>(), number);
        } else {
          if (const auto n = number_of(value)) return *n;
          refuse("a number");
        }
      },
      standard.value);
}

// The tensors and the attributes of a call, in whatever way they were given.
struct Arguments {
  std::vector<Value> inputs;  // tensors and numbers
  ops::Attrs attrs;
};

// Of an operator of any number of tensors: one list, or one after the other. What is left of `positional`.
ValueList take_all_inputs(const Known& known, ValueList positional, ValueList& inputs) {
  if (positional.empty()) wrong(known, "needs a list of tensors");
  ptrdiff_t taken = 1;
  if (auto* list = positional[0].get_if<ValueList>())
    inputs = std::move(*list);
  else
    for (taken = 0; taken < std::ssize(positional) && positional[size_t(taken)].get_if<Tensor>(); ++taken)
      inputs.push_back(std::move(positional[size_t(taken)]));
  positional.erase(positional.begin(), positional.begin() + taken);
  return positional;
}

// Of the others; those that have names are taken out of `named`. What is left of `positional`.
ValueList take_inputs(const Known& known, ValueList positional, ValueMap& named, ValueList& inputs) {
  const ops::Op& op = *known.op;
  const std::vector<std::string> names = ops::input_names(op);
  // Tensors are inputs wherever they stand: PyTorch has attributes before some, as in gather(x, dim,
  // index). A number is an input where there are fewer tensors than the operator needs.
  const auto tensors = static_cast<size_t>(
      std::ranges::count_if(positional, [](const Value& v) { return v.get_if<Tensor>() != nullptr; }));
  size_t numbers =
      static_cast<size_t>(op.min_inputs) > tensors ? static_cast<size_t>(op.min_inputs) - tensors : 0;
  for (const auto& p : known.entry.parameters)
    if (inputs.size() < static_cast<size_t>(op.min_inputs) && numbers && named.contains(p.name) &&
        named.at(p.name).get_if<Tensor>())
      --numbers;
  ValueList rest;
  for (Value& v : positional) {
    const bool room = inputs.size() < static_cast<size_t>(op.max_inputs);
    if (room && v.get_if<Tensor>()) {
      inputs.push_back(std::move(v));
    } else if (room && numbers && number_of(v)) {
      --numbers;
      inputs.push_back(std::move(v));
    } else {
      rest.push_back(std::move(v));
    }
  }
  for (size_t i = inputs.size(); i < static_cast<size_t>(op.max_inputs); ++i) {
    const auto by_name = named.find(names[i]);
    if (by_name == named.end()) break;
    inputs.push_back(std::move(by_name->second));
    named.erase(by_name);
  }
  if (inputs.size() < static_cast<size_t>(op.min_inputs))
    wrong(known, rest.empty() ? fmt::format("needs the tensor \"{}\"", names[inputs.size()])
                              : fmt::format("takes a tensor as \"{}\", got {}", names[inputs.size()],
                                            rest[0].describe()));
  return rest;
}

Arguments sorted(const Known& known, ValueList positional, ValueMap named) {
  const auto& declared = known.op->attrs.list();
  Arguments out;
  const ValueList rest = known.op->max_inputs < 0
                             ? take_all_inputs(known, std::move(positional), out.inputs)
                             : take_inputs(known, std::move(positional), named, out.inputs);
  for (size_t i = 0; i < rest.size(); ++i) {
    if (i >= declared.size()) wrong(known, fmt::format("got {} more than it takes", rest[i].describe()));
    if (rest[i].is_null()) continue;
    if (named.contains(std::string(declared[i].name)))
      wrong(known, fmt::format("got {} twice, by position and by name", declared[i].name));
    out.attrs.add({declared[i].name, attribute_of(known, declared[i], rest[i])});
  }
  for (const auto& [name, value] : named) {
    const auto it = std::ranges::find(declared, name, &ops::Attr::name);
    if (it == declared.end()) {
      std::vector<std::string> names;
      for (const Parameter& p : known.entry.parameters) names.push_back(p.name);
      const std::string near = nearest(name, names);
      wrong(known, fmt::format("has no parameter {:?}{}", std::string_view(name),
                               near.empty() ? "" : "; did you mean \"" + near + "\"?"));
    }
    out.attrs.add({it->name, attribute_of(known, *it, value)});
  }
  return out;
}

// The dtype in which the inputs that the operator promotes meet.
DType meeting_type(const ops::Op& op, const ValueList& inputs) {
  ops::ResultType type;
  for (size_t i = op.promotes_from; i < inputs.size(); ++i) {
    if (const auto* t = inputs[i].get_if<Tensor>(); t && t->defined()) type.add(*t);
    if (const auto n = number_of(inputs[i])) type.add(*n);
  }
  return type.get();
}

// The inputs, with each number as an element of that dtype, where the first tensor is.
Tensors as_tensors(const Known& known, const ValueList& inputs) {
  const ops::Op& op = *known.op;
  const auto first = std::ranges::find_if(inputs, [](const Value& v) {
    const auto* t = v.get_if<Tensor>();
    return t && t->defined();
  });
  Tensors out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (const auto* t = inputs[i].get_if<Tensor>()) {
      out.push_back(*t);
    } else if (const auto n = number_of(inputs[i])) {
      const DType dtype = i < op.promotes_from ? n->dtype() : meeting_type(op, inputs);
      require_fits(*n, dtype, op.name);
      out.push_back(
          ops::wrapped(*n, dtype, first == inputs.end() ? Device() : first->get_if<Tensor>()->device()));
    } else {
      wrong(known, "takes tensors, got " + inputs[i].describe());
    }
  }
  return out;
}

// What the operator has for a number beside a tensor; undefined if that is nothing, or the inputs are others.
Tensor beside_number(const ops::Op& op, const ValueList& inputs) {
  if (inputs.size() != 2) return {};
  const auto *a = inputs[0].get_if<Tensor>(), *b = inputs[1].get_if<Tensor>();
  const auto m = number_of(inputs[0]), n = number_of(inputs[1]);
  if (a && n && op.with_number) return op.with_number(*a, *n);
  if (m && b && op.of_number) return op.of_number(*m, *b);
  return {};
}

// Nil stands for the default, where there is one, as it does for operators.
void put_defaults_for_nils(const Entry& entry, ValueList& positional, ValueMap& named) {
  const auto& all = entry.parameters;
  for (size_t i = 0; i < std::min(positional.size(), all.size()); ++i)
    if (positional[i].is_null() && all[i].standard) positional[i] = *all[i].standard;
  for (const Parameter& p : all)
    if (const auto at = named.find(p.name); at != named.end() && at->second.is_null() && p.standard)
      named.erase(at);
}

}  // namespace

ValueList run_operator(std::string_view name, ValueList positional, ValueMap named) {
  const auto it = known().find(name);
  if (it == known().end()) find_entry(operators(), name, "[ops] unknown operator");
  const Known& known = it->second;
  if (known.function) {
    put_defaults_for_nils(*known.function, positional, named);
    return {(*known.function)(std::move(positional), std::move(named))};
  }
  const ops::Op& op = *known.op;
  Arguments arguments = sorted(known, std::move(positional), std::move(named));
  if (Tensor result = beside_number(op, arguments.inputs); result.defined()) return {std::move(result)};
  const Tensors tensors = as_tensors(known, arguments.inputs);
  ops::Attrs& attrs = arguments.attrs;
  Tensors results = op.function ? op.function(tensors, std::move(attrs).complete(op.attrs, op.name))
                                : ops::apply(op, tensors, std::move(attrs));
  ValueList out;
  for (size_t i = 0; i < results.size(); ++i)
    if (!(op.nondifferentiable >> i & 1)) out.emplace_back(std::move(results[i]));
  return out;
}

std::span<const Entry> operators() {
  static const auto entries = [] {
    std::vector<Entry> out;
    for (const auto& [name, known] : known()) out.push_back(known.entry);
    return out;
  }();
  return entries;
}

}  // namespace troupe::script
