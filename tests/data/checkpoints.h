// A checkpoint of two workers, for tests.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/creation.h"
#include "data/checkpoint/checkpoint_files.h"

namespace troupe::testing {

inline datasets::CheckpointIndex index_of(int64_t step, std::vector<datasets::CheckpointFile> files) {
  return {step, "a build", "avx2", 2, {{"Bottom#0", "w1"}, {"Top#0", "w2"}}, std::move(files)};
}

/// Commits one; the folder that it is in.
inline std::string commit_step(const datasets::CheckpointFolder& all, int64_t step) {
  const std::string folder = all.begin(step);
  const auto at = double(step);
  std::vector<datasets::CheckpointFile> files;
  files.push_back(datasets::write_checkpoint_file(
      folder, "w1.model.safetensors", {{"Bottom#0.w", tensor({{at, 2}, {3, 4}}, float32)}}, true));
  files.push_back(datasets::write_checkpoint_file(
      folder, "w1.state.safetensors",
      {{"Bottom#0.stream", tensor({step, 7}, int64)}, {"Bottom#0.none", zeros({0, 3})}}, false));
  files.push_back(datasets::write_checkpoint_file(folder, "w2.model.safetensors",
                                                  {{"Top#0.w", tensor({at}, float64)}}, true));
  all.commit(index_of(step, std::move(files)));
  return folder;
}

}  // namespace troupe::testing
