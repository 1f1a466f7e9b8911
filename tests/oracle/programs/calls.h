// PyTorch's operator names, each as a user of Troupe writes the same call in C++.
#pragma once
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "tests/oracle/programs/program.h"

namespace troupe::testing {

/// Troupe has no such call: what would have to be written does not compile.
struct NotHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The arguments of a statement with their tensors. Throws NotHere where an argument is of a kind that the
/// call does not take.
class Arguments {
 public:
  Arguments(const Statement& s, const std::function<Tensor(const std::string&)>& tensor_named)
      : s_(s), tensor_named_(tensor_named) {}

  const std::string& how() const { return s_.how; }
  size_t size() const { return s_.args.size(); }
  const Arg& arg(size_t i) const;
  bool is_tensor(size_t i) const { return i < size() && s_.args[i].kind == Arg::Kind::tensor; }
  Tensor tensor(size_t i) const { return tensor(arg(i)); }
  Tensor tensor(const Arg& a) const;
  Tensors tensors(size_t i) const;
  int64_t integer(size_t i) const { return integer(arg(i)); }
  std::vector<int64_t> ints(size_t i) const;
  /// No dimension, or the one that argument i names.
  std::vector<int64_t> dims(size_t i) const {
    return i < size() ? std::vector{integer(i)} : std::vector<int64_t>{};
  }
  /// f(a bool, an int64_t or a double): the number as Python has it.
  template <class F>
  auto number(size_t i, F&& f) const {
    return number(arg(i), f);
  }
  template <class F>
  static auto number(const Arg& a, F&& f) {
    switch (a.kind) {
      case Arg::Kind::flag:
        return f(a.integer != 0);
      case Arg::Kind::integer:
        return f(a.integer);
      case Arg::Kind::real:
        return f(a.real);
      default:
        throw NotHere("not a number");
    }
  }
  const Arg* option(const std::string& name) const;
  bool flag(const std::string& name, bool otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;

  static int64_t integer(const Arg& a);

 private:
  const Statement& s_;
  const std::function<Tensor(const std::string&)>& tensor_named_;
};

/// The results, one for each of the statement's `out`; of a write in place, the tensor written to.
using Function = std::function<Tensors(const Arguments&)>;
using Calls = std::map<std::string, Function>;

/// By operator name. Those that are missing count as refused.
const Calls& all_calls();

/// What the statement gives. Throws NotHere, and what the call throws.
Tensors call(const Statement& s, const std::function<Tensor(const std::string&)>& tensor_named);

// Parts of the table.
void add_elementwise(Calls& calls);
void add_reductions(Calls& calls);
void add_shapes(Calls& calls);
void add_indexing(Calls& calls);
void add_layers(Calls& calls);
void add_writes(Calls& calls);

}  // namespace troupe::testing
