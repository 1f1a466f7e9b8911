// One seed, one model, whatever compiler: layers that are made as arguments draw in their order in the model.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "nn/module.h"

namespace troupe::nn {

/// The arguments of a call are made in any order: g++ makes them from the last to the first, clang from the
/// first to the last. So layers drew their initial values in an order that is the compiler's, and whoever
/// takes them as arguments puts that right.
class DrawOrder {
 public:
  /// Layers that were given as arguments, not as variables that somebody may look at. Where they drew from
  /// one stream or generator in another order, they draw again from the same numbers: as if they had been
  /// made in this one. Null: none.
  ///
  /// What nobody noted cannot be drawn again: numbers that a constructor drew without Module::start(), or
  /// parameters that were written since. With `any_order`, of compilers that might be the reason, that is
  /// `invalid`, with nothing changed; else it was the program that made them in that order, and they stay.
  static void restore(std::initializer_list<Module*> layers, bool any_order = kArgumentsInAnyOrder);

  /// What was drawn for the module, and below, stays as it is.
  static void keep(Module& module);
  /// Of all parameters below: how often they were written.
  static uint64_t versions(Module& module);

#ifdef __clang__
  static constexpr bool kArgumentsInAnyOrder = false;
#else
  static constexpr bool kArgumentsInAnyOrder = true;
#endif

 private:
  struct Draw;
  static void gather(Module& module, bool covered, std::vector<Draw>& all);
  static void again(std::vector<Draw>& draws, bool any_order);
};

}  // namespace troupe::nn
