// What a rank brings to an operation: the same on all ranks, or an error says where two of them differ.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/schedule/schedule.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace troupe::internal::collective {

struct Signature {
  Problem problem;
  std::string reduction;  ///< "sum"; empty where nothing is added
  DType dtype = DType::float32;
  /// Of the tensors that it is given, where they are the same for all; of a row where these are gathered.
  std::vector<Shape> shapes;
  Way way = Way::direct;
  size_t piece = kOnePiece;
  /// Devices do it among themselves, once messages have said that all ranks have called it.
  bool on_devices = false;
  uint64_t context = 0;  ///< of the tensors; 0: none that the others have to have, too
  /// The operation that was called, if this is what the ranks tell each other before.
  std::optional<Collective> before = {};

  Collective operation() const { return before.value_or(problem.collective); }
  /// Whether operations of two ranks fit together. Contexts do if they are of different makers: then each
  /// rank may have one of its own.
  bool operator==(const Signature& o) const;
  /// "all_reduce sum float32 [3, 4] by direct", "broadcast float32 [3], [2], ... (5) from rank 1 by tree".
  std::string str() const;
  /// It is what the ranks tell each other before that operation.
  void tell_before(Collective what, bool of_devices);
  /// What is done by messages.
  size_t chunks() const;
  Schedule steps(size_t rank, size_t chunk = 0) const;

 private:
  std::string text() const;
  Problem by_messages() const;
};

/// The first of operation, memory, root, reduction, dtype, shape, rows, way and context in which they differ;
/// empty if they fit together.
std::string difference(const Signature& a, const Signature& b);

}  // namespace troupe::internal::collective
