// Data sets that scripts hold.
#pragma once
#include "script/data_sets.h"
#include "script/feeds.h"
#include "tools/repl/lua/lua.h"

namespace troupe::repl {

using DatasetObject = script::NamedDataSet;
template <>
struct ObjectName<DatasetObject> {
  static constexpr const char* value = "dataset";
};

using SourceObject = script::NamedSource;
template <>
struct ObjectName<SourceObject> {
  static constexpr const char* value = "source";
};

}  // namespace troupe::repl
