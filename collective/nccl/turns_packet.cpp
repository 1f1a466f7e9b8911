#include "collective/nccl/turns_packet.h"

#include <cstring>

namespace troupe::internal::collective {

namespace {

constexpr uint64_t kLibraryId = 255;  // in place of a TurnMessage::Kind
constexpr size_t kMostText = 64 << 10, kMostMembers = 1 << 16;

class Writer {
 public:
  void number(uint64_t x) { words_.push_back(x); }
  void text(const std::string& t) {
    number(t.size());
    const size_t at = words_.size();
    words_.resize(at + (t.size() + 7) / 8);
    if (!t.empty()) std::memcpy(words_.data() + at, t.data(), t.size());
  }
  void device(WorkerDevice d) { number(uint64_t{d.worker} << 32 | d.device); }
  std::vector<uint64_t> take() { return std::move(words_); }

 private:
  std::vector<uint64_t> words_;
};

class Reader {
 public:
  explicit Reader(const std::vector<uint64_t>& words) : words_(words) {}
  uint64_t number() {
    if (at_ >= words_.size()) {
      whole_ = false;
      return 0;
    }
    return words_[at_++];
  }
  uint64_t number_up_to(uint64_t most) {
    const uint64_t x = number();
    whole_ = whole_ && x <= most;
    return whole_ ? x : 0;
  }
  std::string text() {
    const size_t size = number_up_to(kMostText), n = (size + 7) / 8;
    if (n > words_.size() - at_) whole_ = false;
    if (!whole_) return {};
    std::string t(size, '\0');
    if (size) std::memcpy(t.data(), words_.data() + at_, size);
    at_ += n;
    return t;
  }
  WorkerDevice device() {
    const uint64_t x = number();
    return {static_cast<WorkerId>(x >> 32), static_cast<uint32_t>(x)};
  }
  bool is_whole() const { return whole_; }
  bool is_at_end() const { return whole_ && at_ == words_.size(); }

 private:
  const std::vector<uint64_t>& words_;
  size_t at_ = 0;
  bool whole_ = true;
};

static_assert(sizeof(WorkerId) <= 4);

}  // namespace

std::vector<uint64_t> words_of(const TurnsPacket& p) {
  const TurnMessage& m = p.message;
  Writer w;
  w.number(p.library_id.empty() ? m.kind : kLibraryId);
  w.number(p.from);
  w.number(p.to);
  w.number(m.operation.id.group);
  w.number(m.operation.id.number);
  if (!p.library_id.empty()) {
    w.text(p.library_id);
    return w.take();
  }
  w.number(m.time);
  w.number(m.was_ready);
  w.number(m.operation.members.size());
  if (!m.operation.members.empty()) {
    w.device(m.operation.leader);
    for (const WorkerDevice d : m.operation.members) w.device(d);
    w.text(m.operation.brings);
    w.number(m.operation.called_by_all);
  }
  w.number(m.error.has_value());
  if (m.error) {
    w.number(static_cast<uint64_t>(m.error->kind()));
    w.text(m.error->message());
    w.text(m.error->worker());
  }
  return w.take();
}

std::optional<TurnsPacket> packet_in(const std::vector<uint64_t>& words) {
  Reader r(words);
  TurnsPacket p;
  TurnMessage& m = p.message;
  const uint64_t kind = r.number();
  p.from = static_cast<uint32_t>(r.number_up_to(UINT32_MAX));
  p.to = static_cast<uint32_t>(r.number_up_to(UINT32_MAX));
  m.operation.id.group = r.number();
  m.operation.id.number = r.number();
  if (kind == kLibraryId) {
    p.library_id = r.text();
    if (!r.is_at_end() || p.library_id.empty()) return {};
    return p;
  }
  if (kind > TurnMessage::failed) return {};
  m.kind = static_cast<TurnMessage::Kind>(kind);
  m.time = r.number();
  m.was_ready = r.number_up_to(1) != 0;
  const size_t members = r.number_up_to(kMostMembers);
  if (members > words.size()) return {};
  if (members) {
    m.operation.leader = r.device();
    for (size_t i = 0; i < members && r.is_whole(); ++i) m.operation.members.push_back(r.device());
    m.operation.brings = r.text();
    m.operation.called_by_all = r.number_up_to(1) != 0;
  }
  if (r.number_up_to(1)) {
    const auto error = static_cast<ErrorKind>(r.number_up_to(kErrorKindCount - 1));
    std::string text = r.text(), worker = r.text();
    m.error = Error(error, std::move(text), {}, std::move(worker));
  }
  if (!r.is_at_end()) return {};
  return p;
}

}  // namespace troupe::internal::collective
