// Sources as entries: what help, completion and calls by name know of them.
#pragma once
#include <span>
#include <string_view>

#include "core/entry/maker.h"
#include "data/streams/source.h"

namespace troupe::datasets {

/// The sources of files by name: "token_windows", "json_lines", "csv_rows" and so on. Errors are their own.
std::span<const Maker<SourcePtr>> sources();

/// Null: none is called so.
const Maker<SourcePtr>* find_source(std::string_view name);

/// One of them as described_source() takes it: its "kind" and all parameters. One path may stand for a list
/// of one. `invalid` for another name, and for arguments that it has not.
ValueMap description_of(std::string_view name, ValueList positional, ValueMap named);

}  // namespace troupe::datasets
