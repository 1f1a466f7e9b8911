// What a rank brings to an operation of its group: tensors, checked and in place, with the sizes that all
// ranks have to agree on.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/matching/operations.h"
#include "collective/nccl/device_operations.h"
#include "collective/reduction.h"
#include "collective/rows.h"

namespace troupe::internal::collective {

struct Request {
  Signature signature = {};  ///< but for the way
  ReduceOp op = ReduceOp::sum;
  Elements elements = Elements();
  /// What the caller gets, from `elements` at the end.
  std::function<Tensors(const Elements&)> result = {};
  std::vector<int64_t> rows = {};  ///< of each rank, of what gather and all_gather give
  Device device = cpu;             ///< of the elements
  DeviceWork work = {};            ///< of that device, if Signature::on_devices

  size_t bytes() const { return signature.problem.elements() * item_size(signature.dtype); }
  /// What came is put in its place, or added to what is there and, if that completes a mean, divided.
  void take(std::vector<Operations::Taken> takes, size_t rank);
  Tensors results(size_t rank);
};

/// all_reduce, or reduce to a root. Tensors that nobody else has are used in place; the others stay as they
/// are now, whatever the caller writes there.
Request reduction_of(Collective c, Tensors xs, ReduceOp op, size_t root, Standing at);
/// `rows`: how many of the first dimension each rank gets; empty: as even as they can be.
Request reduce_scatter_of(Tensor x, ReduceOp op, const std::vector<int64_t>& rows, Standing at);
Request broadcast_of(Tensors xs, size_t root, Standing at);
Request barrier_of(Standing at);

/// Of an operation whose sizes not all ranks know: what one of them knows.
struct Description {
  Collective collective = Collective::all_gather;
  size_t root = 0;
  bool has_tensor = false;  ///< else the rest is the root's to say
  DType dtype = DType::float32;
  Shape row;                  ///< the sizes behind the first
  std::vector<int64_t> rows;  ///< its own, or for each rank; of a gather also those that it was told of all
  /// Of a tensor on a device.
  std::optional<DevicePlace> place = {};
  std::vector<int64_t> of_all = {};  ///< of an all_to_all: what it was told that each rank sends to each
};
/// A rank and its tensors.
struct Described {
  Description description;
  Tensors brings;
  Device where = cpu;  ///< of what it gets, if it brings nothing

  Device device() const { return brings.empty() ? where : brings[0].device(); }
};
/// Or all_gather. `rows`: that the rank was told of all; may be empty.
Described gather_of(Collective c, Tensor x, size_t root, const std::vector<int64_t>& rows, Standing at);
/// Of a rank that is not the root only the device of `x` counts.
Described scatter_of(Tensor x, size_t root, const std::vector<int64_t>& rows, Standing at);
/// `rows`: what each rank sends to each, that the rank was told; may be empty.
Described all_to_all_of(Tensors xs, const std::vector<int64_t>& rows, Standing at);
/// Those of all, if the rank was told them and need not hear them.
std::optional<std::vector<Description>> known_to_all(const Described& own, Standing at);
/// In which they tell each other.
Request exchange_of(const Description& own, Standing at);
std::vector<Description> descriptions_in(const Tensor& exchanged, Standing at);
/// From what all have told. `invalid`, the same on all ranks, if two differ. `names`: "w3", for errors.
Request request_of(const Described& own, std::vector<Description> all, Standing at,
                   const std::vector<GroupMember>& members);

}  // namespace troupe::internal::collective
