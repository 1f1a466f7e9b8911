// A peer by hand that goes on by several sockets in turns: it falls silent, and gives up dials.
#include <memory>

#include "net/socket/stream/turns.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;

namespace {

// Opens a link to a transport, and dials the sockets of its lanes one by one.
struct ByHand {
  explicit ByHand(const SocketLimits& limits)
      : server(transport(events, "w2", limits)),
        listener(server->listen("tcp:127.0.0.1:0")),
        first(listener->address()) {
    REQUIRE(first.shake(kToken, kProtocolVersion, {.id = id}).state() == Handshake::State::done);
    events.wait_accepted(1);
  }
  std::unique_ptr<RawClient> dial_lane(uint32_t number, uint32_t lanes) const {
    using Word = LinkWords::Word;
    auto lane = std::make_unique<RawClient>(listener->address());
    const auto h = lane->shake(kToken, kProtocolVersion,
                               {.id = id, .word = Word::lane, .received = number, .direct = lanes});
    REQUIRE(h.peer_link().word == Word::lane);
    return lane;
  }

  const LinkId id{std::byte{1}};
  Recorder events;
  std::unique_ptr<Transport> server;
  std::unique_ptr<Listener> listener;
  RawClient first;
};

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> frame(const Message& m, uint32_t number) {
  auto bytes = message_head(m, Limits{}, number);
  append(bytes, std::as_bytes(std::span(m.header)));
  for (const Buffer& b : m.buffers) append(bytes, b.travelling());
  return bytes;
}

}  // namespace

TEST_CASE("a peer that falls silent is given up while bytes wait whose turn does not come") {
  SocketLimits limits;
  limits.heartbeat = std::chrono::milliseconds(20);
  limits.dead_after = std::chrono::seconds(1);
  for (const uint32_t made : {2, 1}) {  // of two: the second one may be missing
    ByHand peer(limits);
    std::vector<std::unique_ptr<RawClient>> lanes;
    for (uint32_t i = 0; i < made; ++i) lanes.push_back(peer.dial_lane(i, 2));
    lanes.back()->send(heartbeat_frame());
    auto last = frame(message(1), 0);
    append(last, lanes_frame(2));
    peer.first.send(last);
    peer.events.wait_messages(1);
    if (made == 2) {
      lanes[0]->send(frame(message(2), 1));
      peer.events.wait_messages(2);  // what comes next comes by this lane, too
    }
    peer.events.wait_closed(1);
    CHECK_THAT(peer.events.closed[0].message(), Contains("worker raw9") && Contains("silent for 1 s"));
  }
}
