// The life of a lent block, by exhaustion: every order of what the owner, a receiver and the kernel may do,
// on the real tables, mappings and pages. In every state, what a receiver reads is what was sent, and at the
// end of everything nothing is held. Each safety rule, left out, is found to do harm.
#include <catch2/catch.hpp>

#include <cstring>
#include <deque>
#include <set>
#include <string>

#include "tests/net/exports.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;

namespace {

constexpr size_t kSize = Arena::kSmallest;
constexpr int kSends = 2;

enum class Rule { none, copy, lease, detach, word };

using Step = std::string;
using Steps = std::vector<Step>;

// One owner, one receiver, one tensor that is sent up to twice. Both sides are of this process; a side that
// dies loses what it holds in memory, and its descriptors, and nothing else happens.
class World {
 public:
  explicit World(Rule left_out) : left_out_(left_out), tensor_(Storage::allocate(kSize)) {
    std::memset(tensor_->data(), ++written_, kSize);
  }
  ~World() {
    tensor_ = {};
    held_.clear();
    parts_.importer.reset();
    parts_.exporter->retire();
    collect_lent();
  }

  Steps possible() const {
    Steps steps;
    const auto add = [&](bool may, const char* step) {
      if (may) steps.emplace_back(step);
    };
    add(owner_ && connected_ && tensor_ && sends_ < kSends, "send");
    add(owner_ && tensor_ && written_ < 3, "write");
    add(owner_ && tensor_, "drop");
    add(owner_, "collect");
    add(owner_ && !dealt_, "deal out");
    add(owner_, "owner dies");
    add(receiver_ && connected_ && !on_the_way_.empty(), "deliver");
    add(receiver_ && !held_.empty(), "release");
    add(receiver_, "receiver dies");
    add(connected_, "connection lost");
    add(receiver_ && !connected_ && !detached_, "detach");
    return steps;
  }

  void make(const Step& step) {
    if (step == "send") {
      ++sends_;
      on_the_way_.push_back({*parts_.exporter->lend({tensor_, 0, kSize}), written_});
      if (left_out_ == Rule::word) parts_.exporter->take_back(on_the_way_.back().word);
    } else if (step == "write") {
      if (left_out_ != Rule::copy) tensor_->own_bytes();
      std::memset(tensor_->data(), ++written_, kSize);
    } else if (step == "drop") {
      tensor_ = {};
    } else if (step == "collect") {
      parts_.exporter->collect();
    } else if (step == "deal out") {  // whatever is free is written by somebody else
      dealt_ = Storage::allocate(kSize);
      std::memset(dealt_->data(), 0xee, kSize);
    } else if (step == "deliver") {
      const auto [word, written] = on_the_way_.front();
      on_the_way_.pop_front();
      held_.push_back({parts_.importer->adopt(word, kSize), written});
    } else if (step == "release") {
      held_.pop_front();
    } else if (step == "connection lost") {
      lose();
    } else if (step == "detach") {
      detached_ = true;
      if (left_out_ != Rule::detach || held_.empty()) parts_.importer->detach();
    } else if (step == "owner dies") {
      owner_ = false;
      lose();  // and its side of the memory stays as it is, as a mapping keeps it
    } else if (step == "receiver dies") {
      receiver_ = false;
      die();
      lose();
    }
  }

  // What is wrong now.
  std::string wrong() const {
    for (const Held& h : held_) {
      const auto first = static_cast<int>(h.storage->data()[0]),
                 last = static_cast<int>(h.storage->data()[kSize - 1]);
      if (first != h.written || last != h.written)
        return "the receiver reads " +
               std::string(first == 0xee ? "a block that is dealt out again" : "what was written later");
    }
    if (owner_ && tensor_ && static_cast<int>(tensor_->data()[0]) != written_)
      return "the owner reads something else";
    return {};
  }

  // The applications let go of all, and what has to come of itself comes.
  std::string wrong_at_the_end() {
    if (receiver_ && !connected_) {
      if (!detached_) make("detach");
      if (!held_.empty() && !parts_.importer->detached())
        return "the owner's arena stays mapped as long as the receiver keeps the tensor";
    }
    if (owner_ && !connected_) {
      parts_.exporter->collect();
      if (parts_.exporter->lent_bytes()) return "the block never comes back";
    }
    held_.clear();
    on_the_way_.clear();
    return {};
  }

  // All that decides about what comes; two ways to one state are one.
  std::string state() const {
    std::string s;
    for (const bool b : {owner_, receiver_, connected_, detached_, bool(tensor_), bool(dealt_)})
      s += b ? '1' : '0';
    s += char('0' + sends_);
    s += char('0' + written_);
    for (const auto& m : on_the_way_) s += "m" + std::to_string(m.word >> 48) + std::to_string(m.written);
    for (const Held& h : held_) s += "h" + std::to_string(h.written);
    s += std::to_string(parts_.exporter->lent_bytes() / kSize);
    if (tensor_) s += tensor_->shares_bytes() ? 's' : 'o';
    return s;
  }

 private:
  struct Sent {
    uint64_t word;
    int written;
  };
  struct Held {
    Ref<Storage> storage;
    int written;
  };

  void lose() {
    if (!std::exchange(connected_, false)) return;
    on_the_way_.clear();
    parts_.exporter->retire();
    // Without the lease the owner would take the end of the connection for the end of the receiver.
    if (left_out_ == Rule::lease) forget_words();
  }
  // The kernel closes its descriptors and unmaps; it tells no words.
  void die() {
    const auto words = parts_.words();
    held_.clear();
    parts_.importer.reset();
    parts_.put_back(words);
  }
  void forget_words() {
    for (size_t slot = 0; slot < kSends; ++slot) parts_.exporter->take_back(ExportPlace{slot, 0}.word());
  }

  const Rule left_out_;
  Exports parts_;
  Ref<Storage> tensor_, dealt_;
  std::deque<Sent> on_the_way_;
  std::deque<Held> held_;
  int sends_ = 0, written_ = 0;
  bool owner_ = true, receiver_ = true, connected_ = true, detached_ = false;
};

struct Outcome {
  size_t states = 0;
  std::string wrong;
};

// Walks all states, breadth first; each is reached again from the beginning, since it cannot be copied.
Outcome walk(Rule left_out) {
  std::set<std::string> seen;
  std::deque<Steps> todo{{}};
  while (!todo.empty()) {
    const Steps way = std::move(todo.front());
    todo.pop_front();
    World world(left_out);
    for (const Step& step : way) world.make(step);
    if (!seen.insert(world.state()).second) continue;
    const auto told = [&](const std::string& wrong) {
      std::string text = wrong + ":";
      for (const Step& step : way) text += " " + step + ";";
      return Outcome{seen.size(), text};
    };
    if (const std::string wrong = world.wrong(); !wrong.empty()) return told(wrong);
    for (const Step& step : world.possible()) {
      todo.push_back(way);
      todo.back().push_back(step);
    }
    if (const std::string wrong = world.wrong_at_the_end(); !wrong.empty()) return told(wrong);
  }
  return {seen.size(), {}};
}

}  // namespace

TEST_CASE("in every order of events a receiver reads what was sent, and every block comes back") {
  const size_t in_use = allocator_stats().in_use;
  const Outcome all = walk(Rule::none);
  CHECK(all.wrong == "");
  CHECK(all.states > 300);
  CHECK(allocator_stats().in_use == in_use);
  CHECK(allocator_stats().lent == 0);
}

TEST_CASE("each rule of lent blocks, left out, does harm that this finds") {
  CHECK(walk(Rule::copy).wrong == "the receiver reads what was written later: send; write; deliver;");
  CHECK_THAT(walk(Rule::lease).wrong, Catch::StartsWith("the receiver reads "));
  CHECK_THAT(walk(Rule::word).wrong, Catch::StartsWith("the receiver reads "));
  CHECK_THAT(walk(Rule::detach).wrong, Catch::StartsWith("the owner's arena stays mapped"));
}
