// Tensors of which several files hold a piece each, as PyTorch's distributed checkpoints have them: texts in
// a file's header say where its pieces begin.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "data/checkpoint/piece_offsets.h"

namespace troupe::datasets::detail {

struct Piece {
  std::string where;  ///< "[tag] path: " of its file, for errors
  Tensor part;
  Shape offsets;
};

/// `invalid`, starting with `where`, unless there is a number from 0 for each dimension of the piece.
void check_offsets(const std::string& where, const std::string& name, const Shape& piece,
                   const Shape& offsets);
/// A file's header says where its pieces lie: read from its metadata, and written to them.
PieceOffsets pieces_in(const std::map<std::string, std::string>& metadata, const std::string& where);
std::map<std::string, std::string> metadata_of(const PieceOffsets& pieces);

/// The tensors of several files.
class Gathered {
 public:
  /// `invalid`, naming the file: one that another file has, too, unless each has a piece.
  void add(const std::string& where, const std::string& name, const Tensor& part, const PieceOffsets& pieces);
  /// All, pieces put together. `invalid`, naming a file: pieces that leave something out, have different
  /// elements where they overlap, or are of different types.
  NamedTensors whole() &&;

 private:
  NamedTensors whole_;
  std::map<std::string, std::string> from_;  // the files of whole tensors
  std::map<std::string, std::vector<Piece>> pieces_;
};

}  // namespace troupe::datasets::detail
