// Names of files that a checkpoint has, and of its folder.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace troupe::datasets {

/// What errors begin with: [checkpoint].
inline constexpr const char* kCheckpointTag = "checkpoint";
inline constexpr const char* kCheckpointIndex = "model.safetensors.index.json";
inline constexpr const char* kCheckpointLock = "lock";

std::string checkpoint_name(int64_t step);
/// Of a name that checkpoint_name() gives; none of any other.
std::optional<int64_t> step_of_checkpoint(const std::string& name);

}  // namespace troupe::datasets
