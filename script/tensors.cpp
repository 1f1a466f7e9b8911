#include "script/tensors.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/tensor/creation.h"

namespace troupe::script {
namespace {

// Walks nested lists: their shape, and their numbers in order.
class NestedNumbers {
 public:
  NestedNumbers(const Value& nested, std::string_view lists) : lists_(lists) { walk(nested, 0); }
  const Shape& shape() const { return shape_; }
  const std::vector<Scalar>& numbers() const { return numbers_; }
  DType dtype() const {
    const auto all = [&](auto property) { return std::ranges::all_of(numbers_, property); };
    if (numbers_.empty() || !all([](const Scalar& n) { return !n.is_floating(); })) return float32;
    return all([](const Scalar& n) { return n.is_boolean(); }) ? boolean : int64;
  }

 private:
  void walk(const Value& v, int depth) {
    if (const auto* list = v.get_if<ValueList>()) return walk_list(*list, depth);
    if (depth != shape_.rank()) mixed();
    if (const auto* b = v.get_if<bool>())
      numbers_.emplace_back(*b);
    else if (const auto* i = v.get_if<int64_t>())
      numbers_.emplace_back(*i);
    else if (const auto* d = v.get_if<double>())
      numbers_.emplace_back(*d);
    else
      throw_invalid("elements of a tensor are numbers or booleans, got " + v.describe());
  }
  void walk_list(const ValueList& list, int depth) {
    if (depth == shape_.rank()) {
      if (!numbers_.empty()) mixed();
      shape_.push_back(static_cast<int64_t>(list.size()));
    } else if (shape_[depth] != static_cast<int64_t>(list.size())) {
      throw_invalid("the lists of a tensor have to be of one length: got " + std::to_string(list.size()) +
                    " beside " + std::to_string(shape_[depth]));
    }
    for (const Value& element : list) walk(element, depth + 1);
  }
  [[noreturn]] void mixed() const {
    throw_invalid("a " + std::string(lists_) + " of a tensor has numbers and lists side by side");
  }
  std::string_view lists_;
  Shape shape_;
  std::vector<Scalar> numbers_;
};

}  // namespace

Tensor tensor_of(const Value& nested, std::optional<DType> dtype, std::string_view lists) {
  const NestedNumbers found(nested, lists);
  const DType t = dtype.value_or(found.dtype());
  const Tensor out = empty(found.shape(), t);
  for (const Scalar& number : found.numbers()) require_fits(number, t, "tensor");
  visit_dtype(t, [&](auto zero) {
    auto* to = out.data<decltype(zero)>();
    for (const Scalar& number : found.numbers()) *to++ = number.to<decltype(zero)>();
  });
  return out;
}

void gather_sizes(std::string_view op, ValueList& positional) {
  constexpr std::string_view kMade[] = {"zeros", "ones", "empty", "rand", "randn"},
                             kShaped[] = {"view", "reshape", "permute", "expand", "repeat", "tile", "flip"};
  const bool made = std::ranges::find(kMade, op) != std::end(kMade);
  if (!made && std::ranges::find(kShaped, op) == std::end(kShaped)) return;
  const auto first = positional.begin() + (made || positional.empty() ? 0 : 1);
  const auto last =
      std::find_if(first, positional.end(), [](const Value& v) { return v.get_if<int64_t>() == nullptr; });
  if (first == last) return;
  *first = Value(ValueList(first, last));
  positional.erase(first + 1, last);
}

}  // namespace troupe::script
