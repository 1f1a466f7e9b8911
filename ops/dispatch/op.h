// One operator = one record: its name, attributes, shape rule, kernels, gradient rule and sample inputs.
#pragma once
#include <array>
#include <atomic>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/small_vector.h"
#include "core/graph/node.h"
#include "core/memory/backend.h"
#include "core/tensor/tensor.h"
#include "ops/dispatch/attrs.h"

namespace troupe::ops {

struct Op;

/// Shape and element type of a result before there is one.
struct Spec {
  Shape shape;
  DType dtype = DType::float32;
  bool operator==(const Spec&) const = default;
};
using Specs = SmallVector<Spec, 2>;

/// One application of an operator, as its rules see it. All inputs are defined; attributes are complete.
struct Call {
  const Op& op;
  std::span<const Tensor> in;
  const Attrs& attrs;
  const char* name() const;
};

/// What a gradient rule gets.
struct Backward {
  const Op& op;
  const Attrs& attrs;
  std::span<const Tensor> in;      ///< inputs; undefined unless `saves_inputs` names them
  std::span<const Tensor> out;     ///< results; undefined unless `saves_outputs` names them
  std::span<const Tensor> grads;   ///< of the results; undefined for those with no history
  std::span<const Spec> in_specs;  ///< shape and dtype of every input
  std::span<const Edge> next;
  std::span<const uint8_t> wanted = {};  ///< by input: not 0 if this time it is asked for; empty: all are
  std::span<const Tensor> sums = {};     ///< by input: see sum()
  std::span<Tensor> pending = {};        ///< by input: see take_pending()

  /// Whether somebody wants the gradient of input i.
  bool needs(size_t i) const { return next[i] && (wanted.empty() || wanted[i]); }
  /// Defined: what the gradients of input i are added up in, contiguous. A rule that adds its own there,
  /// while it is made, gives back this very tensor.
  Tensor sum(size_t i) const { return sums.empty() ? Tensor() : sums[i]; }
  /// Defined: other steps' gradients of input i so far, contiguous; the rule has to give the sum of them and
  /// of its own, rounded as without them.
  Tensor take_pending(size_t i) const {
    if (pending.empty() || !needs(i) || !pending[i].defined() || !pending[i].is_contiguous()) return {};
    return std::exchange(pending[i], {});
  }
  const Shape& shape(size_t i) const { return in_specs[i].shape; }
  /// Where the gradients are: of the first one that is defined.
  Device device() const {
    for (const Tensor& g : grads)
      if (g.defined()) return g.device();
    return {};
  }
};

struct Sample {
  Tensors inputs;  ///< floating ones in float64
  Attrs attrs = {};
};

/// What apply() makes of inputs, and of numbers among the attributes (a Scalar), whose dtypes differ: copies
/// in one dtype, by the recorded `to`, so that each input gets its gradient in its own.
enum class Promotion : uint8_t {
  none,      ///< nothing: the shape rule looks
  common,    ///< copies in result_type(); a number becomes an element of that dtype in the kernel
  floating,  ///< the same, and integers and bools become float32
  bounds,    ///< as common, and an infinite number is a bound that is not there
};

inline constexpr uint32_t kAll = ~0u;  ///< mask: every input, or every result

/// Shape and dtype checks, and the results' shapes.
using ShapeRule = Specs(const Call&);
/// Writes contiguous, uninitialized results made by the shape rule. Inputs have any strides.
using Kernel = void(const Call&, Tensors& out);
/// Results that share the storage of an input (or a copy, where no strides can express the result).
using ViewRule = Tensors(const Call&);
/// Results made of other operators; of bfloat16 or float16 inputs, in that dtype. Its steps are recorded,
/// unless there is a gradient rule: then that is.
using Composition = Tensors(const Call&);
/// Gradients of the inputs, made of operators, so that they can be differentiated again. An undefined or
/// missing one means none; those with needs(i) false are ignored.
using GradientRule = Tensors(const Backward&);

/// All results by all inputs, with complete attributes.
using Function = Tensors(std::span<const Tensor> in, const Attrs& attrs);
/// A tensor and a number, a number and a tensor.
using WithNumber = Tensor(const Tensor&, Scalar);
using OfNumber = Tensor(Scalar, const Tensor&);

struct KernelEntry;

/// What find_kernels() found, by kind of device. A copy has found nothing yet.
struct FoundKernels {
  mutable std::atomic<const KernelEntry*> on[kDeviceKinds] = {};
  FoundKernels() = default;
  FoundKernels(const FoundKernels&) {}
};

/// Of names that are apart by spaces.
constexpr int count_names(const char* names) {
  int n = 1;
  for (; *names; ++names) n += *names == ' ';
  return n;
}

/// A record. Exactly one of shape (the kernels are in the tables of the devices,
/// ops/dispatch/kernel_table.h), view and compose is set. Records are constants of the program.
struct Op {
  const char* name;
  /// Names of the inputs, apart by spaces, as PyTorch has them: "input weight bias". Of any number of inputs
  /// one name for all: "tensors".
  const char* inputs = "input";
  const char* text = "";  ///< one line: what it gives
  /// Not to be called by name: it helps others, or a function has its name (ops/function_catalog.h).
  bool internal = false;
  int min_inputs = count_names(inputs), max_inputs = count_names(inputs);  ///< max_inputs -1: any number
  Attrs attrs = {};                                                        ///< names and defaults, in order
  /// The names of inputs and attributes in PyTorch's order, where not all inputs come first: "input dim
  /// index".
  const char* order = "";
  ShapeRule* shape = nullptr;
  ViewRule* view = nullptr;
  Composition* compose = nullptr;
  uint32_t saves_inputs = 0, saves_outputs = 0;  ///< bit i: the gradient rule reads input i, result i
  /// Bit k of saves_for[i]: the gradient of input k reads the saved input i. It is not saved for gradients
  /// that nobody wants, and may then be undefined in the rule.
  std::array<uint32_t, 2> saves_for = {kAll, kAll};
  bool splits = false;               ///< views that are several results, to which no write is recorded
  uint32_t nondifferentiable = 0;    ///< bit i: result i has no history; it is there for the gradient rule
  GradientRule* gradient = nullptr;  ///< null: not differentiable (or a composition, whose steps are)
  /// The rules take every dtype as it is, since they only move elements (so every view). Others get float32
  /// copies of bfloat16 and float16 and int64 copies of int32 and uint8, and apply() rounds what they make,
  /// or takes it modulo 2^32 or 2^8, to the dtype of the shape rule.
  bool takes_half = false;
  bool widens_bool = false;  ///< so bools, as int64: a result that is not 0 is true
  Promotion promotes = Promotion::none;
  uint8_t promotes_from = 0;  ///< the first input that it is about
  /// What the function of C++ does more than apply(), for calls by name (script/operators.h): inputs that it
  /// converts first.
  Function* function = nullptr;
  /// A number as the second or the first of two inputs; null: it is an element of the dtype in which it meets
  /// the tensor.
  WithNumber* with_number = nullptr;
  OfNumber* of_number = nullptr;  ///< the number first
  std::vector<Sample> (*samples)() = nullptr;
  FoundKernels kernels = {};
};

inline const char* Call::name() const { return op.name; }

/// Runs the operator and, if the grad mode is on and an input requires a gradient, records a Node.
/// Throws `invalid` for wrong inputs or attributes, `unimplemented` if the device has no kernel.
Tensors apply(const Op& op, std::span<const Tensor> inputs, Attrs attrs = {});

/// The same for one result and inputs written in place.
Tensor apply1(const Op& op, std::initializer_list<Tensor> inputs, Attrs attrs = {});

/// As apply(), and records nothing, but adds result 0 to `sum`, where the operator has a kernel for that, and
/// gives `sum` back in its place. `sum`: undefined (then this is apply()), or contiguous, on the inputs'
/// device, with the shape and dtype of result 0, and not an input.
Tensors apply_accumulating(const Op& op, std::span<const Tensor> inputs, const Tensor& sum, Attrs attrs = {});

/// Runs an update: an operator without rules, whose kernels read and write tensors that are given. Its name
/// ends with "_". It records nothing, checks nothing, and counts as no write: the caller sees to that, and
/// says which `in`, `out` and attributes (all of them) the kernels expect. Throws `unimplemented` as apply().
void apply_into(const Op& op, std::span<const Tensor> in, Tensors& out, const Attrs& attrs = {});

/// Every operator there is, in the order of ops/all.cpp.
std::span<const Op* const> all_ops();

/// The operator of that name; null if there is none.
const Op* find_op(std::string_view name);

}  // namespace troupe::ops
