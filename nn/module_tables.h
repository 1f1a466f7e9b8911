// The tables of modules by name are made with this.
#pragma once
#include <memory>
#include <vector>

#include "core/entry/maker.h"
#include "nn/module.h"
#include "ops/conv3d.h"
#include "ops/dispatch/window.h"

namespace troupe {
namespace nn::internal {

/// A height and a width; one number is both.
struct Sides {
  ops::Pair value{};
  operator const ops::Pair&() const { return value; }
};

/// A depth, a height and a width; one number is all.
struct Edges {
  ops::Triple value{};
  operator const ops::Triple&() const { return value; }
};

}  // namespace nn::internal

template <>
struct Codec<nn::internal::Sides> {
  using Sides = nn::internal::Sides;
  static std::string name() { return "int64 or list of 2"; }
  static Value to(const Sides& x) {
    if (x.value[0] == x.value[1]) return x.value[0];
    return ValueList{x.value[0], x.value[1]};
  }
  static Sides from(Value v) {
    if (const auto* side = v.get_if<int64_t>()) return {{*side, *side}};
    const auto* list = v.get_if<ValueList>();
    if (!list || list->size() != 2) internal::mismatch(&name, v);
    return {{Codec<int64_t>::from((*list)[0]), Codec<int64_t>::from((*list)[1])}};
  }
};

template <>
struct Codec<nn::internal::Edges> {
  using Edges = nn::internal::Edges;
  static std::string name() { return "int64 or list of 3"; }
  static Value to(const Edges& x) {
    const auto [depth, height, width] = x.value;
    if (depth == height && height == width) return depth;
    return ValueList{depth, height, width};
  }
  static Edges from(Value v) {
    if (const auto* side = v.get_if<int64_t>()) return {{*side, *side, *side}};
    const auto* list = v.get_if<ValueList>();
    if (!list || list->size() != 3) internal::mismatch(&name, v);
    const auto at = [&](size_t i) { return Codec<int64_t>::from((*list)[i]); };
    return {{at(0), at(1), at(2)}};
  }
};

namespace nn::internal {

using Made = std::shared_ptr<Layer>;
using Table = std::vector<Maker<Made>>;

// Defaults are those of the module's options or of its constructor.
using troupe::internal::with;
inline Parameter with(const char* name, const ops::Pair& standard) { return with(name, Sides{standard}); }
inline Parameter with(const char* name, const ops::Triple& standard) { return with(name, Edges{standard}); }

template <class Module, class... A>
Made made(const A&... arguments) {
  return std::make_shared<Module>(arguments...);
}

/// Whether the options of a module are these and no others: a new one has to go into its table.
template <class Options, int fields>
constexpr bool kComplete = troupe::internal::field_count<Options>() == fields;

/// Modules of lines, images and volumes.
void add_images(Table& t);
/// Modules that normalize.
void add_norms(Table& t);

}  // namespace nn::internal
}  // namespace troupe
