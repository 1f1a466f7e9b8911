// Pipelines as values: what Python and the shell say of one, which its readers on other workers make it by.
#pragma once
#include "data/streams/pipeline.h"

namespace troupe::datasets {

/// {"kind": "token_windows", "files": [...], "context": 1024}, and so any source of sources() with its
/// parameters; "in_memory" of "x" and "y"; "mixed" of "parts", lists of a source and its weight, and "size";
/// "side_by_side" of "sources". `invalid` for another kind, and where something is missing or of another
/// type.
SourcePtr described_source(const ValueMap& source);

/// Made by recipe(): of {"source": {...}, "batch": 32, "drop_last": false, "pad": {"ids": 0}, "pad_to": 1,
/// "repeat": 1, "skip_broken": false}, and, where they are there, "seed" with "block" and "together", "take",
/// "pack", a list of a field and a length, and "bucket", one of a field and boundaries.
Pipeline described_pipeline(const ValueMap& description);

}  // namespace troupe::datasets
