// Data sets that scripts hold.
#pragma once
#include "data/streams/source.h"
#include "script/data_sets.h"
#include "tools/repl/lua/lua.h"

namespace troupe::repl {

using DatasetObject = script::NamedDataSet;
template <>
struct ObjectName<DatasetObject> {
  static constexpr const char* value = "dataset";
};

/// A source as described_source() takes it, opened where a script looks into it.
struct SourceObject {
  ValueMap described;
  datasets::SourcePtr opened = nullptr;
};
template <>
struct ObjectName<SourceObject> {
  static constexpr const char* value = "source";
};

}  // namespace troupe::repl
