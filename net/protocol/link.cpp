#include "net/protocol/link.h"

#include <cstring>

namespace troupe::internal::net {

std::array<std::byte, kLinkWordsBytes> encode_link_words(const LinkWords& w) {
  std::array<std::byte, kLinkWordsBytes> out;
  const uint32_t words[] = {static_cast<uint32_t>(w.word), w.attempt, w.received, w.direct};
  std::memcpy(out.data(), w.id.data(), 16);
  std::memcpy(out.data() + 16, words, 16);
  std::memcpy(out.data() + 32, &w.path, 8);
  return out;
}

LinkWords decode_link_words(const std::byte* bytes) {
  LinkWords w;
  uint32_t words[4];
  std::memcpy(w.id.data(), bytes, 16);
  std::memcpy(words, bytes + 16, 16);
  std::memcpy(&w.path, bytes + 32, 8);
  w.word = words[0] <= static_cast<uint32_t>(LinkWords::Word::lane) ? static_cast<LinkWords::Word>(words[0])
                                                                    : LinkWords::Word::unknown;
  w.attempt = words[1], w.received = words[2], w.direct = words[3];
  return w;
}

Comeback::Next Comeback::next(TimePoint now, TimePoint heard) const {
  const TimePoint end = heard + silence_;
  if (now >= end) return {Do::give_up, end};
  if (dialling_) return {Do::wait, std::min(end, dialled_ + patience())};
  const TimePoint dial = up_ ? std::max(next_dial_, heard + suspicion()) : next_dial_;
  return now >= dial ? Next{Do::dial, end} : Next{Do::wait, std::min(end, dial)};
}

LinkWords Comeback::dial(TimePoint now, uint32_t received) {
  dialling_ = true;
  dialled_ = now;
  return {.id = id_, .word = LinkWords::Word::again, .attempt = ++attempt_, .received = received};
}

bool Comeback::failed(uint32_t attempt, TimePoint now, Failure failure) {
  if (!dials(attempt)) return true;  // given up already
  // While its connection stands, a listener that has closed says nothing about the process.
  if (!up_ && (failure == Failure::stranger || (failure == Failure::refused && direct_))) return false;
  pause(now);
  return true;
}

LinkWords::Word Comeback::answered(uint32_t attempt, TimePoint now, const LinkWords& answer) {
  using Word = LinkWords::Word;
  if (!dials(attempt)) return Word::later;
  if (answer.word == Word::again && answer.id == id_)
    is_back(attempt);
  else
    pause(now);
  return answer.word == Word::fresh || answer.id != id_ ? Word::unknown : answer.word;
}

LinkWords Comeback::asked(TimePoint now, const LinkWords& dial, uint32_t received) {
  LinkWords answer{.id = id_, .word = LinkWords::Word::later, .attempt = dial.attempt, .received = received};
  // Late: the other end has dialled again since, or the link has come back meanwhile.
  if (ahead(dial.attempt, current_) <= 0) return answer;
  // Both dial. Unless the way from here is not there.
  if (dialling_ && opened_ && now - dialled_ < patience() / 2) return answer;
  is_back(dial.attempt);
  answer.word = LinkWords::Word::again;
  return answer;
}

void Comeback::pause(TimePoint now) {
  dialling_ = false;
  next_dial_ = now + pause_;
  pause_ = std::min<Duration>(2 * pause_, kLastPause);
}

void Comeback::is_back(uint32_t attempt) {
  up_ = true;
  dialling_ = false;
  current_ = attempt;
  if (ahead(attempt, attempt_) > 0) attempt_ = attempt;
  next_dial_ = {};
  pause_ = kFirstPause;
}

}  // namespace troupe::internal::net
