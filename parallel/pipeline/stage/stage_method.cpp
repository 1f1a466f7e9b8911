#include "parallel/pipeline/stage/stage_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "actors/cell/call_inline.h"
#include "autograd/checkpoint.h"
#include "core/codec/codec.h"

namespace troupe::parallel {

Tensors floating_of(Value& tree) {
  Tensors out;
  visit_tensors(tree, [&](Tensor& t) {
    if (t.defined() && is_floating(t.dtype())) out.push_back(t);
  });
  return out;
}

ValueList arguments(ForwardOrder& order) {
  const auto extra = static_cast<int64_t>(order.skips.size() + order.given.size());
  const int64_t wanted = order.arity - extra;
  ValueList args;
  if (wanted == 1) {
    args.push_back(order.input);
  } else {
    const auto* list = order.input.get_if<ValueList>();
    if (wanted < 1 || !list || static_cast<int64_t>(list->size()) != wanted)
      throw_invalid(fmt::format(
          "[pipeline] {} of stage {} takes {} arguments, {} of which are skips and {} were given: it wants "
          "{} "
          "from {}, which gave {}",
          order.method, order.id.stage, order.arity, order.skips.size(), order.given.size(), wanted,
          order.first ? "the batch" : fmt::format("stage {}", order.id.stage - 1), order.input.describe()));
    args = *list;
  }
  for (Value& v : order.skips) args.push_back(std::move(v));
  for (Value& v : order.given) args.push_back(std::move(v));
  return args;
}

Value run_recomputed(const ForwardOrder& order, const Tensors& inputs,
                     const std::shared_ptr<StageNorms>& norms) {
  Value shape;  // of what it gives: its tensors are replaced by those of the checkpoint
  const auto again = [order, norms, &shape, first_run = true](const Tensors& in) mutable -> Tensors {
    std::optional<StageNorms::Again> counted;
    if (!first_run) counted.emplace(*norms);
    ForwardOrder copy = order;
    size_t i = 0;
    const auto replace = [&](Tensor& t) {
      if (t.defined() && is_floating(t.dtype())) t = in.at(i++);
    };
    visit_tensors(copy.input, replace);
    visit_tensors(copy.skips, replace);
    const auto done = internal::actors::call_inline(copy.method, arguments(copy));
    const auto* result = done.peek();
    if (!result)
      throw_error(ErrorKind::unimplemented,
                  "[pipeline] " + order.method +
                      " waits for something: a coroutine cannot be run again by the "
                      "backward pass; use Checkpoint::never");
    Value out = result->value();
    Tensors tensors = floating_of(out);
    if (std::exchange(first_run, false)) shape = std::move(out);
    return tensors;
  };
  const Tensors made = autograd::checkpoint_all(again, inputs);
  size_t i = 0;
  visit_tensors(shape, [&](Tensor& t) {
    if (t.defined() && is_floating(t.dtype())) t = made.at(i++);
  });
  return shape;
}

Tensors take_carried(const ForwardOrder& order, Value& output) {
  if (!order.carries) return {};
  auto* list = output.get_if<ValueList>();
  const auto* last = list && list->size() > 1 ? list->back().get_if<ValueList>() : nullptr;
  const bool tensors = last && std::ranges::all_of(*last, [](const Value& v) {
                         const auto* t = v.get_if<Tensor>();
                         return t && t->defined();
                       });
  if (!tensors)
    throw_invalid(
        fmt::format("[pipeline] {} of stage {} gave {}: expected a list of its output and, last, a list of "
                    "tensors (Tensors) for the next slice",
                    order.method, order.id.stage, output.describe()));
  auto carried = internal::from_value<Tensors>(std::move(list->back()));
  list->pop_back();
  if (list->size() == 1) {
    Value only = std::move(list->front());
    output = std::move(only);
  }
  return carried;
}

ValueList take_skips(const ForwardOrder& order, Value& output) {
  if (order.gives == 0) return {};
  auto* list = output.get_if<ValueList>();
  const auto count = static_cast<size_t>(order.gives);
  if (!list || list->size() <= count)
    throw_invalid(
        fmt::format("[pipeline] {} of stage {} gave {}: expected a list of its output and, behind it, the {} "
                    "skips that it "
                    "gives",
                    order.method, order.id.stage, output.describe(), count));
  const auto first = list->end() - static_cast<std::ptrdiff_t>(count);
  ValueList skips(std::make_move_iterator(first), std::make_move_iterator(list->end()));
  list->erase(first, list->end());
  if (list->size() == 1) {
    Value only = std::move(list->front());
    output = std::move(only);
  }
  return skips;
}

}  // namespace troupe::parallel
