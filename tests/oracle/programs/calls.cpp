#include "tests/oracle/programs/calls.h"

#include "core/graph/node.h"

namespace troupe::testing {

const Arg& Arguments::arg(size_t i) const {
  if (i >= size()) throw NotHere("an argument is missing");
  return s_.args[i];
}

Tensor Arguments::tensor(const Arg& a) const {
  if (a.kind != Arg::Kind::tensor) throw NotHere("not a tensor");
  return tensor_named_(a.text);
}

Tensors Arguments::tensors(size_t i) const {
  if (arg(i).kind != Arg::Kind::list) throw NotHere("not a list of tensors");
  Tensors all;
  for (const Arg& a : arg(i).items) all.push_back(tensor(a));
  return all;
}

int64_t Arguments::integer(const Arg& a) {
  if (a.kind != Arg::Kind::integer) throw NotHere("not an integer");
  return a.integer;
}

std::vector<int64_t> Arguments::ints(size_t i) const {
  if (arg(i).kind != Arg::Kind::list) throw NotHere("not a list of integers");
  std::vector<int64_t> all;
  for (const Arg& a : arg(i).items) all.push_back(integer(a));
  return all;
}

const Arg* Arguments::option(const std::string& name) const {
  const auto it = s_.options.find(name);
  return it == s_.options.end() ? nullptr : &it->second;
}

bool Arguments::flag(const std::string& name, bool otherwise) const {
  const Arg* a = option(name);
  if (a && a->kind != Arg::Kind::flag) throw NotHere(name + " is not a flag");
  return a ? a->integer != 0 : otherwise;
}

std::string Arguments::text(const std::string& name, const std::string& otherwise) const {
  const Arg* a = option(name);
  if (a && a->kind != Arg::Kind::text) throw NotHere(name + " is not a text");
  return a ? a->text : otherwise;
}

const Calls& all_calls() {
  static const Calls calls = [] {
    Calls all;
    for (const auto part :
         {add_elementwise, add_reductions, add_shapes, add_indexing, add_layers, add_writes})
      part(all);
    return all;
  }();
  return calls;
}

Tensors call(const Statement& s, const std::function<Tensor(const std::string&)>& tensor_named) {
  const auto it = all_calls().find(s.op);
  if (it == all_calls().end()) throw NotHere("there is no " + s.op);
  const GradMode mode(grad_enabled() && !s.no_grad);
  return it->second(Arguments(s, tensor_named));
}

}  // namespace troupe::testing
