// Recipes: pipelines that other processes of a program make, too. Their functions cannot travel, the name of
// who makes them can.
#pragma once
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "core/base/type_name.h"
#include "core/codec/codec.h"
#include "data/streams/pipeline.h"

namespace troupe::datasets {
namespace detail {

using MakePipeline = std::function<Pipeline(ValueList&& arguments)>;
/// Makes it known in this process. `what` tells two of one name apart, which nobody may follow.
void add_recipe(const std::string& name, const void* what, MakePipeline make);
/// `invalid` for a name that is not known here, or that several functions have.
Pipeline follow(const Recipe& recipe);

template <auto F>
struct RecipeOf;
template <class... A, Pipeline (*F)(A...)>
struct RecipeOf<F> {
  static const std::string name;
  static ValueList arguments(std::decay_t<A>... a) {
    return internal::ListCodec<std::decay_t<A>...>::list(std::move(a)...);
  }
  static std::string add() {
    std::string name = readable_name(typeid(RecipeOf));
    add_recipe(name, reinterpret_cast<const void*>(F), [](ValueList&& list) {
      return std::apply(F, internal::ListCodec<std::decay_t<A>...>::from(std::move(list), "[stream] recipe"));
    });
    return name;
  }
};
template <class... A, Pipeline (*F)(A...)>
const std::string RecipeOf<F>::name = add();

}  // namespace detail

/// The pipeline that a function of the program gives, F(arguments...), for readers() on other workers, who
/// call it there:
///
///   datasets::Pipeline wiki(const std::string& file, int64_t rows) {
///     return datasets::Pipeline(datasets::token_windows({file})).shuffle({.seed = 1}).batch(rows);
///   }
///   datasets::Feed feed(datasets::recipe<wiki>("wiki.bin", 32),
///                       {.readers = datasets::readers(cluster, {"w5", "w6"})});
///
/// The function gives the same pipeline wherever it is called with the same arguments, which are of types
/// that travel. What is changed of the pipeline later, readers do not know.
template <auto F, class... A>
Pipeline recipe(A&&... arguments) {
  using Of = detail::RecipeOf<F>;
  Recipe recipe{Of::name, Of::arguments(std::forward<A>(arguments)...)};
  Pipeline made = detail::follow(recipe);
  return detail::with_recipe(std::move(made), std::move(recipe));
}

}  // namespace troupe::datasets
