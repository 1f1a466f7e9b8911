// Data sets as entries: what help, completion and calls by name know of them.
#pragma once
#include <span>

#include "core/entry/maker.h"
#include "data/datasets/dataset.h"

namespace troupe::datasets {

/// Labelled sets by name: "digits", which needs no file, and what files hold: "mnist", "idx", "csv", "npy",
/// "text". Errors are those of their readers.
std::span<const Maker<Dataset>> sets();

}  // namespace troupe::datasets
