// Data sets that scripts hold.
#pragma once
#include "data/datasets/loader.h"
#include "tools/repl/lua/lua.h"

namespace troupe::repl {

struct DatasetObject {
  datasets::Dataset set;
  datasets::LoaderOptions options;
  int64_t epoch = 0;  ///< of the next batches() that names none
};
template <>
struct ObjectName<DatasetObject> {
  static constexpr const char* value = "dataset";
};

}  // namespace troupe::repl
