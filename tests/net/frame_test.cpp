// Frames: what is written is what is read, however the stream is cut; lengths are checked before memory is
// taken.
#include "net/protocol/frame.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <random>

#include "net/socket/connection/frame_reader.h"

using namespace troupe;
using namespace troupe::internal::net;

namespace {

Buffer buffer_of(size_t size, int seed) {
  Buffer b{Storage::allocate(size), 0, size};
  for (size_t i = 0; i < size; ++i) b.data()[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(seed));
  return b;
}

Message message_of(size_t words, const std::vector<size_t>& sizes) {
  Message m;
  for (size_t i = 0; i < words; ++i) m.header.push_back(i * 0x0101010101010101u + words);
  for (size_t s : sizes) m.buffers.push_back(buffer_of(s, static_cast<int>(m.buffers.size())));
  return m;
}

void append(std::vector<std::byte>& out, const Message& m) {
  const auto head = message_head(m, Limits{});
  out.insert(out.end(), head.begin(), head.end());
  const auto* words = reinterpret_cast<const std::byte*>(m.header.data());
  out.insert(out.end(), words, words + 8 * m.header.size());
  for (const auto& b : m.buffers) out.insert(out.end(), b.data(), b.data() + b.size);
}

void check_same(const Message& got, const Message& expected) {
  REQUIRE(got.header == expected.header);
  REQUIRE(got.buffers.size() == expected.buffers.size());
  for (size_t i = 0; i < got.buffers.size(); ++i) {
    REQUIRE(got.buffers[i].size == expected.buffers[i].size);
    REQUIRE(got.buffers[i].storage->size() == got.buffers[i].size);
    REQUIRE(got.buffers[i].offset == 0);
    REQUIRE(std::memcmp(got.buffers[i].data(), expected.buffers[i].data(), got.buffers[i].size) == 0);
  }
}

template <class F>
std::string refusal(F&& f, ErrorKind kind = ErrorKind::invalid) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    CHECK(e.message().starts_with("[net] "));
    return e.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("frames arrive whole however the stream is cut") {
  const std::vector<Message> sent = {message_of(3, {5, 0, 200000, 1}), message_of(0, {}),
                                     message_of(1, {0, 0}), message_of(40, {}), message_of(0, {7})};
  std::vector<std::byte> stream;
  for (const auto& m : sent) {
    append(stream, m);
    const auto beat = heartbeat_frame();
    stream.insert(stream.end(), beat.begin(), beat.end());
  }
  const auto bye = goodbye_frame("enough for today");
  stream.insert(stream.end(), bye.begin(), bye.end());
  const auto empty_bye = goodbye_frame("");
  stream.insert(stream.end(), empty_bye.begin(), empty_bye.end());

  for (const size_t step : {size_t{1}, size_t{7}, size_t{16}, size_t{1000}, stream.size()}) {
    for (const bool direct : {false, true}) {
      FrameReader reader{Limits{}};
      std::vector<ReadFrame> frames;
      for (size_t at = 0; at < stream.size();) {
        size_t n = std::min(step, stream.size() - at);
        iovec parts[4];
        const size_t count = direct ? reader.direct(parts) : 0;
        size_t placed = 0;
        for (size_t i = 0; i < count && placed < n; ++i) {
          const size_t part = std::min(parts[i].iov_len, n - placed);
          std::memcpy(parts[i].iov_base, stream.data() + at + placed, part);
          placed += part;
        }
        if (auto f = reader.advance(placed)) frames.push_back(std::move(*f));
        std::span<const std::byte> rest(stream.data() + at + placed, n - placed);
        while (!rest.empty())
          if (auto f = reader.feed(rest)) frames.push_back(std::move(*f));
        at += n;
      }
      REQUIRE(!reader.in_the_middle());
      REQUIRE(frames.size() == 2 * sent.size() + 2);
      for (size_t i = 0; i < sent.size(); ++i) {
        REQUIRE(frames[2 * i].kind == FrameKind::message);
        check_same(frames[2 * i].message, sent[i]);
        REQUIRE(frames[2 * i + 1].kind == FrameKind::heartbeat);
      }
      CHECK(frames[10].kind == FrameKind::goodbye);
      CHECK(frames[10].reason == "enough for today");
      CHECK(frames[11].reason.empty());
    }
  }
}

TEST_CASE("a prefix over the limits is refused and says what and how much") {
  Limits limits;
  limits.header_bytes = 800;
  limits.buffers = 3;
  const auto decode = [&](FramePrefix p) {
    return refusal([&] { (void)decode_prefix(encode_prefix(p), limits); });
  };
  CHECK(decode({FrameKind::message, 100, 3}) == "accepted");
  CHECK(decode({FrameKind::message, 101, 3}) == "[net] a message header of 808 bytes; the limit is 800");
  CHECK(decode({FrameKind::message, (1u << 28) - 1, 0}) ==
        "[net] a message header of 2147483640 bytes; the limit is 800");
  CHECK(decode({FrameKind::message, 0, 4}) == "[net] a message of 4 buffers; the limit is 3");
  CHECK(contains(decode({FrameKind::heartbeat, 1, 0}), "heartbeat with something in it"));
  CHECK(contains(decode({FrameKind::heartbeat, 0, 65536}), "heartbeat with something in it"));
  CHECK(decode({FrameKind::goodbye, 0, 1024}) == "accepted");
  CHECK(contains(decode({FrameKind::goodbye, 0, 1025}), "a goodbye of 1025 bytes; the limit is 1024"));
  CHECK(contains(decode({FrameKind::goodbye, 1, 5}), "a goodbye"));
  CHECK(decode({FrameKind::ring_offer, 0, 0}) == "accepted");
  CHECK(contains(decode({FrameKind::ring_offer, 0, 1}), "offer of shared memory"));
  CHECK(contains(decode({FrameKind::arena_offer, 1, 0}), "offer of shared memory"));
  CHECK(decode({FrameKind::arena_answer, 0, 0}) == "accepted");
  CHECK(decode({FrameKind::ring_answer, 0, 1}) == "accepted");
  CHECK(contains(decode({FrameKind::ring_answer, 0, 2}), "answer to an offer"));
  CHECK(decode({FrameKind::lanes, 0, 16}) == "accepted");
  CHECK(contains(decode({FrameKind::lanes, 0, 17}), "a stream of 17 lanes; the limit is 16"));
  CHECK(contains(decode({FrameKind::lanes, 0, 0}), "a stream of 0 lanes"));
  CHECK(contains(decode({static_cast<FrameKind>(8), 0, 0}), "unknown kind 8"));
}

TEST_CASE("a prefix with any byte changed is refused") {
  const auto good = encode_prefix({FrameKind::message, 12, 3});
  for (size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = good;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      CHECK(contains(refusal([&] { (void)decode_prefix(bad, Limits{}); }), "bytes that are no frame"));
    }
}

TEST_CASE("sizes over the limits are refused before anything is allocated") {
  Limits limits;
  limits.buffer_bytes = 1000;
  limits.message_bytes = 1500;
  const auto decode = [&](std::vector<uint64_t> words) {
    return refusal([&] { (void)decode_sizes(words, limits); });
  };
  CHECK(decode({1000, 500}) == "accepted");
  CHECK(decode({0, 1001}) == "[net] buffer 1 of a message has 1001 bytes; the limit is 1000");
  CHECK(decode({1000, 501}) == "[net] the buffers of a message have over 1500 bytes, which is the limit");
  CHECK(contains(decode({(uint64_t{1} << 48) - 1}), "281474976710655 bytes"));
  CHECK(contains(decode({uint64_t{1} << 56}), "unknown device tag 0100"));
  CHECK(contains(decode({uint64_t{9} << 48}), "unknown device tag 0009"));
  CHECK(decode_sizes({{encode_size(8, {Device::Kind{1}, 1})}}, limits)[0].device ==
        Device(Device::Kind{1}, 1));
  const auto before = allocator_stats().in_use;
  FrameReader reader(limits);
  auto stream = std::vector<std::byte>();
  const auto prefix = encode_prefix({FrameKind::message, 0, 1});
  stream.insert(stream.end(), prefix.begin(), prefix.end());
  const uint64_t huge = uint64_t{1} << 40;
  const auto* bytes = reinterpret_cast<const std::byte*>(&huge);
  stream.insert(stream.end(), bytes, bytes + 8);
  std::span<const std::byte> rest(stream);
  CHECK_THROWS_AS(reader.feed(rest), Error);
  CHECK(allocator_stats().in_use == before);
}

TEST_CASE("a message over the sender's own limits is not sent") {
  Limits limits;
  limits.header_bytes = 80;
  limits.buffers = 2;
  limits.buffer_bytes = 1000;
  limits.message_bytes = 1500;
  const auto head = [&](const Message& m) { return refusal([&] { (void)message_head(m, limits); }); };
  CHECK(head(message_of(10, {1000, 500})) == "accepted");
  CHECK(contains(head(message_of(11, {})), "header of 88 bytes; the limit is 80"));
  CHECK(contains(head(message_of(0, {1, 1, 1})), "3 buffers; the limit is 2"));
  CHECK(contains(head(message_of(0, {1001})), "1001 bytes; the limit is 1000"));
  CHECK(contains(head(message_of(0, {1000, 501})), "over 1500 bytes"));
}

TEST_CASE("a long goodbye is cut") {
  auto frame = goodbye_frame(std::string(5000, 'x'));
  std::span<const std::byte> bytes(frame);
  FrameReader reader{Limits{}};
  CHECK(reader.feed(bytes)->reason == std::string(kGoodbyeBytes, 'x'));
}

TEST_CASE("random bytes are refused or wait for more, and take no memory") {
  std::mt19937_64 random(1);
  Limits limits;
  limits.buffers = 64;
  limits.header_bytes = 4096;
  limits.buffer_bytes = limits.message_bytes = 1 << 16;
  const auto before = allocator_stats().in_use;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    FrameReader reader(limits);
    std::vector<std::byte> stream(16 + random() % 600);
    for (auto& b : stream) b = static_cast<std::byte>(random());
    if (random() % 2) {  // a right prefix before random bytes gets further
      const auto prefix =
          encode_prefix({static_cast<FrameKind>(random() % 5), static_cast<uint32_t>(random() % 600),
                         static_cast<uint32_t>(random() % 70)});
      std::copy(prefix.begin(), prefix.end(), stream.begin());
      for (size_t i = 16; i + 8 <= stream.size(); i += 8)
        if (random() % 8) std::memset(stream.data() + i + 2, 0, 6);
    }
    std::span<const std::byte> rest(stream);
    try {
      while (!rest.empty()) (void)reader.feed(rest);
      CHECK(allocator_stats().in_use <= before + 2 * limits.message_bytes);
    } catch (const Error& e) {
      CHECK((e.kind() == ErrorKind::invalid || e.kind() == ErrorKind::unimplemented));
      ++refused;
    }
  }
  CHECK(refused > 9000);
  CHECK(allocator_stats().in_use == before);
}
