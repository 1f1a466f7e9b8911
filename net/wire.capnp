# What workers say to each other.
#
# Roles. Every connection joins two workers. Either side sends Calls; the other side answers each Call whose
# id is not 0 with one Reply of the same id. A Cancel says that a Call is no longer wanted; it too gets its one
# Reply. A Started says that a Call has begun, if the caller asked. Nothing else travels: joining the cluster, heartbeats of membership, reference counting and gradients
# are calls to services (target number 0).
#
# Ordering. A connection delivers packets in the order in which they were sent, each at most once. Calls of
# one caller to one actor are therefore handled in order; replies come in any order.
#
# Lifetime. A call lives until its reply, its timeout or the end of its connection, whichever is first.
# Nothing survives its connection: both sides then fail what is open with `disconnected`.
#
# Layout. A packet is one message of one segment: the standard segment table (one word), then the segment. The
# bytes of tensors are not in it: they travel beside it as buffers, which TensorInfo numbers.
#
# Who checks what. The transport checks lengths before it allocates (see Limits in net/transport.h) and the
# peer's token before it delivers anything. decode() in net/wire.cpp checks all that is said here: one
# segment, enum and union values, depth, shapes against buffers. What a number refers to (an actor, a method,
# a context) is checked by its layer.
#
# Evolution. Numbers are never reused. An unknown union member or enum value is refused, not skipped: workers
# of one cluster run one version, which the transport's handshake compares.

@0xd2a7c1f09b3e5846;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::net::schema");

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
}

struct Packet {
  union {
    call @0 :Call;
    reply @1 :Reply;
    cancel @2 :Cancel;
    started @3 :Started;
  }
}

struct Call {
  id @0 :UInt64;
  # Chosen by the caller, unique among its open calls of this connection. 0: no reply is wanted.

  target :group {
    # The actor. Number 0: a service of the worker itself.
    owner @1 :UInt32;
    creator @2 :UInt32;
    number @3 :UInt64;
  }

  method @4 :UInt64;
  # FNV-1a of the method's or service's name.

  timeoutUs @5 :Int64;
  # Time left when the call was sent, in microseconds: from 0 to a hundred years. Clocks are never compared.

  context @6 :UInt64;
  # Distributed autograd context; 0: none.

  gradDisabled @7 :Bool;
  # The caller's grad mode. The default (recording) costs no bits.

  link @8 :GradLink;
  # Null: nothing to link.

  args @9 :List(Value);

  keep @10 :UInt64;
  # Not 0: the result stays with the callee, as the object with this number of the caller (which is its
  # creator), and the caller holds the first reference. Numbers grow along a connection, those of actors that
  # it creates included. `id` is 0 then.

  quiet @11 :Bool;
  # Nobody wants the result: the Reply says only that the call has ended.

  tellStart @12 :Bool;
  # The caller runs out of room for what has not begun: a Started is wanted if the call begins and does not end.
}

struct Reply {
  id @0 :UInt64;
  link @1 :GradLink;
  union {
    value @2 :Value;
    error @3 :Error;
  }
}

struct Cancel {
  # Nobody waits for the Call of this id, which came before on the same connection. One that has not started
  # does not; a coroutine ends where it waits next; a plain method runs to its end. Ignored if the Call has
  # been answered, and for services.

  id @0 :UInt64;
}

struct Started {
  # The Call of this id has begun: what it brought is no longer queued. Its Reply follows some time later.

  id @0 :UInt64;
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
  # a boolean is a byte, 0 or 1. Each buffer belongs to one tensor.

  dtype @0 :DType;

  buffer @1 :UInt32;
  # 0xffffffff: an undefined tensor (a gradient that nobody has); it has no shape.

  shape @2 :List(Int64);
  # At most 8 sizes, none negative.
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
