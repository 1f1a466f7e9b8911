// Safetensors files: named tensors, readable by most frameworks, with nothing in them that runs.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"
#include "data/formats/file.h"
#include "data/formats/safetensors_entry.h"

namespace troupe::datasets {

/// A safetensors file: 8 bytes of header length (little-endian), a JSON header, the elements. A value; copies
/// share the mapping. Const members may be called from several threads.
class Safetensors {
 public:
  /// Maps the file and checks all of its header: length (at most 100 MB, and inside the file), JSON without
  /// repeated names, and offsets that cover the rest of the file without holes or overlaps, each as large as
  /// dtype and shape say. `invalid`, naming file, tensor, what was found and what was expected. Takes about
  /// four times the memory of the header; elements stay in the file.
  explicit Safetensors(const std::string& path);

  /// In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const& { return entries_; }
  std::vector<SafetensorsEntry> entries() && { return std::move(entries_); }
  /// The texts under "__metadata__".
  const std::map<std::string, std::string>& metadata() const& { return metadata_; }
  std::map<std::string, std::string> metadata() && { return std::move(metadata_); }
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  /// F32, F64, BF16, F16, I64, I32, U8 and BOOL are views of the file, the same storage each time; an
  /// in-place write changes the memory of this process only. I8, I16, U16 and U32 come as int64 copies.
  /// `invalid`: no such tensor, or a BOOL byte that is neither 0 nor 1. `unimplemented`: another dtype of the
  /// format.
  Tensor tensor(const std::string& name) const;
  /// All of them, for Module::load_state_dict.
  std::map<std::string, Tensor> tensors() const;

 private:
  struct Views;
  const SafetensorsEntry* find(const std::string& name) const;

  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<uint32_t> by_name_;  // numbers of entries
  std::shared_ptr<Views> views_;   // those that were asked for; of all copies
  std::map<std::string, std::string> metadata_;
};

/// All tensors of a file.
inline std::map<std::string, Tensor> read_safetensors(const std::string& path) {
  return Safetensors(path).tensors();
}

/// The tensors of a folder of safetensors files, as Hugging Face's `save_pretrained`, PyTorch's distributed
/// checkpoints and Troupe write them: those that model.safetensors.index.json names, or, without it, those of
/// all *.safetensors there but hidden files. Pieces are put together. `invalid` as Safetensors, and for an
/// index that names what is not there, tensors that two files have, pieces that are missing, and a folder
/// without any tensor.
std::map<std::string, Tensor> read_safetensors_folder(const std::string& folder);

/// Writes a file that the reference implementation reads: largest element type first, then by name, elements
/// aligned to 64 bytes from the start of the file. Replaces the file of that name at once when everything is
/// on the disk, or leaves it as it was. `invalid`: an undefined tensor, a name that is "__metadata__" or no
/// UTF-8, a folder that is missing. `failed`: the disk refuses.
void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace troupe::datasets
