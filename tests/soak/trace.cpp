// Messages in words, for the trace of a run.
#include "tests/soak/actors.h"
#include "tests/soak/cluster.h"

namespace troupe::soak {
namespace {

std::string method_name(uint64_t id) {
  static const std::map<uint64_t, std::string> names = [] {
    std::map<uint64_t, std::string> out;
    for (const char* name : {"ref.spawn", "ref.register", "ref.give_back", "ref.unpin", "grad.backward",
                             "grad.reach", "grad.report", "grad.drop", "grad.broken", "grad.joined",
                             "grad.release", "optim.create", "optim.step", "optim.drop"})
      out[internal::net::method_id(name)] = name;
    for (const auto& type : hosted())
      for (const auto& m : type->methods)
        out[m.id] = type->name.substr(type->name.rfind(':') + 1) + "::" + m.name;
    return out;
  }();
  const auto at = names.find(id);
  return at == names.end() ? "method " + std::to_string(id) : at->second;
}

void append(std::string& out, const Value& value) {
  if (auto* i = value.get_if<int64_t>())
    out += std::to_string(*i);
  else if (auto* r = value.get_if<RefValue>())
    out += "ref " + std::to_string(r->id.owner) + ":" + std::to_string(r->id.creator) + ":" +
           std::to_string(r->id.number) + " pin " + std::to_string(r->pin);
  else if (auto* list = value.get_if<ValueList>()) {
    out += "[";
    for (const Value& v : *list) out += (&v == list->data() ? "" : ", "), append(out, v);
    out += "]";
  } else {
    out += value.describe();
  }
}

}  // namespace

std::string describe(const internal::net::Packet& packet) {
  std::string out;
  if (const auto* call = std::get_if<internal::net::Call>(&packet)) {
    out = (call->id ? "call " + std::to_string(call->id) : std::string("call")) + " of " +
          method_name(call->method);
    if (call->target.number)
      out += " on " + std::to_string(call->target.creator) + ":" + std::to_string(call->target.number);
    if (call->context)
      out += " in context " + std::to_string(call->context >> 40) + ":" +
             std::to_string(call->context & ((uint64_t{1} << 40) - 1));
    out += " ";
    append(out, Value(call->args));
    return out;
  }
  if (const auto* cancel = std::get_if<internal::net::Cancel>(&packet))
    return "cancel call " + std::to_string(cancel->id);
  if (const auto* started = std::get_if<internal::net::Started>(&packet))
    return "call " + std::to_string(started->id) + " has started";
  const auto& reply = std::get<internal::net::Reply>(packet);
  out = "reply to " + std::to_string(reply.id) + ": ";
  if (reply.result.ok())
    append(out, reply.result.value());
  else
    out += reply.result.error().what();
  return out;
}

}  // namespace troupe::soak
