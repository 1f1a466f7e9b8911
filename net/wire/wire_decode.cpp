// Bytes to packets. Whoever sent them may be broken or hostile: nothing is believed, everything is bounded.
#include <capnp/serialize.h>
#include <fmt/format.h>

#include <cstring>

#include "core/tensor/creation.h"
#include "net/transport.h"
#include "net/wire/wire.capnp.h"
#include "net/wire/wire.h"
#include "net/wire/wire_rules.h"

namespace troupe::internal::net {
namespace {

// Pointers that a packet of depth kMaxValueDepth goes through: three per map level, and a few around them.
constexpr int kNestingLimit = 3 * kMaxValueDepth + 16;

std::string to_string(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

class Reader {
 public:
  Reader(Message& message, Sender* sender) : message_(message), sender_(sender) {}

  Packet read(PacketKind kind, uint64_t flags, uint64_t id, capnp::MessageReader& in) {
    Packet packet = [&]() -> Packet {
      switch (kind) {
        case PacketKind::call:
        case PacketKind::kept:
          return read(in.getRoot<schema::Call>(), kind == PacketKind::kept, flags, id);
        case PacketKind::reply:
          return read(in.getRoot<schema::Reply>(), flags, id);
        default:
          return Reply{.id = id, .result = read(in.getRoot<schema::Error>()), .link = {}};
      }
    }();
    if (used_ != message_.buffers.size())
      throw_invalid(
          fmt::format("[wire] buffer {} of {} belongs to no tensor", used_, message_.buffers.size()));
    if (!unplaced_) return packet;
    fail_tensors(packet, *unplaced_);
    return packet;
  }

 private:
  Call read(schema::Call::Reader in, bool kept, uint64_t flags, uint64_t id) {
    Call call;
    (kept ? call.store_as : call.id) = id;
    call.target = {in.getTarget().getOwner(), in.getTarget().getCreator(), in.getTarget().getNumber()};
    call.method = in.getMethod();
    call.timeout_us = in.getTimeoutUs();
    if (call.timeout_us < 0 || call.timeout_us > kMaxTimeoutUs)
      throw_invalid(fmt::format("[wire] timeout of {} us; expected 0 to {}", call.timeout_us, kMaxTimeoutUs));
    call.context = in.getContext();
    call.grad_enabled = !(flags & kGradDisabled);
    call.no_result = flags & kNoResult;
    call.notify_start = flags & kNotifyStart;
    call.args = read(in.getArgs(), 1);
    if (flags & kJoint) call.joint = take_joint(call.args);
    if (in.hasLink()) call.link = read(in.getLink());
    if (in.hasLate()) read(in.getLate(), call);
    return call;
  }

  static uint64_t take_joint(ValueList& args) {
    const auto* number = args.empty() ? nullptr : args.back().get_if<int64_t>();
    if (!number || !*number) throw_invalid("[wire] a joint call without a number");
    const auto joint = static_cast<uint64_t>(*number);
    args.pop_back();
    return joint;
  }

  static void read(schema::Late::Reader in, Call& call) {
    const auto places = in.getPlaces();
    if (!in.getNumber() || !places.size() || places.size() > call.args.size() || !call.id ||
        !call.target.number)
      throw_invalid(fmt::format("[wire] {} late arguments of {}, with the number {}, of call {} of object {}",
                                places.size(), call.args.size(), in.getNumber(), call.id,
                                call.target.number));
    call.late_number = in.getNumber();
    for (uint64_t place : places) {
      const LatePlace next{static_cast<uint32_t>(place >> 32), static_cast<WorkerId>(place)};
      if (next.index >= call.args.size() || !call.args[next.index].is_null() ||
          (!call.late.empty() && next.index <= call.late.back().index))
        throw_invalid(fmt::format("[wire] argument {} of {} is not late, or is named twice or out of order",
                                  next.index, call.args.size()));
      call.late.push_back(next);
    }
  }

  Reply read(schema::Reply::Reader in, uint64_t flags, uint64_t id) {
    Reply reply;
    reply.id = id;
    reply.result = read(in.getValue(), 1);
    if (in.hasLink()) reply.link = read(in.getLink());
    reply.handed_over = flags & kElsewhere;
    if (reply.handed_over && !reply.result.value().get_if<RefValue>())
      throw_invalid("[wire] a result that went elsewhere, and no reference to it");
    return reply;
  }

  Error read(schema::Error::Reader in) {
    const auto kind = static_cast<uint16_t>(in.getKind());
    if (kind >= kErrorKindCount) throw_invalid(fmt::format("[wire] unknown kind of error {}", kind));
    std::vector<std::string> trail;
    for (auto call : in.getTrail()) trail.push_back(to_string(call));
    return Error(static_cast<ErrorKind>(kind), to_string(in.getMessage()), std::move(trail),
                 to_string(in.getWorker()));
  }

  GradLink read(schema::GradLink::Reader in) {
    GradLink link;
    link.pair = in.getPair();
    link.shared = in.getShared();
    for (const uint64_t among : in.getWaits()) link.waits.push_back(among);
    auto numbers = in.getTensors();
    if (numbers.size() > tensors_)
      throw_invalid(fmt::format("[wire] a gradient link names {} tensors of a packet with {}", numbers.size(),
                                tensors_));
    for (uint32_t i : numbers) link.tensors.push_back(i);
    check_link(link, tensors_);
    return link;
  }

  Value read(schema::Value::Reader in, int depth) {
    if (depth > kMaxValueDepth)
      throw_invalid(fmt::format("[wire] a value nested more than {} deep", kMaxValueDepth));
    switch (in.which()) {
      case schema::Value::NULL_:
        return {};
      case schema::Value::BOOLEAN:
        return in.getBoolean();
      case schema::Value::INTEGER:
        return int64_t{in.getInteger()};
      case schema::Value::REAL:
        return in.getReal();
      case schema::Value::TEXT:
        return to_string(in.getText());
      case schema::Value::BYTES: {
        auto data = in.getBytes();
        Bytes bytes(data.size());
        if (!bytes.empty()) std::memcpy(bytes.data(), data.begin(), bytes.size());
        return bytes;
      }
      case schema::Value::TENSOR:
        return read(in.getTensor());
      case schema::Value::REF:
        return read(in.getRef());
      case schema::Value::LIST:
        return read(in.getList(), depth + 1);
      case schema::Value::MAP: {
        auto entries = in.getMap();
        count(entries.size());
        ValueMap map;
        for (auto entry : entries) {
          auto key = to_string(entry.getKey());
          if (map.contains(key)) throw_invalid(fmt::format("[wire] a map has the key \"{:.64}\" twice", key));
          map.emplace(std::move(key), read(entry.getValue(), depth + 1));
        }
        return map;
      }
    }
    throw_invalid(fmt::format("[wire] unknown kind of value {}", static_cast<int>(in.which())));
  }

  ValueList read(capnp::List<schema::Value>::Reader in, int depth) {
    count(in.size());
    ValueList list;
    list.reserve(in.size());
    for (auto v : in) list.push_back(read(v, depth));
    return list;
  }

  // Lists of short or empty elements could make a small header into a large tree. An honest element takes at
  // least a Value's words.
  void count(size_t values) {
    values_ += values;
    if (values_ * capnp::sizeInWords<schema::Value>() > message_.header.size())
      throw_invalid(fmt::format("[wire] {} values in a header of {} words", values_, message_.header.size()));
  }

  RefValue read(schema::Ref::Reader in) {
    RefValue r;
    r.id = {in.getOwner(), in.getCreator(), in.getNumber()};
    r.type = to_string(in.getType());
    r.sender = in.getSender();
    r.pin = in.getPin();
    return r;
  }

  Tensor read(schema::TensorInfo::Reader in) {
    ++tensors_;
    const uint32_t number = in.getBuffer();
    auto sizes = in.getShape();
    if (number == kNoBuffer) {
      if (sizes.size() != 0) throw_invalid("[wire] an undefined tensor has a shape");
      return {};
    }
    const bool is_beside = in.getDevice() & kBeside;
    if (!is_beside) {
      if (number != used_ || used_ == message_.buffers.size())
        throw_invalid(fmt::format("[wire] a tensor uses buffer {} of a message with {}, where its own is {}",
                                  number, message_.buffers.size(), used_));
      ++used_;
    }
    const auto type = static_cast<uint16_t>(in.getDtype());
    if (type >= kDTypeCount) throw_invalid(fmt::format("[wire] unknown dtype {}", type));
    const auto dtype = static_cast<DType>(type);
    if (sizes.size() > static_cast<uint32_t>(kMaxDims))
      throw_invalid(
          fmt::format("[wire] a tensor of {} dimensions; expected at most {}", sizes.size(), kMaxDims));
    Shape shape;
    auto room = static_cast<int64_t>(item_size(dtype));  // if empty sizes were 1: bounds the strides too
    for (int64_t d : sizes) {
      shape.push_back(d);
      if (d < 0) throw_invalid(fmt::format("[wire] negative size in tensor shape {}", shape.str()));
      if (__builtin_mul_overflow(room, std::max<int64_t>(d, 1), &room))
        throw_invalid(fmt::format("[wire] tensor shape {} has more bytes than can be counted", shape.str()));
    }
    if (is_beside) return beside(number, dtype, shape, in.getDevice() & ~kBeside);
    PinnedBuffer* const pinned = message_.buffers[number].pinned;  // the tensor's memory, if not null
    return placed(view(number, dtype, shape), in.getDevice(), pinned);
  }

  static Device device_of(uint16_t tag) {
    const Device device(static_cast<Device::Kind>(tag & 0xff), static_cast<int8_t>(tag >> 8));
    if ((tag & 0xff) == 0 || (tag & 0xff) >= kDeviceKinds || device.index < 0)
      throw_invalid(fmt::format("[wire] a tensor has the unknown device {:#06x}", tag));
    return device;
  }

  // Its bytes are to come from device to device.
  Tensor beside(uint32_t number, DType dtype, const Shape& shape, uint16_t tag) {
    const Device device = device_of(tag);
    const size_t bytes = static_cast<size_t>(shape.numel()) * item_size(dtype);
    const Limits limits;
    if (!sender_ || !sender_->ways)
      throw_invalid("[wire] the bytes of a tensor come another way, which there is not");
    if (bytes == 0 || bytes > limits.buffer_bytes || (beside_ += bytes) > limits.message_bytes ||
        dtype == DType::boolean)
      throw_invalid(fmt::format("[wire] a tensor {} {} does not come another way than its message",
                                name(dtype), shape.str()));
    if (!sender_->arrival) sender_->arrival = sender_->ways->arrive(sender_->worker);
    try {
      return sender_->arrival->expect(number, dtype, shape, device);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::invalid) throw;
      unplaced_ = e;
    } catch (const std::exception& e) {
      unplaced_ = Error(ErrorKind::failed, fmt::format("[wire] no memory for {} {} on {}: {}", name(dtype),
                                                       shape.str(), device.str(), e.what()));
    }
    return empty({0}, dtype);
  }

  // On the device that it was sent from, if that is here.
  Tensor placed(Tensor t, uint16_t tag, const PinnedBuffer* pinned) {
    if (tag == 0 && t.device().is_cpu()) return t;
    const Device device = device_of(tag);
    if (t.device() == device) return t;  // in memory
    if (has_device(device)) try {
        const bool went = pinned && pinned->there && pinned->there->device() == device;
        const Tensor there = went ? of(pinned->there, t) : sent_on(t, device);
        there.storage()->leaves();  // to the actor that it is for
        return there;
      } catch (const std::exception&) {  // no memory left there, or a device that has failed
        unplaced_ = Error(ErrorKind::failed, fmt::format("[wire] {} cannot be copied to {}: {}", t.summary(),
                                                         device.str(), current_error().what()));
        return t;
      }
    std::string here;
    for (const Device d : all_devices()) here += (here.empty() ? "" : ", ") + d.str();
    unplaced_ =
        Error(ErrorKind::unimplemented,
              fmt::format("[wire] {} was sent from {}, which the receiver does not have (it has {}): send it "
                          "with .to(cpu)",
                          t.summary(), device.str(), here));
    return t;
  }

  // The device copies a chunk while the next one is put into pinned memory; nobody waits for the last.
  static Tensor sent_on(const Tensor& t, Device device) {
    const size_t bytes = t.nbytes();
    const auto pinned = bytes ? backend_of(device).pinned_buffer(bytes, device) : nullptr;
    if (!pinned) return t.data_on(device);
    pinned->there = Storage::allocate(bytes, device);
    for (size_t at = 0; at < bytes;) {
      const size_t n = std::min(PinnedBuffer::kChunk, bytes - at);
      std::memcpy(pinned->data() + at, t.bytes() + at, n);
      pinned->forward(at += n);
    }
    return of(pinned->there, t);
  }

  static Tensor of(Ref<Storage> storage, const Tensor& t) {
    return Tensor(make_ref<TensorImpl>(std::move(storage), t.shape(), t.shape().contiguous_strides(), 0,
                                       t.dtype(), true));
  }

  Tensor view(uint32_t number, DType dtype, const Shape& shape) {
    Buffer& buffer = message_.buffers[number];
    const size_t item = item_size(dtype), bytes = static_cast<size_t>(shape.numel()) * item;
    if (bytes != buffer.size)
      throw_invalid(fmt::format("[wire] a tensor {} {} needs {} bytes; its buffer has {}", name(dtype),
                                shape.str(), bytes, buffer.size));
    if (bytes == 0) return empty(shape, dtype);
    if (!buffer.storage || buffer.offset > buffer.storage->size() ||
        buffer.size > buffer.storage->size() - buffer.offset)
      throw_invalid(fmt::format("[wire] buffer {} lies outside its storage", number));
    if (!buffer.storage->device().is_cpu()) return whole(buffer, dtype, shape);
    const bool aligned = buffer.offset % item == 0 && reinterpret_cast<uintptr_t>(buffer.data()) % item == 0;
    // Numbers may be indices: they must not change once they have been looked at.
    const bool own = !buffer.storage->borrowed() || is_floating(dtype);
    if (!aligned || !own) {
      Tensor copy = empty(shape, dtype);
      std::memcpy(copy.bytes(), buffer.data(), bytes);
      if (dtype == DType::boolean) check_booleans(copy.bytes(), bytes);
      return copy;
    }
    if (dtype == DType::boolean) check_booleans(buffer.data(), buffer.size);
    return whole(buffer, dtype, shape);
  }

  static Tensor whole(Buffer& buffer, DType dtype, const Shape& shape) {
    const auto offset = static_cast<int64_t>(buffer.offset / item_size(dtype));
    return Tensor(make_ref<TensorImpl>(std::move(buffer.storage), shape, shape.contiguous_strides(), offset,
                                       dtype, true));
  }

  Message& message_;
  Sender* const sender_;
  size_t beside_ = 0;  // bytes
  size_t used_ = 0;    // buffers that tensors have: they lie in the order of these
  size_t values_ = 0, tensors_ = 0;
  std::optional<Error> unplaced_;
};

}  // namespace

void fail_tensors(Packet& packet, const Error& why) {
  if (auto* call = std::get_if<Call>(&packet)) {
    call->unplaced = why;
  } else if (auto* reply = std::get_if<Reply>(&packet)) {
    reply->result = why;
    reply->link = {};
  }
}

Packet decode(Message message, Sender* sender) {
  const auto& header = message.header;
  if (header.empty() || header.size() - 1 > kMaxHeaderWords)
    throw_invalid(
        fmt::format("[wire] a header of {} words; expected 1 to {}", header.size(), kMaxHeaderWords + 1));
  auto number = static_cast<uint8_t>(header[0] & kKindMask);
  const bool in_halves = number > static_cast<uint8_t>(PacketKind::handed_over);
  if (number > static_cast<uint8_t>(PacketKind::kept_float16))
    throw_invalid(fmt::format("[wire] unknown kind of packet {}", number));
  const auto halves = static_cast<uint8_t>(in_halves ? (number - 6) / 2 : 0);
  if (in_halves) number = static_cast<uint8_t>(number - kInHalves - 2 * (halves - 1));
  const auto kind = static_cast<PacketKind>(number);
  const uint64_t flags = header[0] & kFlagMask, id = header[0] >> kIdShift;
  if (kind < PacketKind::call)
    throw_invalid(fmt::format("[wire] unknown kind of packet {}", static_cast<int>(kind)));
  const uint64_t known = kind <= PacketKind::kept    ? kGradDisabled | kNoResult | kNotifyStart | kJoint
                         : kind == PacketKind::reply ? kElsewhere
                                                     : 0;
  if (flags & ~known) throw_invalid(fmt::format("[wire] unknown flags {:#x} of a packet", flags));
  if (kind == PacketKind::kept && id == 0) throw_invalid("[wire] a result that stays, as no object");
  const bool one_word = kind >= PacketKind::cancel;
  if (one_word != (header.size() == 1) || (one_word && !message.buffers.empty()))
    throw_invalid(fmt::format("[wire] a packet of kind {} with {} words and {} buffers",
                              static_cast<int>(kind), header.size(), message.buffers.size()));
  if (kind == PacketKind::cancel) return Cancel{id};
  if (kind == PacketKind::started) return Started{id};
  if (kind == PacketKind::handed_over) return Reply{.id = id, .link = {}, .handed_over = true};
  try {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 2 * header.size() + 64;
    options.nestingLimit = kNestingLimit;
    const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(header.data() + 1),
                                                  header.size() - 1);
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1), options);
    Packet packet = Reader(message, sender).read(kind, flags, id, reader);
    if (halves) std::get<Call>(packet).halves = halves;
    return packet;
  } catch (const kj::Exception& e) {
    throw_invalid(fmt::format("[wire] malformed packet: {}", e.getDescription().cStr()));
  }
}

}  // namespace troupe::internal::net
