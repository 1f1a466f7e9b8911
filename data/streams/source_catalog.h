// Sources as entries: what help, completion and calls by name know of them.
#pragma once
#include <span>

#include "core/entry/maker.h"
#include "data/streams/source.h"

namespace troupe::datasets {

/// The sources of files by name: "token_windows", "json_lines", "csv_rows" and so on. Errors are their own.
std::span<const Maker<SourcePtr>> sources();

}  // namespace troupe::datasets
