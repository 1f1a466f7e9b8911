// Messages of turns as they travel: all come as they were sent, and what is none is refused.
#include "collective/nccl/turns_packet.h"

#include <catch2/catch.hpp>

#include "core/base/generator.h"
#include "tests/support/seeds.h"

using namespace troupe;
using namespace troupe::internal::collective;

namespace {

std::string random_text(Generator& random) {
  std::string t(random.below(40), 'x');
  for (char& c : t) c = static_cast<char>('a' + random.below(26));
  return t;
}

TurnsPacket random_packet(Generator& random) {
  TurnsPacket p{static_cast<uint32_t>(random.below(8)), static_cast<uint32_t>(random.below(8))};
  TurnMessage& m = p.message;
  m.operation.id = {random.next(), random.next()};
  if (random.below(6) == 0) {
    p.library_id = "id" + random_text(random);
    return p;
  }
  m.kind = static_cast<TurnMessage::Kind>(random.below(TurnMessage::failed + 1));
  m.time = random.next();
  m.was_ready = random.below(2) != 0;
  if (random.below(2)) {
    for (uint64_t i = 0, n = 1 + random.below(5); i < n; ++i)
      m.operation.members.push_back(
          {static_cast<WorkerId>(random.below(1000)), static_cast<uint32_t>(random.below(8))});
    m.operation.leader = m.operation.members.back();
    m.operation.brings = random_text(random);
    m.operation.called_by_all = random.below(2) != 0;
  }
  if (random.below(2))
    m.error = Error(static_cast<ErrorKind>(random.below(kErrorKindCount)), random_text(random), {},
                    random_text(random));
  return p;
}

}  // namespace

TEST_CASE("messages of turns come as they were sent") {
  Generator random(1);
  for (uint64_t i = 0; i < troupe::testing::seeds(2000); ++i) {
    const TurnsPacket p = random_packet(random);
    const auto came = packet_in(words_of(p));
    REQUIRE(came);
    CHECK(came->from == p.from);
    CHECK(came->to == p.to);
    CHECK(came->library_id == p.library_id);
    const TurnMessage &a = p.message, &b = came->message;
    CHECK(b.operation.id == a.operation.id);
    CHECK(b.kind == a.kind);
    CHECK(b.time == a.time);
    CHECK(b.was_ready == a.was_ready);
    CHECK(b.operation.members == a.operation.members);
    CHECK(b.operation.brings == a.operation.brings);
    CHECK(b.operation.called_by_all == a.operation.called_by_all);
    REQUIRE(b.error.has_value() == a.error.has_value());
    if (!a.error) continue;
    CHECK(b.error->kind() == a.error->kind());
    CHECK(b.error->message() == a.error->message());
    CHECK(b.error->worker() == a.error->worker());
  }
}

TEST_CASE("what is no message of turns is refused") {
  Generator random(2);
  CHECK_FALSE(packet_in({}));
  for (uint64_t i = 0; i < troupe::testing::seeds(2000); ++i) {
    std::vector<uint64_t> words = words_of(random_packet(random));
    std::vector<uint64_t> longer = words, shorter = words;
    longer.push_back(0);
    CHECK_FALSE(packet_in(longer));
    shorter.resize(random.below(words.size()));
    CHECK_FALSE(packet_in(shorter));
    words[random.below(words.size())] = random.next();
    if (const auto packet = packet_in(words)) CHECK(packet_in(words_of(*packet)));
  }
  std::vector<uint64_t> words = words_of({.library_id = "id"});
  words[0] = TurnMessage::failed + 1;
  CHECK_FALSE(packet_in(words));
}
