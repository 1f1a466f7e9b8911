#include "parallel/server/compression/compressor.h"

namespace troupe::parallel {

Compressor::Message Compressor::begin(bool pulls, bool pushes) {
  Message message;
  if (!on()) return message;
  std::lock_guard lock(mutex_);
  if (pulls) message.pull = pull_.on() && pull_pays_.next(wire_) ? pull_ : Compression();
  if (pushes && push_.on() && push_pays_.next(wire_)) message.push = push_;
  message.start = clock_.now();
  return message;
}

Packed Compressor::pack(Message& message, const Tensors& tensors, Tensors* residual) {
  Packed packed{tensors, {}};
  const int64_t whole = packed.bytes();
  message.whole += whole;
  if (push_.on()) {
    const TimePoint start = clock_.now();
    packed = parallel::pack(tensors, message.push, push_.keeps_residual() ? residual : nullptr);
    message.packing += clock_.now() - start;
  }
  message.sent += packed.bytes();
  // So that the server says what it took.
  if (on() && packed.forms.empty()) packed.forms.assign(tensors.size(), static_cast<int64_t>(Form::plain));
  return packed;
}

Tensors Compressor::unpack(Message& message, Packed packed, const std::vector<Whole>& wholes) {
  message.received += packed.bytes();
  const TimePoint start = clock_.now();
  packed = {parallel::unpack(std::move(packed), wholes), {}};
  message.unpacking += clock_.now() - start;
  message.pulled_whole += packed.bytes();
  return std::move(packed.parts);
}

void Compressor::end(const Message& message, const Spent& spent) {
  if (!on()) return;
  const Duration took =
      clock_.now() - message.start - message.packing - message.unpacking - Duration(spent.held);
  const int64_t saved = message.whole - message.sent, spared = message.pulled_whole - message.received;
  std::lock_guard lock(mutex_);
  wire_.took(message.sent + message.received, saved > 0 || spared > 0, took);
  if (message.push.on()) push_pays_.coded(saved, message.packing + Duration(spent.unpacking));
  if (message.pull && message.pull->on())
    pull_pays_.coded(spared, message.unpacking + Duration(spent.packing));
}

}  // namespace troupe::parallel
