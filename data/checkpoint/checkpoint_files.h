// The files of checkpoints: each worker writes its own, an index that is written last makes a checkpoint of
// them.
//
//   DIR/lock  DIR/step-0000000120/{w1.model.safetensors, w1.state.safetensors, ...,
//   model.safetensors.index.json}
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/tensor/tensor.h"
#include "data/checkpoint/checkpoint_index.h"
#include "data/checkpoint/piece_offsets.h"

namespace troupe::datasets {

/// Writes folder/name whole or not at all, flushed to the disk. `invalid` as write_safetensors(), for a name
/// with a folder in it and for offsets that do not fit; `failed`: the disk refuses.
CheckpointFile write_checkpoint_file(const std::string& folder, const std::string& name,
                                     const NamedTensors& tensors, bool model,
                                     const PieceOffsets& pieces = {});

/// Where the checkpoint of a step is: dir/step-0000000120.
std::string checkpoint_path(const std::string& dir, int64_t step);
/// The steps in `dir` that have an index, ascending. Links do not count; CheckpointFolder refuses them.
std::vector<int64_t> committed_steps(const std::string& dir);

/// A checkpoint, read. A value; copies share the mapped files. Const members may be called from several
/// threads.
class Checkpoint {
 public:
  /// Reads the index of the folder of a step. `invalid`, naming file, offset and reason, for one that is
  /// missing or not as it was written, or is of another step than the folder's name says.
  explicit Checkpoint(const std::string& folder);

  const CheckpointIndex& index() const&;
  CheckpointIndex index() &&;
  /// The tensors of the model's files, or of the other ones, whose names begin with `prefix`, by the rest of
  /// their names; pieces put together. Views of the files, as Safetensors::tensor(). What is taken has been
  /// compared with its CRC-32; `invalid`, naming file, tensor, offset and reason, if it is not as it was
  /// written.
  NamedTensors tensors(const std::string& prefix, bool model) const;
  /// Reads all files whole; `invalid` if one is not as it was written.
  void verify() const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

/// What to do about a checkpoint that was refused, for the end of its error: names the newest other one in
/// `dir` that is whole. Reads those all.
std::string other_checkpoints(const std::string& dir, int64_t refused);

/// The folder that a job writes its checkpoints into, locked against other jobs. Of worker 0 alone; the
/// others write into the folders that it begins.
class CheckpointFolder {
 public:
  /// Makes the folder, if it is missing, and locks it, until this object or the process ends. `invalid` where
  /// another process has the lock, naming it, and where a link or a file is called as the folder of a step.
  explicit CheckpointFolder(std::string dir);
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  std::string dir() const { return dir_; }
  /// Makes the folder of a step, without what an earlier attempt left in it; its path. `invalid` if the step
  /// has a checkpoint.
  std::string begin(int64_t step) const;
  /// Writes the index: now it is a checkpoint, on the disk with all its files.
  void commit(const CheckpointIndex& index) const;
  /// Removes what was begun and will not be committed, as far as the disk lets it.
  void abandon(int64_t step) const noexcept;
  /// Removes all but the newest `keep` (at least 1) checkpoints, and what was begun and never committed. What
  /// it did not make stays.
  void prune(int keep) const;

 private:
  const std::string dir_;
  internal::Descriptor lock_;
};

}  // namespace troupe::datasets
