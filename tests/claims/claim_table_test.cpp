// Claims of workers as a table without threads: who gets which, all or none, and what is free again when
// somebody dies.
#include "troupe/claims/claim_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <random>

#include "tests/support/seeds.h"

using namespace troupe;
using namespace troupe::internal;

namespace {

using Ask = ClaimTable::Ask;

std::string name_of(WorkerId id) { return "w" + std::to_string(id); }

ClaimRequest request(std::vector<WorkerId> among, size_t count, bool share = false,
                     const std::string& who = "trainer") {
  return {who, std::move(among), count, share};
}

// The table, the links from it to workers and back, and programs that claim, hold, give back, and die. Links
// keep the order of messages; a link that is reset loses what is on it, and its worker.
class Cluster {
 public:
  explicit Cluster(uint64_t seed) : random_(seed) {
    for (WorkerId w = 1; w <= kWorkers; ++w) workers_[w];
    for (WorkerId p = 0; p < kPrograms; ++p) programs_[kFirst + p];
  }
  /// One event of those that can happen, and what must hold after each.
  void step() {
    switch (pick(10)) {
      case 0:
        claim();
        break;
      case 1:
        give_back();
        break;
      case 2:
        if (pick(12) == 0) kill_worker();
        break;
      case 3:
        if (pick(6) == 0) kill_program();
        break;
      default:
        deliver();
    }
    check();
  }
  /// All programs die, and all that is on the way arrives.
  void end() {
    for (auto& [id, program] : programs_)
      if (program.alive) kill_program(id);
    while (deliver()) {
    }
    CHECK(table_.size() == 0);
    for (const auto& [id, worker] : workers_) CHECK((!worker.alive || worker.held.empty()));
  }
  size_t granted = 0, refused = 0;

 private:
  static constexpr WorkerId kWorkers = 5, kPrograms = 4, kFirst = 100;
  struct Holding {
    bool share;
  };
  struct Worker {
    bool alive = true;
    std::map<ClaimId, Holding> held;
    std::deque<ClaimTable::Message> inbox;
    std::deque<std::pair<ClaimTable::Message, std::string>> outbox;
  };
  struct Program {
    bool alive = true;
    std::map<uint64_t, ClaimRequest> asked;
    std::map<uint64_t, std::vector<WorkerId>> has;
    uint64_t last = 0;
  };

  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  template <class Map>
  typename Map::iterator any(Map& map) {
    return std::next(map.begin(), static_cast<ptrdiff_t>(pick(map.size())));
  }

  void take(ClaimTable::Out out) {
    for (const auto& message : out.messages)
      if (workers_.at(message.to).alive) workers_.at(message.to).inbox.push_back(message);
    for (const auto& answer : out.answers) {
      Program& program = programs_.at(answer.claim.holder);
      if (!program.alive) continue;
      const auto asked = program.asked.extract(answer.claim.number);
      REQUIRE(!asked.empty());  // each is answered once
      CHECK(answer.granted.empty() == !answer.refusal.empty());
      if (!answer.refusal.empty()) {
        ++refused;
        continue;
      }
      ++granted;
      CHECK(answer.granted.size() == asked.mapped().count);
      for (const WorkerId w : answer.granted) {
        CHECK(std::ranges::count(asked.mapped().among, w) == 1);
        if (workers_.at(w).alive) CHECK(workers_.at(w).held.contains(answer.claim));
      }
      program.has[answer.claim.number] = answer.granted;
    }
  }
  void claim() {
    auto& [id, program] = *any(programs_);
    if (!program.alive) return;
    std::vector<WorkerId> among;
    for (WorkerId w = 1; w <= kWorkers; ++w)
      if (pick(3)) among.push_back(w);
    if (among.empty()) return;
    std::ranges::shuffle(among, random_);
    ClaimRequest r = request(among, 1 + pick(among.size()), pick(3) == 0);
    program.asked[++program.last] = r;
    ClaimTable::Out out;
    table_.want({id, program.last}, r, out);
    take(std::move(out));
  }
  void give_back() {
    auto& [id, program] = *any(programs_);
    if (!program.alive || program.has.empty()) return;
    const auto at = any(program.has);
    ClaimTable::Out out;
    table_.let_go({id, at->first}, out);
    program.has.erase(at);
    take(std::move(out));
  }
  void kill_worker() {
    auto& [id, worker] = *any(workers_);
    if (!worker.alive) return;
    worker.alive = false;
    worker.inbox.clear();
    worker.outbox.clear();
    lose(id);
  }
  void kill_program() { kill_program(any(programs_)->first); }
  void kill_program(WorkerId id) {
    Program& program = programs_.at(id);
    if (!program.alive) return;
    program.alive = false;
    program.has.clear();
    lose(id);
  }
  void lose(WorkerId id) {
    ClaimTable::Out out;
    table_.lost(id, out);
    take(std::move(out));
  }
  // A message to a worker, or an answer of one. False: there is none.
  bool deliver() {
    std::vector<std::pair<WorkerId, bool>> links;
    for (const auto& [id, worker] : workers_) {
      if (!worker.inbox.empty()) links.emplace_back(id, true);
      if (!worker.outbox.empty()) links.emplace_back(id, false);
    }
    if (links.empty()) return false;
    const auto [id, there] = links[pick(links.size())];
    Worker& worker = workers_.at(id);
    there ? receive(worker) : answer(worker);
    return true;
  }
  // What Claimed does, which leaves to the table who has whom; the job's own program comes and goes.
  void receive(Worker& worker) {
    const auto message = worker.inbox.front();
    worker.inbox.pop_front();
    std::string refusal;
    if (message.what == Ask::free) {
      worker.held.erase(message.claim);
    } else {
      const auto* r = table_.find(message.claim);
      const bool share = r && r->share;
      if (!share && pick(5) == 0) refusal = "used by the job's own program";
      if (message.what == Ask::hold && refusal.empty()) worker.held[message.claim] = {share};
    }
    worker.outbox.emplace_back(message, refusal);
  }
  void answer(Worker& worker) {
    const auto [message, refusal] = worker.outbox.front();
    worker.outbox.pop_front();
    ClaimTable::Out out;
    if (message.what == Ask::look) table_.looked(message.claim, message.to, refusal, out);
    if (message.what == Ask::hold) table_.held(message.claim, message.to, refusal, out);
    if (message.what == Ask::free) table_.freed(message.claim, message.to, out);
    take(std::move(out));
  }
  void check() {
    for (const auto& [id, worker] : workers_) {
      size_t alone = 0;
      for (const auto& [claim, holding] : worker.held) alone += !holding.share;
      CHECK((alone == 0 || worker.held.size() == 1));
      if (!worker.alive) continue;
      for (const auto& [holder, program] : programs_)
        for (const auto& [number, workers] : program.has)
          if (std::ranges::count(workers, id)) CHECK(worker.held.contains({holder, number}));
    }
  }

  std::mt19937_64 random_;
  ClaimTable table_{name_of};
  std::map<WorkerId, Worker> workers_;
  std::map<WorkerId, Program> programs_;
};

// All messages of `out` are answered with yes, and what comes of it.
void agree(ClaimTable& table, ClaimTable::Out& out) {
  while (!out.messages.empty()) {
    const auto messages = std::exchange(out.messages, {});
    for (const auto& m : messages) {
      if (m.what == Ask::look) table.looked(m.claim, m.to, "", out);
      if (m.what == Ask::hold) table.held(m.claim, m.to, "", out);
      if (m.what == Ask::free) table.freed(m.claim, m.to, out);
    }
  }
}

}  // namespace

TEST_CASE("a claim gets all of its workers or none, whoever dies") {
  size_t granted = 0, refused = 0;
  for (uint64_t seed = 1; seed <= testing::seeds(300); ++seed) {
    INFO("seed " << seed);
    Cluster cluster(seed);
    for (int i = 0; i < 400; ++i) cluster.step();
    cluster.end();
    granted += cluster.granted, refused += cluster.refused;
  }
  CHECK(granted > 100);
  CHECK(refused > 100);
}

TEST_CASE("a claim that is refused says who has which worker and what is free") {
  ClaimTable table(name_of);
  ClaimTable::Out out;
  table.want({101, 1}, request({1, 2}, 2), out);
  agree(table, out);
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].granted == std::vector<WorkerId>{1, 2});
  out = {};
  table.want({102, 1}, request({2, 3}, 2, false, "other (process 7)"), out);
  CHECK(out.messages ==
        std::vector<ClaimTable::Message>{{Ask::look, {102, 1}, 3}});  // nobody is asked to hold
  agree(table, out);
  REQUIRE(out.answers.size() == 1);
  CHECK(
      out.answers[0].refusal ==
      "[claim] other (process 7) wants 2 of w2, w3 for itself, and 1 is free: w2 is claimed by trainer. "
      "Wait until they end, or take what is free: Claim(cluster, {\"w3\"}); {.share = true} takes workers of "
      "others that share, too");
}

TEST_CASE("a claim that is refused for lost workers does not say that waiting or sharing helps") {
  ClaimTable table(name_of);
  ClaimTable::Out out;
  table.lost(2, out);
  table.want({101, 1}, request({2, 3}, 2), out);
  agree(table, out);
  table.want({101, 2}, request({2}, 1), out);
  REQUIRE(out.answers.size() == 2);
  CHECK(out.answers[0].refusal ==
        "[claim] trainer wants 2 of w2, w3 for itself, and 1 is free: w2 was lost. Lost workers do not come "
        "back: claim others, or take what is free: Claim(cluster, {\"w3\"})");
  CHECK(out.answers[1].refusal ==
        "[claim] trainer wants 1 of w2 for itself, and none is free: w2 was lost. Lost workers do not come "
        "back: claim others");
}

TEST_CASE("workers that are looked at are asked to hold only if there are enough") {
  ClaimTable table(name_of);
  ClaimTable::Out out;
  const ClaimId claim{101, 1};
  table.want(claim, request({1, 2, 3}, 2), out);
  CHECK(out.messages == std::vector<ClaimTable::Message>{
                            {Ask::look, claim, 1}, {Ask::look, claim, 2}, {Ask::look, claim, 3}});
  out = {};
  table.looked(claim, 1, "w1 has 3 actors", out);
  table.looked(claim, 2, "", out);
  SECTION("there are") {
    table.looked(claim, 3, "", out);
    CHECK(out.messages == std::vector<ClaimTable::Message>{{Ask::hold, claim, 2}, {Ask::hold, claim, 3}});
    out = {};
    table.held(claim, 2, "", out);
    table.held(claim, 3, "w3 has an actor", out);  // made meanwhile
    REQUIRE(out.answers.size() == 1);
    CHECK(out.answers[0].granted.empty());
    CHECK(out.messages == std::vector<ClaimTable::Message>{{Ask::free, claim, 2}, {Ask::free, claim, 3}});
  }
  SECTION("one is lost") {
    table.lost(3, out);
    CHECK(out.messages.empty());
    REQUIRE(out.answers.size() == 1);
    CHECK(out.answers[0].refusal.find("w1 has 3 actors; w3 was lost") != std::string::npos);
    CHECK(table.size() == 0);
  }
}

TEST_CASE("a claim waits for workers that are being freed of a program that has died") {
  ClaimTable table(name_of);
  ClaimTable::Out out;
  table.want({101, 1}, request({1, 2}, 2), out);
  agree(table, out);
  out = {};
  table.lost(101, out);
  CHECK(out.messages == std::vector<ClaimTable::Message>{{Ask::free, {101, 1}, 1}, {Ask::free, {101, 1}, 2}});
  out = {};
  table.want({102, 1}, request({1, 2}, 2), out);
  CHECK((out.messages.empty() && out.answers.empty()));
  table.freed({101, 1}, 1, out);
  CHECK(out.answers.empty());
  table.freed({101, 1}, 2, out);
  agree(table, out);
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].granted == std::vector<WorkerId>{1, 2});
}
