# What workers say to each other.
#
# Roles. Every connection joins two workers. Either side sends calls; the other side answers each call whose
# id is not 0 with one reply or error of the same id. A cancel says that a call is no longer wanted; it too gets
# its one answer. A started says that a call has begun, if the caller asked. Nothing else travels: joining the
# cluster, heartbeats of membership, reference counting and gradients are calls to services (target number 0).
#
# Ordering. A connection delivers packets in the order in which they were sent, each at most once. Calls of
# one caller to one actor are therefore handled in order; replies come in any order.
#
# Lifetime. A call lives until its reply, its timeout or the end of its connection, whichever is first.
# Nothing survives its connection: both sides then fail what is open with `disconnected`.
#
# Layout. A packet is one word and, except where it says all, one segment (the length of the packet is that of
# its frame, so there is no segment table). The word: what the packet is in the low 4 bits, flags in the next 4,
# and an id in the other 56.
#
#   1  call     root Call. The id is the caller's, unique among its open calls of this connection. 0: no reply
#               is wanted.
#   2  kept     root Call. The result stays with the callee, as the object with this number of the caller
#               (which is its creator), and the caller holds the first reference. Numbers grow along a
#               connection, those of actors that it creates included. No reply.
#   3  reply    root Reply, to the call of this id
#   4  error    root Error, likewise
#   5  cancel   nothing else. Nobody waits for the call of this id, which came before on the same connection.
#               One that has not started does not; a coroutine ends where it waits next; a plain method runs
#               to its end. Ignored if the call has been answered, and for services.
#   6  started  nothing else. The call of this id has begun: what it brought is no longer queued. Its answer
#               follows some time later.
#   7  handed_over  nothing else. The call of this id ended well, and its result has gone to the worker that
#               uses it, since the caller asked for that (actors/calls/hand_over.h).
#   8, 10   as 1, and 9, 11 as 2, of a caller with mixed precision (core/graph/autocast.h): the method runs in
#               bfloat16 (8, 9) or float16
#
# Flags of calls: 16, the caller does not record (its grad mode); 32, nobody wants the result: the reply says
# only that the call has ended; 64, the caller runs out of room for what has not begun: a started is wanted if
# the call begins and does not end; 128, of several actors by one caller, that may meet in it: the last argument is
# no argument but the number of that call, not 0. Of replies: 16, the result has gone to the worker that uses it, and stays where
# it was made, too: the value is a reference to it.
#
# The bytes of tensors are not in a packet: they travel beside it as buffers, which TensorInfo numbers.
#
# Who checks what. The transport checks lengths before it allocates (see Limits in net/transport.h) and the
# peer's token before it delivers anything. decode() (net/wire/wire_decode.cpp) checks all that is said here: one
# segment, enum and union values, depth, shapes against buffers. What a number refers to (an actor, a method,
# a context) is checked by its layer.
#
# Evolution. Numbers are never reused. An unknown union member or enum value is refused, not skipped: workers
# of one cluster run one version, which the transport's handshake compares.

@0xd2a7c1f09b3e5846;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::internal::net::schema");

enum ErrorKind {
  # What the caller does next. The same numbers as `ErrorKind` in core/error.h.

  invalid @0;        # fix the call
  failed @1;         # user code threw
  overloaded @2;     # try again later
  deadline @3;       # took longer than the caller allowed
  disconnected @4;   # a worker is gone
  cancelled @5;      # nobody wants the result any more
  unimplemented @6;  # use another way
}

enum DType {
  # Element types. The same numbers as `DType` in core/dtype.h.

  float32 @0;
  float64 @1;
  int64 @2;
  boolean @3;
  bfloat16 @4;
  float16 @5;
  int32 @6;
  uint8 @7;
}

struct Call {
  target :group {
    # The actor. Number 0: a service of the worker itself.
    owner @0 :UInt32;
    creator @1 :UInt32;
    number @2 :UInt64;
  }

  method @3 :UInt64;
  # FNV-1a of the method's or service's name.

  timeoutUs @4 :Int64;
  # Time left when the call was sent, in microseconds: from 0 to a hundred years. Clocks are never compared.

  context @5 :UInt64;
  # Distributed autograd context; 0: none.

  link @6 :GradLink;
  # Null: nothing to link.

  args @7 :List(Value);

  late @8 :Late;
  # Null: all arguments are there.
}

struct Late {
  # Arguments that are null here and that their makers bring by themselves.

  number @0 :UInt64;
  # Of the call among the caller's late calls to this worker: they leave, and so arrive, in the order of their
  # numbers. Not 0.

  places @1 :List(UInt64);
  # Which arguments, in ascending order, and who brings them: place << 32 | worker. At least one.
}

struct Reply {
  value @0 :Value;
  link @1 :GradLink;
}

struct Error {
  # What the caller's future throws. `trail`: the calls that it crossed, innermost first. `worker`: who was
  # lost, where kind is `disconnected`.
  kind @0 :ErrorKind;
  message @1 :Text;
  trail @2 :List(Text);
  worker @3 :Text;
}

struct GradLink {
  # The tensors of this packet through which gradients come back.

  pair @0 :UInt64;
  # Joins the sender's send node with the receiver's receive node. Unique on the sender. Not 0.

  tensors @1 :List(UInt32);
  # Which tensors, numbered in order of appearance in args or value. No number twice.

  shared @2 :Bool;
  # Parts of the context's graph that the sender knows of overlap: a backward pass that comes this way has to
  # count who will send gradients before it runs anything.

  waits @3 :List(UInt64);
  # Of the answer to a part of a joint call: among whom steps behind it wait for others (WaitingRule::among()).
}

struct Value {
  # A tree of plain data; at most 32 values deep, counting the leaf.
  union {
    null @0 :Void;
    boolean @1 :Bool;
    integer @2 :Int64;
    real @3 :Float64;
    text @4 :Text;           # bytes as they are; UTF-8 by custom
    bytes @5 :Data;
    tensor @6 :TensorInfo;
    ref @7 :Ref;
    list @8 :List(Value);
    map @9 :List(Entry);     # no key twice
  }
}

struct Entry {
  key @0 :Text;
  value @1 :Value;
}

struct TensorInfo {
  # A row-major tensor whose bytes are buffer number `buffer`: exactly product(shape) elements, little-endian;
  # a boolean is a byte, 0 or 1. Each buffer belongs to one tensor; they lie
  # in the order of these.

  dtype @0 :DType;

  buffer @1 :UInt32;
  # 0xffffffff: an undefined tensor (a gradient that nobody has); it has no shape.
  # If `device` has 32768: the number of the transfer from device to device that brings its bytes. It is not among the
  # buffers, not boolean, and not empty. Tensors of one transfer come in the order in which they are here.

  shape @2 :List(Int64);
  # At most 8 sizes, none negative.

  device @3 :UInt16;
  # Where the receiver puts it: the kind of device, and 256 times its number. 0: the CPU. The buffer is the host's,
  # or in messages that stay in the memory of a process that device's. A receiver without that device answers a call with `unimplemented`.
  # 32768 more: the bytes do not come with the message, but from device to device (net/wire/tensor_ways.h).
}

struct Ref {
  # A remote reference that changes hands.
  owner @0 :UInt32;
  creator @1 :UInt32;
  number @2 :UInt64;
  type @3 :Text;
  sender @4 :UInt32;
  pin @5 :UInt64;            # what the receiver tells `sender` once its own hold is registered; 0: nothing
}
