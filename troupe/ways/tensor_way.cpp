#include "troupe/ways/tensor_way.h"

namespace troupe::internal {

namespace {

const char* text_of(net::Carrier carrier) {
  switch (carrier) {
    case net::Carrier::memory:
      return "memory";
    case net::Carrier::unix_socket:
      return "a Unix socket";
    case net::Carrier::tcp:
      return "TCP";
    case net::Carrier::tls:
      return "TLS";
  }
  return "";
}

// Of bytes in memory of the host.
TensorWay way_of_host(const WayFacts& f) {
  const std::string carrier = text_of(f.link.carrier),
                    small = f.link.ring_up_to ? "a ring of shared memory" : carrier;
  if (f.link.carrier == net::Carrier::memory) return {.way = carrier};
  if (f.link.lent_from)
    return {.way = "shared memory", .at_least = static_cast<int64_t>(f.link.lent_from), .below = small};
  TensorWay w{.way = carrier, .why = f.link.why_no_loan};
  if (f.link.ring_up_to) {
    w.at_least = static_cast<int64_t>(f.link.ring_up_to);
    w.below = small;
  }
  if (!w.why.empty()) return w;
  w.why = f.same_host ? "the worker was not reached by a Unix socket: do both see one network?"
                      : "they are on two hosts";
  return w;
}

}  // namespace

TensorWay way_of(const WayFacts& f) {
  TensorWay host = way_of_host(f);
  if (f.here.is_cpu()) return host;
  const bool in_memory = f.link.carrier == net::Carrier::memory;
  const std::string pinned = !in_memory          ? "pinned memory, then "
                             : f.here == f.there ? ""
                                                 : "a copy from GPU to GPU, in ";
  if (!f.library.empty())
    return {.way = f.library,
            .at_least = static_cast<int64_t>(f.library_from),
            .below = f.library_from > 1 ? pinned + host.way : ""};
  host.way = pinned + host.way;
  if (!host.below.empty()) host.below = pinned + host.below;
  if (!f.why_not.empty()) host.why = f.why_not;
  return host;
}

}  // namespace troupe::internal
