#include "parallel/data/reducer_names.h"

namespace troupe::parallel {
namespace {

std::string str(const Group& group) {
  std::string all = group.name();
  for (size_t r = 0; r < group.size(); ++r) all += "\n" + group.label(r);
  return all;
}

ReducerNames& names_here(const std::string& what) {
  if (frame().worker)
    if (auto* names = frame().worker->extension<ReducerNames>()) return *names;
  throw_invalid(what + "no worker runs on this thread: make it in an actor of each member");
}

}  // namespace

ReducerNames::Use name_in_group(const Group& group, const std::string& name, const std::string& what) {
  return names_here(what).use({str(group), group.rank(), name});
}

}  // namespace troupe::parallel
