// Hostile headers: built from words, and valid ones damaged at random. decode() gives a packet or `invalid`.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/generator.h"
#include "core/tensor/creation.h"
#include "net/wire/wire.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::internal::net;

namespace {

enum class Verdict { decoded, refused };

Verdict try_decode(Message m) {
  try {
    Packet packet = decode(std::move(m));
    if (auto* call = std::get_if<Call>(&packet)) {  // what came out can be used
      visit_tensors(call->args, [](Tensor& t) {
        if (t.defined()) (void)t.clone_data();
      });
      (void)encode(*call);
    } else if (auto* cancel = std::get_if<Cancel>(&packet)) {
      (void)encode(*cancel);
    } else if (auto* started = std::get_if<Started>(&packet)) {
      (void)encode(*started);
    } else {
      auto& reply = std::get<Reply>(packet);
      if (!reply.result.ok()) (void)std::string(reply.result.error().what());
      (void)encode(reply);
    }
    return Verdict::decoded;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::invalid || !e.message().starts_with("[wire]")) throw;
    return Verdict::refused;
  }
}

std::vector<Message> valid_messages() {
  Call call{.id = 7,
            .target = {1, 2, 3},
            .method = method_id("f"),
            .timeout_us = 1000,
            .context = 4,
            .link = {9, {0, 1}}};
  call.args = {zeros({3, 4}),
               tensor({true, false}),
               int64_t{1},
               std::string("text"),
               Bytes(11),
               RefValue{{1, 2, 3}, "T", 4, 5},
               ValueMap{{"a", ValueList{1.0, true, Value{}}}, {"b", ValueMap{{"c", empty({0})}}}}};
  Reply value{.id = 1, .result = Value(ValueList{tensor({1, 2, 3}), std::string("x")}), .link = {2, {0}}};
  Reply error{.id = 2};
  error.result = Error(ErrorKind::failed, "message").with_worker("w").crossing("one").crossing("two");
  Value deep = int64_t{1};
  for (int i = 1; i < 32; ++i) deep = ValueMap{{"k", deep}};
  return {encode(call),
          encode(value),
          encode(error),
          encode(Call{.args = {deep}}),
          encode(Call{}),
          encode(Reply{}),
          encode(Cancel{3}),
          encode(Started{3}),
          encode(Call{.id = 8, .target = {1, 2, 3}, .joint = 9, .args = {zeros({2}), int64_t{1}}})};
}

Message damaged(const Message& m, Generator& random) {
  Message out = m;
  auto& h = out.header;
  const uint64_t changes = 1 + random.below(4);
  for (uint64_t i = 0; i < changes && !h.empty(); ++i) {
    // The first word must stay right for the reader to be reached at all; damage it only at times.
    const size_t at = random.below(16) == 0 ? 0 : random.below(h.size());
    switch (random.below(7)) {
      case 0:
        h[at] ^= uint64_t{1} << random.below(64);
        break;
      case 1:
        h[at] = random.next();
        break;
      case 2:
        h[at] = random.below(2) ? 0 : ~uint64_t{0};
        break;
      case 3:
        h[at] = h[random.below(h.size())];
        break;
      case 4:
        reinterpret_cast<uint8_t*>(&h[at])[random.below(8)] = static_cast<uint8_t>(random.next());
        break;
      case 5:  // another length
        h.resize(random.below(h.size() + 4));
        break;
      case 6:
        if (!out.buffers.empty()) {
          auto& b = out.buffers[random.below(out.buffers.size())];
          if (random.below(2))
            b.size = random.below(100);
          else
            b.offset = random.below(100);
        }
        break;
    }
  }
  return out;
}

// ---- words of the format, to build what no encoder would

uint64_t struct_pointer(int32_t offset, uint16_t data, uint16_t pointers) {
  return (static_cast<uint64_t>(data) << 32) | (static_cast<uint64_t>(pointers) << 48) |
         (static_cast<uint32_t>(offset) << 2);
}
uint64_t list_pointer(int32_t offset, uint32_t kind, uint32_t size) {
  return (static_cast<uint64_t>(kind | (size << 3)) << 32) | (static_cast<uint32_t>(offset) << 2) | 1;
}
Message of_words(std::vector<uint64_t> words, uint64_t kind = 1) {
  Message m;
  m.header = {uint64_t{1} << 8 | kind};
  m.header.insert(m.header.end(), words.begin(), words.end());
  return m;
}

}  // namespace

TEST_CASE("damaged packets decode or are refused as invalid, nothing else", "[wire][fuzz]") {
  const auto messages = valid_messages();
  Generator random(20240611);
  size_t decoded = 0, refused = 0;
  for (int round = 0; round < 60000; ++round) {
    const auto outcome = try_decode(damaged(messages[random.below(messages.size())], random));
    ++(outcome == Verdict::decoded ? decoded : refused);
  }
  REQUIRE(decoded > 5000);  // the damage is subtle enough to get far
  REQUIRE(refused > 5000);
}

TEST_CASE("every truncation of a packet is refused", "[wire][fuzz]") {
  for (const auto& m : valid_messages())
    for (size_t n = 0; n < m.header.size(); ++n) {
      Message cut = m;
      cut.header.resize(n);
      REQUIRE(try_decode(cut) == Verdict::refused);
    }
}

TEST_CASE("random words are refused", "[wire][fuzz]") {
  Generator random(7);
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint64_t> words(random.below(40));
    for (auto& w : words) w = random.below(3) ? random.next() : random.below(1 << 12);
    (void)try_decode(of_words(std::move(words), random.below(13)));
  }
  REQUIRE(try_decode(of_words({})) == Verdict::refused);
}

TEST_CASE("a small header cannot claim a large tree", "[wire][fuzz]") {
  // A call whose args is a list made of nothing, of single bytes, or of pointers back to itself.
  const auto call_with = [&](std::vector<uint64_t> tail) {
    std::vector<uint64_t> words = {struct_pointer(0, 5, 2), 0, 0, 0, 0, 0, 0};
    words.insert(words.end(), tail.begin(), tail.end());
    return of_words(std::move(words));
  };
  // words[6] is the link, then args.
  const uint64_t many = (1u << 29) - 1;
  const Message voids = call_with({list_pointer(0, 0, many)});
  REQUIRE(try_decode(voids) == Verdict::refused);
  const Message bytes_as_values = call_with({list_pointer(0, 2, 64), 0, 0, 0, 0, 0, 0, 0, 0});
  REQUIRE(try_decode(bytes_as_values) == Verdict::refused);
  const uint64_t empty_structs = many << 2;  // a tag
  REQUIRE(try_decode(call_with({list_pointer(0, 7, 0), empty_structs})) == Verdict::refused);
  // A list of one value that is that list: depth without size.
  const uint64_t tag = (uint64_t{1} << 2) | (uint64_t{2} << 32) | (uint64_t{1} << 48);
  REQUIRE(try_decode(call_with({list_pointer(0, 7, 3), tag, 8, 0, list_pointer(-4, 7, 3)})) ==
          Verdict::refused);
}

TEST_CASE("a dtype is one of those that there are, and fits the bytes", "[wire][fuzz]") {
  const Message good = encode(Call{.args = {zeros({1}), zeros({6}, bfloat16)}});
  // The word that says bfloat16 (4) and buffer 1.
  const auto at =
      std::find(good.header.begin(), good.header.end(), uint64_t{1} << 32 | 4) - good.header.begin();
  REQUIRE(static_cast<size_t>(at) < good.header.size());
  for (uint64_t type = 0; type <= 0xffff; ++type) {
    Message m = good;
    m.header[static_cast<size_t>(at)] = uint64_t{1} << 32 | type;
    const bool fits = type == 4 || type == 5;  // the others have other sizes, or do not exist
    if ((try_decode(std::move(m)) == Verdict::decoded) != fits) FAIL("dtype " << type);
  }
}

TEST_CASE("each tensor has the buffer at its place", "[wire][fuzz]") {
  const Message good = encode(Call{.args = {zeros({1}, bfloat16), ones({1}, bfloat16)}});
  // The words that say bfloat16 (4) and a buffer.
  const auto says = [&](uint64_t buffer) { return buffer << 32 | 4; };
  const auto at = [&](uint64_t buffer) {
    const auto found = std::find(good.header.begin(), good.header.end(), says(buffer));
    REQUIRE(found != good.header.end());
    return static_cast<size_t>(found - good.header.begin());
  };
  for (uint64_t first = 0; first < 4; ++first)
    for (uint64_t second = 0; second < 4; ++second) {
      Message m = good;
      m.header[at(0)] = says(first), m.header[at(1)] = says(second);
      CAPTURE(first, second);
      REQUIRE((try_decode(std::move(m)) == Verdict::decoded) == (first == 0 && second == 1));
    }
}

TEST_CASE("shapes that cannot be are refused", "[wire][fuzz]") {
  const Message good = encode(Call{.args = {empty({0, 3})}});
  const auto at = std::find(good.header.begin(), good.header.end(), 3) - good.header.begin();
  REQUIRE(good.header[static_cast<size_t>(at) - 1] == 0);
  const auto with = [&](int64_t first, int64_t second) {
    Message m = good;
    m.header[static_cast<size_t>(at) - 1] = static_cast<uint64_t>(first);
    m.header[static_cast<size_t>(at)] = static_cast<uint64_t>(second);
    return try_decode(std::move(m));
  };
  REQUIRE(with(0, 5) == Verdict::decoded);
  REQUIRE(with(7, 0) == Verdict::decoded);
  REQUIRE(with(0, -1) == Verdict::refused);
  REQUIRE(with(-3, 0) == Verdict::refused);
  REQUIRE(with(-1, -1) == Verdict::refused);
  REQUIRE(with(int64_t{1} << 62, 4) == Verdict::refused);  // 2^66 bytes: 0 if it wrapped
  REQUIRE(with(int64_t{1} << 32, int64_t{1} << 32) == Verdict::refused);
  REQUIRE(with(0, std::numeric_limits<int64_t>::max()) == Verdict::refused);  // its strides would wrap
  REQUIRE(with(1, 1) == Verdict::refused);                                    // the buffer is empty
}

namespace {

// Takes what comes beside messages, and remembers it.
struct Beside : TensorWays, Arrival {
  std::shared_ptr<Departure> leave(WorkerId, const std::vector<Share>&) override { return nullptr; }
  std::shared_ptr<Arrival> arrive(WorkerId from) override {
    asked.push_back(from);
    return {std::shared_ptr<void>(), this};
  }
  Tensor expect(uint32_t number, DType dtype, const Shape& shape, Device device) override {
    if (number == 9) throw Error(ErrorKind::failed, "no memory");
    if (device.index == 9) throw_invalid("not agreed");
    numbers.push_back(number);
    return empty(shape, dtype);
  }
  void begin(std::function<void(const std::optional<Error>&)>) override {}
  std::vector<WorkerId> asked;
  std::vector<uint32_t> numbers;
};

}  // namespace

TEST_CASE("bytes of a tensor come beside a message only where there is another way", "[wire][fuzz]") {
  const Message good = encode(Call{.args = {zeros({6}, bfloat16)}});
  const auto at = static_cast<size_t>(std::ranges::find(good.header, uint64_t{4}) - good.header.begin());
  REQUIRE(at < good.header.size());
  const auto with = [&](uint64_t number, uint64_t device, uint64_t dtype, Beside* ways, bool keeps = false) {
    Message m = good;
    m.header[at] = number << 32 | device << 16 | dtype;
    if (!keeps) m.buffers.clear();
    Sender sender{7, ways};
    return decode(std::move(m), &sender);
  };
  const auto refused = [&](uint64_t number, uint64_t device, uint64_t dtype, Beside* ways,
                           bool keeps = false) {
    return testing::error_of([&] { (void)with(number, device, dtype, ways, keeps); }).kind() ==
           ErrorKind::invalid;
  };
  Beside ways;
  const Packet packet = with(5, 0x8101, 4, &ways);
  CHECK(std::get<Call>(packet).args[0].get_if<Tensor>()->shape() == Shape({6}));
  CHECK(ways.asked == std::vector<WorkerId>{7});
  CHECK(ways.numbers == std::vector<uint32_t>{5});
  CHECK(std::get<Call>(with(9, 0x8101, 4, &ways)).unplaced->message() == "no memory");
  CHECK(refused(5, 0x8101, 4, nullptr));
  CHECK(refused(5, 0x8101, 3, &ways));        // boolean
  CHECK(refused(5, 0x8100, 4, &ways));        // the CPU
  CHECK(refused(5, 0x80ff, 4, &ways));        // no kind
  CHECK(refused(5, 0x8901, 4, &ways));        // not agreed
  CHECK(refused(5, 0x8101, 4, &ways, true));  // a buffer is left
  Message call = good;
  call.header[at] = uint64_t{5} << 32 | uint64_t{0x8101} << 16 | 4;
  call.buffers.clear();
  CHECK(try_decode(std::move(call)) == Verdict::refused);
}
