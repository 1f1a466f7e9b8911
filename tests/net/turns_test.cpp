// One stream of bytes over several sockets in turns.
#include <sys/socket.h>

#include <algorithm>
#include <random>

#include "net/socket/stream/stream.h"
#include "tests/net/socket_support.h"

using namespace troupe::internal::net;
using troupe::internal::Descriptor;

namespace {

// Two ends that have one socket and so many lanes, which hold little.
struct Ends {
  explicit Ends(size_t lanes) {
    pair(ends);
    for (size_t i = 0; i < lanes; ++i) {
      Stream lane[2];
      pair(lane);
      for (const int end : {0, 1}) ends[end].join(std::move(lane[end]));
    }
  }
  static void pair(Stream* two) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    for (const int end : {0, 1}) two[end] = Stream(Descriptor(fds[end]));
  }
  ssize_t send(int end, std::span<std::byte> a, std::span<std::byte> b) {
    iovec parts[] = {{a.data(), a.size()}, {b.data(), b.size()}};
    msghdr m{};
    m.msg_iov = parts, m.msg_iovlen = 2;
    const ssize_t n = ends[end].send(m);
    CHECK(parts[0].iov_len + parts[1].iov_len == a.size() + b.size());
    return n;
  }
  ssize_t receive(int end, std::span<std::byte> to) {
    iovec part{to.data(), to.size()};
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    return ends[end].receive(m);
  }
  Stream ends[2];
};

}  // namespace

TEST_CASE("turns go round with so many bytes each") {
  Turns turns(3);
  CHECK_FALSE(Turns());
  for (const size_t way : {0, 1, 2, 0}) {
    CHECK(turns.way() == way);
    CHECK(turns.left() == Turns::kTurn);
    turns.pass(Turns::kTurn - 1);
    CHECK(turns.way() == way);
    CHECK(turns.left() == 1);
    turns.pass(1);
  }
}

TEST_CASE("bytes in turns arrive in order both ways however they are cut") {
  std::mt19937 random(7);
  const auto up_to = [&](size_t most) { return std::uniform_int_distribution<size_t>(0, most)(random); };
  for (const size_t lanes : {1, 2, 5}) {
    Ends both(lanes);
    for (Stream& end : both.ends) end.read_lanes(), end.write_lanes();
    std::vector<std::byte> sent[2], got[2];
    size_t done[2] = {};
    for (auto& bytes : sent) {
      bytes.resize(6 * Turns::kTurn + 12345);
      for (auto& b : bytes) b = static_cast<std::byte>(random());
    }
    std::vector<std::byte> room(400'000);
    while (got[0].size() < sent[1].size() || got[1].size() < sent[0].size())
      for (const int end : {0, 1}) {
        const auto left = std::span(sent[end]).subspan(done[end]);
        const auto some = left.first(std::min(left.size(), 1 + up_to(400'000)));
        const size_t cut = up_to(some.size());
        if (const ssize_t n = both.send(end, some.first(cut), some.subspan(cut)); !some.empty() && n > 0)
          done[end] += static_cast<size_t>(n);
        const ssize_t n = both.receive(end, std::span(room).first(1 + up_to(room.size() - 1)));
        if (n > 0) got[end].insert(got[end].end(), room.begin(), room.begin() + n);
      }
    CHECK(got[0] == sent[1]);
    CHECK(got[1] == sent[0]);
  }
}
