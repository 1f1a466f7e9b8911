// The index of a checkpoint: what its files hold, and how they are to be found again bit for bit.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::datasets {

/// A safetensors file of a checkpoint. Travels between workers.
struct CheckpointFile {
  std::string name;  ///< in the checkpoint's folder, never a path
  uint64_t bytes = 0;
  uint32_t crc32 = 0;  ///< of the whole file
  uint64_t header_bytes = 0;
  uint32_t header_crc32 = 0;
  bool model = false;  ///< parameters and buffers, which other programs look for; else state of training
  std::map<std::string, uint32_t> tensors;  ///< CRC-32 of the bytes of each
};

/// Of checkpoints that are written. In format 1 parameters of parts (parallel::Sharded) have names with
/// ".module".
inline constexpr int64_t kCheckpointFormat = 2;

struct CheckpointIndex {
  int64_t step = 0;
  std::string program;                        ///< which build wrote it
  std::string instructions;                   ///< of the processors
  int64_t world = 0;                          ///< workers
  std::map<std::string, std::string> layout;  ///< path of an actor -> worker
  std::vector<CheckpointFile> files;
  int64_t format = kCheckpointFormat;
  /// Rates and other numbers that the program gave when the job began, by owner and name; older files have
  /// none.
  std::map<std::string, std::map<std::string, std::string>> given = {};
};

/// As a Hugging Face index has it (metadata, weight_map), with "troupe" beside it and a CRC-32 of all before
/// at the end. `invalid`: a text that is not UTF-8.
std::string checkpoint_index_text(const CheckpointIndex& index);

/// `invalid`, starting with `where`, for anything else than a whole text that checkpoint_index_text() gives:
/// bytes that have changed, names that lead out of the folder, names that are there twice.
CheckpointIndex parse_checkpoint_index(std::string_view text, const std::string& where);

/// The weight_map of another program's index: in which file each tensor is. None for one that Troupe wrote.
/// `invalid`, starting with `where`, as above.
std::optional<std::map<std::string, std::string>> parse_weight_map(std::string_view text,
                                                                   const std::string& where);

}  // namespace troupe::datasets
