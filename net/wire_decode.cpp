// Bytes to packets. Whoever sent them may be broken or hostile: nothing is believed, everything is bounded.
#include <capnp/serialize.h>
#include <fmt/format.h>

#include <cstring>

#include "net/wire.capnp.h"
#include "net/wire.h"
#include "net/wire_rules.h"

namespace troupe::net {
namespace {

// Pointers that a packet of depth kMaxValueDepth goes through: three per map level, and a few around them.
constexpr int kNestingLimit = 3 * kMaxValueDepth + 16;

std::string to_string(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

class Reader {
 public:
  explicit Reader(Message& message) : message_(message), used_(message.buffers.size()) {}

  Packet read(schema::Packet::Reader in) {
    Packet packet = [&]() -> Packet {
      switch (in.which()) {
        case schema::Packet::CALL:
          return read(in.getCall());
        case schema::Packet::REPLY:
          return read(in.getReply());
        case schema::Packet::CANCEL:
          return Cancel{in.getCancel().getId()};
        case schema::Packet::STARTED:
          return Started{in.getStarted().getId()};
      }
      throw_invalid(fmt::format("[wire] unknown kind of packet {}", static_cast<int>(in.which())));
    }();
    for (size_t i = 0; i < used_.size(); ++i)
      if (!used_[i])
        throw_invalid(fmt::format("[wire] buffer {} of {} belongs to no tensor", i, used_.size()));
    return packet;
  }

 private:
  Call read(schema::Call::Reader in) {
    Call call;
    call.id = in.getId();
    call.target = {in.getTarget().getOwner(), in.getTarget().getCreator(), in.getTarget().getNumber()};
    call.method = in.getMethod();
    call.timeout_us = in.getTimeoutUs();
    if (call.timeout_us < 0 || call.timeout_us > kMaxTimeoutUs)
      throw_invalid(fmt::format("[wire] timeout of {} us; expected 0 to {}", call.timeout_us, kMaxTimeoutUs));
    call.context = in.getContext();
    call.grad_enabled = !in.getGradDisabled();
    call.keep = in.getKeep();
    if (call.keep && call.id) throw_invalid("[wire] a call whose result stays wants a reply");
    call.quiet = in.getQuiet();
    call.tell_start = in.getTellStart();
    call.args = read(in.getArgs(), 1);
    if (in.hasLink()) call.link = read(in.getLink());
    return call;
  }

  Reply read(schema::Reply::Reader in) {
    Reply reply;
    reply.id = in.getId();
    switch (in.which()) {
      case schema::Reply::VALUE:
        reply.result = read(in.getValue(), 1);
        break;
      case schema::Reply::ERROR:
        reply.result = read(in.getError());
        break;
      default:
        throw_invalid(fmt::format("[wire] unknown kind of reply {}", static_cast<int>(in.which())));
    }
    if (in.hasLink()) reply.link = read(in.getLink());
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
    if (number >= used_.size())
      throw_invalid(fmt::format("[wire] a tensor uses buffer {} of a message with {}", number, used_.size()));
    if (used_[number]) throw_invalid(fmt::format("[wire] two tensors use buffer {}", number));
    used_[number] = true;

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
    return view(number, dtype, shape);
  }

  Tensor view(uint32_t number, DType dtype, const Shape& shape) {
    Buffer& buffer = message_.buffers[number];
    const size_t item = item_size(dtype), bytes = static_cast<size_t>(shape.numel()) * item;
    if (bytes != buffer.size)
      throw_invalid(fmt::format("[wire] a tensor {} {} needs {} bytes; its buffer has {}", name(dtype),
                                shape.str(), bytes, buffer.size));
    if (bytes == 0) return Tensor::empty(shape, dtype);
    if (!buffer.storage || buffer.offset > buffer.storage->size() ||
        buffer.size > buffer.storage->size() - buffer.offset)
      throw_invalid(fmt::format("[wire] buffer {} lies outside its storage", number));
    if (dtype == DType::boolean) check_booleans(buffer.data(), buffer.size);
    const bool aligned = buffer.offset % item == 0 && reinterpret_cast<uintptr_t>(buffer.data()) % item == 0;
    if (!aligned) {
      Tensor copy = Tensor::empty(shape, dtype);
      std::memcpy(copy.bytes(), buffer.data(), bytes);
      return copy;
    }
    const auto offset = static_cast<int64_t>(buffer.offset / item);
    return Tensor(make_ref<TensorImpl>(std::move(buffer.storage), shape, shape.contiguous_strides(), offset,
                                       dtype, true));
  }

  Message& message_;
  std::vector<bool> used_;  // buffers that a tensor has
  size_t values_ = 0, tensors_ = 0;
};

}  // namespace

Packet decode(Message message) {
  const auto& header = message.header;
  if (header.size() < 2 || header.size() - 1 > kMaxHeaderWords)
    throw_invalid(
        fmt::format("[wire] a header of {} words; expected 2 to {}", header.size(), kMaxHeaderWords + 1));
  if (const auto segments = (header[0] & 0xffffffff) + 1; segments != 1)
    throw_invalid(fmt::format("[wire] a header of {} segments; expected 1", segments));
  if (const auto words = header[0] >> 32; words != header.size() - 1)
    throw_invalid(
        fmt::format("[wire] a segment of {} words in a header with room for {}", words, header.size() - 1));
  try {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 2 * header.size() + 64;
    options.nestingLimit = kNestingLimit;
    capnp::FlatArrayMessageReader reader(
        kj::arrayPtr(reinterpret_cast<const capnp::word*>(header.data()), header.size()), options);
    return Reader(message).read(reader.getRoot<schema::Packet>());
  } catch (const kj::Exception& e) {
    throw_invalid(fmt::format("[wire] malformed packet: {}", e.getDescription().cStr()));
  }
}

}  // namespace troupe::net
