// apply() of functions of one's own: from a signature of theirs to lists of tensors, for the recorded step.
#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "autograd/function_ctx.h"
#include "core/async/future.h"

namespace troupe::autograd {

/// Checks what a backward() gave in the end. It is kept as long as that runs.
using FinishGradients = std::function<Tensors(Tensors)>;

/// The type of a function, for FunctionStep.
struct FunctionType {
  std::string name;
  std::unique_ptr<FunctionCtx> (*make_ctx)();
  Tensors (*backward)(FunctionCtx&, Tensors&&);
  /// In place of backward(), of one that waits; else null.
  Future<Tensors> (*begin)(FunctionCtx&, Tensors&&, FinishGradients);
  bool once_differentiable;
};

/// How what a backward() of type R gives is awaited, where it is. Specialized where such types are known: for
/// Task in autograd/distributed/later_gradients.h, with `static Future<Tensors> begin(R, FinishGradients)`.
template <class R>
struct LaterGradients {
  static constexpr bool kLater = false;
};

/// The arguments of one apply(): undefined tensors stand for those that are none.
struct FunctionArguments {
  Tensors tensors;
  std::vector<uint8_t> is_tensor;

  template <class V>
  void add(const V& value) {
    if constexpr (std::is_convertible_v<const V&, const Tensor&>) {
      add_tensor(value);
    } else if constexpr (std::is_same_v<V, Tensors>) {
      for (const Tensor& t : value) add_tensor(t);
    } else if constexpr (std::is_same_v<V, std::optional<Tensor>>) {
      add_tensor(value.value_or(Tensor()));
    } else {
      tensors.emplace_back();
      is_tensor.push_back(false);
    }
  }

 private:
  void add_tensor(const Tensor& t) {
    tensors.push_back(t);
    is_tensor.push_back(true);
  }
};

/// Runs `forward` and, if the grad mode is on and an argument requires a gradient, records a step.
Tensors apply_function(const FunctionType& type, const FunctionArguments& arguments,
                       const std::function<Tensors(FunctionCtx&)>& forward);

/// `class_name()` of a type, found once.
std::string function_name(const std::type_info& type);

/// Of a backward().
template <class Backward>
inline constexpr bool kTakesGradientsByValue = true;
template <class R, class C, class Grads>
inline constexpr bool kTakesGradientsByValue<R (*)(C, Grads)> = !std::is_reference_v<Grads>;

template <class T, class Forward>
struct FunctionCall {
  static_assert(sizeof(T) == 0, "forward() is `static Tensor forward(Ctx&, ...)`; it may give Tensors, too");
};

template <class T, class R, class C, class... P>
struct FunctionCall<T, R (*)(C&, P...)> {
  static_assert(std::is_same_v<R, Tensor> || std::is_same_v<R, Tensors>,
                "forward() gives a Tensor or Tensors");
  static_assert(std::derived_from<C, FunctionCtx>, "the first parameter of forward() is a Ctx&");

  template <class... A>
  static R run(A&&... arguments) {
    static_assert(sizeof...(A) == sizeof...(P),
                  "apply() takes what forward() takes after its Ctx; default arguments do not count");
    if constexpr (sizeof...(A) == sizeof...(P)) {
      constexpr bool kFit = (std::is_constructible_v<Kept<P>, A&&> && ...);
      static_assert(kFit,
                    "an argument of apply() is not what forward() takes; take get() of a call's result");
      if constexpr (kFit) return run_with(std::tuple<Kept<P>...>(std::forward<A>(arguments)...));
    }
  }

 private:
  // Arguments are kept for the call, but for what forward() takes by reference to write to it.
  template <class V>
  static constexpr bool kWrites =
      std::is_lvalue_reference_v<V> && !std::is_const_v<std::remove_reference_t<V>>;
  template <class V>
  using Kept = std::conditional_t<kWrites<V>, V, std::remove_cvref_t<V>>;

  static R run_with(std::tuple<Kept<P>...> kept) {
    static const FunctionType type{function_name(typeid(T)), make_ctx, backward_rule(), begin_rule(), once()};
    FunctionArguments all;
    std::apply([&](const auto&... one) { (all.add(one), ...); }, kept);
    Tensors out = apply_function(type, all, [&kept](FunctionCtx& ctx) -> Tensors {
      return std::apply(
          [&ctx](auto&... one) -> Tensors {
            if constexpr (std::is_same_v<R, Tensors>)
              return T::forward(static_cast<C&>(ctx), static_cast<P&&>(one)...);
            else
              return {T::forward(static_cast<C&>(ctx), static_cast<P&&>(one)...)};
          },
          kept);
    });
    if constexpr (std::is_same_v<R, Tensors>)
      return out;
    else
      return std::move(out[0]);
  }
  static std::unique_ptr<FunctionCtx> make_ctx() { return std::make_unique<C>(); }
  using Gradients = decltype(T::backward(std::declval<C&>(), std::declval<Tensors>()));
  static constexpr bool kLater = LaterGradients<Gradients>::kLater;
  static_assert(std::is_same_v<Gradients, Tensor> || std::is_same_v<Gradients, Tensors> || kLater,
                "backward() is `static Tensors backward(Ctx&, Tensors grads)`, or gives Task<Tensors>");

  static constexpr auto backward_rule() -> Tensors (*)(FunctionCtx&, Tensors&&) {
    if constexpr (kLater)
      return nullptr;
    else
      return [](FunctionCtx& ctx, Tensors&& grads) -> Tensors {
        if constexpr (std::is_same_v<Gradients, Tensor>)
          return {T::backward(static_cast<C&>(ctx), std::move(grads))};
        else if constexpr (std::is_same_v<Gradients, Tensors>)
          return T::backward(static_cast<C&>(ctx), std::move(grads));
        else
          return {};
      };
  }
  static constexpr auto begin_rule() -> Future<Tensors> (*)(FunctionCtx&, Tensors&&, FinishGradients) {
    if constexpr (kLater) {
      static_assert(
          kTakesGradientsByValue<decltype(&T::backward)>,
          "a backward() that is a Task takes its gradients by value, since it outlives who calls it: "
          "`static Task<Tensors> backward(Ctx&, Tensors grads)`");
      return [](FunctionCtx& ctx, Tensors&& grads, FinishGradients finish) {
        return LaterGradients<Gradients>::begin(T::backward(static_cast<C&>(ctx), std::move(grads)),
                                                std::move(finish));
      };
    } else {
      return nullptr;
    }
  }
  static constexpr bool once() {
    if constexpr (requires { T::once_differentiable; })
      return T::once_differentiable;
    else
      return false;
  }
};

}  // namespace troupe::autograd
