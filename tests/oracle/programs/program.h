// Random programs of tensor operations and what PyTorch made of them, as make_programs.py writes them.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/memory/device.h"

namespace troupe::testing {

/// One argument of a statement, as it is written in Python.
struct Arg {
  enum class Kind { none, flag, integer, real, text, tensor, dtype, slice, ellipsis, list };
  Kind kind = Kind::none;
  int64_t integer = 0;     ///< a flag too: 0 or 1
  double real = 0;         ///< of every number
  std::string text;        ///< a text, or the name of a tensor or dtype
  std::vector<Arg> items;  ///< of a list; start, stop and step of a slice
};

/// What PyTorch has for a tensor.
struct Wanted {
  std::string dtype;  ///< empty: any
  std::vector<int64_t> shape;
  nlohmann::json data;  ///< numbers, or "nan", "inf", "-inf"
  bool requires_grad = false;
};

struct Leaf {
  std::string name;
  Wanted value;
  bool view = false;  ///< it is a view of a tensor that requires no gradient
  Device device = {};
};

struct Statement {
  std::string op;   ///< PyTorch's name; getitem and setitem for x[..] and x[..] = y
  std::string how;  ///< function, method, operator, getitem or setitem
  std::vector<Arg> args;
  std::map<std::string, Arg> options;  ///< keyword arguments
  bool no_grad = false;                ///< inside a no-grad block
  std::vector<std::string> out;
  std::vector<Wanted> gives;                      ///< one for each of `out`; requires_grad not inside no_grad
  std::map<std::string, nlohmann::json> changes;  ///< data of other tensors that share the memory written to
  double close = 0;       ///< |got - wanted| <= close max(1, largest |wanted|, largest |input|)
  std::string raises;     ///< PyTorch's error; empty: it answers
  bool optional = false;  ///< only PyTorch's kernels have a gap there: an answer is as good
  std::string source;     ///< the statement as the file has it

  /// x[..] = y and names that end in _ .
  bool writes() const { return how == "setitem" || (op.size() > 1 && op.back() == '_'); }
  /// Names of all tensors among the arguments, in order, with repetitions.
  std::vector<std::string> inputs() const;
};

/// Whether the results may share memory with the first argument in PyTorch.
bool shares(const Statement& s);

struct Root {
  std::string name;
  nlohmann::json weight;
};

struct Program {
  std::vector<Leaf> leaves;
  std::vector<Statement> body;  ///< blocks are dissolved: see Statement::no_grad
  std::vector<Root> roots;
  std::map<std::string, nlohmann::json> grads;  ///< of leaves, null where none comes
  double grads_close = 0;
  std::string backward_raises;  ///< PyTorch's error; empty: none
};

/// The same with float64 in the place of float32, and results that need only be near: the exact answer, for
/// where rounding has to be judged.
Program in_float64(Program p);
/// Whether a leaf or a result of PyTorch's is float32.
bool has_float32(const Program& p);
/// The same with leaves that differ in their last digit, and results that need only be near.
Program with_noise(Program p, uint64_t seed);

Statement read_statement(const nlohmann::json& j, bool no_grad = false);
Program read_program(const nlohmann::json& j);
/// That file of $TROUPE_ORACLE, or of the folder that the build names.
std::vector<Program> read_programs(const std::string& name = "programs.json");

}  // namespace troupe::testing
