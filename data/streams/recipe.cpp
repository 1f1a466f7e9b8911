#include "data/streams/recipe.h"

#include <map>

#include "core/base/error.h"
#include "core/base/mutex.h"

namespace troupe::datasets::detail {
namespace {

struct Known {
  const void* what;
  MakePipeline make;
  bool several = false;
};
struct Book {
  internal::Mutex mutex;
  std::map<std::string, Known> of TROUPE_GUARDED_BY(mutex);
};
// Entries are made before main().
Book& book() {
  static Book all;
  return all;
}

}  // namespace

void add_recipe(const std::string& name, const void* what, MakePipeline make) {
  Book& all = book();
  const internal::Lock lock(all.mutex);
  const auto [at, is_new] = all.of.try_emplace(name, Known{what, std::move(make)});
  if (!is_new && at->second.what != what) at->second.several = true;
}

Pipeline follow(const Recipe& recipe) {
  MakePipeline make;
  {
    Book& all = book();
    const internal::Lock lock(all.mutex);
    const auto at = all.of.find(recipe.name);
    if (at == all.of.end())
      throw_invalid("[stream] this process knows no recipe " + recipe.name +
                    ": all workers run the same program, which calls recipe() with that function somewhere");
    if (at->second.several)
      throw_invalid("[stream] several functions are called as that of the recipe " + recipe.name +
                    ": rename all but one");
    make = at->second.make;
  }
  return make(ValueList(recipe.arguments));
}

Pipeline with_recipe(Pipeline pipeline, Recipe recipe) {
  pipeline.recipe_ = std::move(recipe);
  return pipeline;
}

}  // namespace troupe::datasets::detail
