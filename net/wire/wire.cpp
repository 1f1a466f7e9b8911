// Packets to bytes. The header's exact size is counted first, so that it is built in place, in one segment.
#include "net/wire/wire.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "net/wire/wire.capnp.h"
#include "net/wire/wire_rules.h"

namespace troupe::internal::net {
namespace {

static_assert(sizeof(capnp::word) == sizeof(uint64_t));
static_assert(static_cast<int>(schema::ErrorKind::UNIMPLEMENTED) ==
              static_cast<int>(ErrorKind::unimplemented));
static_assert(static_cast<int>(schema::ErrorKind::DISCONNECTED) == static_cast<int>(ErrorKind::disconnected));
static_assert(static_cast<int>(schema::DType::BOOLEAN) == static_cast<int>(DType::boolean));
static_assert(static_cast<int>(schema::DType::FLOAT16) == static_cast<int>(DType::float16));
static_assert(static_cast<int>(schema::DType::UINT8) == static_cast<int>(DType::uint8));

// ---- counting words

size_t words_of_bytes(size_t n) { return (n + 7) / 8; }
// Of a field, where "" is left null.
size_t words_of_text(const std::string& s) { return s.empty() ? 0 : words_of_bytes(s.size() + 1); }

size_t words_inside(const Value& value, int depth);

size_t words_of_list(const ValueList& list, int depth) {  // behind the pointer: a tag word and the elements
  size_t n = 1 + list.size() * capnp::sizeInWords<schema::Value>();
  for (const auto& v : list) n += words_inside(v, depth);
  return n;
}

// What a value needs beside its own struct. Also where a value that is too deep is refused.
size_t words_inside(const Value& value, int depth) {
  if (depth > kMaxValueDepth)
    throw_invalid(fmt::format("[wire] a value nested more than {} deep cannot be sent", kMaxValueDepth));
  if (auto* s = value.get_if<std::string>())
    return words_of_bytes(s->size() + 1);  // even "" has its end mark
  if (auto* b = value.get_if<Bytes>()) return words_of_bytes(b->size());
  if (auto* t = value.get_if<Tensor>())
    return capnp::sizeInWords<schema::TensorInfo>() + (t->defined() ? static_cast<size_t>(t->dim()) : 0);
  if (auto* r = value.get_if<RefValue>()) return capnp::sizeInWords<schema::Ref>() + words_of_text(r->type);
  if (auto* list = value.get_if<ValueList>()) return words_of_list(*list, depth + 1);
  if (auto* map = value.get_if<ValueMap>()) {
    size_t n = 1 + map->size() * capnp::sizeInWords<schema::Entry>();
    for (const auto& [key, v] : *map)
      n += words_of_text(key) + capnp::sizeInWords<schema::Value>() + words_inside(v, depth + 1);
    return n;
  }
  return 0;
}

size_t words_of_link(const GradLink& link) {
  if (link.pair == 0) return 0;
  return capnp::sizeInWords<schema::GradLink>() + words_of_bytes(link.tensors.size() * 4) + link.waits.size();
}

size_t words_inside(const Error& error) {
  size_t n = words_of_text(error.message()) + words_of_text(error.worker()) + error.trail().size();
  for (const auto& call : error.trail()) n += words_of_text(call);
  return n;
}

// ---- building

// What only a device has, and the host need not look at.
bool may_go_beside(const Tensor& t) {
  return t.defined() && !t.device().is_cpu() && t.dtype() != DType::boolean && t.numel() > 0;
}

template <class Values>
std::shared_ptr<Departure> departure_of(const Values& values, const DevicePlacing& placing) {
  if (!placing.ways) return nullptr;
  std::vector<TensorWays::Share> shares;
  visit_tensors(const_cast<Values&>(values), [&](const Tensor& t) {
    if (!may_go_beside(t)) return;
    const Device here = t.device();
    auto share = std::ranges::find(shares, here, &TensorWays::Share::here);
    if (share == shares.end()) share = shares.insert(share, {here, placing.there(here), 0});
    share->bytes += t.nbytes();
  });
  return shares.empty() ? nullptr : placing.ways->leave(placing.to, shares);
}

// Fills the structs and gathers the buffers. Strings are copied as they are: they may hold zero bytes.
class Writer {
 public:
  Writer(Message& message, const DevicePlacing& placing, Departure* departure)
      : message_(message), placing_(placing), departure_(departure) {}

  void write(schema::Value::Builder out, const Value& value) {
    struct Visitor {
      Writer& w;
      schema::Value::Builder& out;
      void operator()(std::monostate) const { out.setNull(); }
      void operator()(bool x) const { out.setBoolean(x); }
      void operator()(int64_t x) const { out.setInteger(x); }
      void operator()(double x) const { out.setReal(x); }
      void operator()(const std::string& s) const { out.setText(text(s)); }
      void operator()(const Bytes& b) const {
        auto data = out.initBytes(static_cast<uint32_t>(b.size()));
        if (!b.empty()) std::memcpy(data.begin(), b.data(), b.size());
      }
      void operator()(const Tensor& t) const { w.write(out.initTensor(), t); }
      void operator()(const RefValue& r) const { w.write(out.initRef(), r); }
      void operator()(const ValueList& l) const { w.write(out.initList(static_cast<uint32_t>(l.size())), l); }
      void operator()(const ValueMap& m) const {
        auto entries = out.initMap(static_cast<uint32_t>(m.size()));
        uint32_t i = 0;
        for (const auto& [key, v] : m) {
          auto entry = entries[i++];
          if (!key.empty()) entry.setKey(text(key));
          w.write(entry.initValue(), v);
        }
      }
    };
    std::visit(Visitor{*this, out}, value.v);
  }

  void write(capnp::List<schema::Value>::Builder out, const ValueList& list) {
    for (uint32_t i = 0; i < list.size(); ++i) write(out[i], list[i]);
  }

  template <class Parent>
  void write_link(Parent out, const GradLink& link) {
    check_link(link, tensors_);
    if (link.pair == 0) return;
    auto to = out.initLink();
    to.setPair(link.pair);
    to.setShared(link.shared);
    if (!link.waits.empty()) {
      auto waits = to.initWaits(static_cast<uint32_t>(link.waits.size()));
      for (uint32_t i = 0; i < link.waits.size(); ++i) waits.set(i, link.waits[i]);
    }
    auto numbers = to.initTensors(static_cast<uint32_t>(link.tensors.size()));
    for (uint32_t i = 0; i < link.tensors.size(); ++i) numbers.set(i, link.tensors[i]);
  }

  void write(schema::Error::Builder out, const Error& error) {
    out.setKind(static_cast<schema::ErrorKind>(error.kind()));
    if (!error.message().empty()) out.setMessage(text(error.message()));
    if (!error.worker().empty()) out.setWorker(text(error.worker()));
    if (error.trail().empty()) return;
    auto trail = out.initTrail(static_cast<uint32_t>(error.trail().size()));
    for (uint32_t i = 0; i < error.trail().size(); ++i)
      if (!error.trail()[i].empty()) trail.set(i, text(error.trail()[i]));
  }

  /// Whether there are buffers that the host cannot read yet.
  bool on_devices() const { return on_devices_; }

 private:
  static capnp::Text::Reader text(const std::string& s) { return {s.data(), s.size()}; }

  void write(schema::TensorInfo::Builder out, const Tensor& t) {
    ++tensors_;
    if (!t.defined()) return out.setBuffer(kNoBuffer);
    const Device d = placing_.there(t.device());
    const auto tag = static_cast<uint16_t>(static_cast<uint8_t>(d.kind) | static_cast<uint8_t>(d.index) << 8);
    if (departure_ && may_go_beside(t))
      if (const auto number = departure_->take(t, d)) {
        out.setDevice(tag | kBeside);
        out.setBuffer(*number);
        return write_geometry(out, t);
      }
    // What build() brings to the host stays where it is for now; booleans are looked at here.
    const bool later = !placing_.in_memory && !d.is_cpu() && t.dtype() != DType::boolean && t.numel() > 0;
    const Tensor dense = (later ? t : t.data_on(placing_.in_memory ? d : cpu)).contiguous_data();
    on_devices_ |= later;
    if (!d.is_cpu()) out.setDevice(tag);
    if (t.dtype() == DType::boolean && dense.device().is_cpu()) check_booleans(dense.bytes(), dense.nbytes());
    out.setBuffer(static_cast<uint32_t>(message_.buffers.size()));
    write_geometry(out, t);
    const size_t offset = static_cast<size_t>(dense.storage_offset()) * item_size(t.dtype());
    message_.buffers.push_back(
        {.storage = dense.storage(), .offset = offset, .size = dense.nbytes(), .device = d});
  }

  static void write_geometry(schema::TensorInfo::Builder out, const Tensor& t) {
    out.setDtype(static_cast<schema::DType>(t.dtype()));
    if (t.dim() == 0) return;
    auto shape = out.initShape(static_cast<uint32_t>(t.dim()));
    for (int i = 0; i < t.dim(); ++i) shape.set(static_cast<uint32_t>(i), t.shape()[i]);
  }

  void write(schema::Ref::Builder out, const RefValue& r) {
    out.setOwner(r.id.owner);
    out.setCreator(r.id.creator);
    out.setNumber(r.id.number);
    if (!r.type.empty()) out.setType(text(r.type));
    out.setSender(r.sender);
    out.setPin(r.pin);
  }

  Message& message_;
  const DevicePlacing placing_;
  Departure* const departure_;
  size_t tensors_ = 0;
  bool on_devices_ = false;
};

// One buffer of a device, in memory of the host: its first bytes are asked for, and maybe there.
Buffer on_host(const Buffer& b) {
  Backend& backend = backend_of(b.storage->device());
  Buffer out{.size = b.size, .device = b.device};
  if (const auto pinned = backend.pinned_buffer(b.size, b.storage->device())) {
    pinned->fetch(b.data());
    out.pinned = pinned.get();
    out.storage = Storage::wrap(pinned->data(), b.size, pinned);
  } else {
    out.storage = Storage::allocate(b.size);
    backend.copy(out.data(), b.data(), b.size, CopyWay::to_host, b.storage->device());
  }
  return out;
}

// Brings buffers of devices to the host. On return each device has done all work before the copies, and the
// first of these, so that whoever writes the message waits for copies alone.
void fetch(std::vector<Buffer>& buffers) {
  const auto away = [](const Buffer& b) { return b.storage && !b.storage->device().is_cpu(); };
  for (const Buffer& b : buffers)
    if (away(b)) b.storage->used_here();
  Device last = cpu;
  std::vector<PinnedBuffer*> first;  // of each run of buffers of one device
  for (Buffer& b : buffers) {
    if (!away(b)) continue;
    const Device device = b.storage->device();
    b = on_host(b);
    if (b.pinned && std::exchange(last, device) != device) first.push_back(b.pinned);
  }
  for (PinnedBuffer* p : first) p->arrived(1);
}

uint64_t first_word(PacketKind kind, uint64_t id, uint64_t flags = 0) {
  if (id >> (64 - kIdShift))
    throw_invalid(fmt::format("[wire] the number {} of a call has more than {} bits", id, 64 - kIdShift));
  return id << kIdShift | flags | static_cast<uint64_t>(kind);
}

// Makes the header: the first word, then the segment, in which `fill(root, writer)` builds. `words`: what the
// root points to.
template <class Root, class Fill>
Message build(uint64_t first, size_t words, const DevicePlacing& placing, Fill&& fill,
              std::shared_ptr<Departure> departure = nullptr) {
  words += 1 + capnp::sizeInWords<Root>();  // the root pointer and the root
  if (words > kMaxHeaderWords)
    throw_invalid(fmt::format("[wire] a packet of {} bytes beside its tensors; the limit is {}", words * 8,
                              kMaxHeaderWords * 8));
  Message message;
  message.header.resize(1 + words);
  auto* segment = reinterpret_cast<capnp::word*>(message.header.data() + 1);
  size_t used = 0;
  bool on_devices = false;
  try {
    capnp::FlatMessageBuilder builder(kj::arrayPtr(segment, words));
    Writer writer(message, placing, departure.get());
    fill(builder.initRoot<Root>(), writer);
    used = builder.getSegmentsForOutput()[0].size();
    on_devices = writer.on_devices();
  } catch (const kj::Exception& e) {
    throw_invalid(fmt::format("[wire] cannot encode: {}", e.getDescription().cStr()));
  }
  message.header.resize(1 + used);
  message.header[0] = first;
  if (on_devices) [[unlikely]]
    fetch(message.buffers);
  message.beside = std::move(departure);
  return message;
}

}  // namespace

void check_link(const GradLink& link, size_t tensors) {
  if (link.pair == 0 && !link.tensors.empty())
    throw_invalid(fmt::format("[wire] a gradient link without a pair names {} tensors", link.tensors.size()));
  if (link.tensors.empty()) return;
  std::vector<bool> seen(tensors);
  for (uint32_t i : link.tensors) {
    if (i >= tensors)
      throw_invalid(fmt::format("[wire] a gradient link names tensor {} of a packet with {}", i, tensors));
    if (seen[i]) throw_invalid(fmt::format("[wire] a gradient link names tensor {} twice", i));
    seen[i] = true;
  }
}

void check_booleans(const std::byte* bytes, size_t size) {
  uint8_t all = 0;
  for (size_t i = 0; i < size; ++i) all |= static_cast<uint8_t>(bytes[i]);
  if (all > 1) throw_invalid("[wire] a bool tensor has bytes other than 0 and 1");
}

static size_t words_of(const Call& call) {
  const size_t late = call.late.empty() ? 0 : capnp::sizeInWords<schema::Late>() + call.late.size();
  const size_t joint = call.joint ? capnp::sizeInWords<schema::Value>() : 0;
  return words_of_link(call.link) + words_of_list(call.args, 1) + late + joint;
}

size_t packet_bytes(const Call& call) {
  size_t bytes = 8 * (capnp::sizeInWords<schema::Call>() + words_of(call));
  visit_tensors(const_cast<ValueList&>(call.args), [&](const Tensor& t) {
    if (t.defined()) bytes += static_cast<size_t>(t.numel()) * item_size(t.dtype());
  });
  return bytes;
}

Message encode(const Call& call, const DevicePlacing& placing) {
  const uint64_t flags = (call.grad_enabled ? 0 : kGradDisabled) | (call.no_result ? kNoResult : 0) |
                         (call.notify_start ? kNotifyStart : 0) | (call.joint ? kJoint : 0);
  auto kind = static_cast<uint8_t>(call.store_as ? PacketKind::kept : PacketKind::call);
  if (call.halves) kind = static_cast<uint8_t>(kind + kInHalves + 2 * (call.halves - 1));
  const uint64_t first =
      first_word(static_cast<PacketKind>(kind), call.store_as ? call.store_as : call.id, flags);
  const auto fill = [&](schema::Call::Builder out, Writer& writer) {
    out.getTarget().setOwner(call.target.owner);
    out.getTarget().setCreator(call.target.creator);
    out.getTarget().setNumber(call.target.number);
    out.setMethod(call.method);
    out.setTimeoutUs(std::clamp<int64_t>(call.timeout_us, 0, kMaxTimeoutUs));
    out.setContext(call.context);
    auto args = out.initArgs(static_cast<uint32_t>(call.args.size()) + (call.joint ? 1 : 0));
    writer.write(args, call.args);
    if (call.joint) args[args.size() - 1].setInteger(static_cast<int64_t>(call.joint));
    writer.write_link(out, call.link);
    if (call.late.empty()) return;
    auto late = out.initLate();
    late.setNumber(call.late_number);
    auto places = late.initPlaces(static_cast<uint32_t>(call.late.size()));
    for (uint32_t i = 0; i < places.size(); ++i)
      places.set(i, uint64_t{call.late[i].index} << 32 | call.late[i].from);
  };
  return build<schema::Call>(first, words_of(call), placing, fill, departure_of(call.args, placing));
}

Message encode(const Reply& reply, const DevicePlacing& placing) {
  if (reply.handed_over && reply.result.ok() && reply.result.value().is_null())
    return {{first_word(PacketKind::handed_over, reply.id)}, {}};
  if (!reply.result.ok()) {
    const Error& error = reply.result.error();
    return build<schema::Error>(
        first_word(PacketKind::error, reply.id), words_inside(error), placing,
        [&](schema::Error::Builder out, Writer& writer) { writer.write(out, error); });
  }
  const Value& value = reply.result.value();
  const size_t words =
      capnp::sizeInWords<schema::Value>() + words_inside(value, 1) + words_of_link(reply.link);
  const uint64_t flags = reply.handed_over ? kElsewhere : 0;
  const auto fill = [&](schema::Reply::Builder out, Writer& writer) {
    writer.write(out.initValue(), value);
    writer.write_link(out, reply.link);
  };
  return build<schema::Reply>(first_word(PacketKind::reply, reply.id, flags), words, placing, fill,
                              departure_of(value, placing));
}

Message encode(const Cancel& cancel) { return {{first_word(PacketKind::cancel, cancel.id)}, {}}; }

Message encode(const Started& started) { return {{first_word(PacketKind::started, started.id)}, {}}; }

}  // namespace troupe::internal::net
