// The messages between workers, as C++ values, and their translation from and to net/wire/wire.capnp.
// This file is the only way to the wire format; no other header sees Cap'n Proto.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/async/future.h"
#include "core/base/error.h"
#include "core/value/value.h"
#include "net/message.h"
#include "net/wire/device_map.h"
#include "net/wire/tensor_ways.h"

namespace troupe::internal::net {

/// Autograd's part of a call or reply: which of its tensors (numbered in visiting order, see visit_tensors)
/// carry gradients back, and through which pair of send and receive nodes.
struct GradLink {
  uint64_t pair = 0;  ///< 0: none; unique on the sender of the message
  std::vector<uint32_t> tensors;
  bool shared = false;  ///< parts of the graph that the sender knows of overlap
  std::vector<uint64_t> waits = {};  ///< of a part of a joint call: among whom steps behind it wait
};

/// An argument of a call that its maker brings by itself.
struct LatePlace {
  uint32_t index = 0;  ///< among the arguments, where it is null
  WorkerId from = kNoWorker;
};

struct Call {
  uint64_t id = 0;            ///< of the caller, for the reply; 0: nobody waits for one; at most 56 bits
  ObjectId target;            ///< actor; number 0: a service of the worker
  uint64_t method = 0;        ///< method_id of the method's or service's name
  int64_t timeout_us = 0;     ///< time left for the call when it was sent
  uint64_t context = 0;       ///< distributed autograd context; 0: none
  bool grad_enabled = true;   ///< the caller's grad mode
  uint8_t halves = 0;         ///< the caller's mode of mixed precision (core/graph/autocast.h): 0, 1 or 2
  uint64_t store_as = 0;      ///< number of the object that the result becomes, with the callee; 0: none.
                              ///< At most 56 bits; `id` is 0 then
  bool no_result = false;     ///< nobody wants the result: the reply only says that the call has ended
  bool notify_start = false;  ///< a Started is wanted, if the call begins and does not end
  uint64_t joint = 0;  ///< of several actors, that may meet in it: the same for all (rref/joint_call.h)
  GradLink link;
  ValueList args;
  std::vector<LatePlace> late = {};    ///< by index
  uint64_t late_number = 0;            ///< among the sender's late calls to the receiver; 0: nothing is late
  std::optional<Error> unplaced = {};  ///< received only: an argument is for a device that is not here
};

struct Reply {
  uint64_t id = 0;
  Result<Value> result = Value{};
  GradLink link;             ///< of a value; an error has none
  bool handed_over = false;  ///< the result has gone to the worker that uses it; here is none, or a
                             ///< reference to it, where the caller asked for that
};

/// Nobody waits for call `id` of the sender any more.
struct Cancel {
  uint64_t id = 0;
};

/// Call `id` of the receiver has begun.
struct Started {
  uint64_t id = 0;
};

using Packet = std::variant<Call, Reply, Cancel, Started>;

/// FNV-1a of a name: methods and services travel as numbers.
constexpr uint64_t method_id(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

/// Tensors become buffers (contiguous ones on the CPU without a copy; those of devices in the host's memory,
/// where they arrive while the message is written (Buffer::pinned), unless the connection takes others, or
/// they go beside it (Message::beside)), everything else header. `invalid` for a device that the map lacks.
Message encode(const Call& call, const DevicePlacing& placing = {});
Message encode(const Reply& reply, const DevicePlacing& placing = {});
Message encode(const Cancel& cancel);
Message encode(const Started& started);
/// What the call takes on the wire: of its header, nearly, and of its tensors. `invalid` if it is too deep.
size_t packet_bytes(const Call& call);
/// Checks everything that a peer could get wrong and throws `invalid` naming it: structure, limits, enum
/// values, depth (at most 32), tensor sizes against buffers. The tensors of the result use the buffers'
/// storages, or are copied to the device that the sender chose; where there is none such, `unplaced` of a
/// call is set, and the result of a reply is the error. Tensors that come beside the message are there when
/// sender->arrival says so.
Packet decode(Message message, Sender* sender = nullptr);
/// Of a packet whose tensors will not be there: the call fails, or the result of the reply is the error.
void fail_tensors(Packet& packet, const Error& why);

}  // namespace troupe::internal::net
