// Who has which workers of a cluster that serves several programs: the table that w0 keeps. A pure state
// machine: who uses it sends its messages, and tells it what comes back and who was lost.
//
// A claim is granted whole or not at all. First all workers that come into question are asked whether others
// use them, which changes nothing; then as many as are wanted are asked to hold, and only a race can make one
// refuse. One claim is decided at a time. When a claim ends, each of its workers is asked to free itself, and
// is given to nobody before it has answered, or was lost.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/value/value.h"

namespace troupe::internal {

/// A claim has the number that its holder gives it.
struct ClaimId {
  WorkerId holder = kNoWorker;
  uint64_t number = 0;
  auto operator<=>(const ClaimId&) const = default;
};

struct ClaimRequest {
  std::string who;              ///< "trainer (process 4711)"
  std::vector<WorkerId> among;  ///< in order of preference
  size_t count = 0;             ///< of these
  bool share = false;           ///< with others that share, and with the job's own program
};

/// Not synchronized.
class ClaimTable {
 public:
  enum class Ask { look, hold, free };
  struct Message {
    Ask what;
    ClaimId claim;
    WorkerId to;
    bool operator==(const Message&) const = default;
  };
  struct Answer {
    ClaimId claim;
    std::vector<WorkerId> granted;
    std::string refusal;  ///< why nothing is granted
  };
  struct Out {
    std::vector<Message> messages;  ///< to one worker: in this order
    std::vector<Answer> answers;
  };

  /// `name_of`: for sentences.
  explicit ClaimTable(std::function<std::string(WorkerId)> name_of) : name_of_(std::move(name_of)) {}

  void want(const ClaimId& claim, ClaimRequest request, Out& out);
  /// A worker has answered; `refusal`: why it may not be had, empty if it may. What nobody waits for is
  /// ignored.
  void looked(const ClaimId& claim, WorkerId worker, const std::string& refusal, Out& out);
  void held(const ClaimId& claim, WorkerId worker, const std::string& refusal, Out& out);
  void freed(const ClaimId& claim, WorkerId worker, Out& out);
  /// The holder wants it no longer, granted or not.
  void let_go(const ClaimId& claim, Out& out);
  /// A worker or a holder is gone for good.
  void lost(WorkerId id, Out& out);

  /// Null if there is no such claim.
  const ClaimRequest* find(const ClaimId& claim) const;
  /// Who has claims, or waits for one.
  std::set<WorkerId> holders() const;
  size_t size() const { return claims_.size(); }

 private:
  enum class Phase { waiting, looking, holding, granted, ending };
  struct Claim {
    ClaimRequest request;
    Phase phase = Phase::waiting;
    std::set<WorkerId> workers;  // that hold it, or may
    std::set<WorkerId> pending;  // that have not answered
    std::map<WorkerId, std::string> refusals;
  };
  // What there is of the workers that a claim could have.
  struct Outlook {
    std::vector<WorkerId> free;
    size_t soon = 0;  // others, which are being freed
    std::map<WorkerId, std::string> refusals;
  };
  Claim* in_phase(const ClaimId& claim, Phase phase);
  Outlook outlook(const ClaimRequest& request) const;
  void advance(Out& out);
  void begin(const ClaimId& id, Claim& claim, Out& out);
  void choose(const ClaimId& id, Claim& claim, Out& out);
  void conclude(const ClaimId& id, Claim& claim, Out& out);
  void end(const ClaimId& id, Claim& claim, Out& out);
  void refuse(const ClaimId& id, const Claim& claim, const std::vector<WorkerId>& free, Out& out);

  const std::function<std::string(WorkerId)> name_of_;
  std::map<ClaimId, Claim> claims_;
  std::deque<ClaimId> undecided_;  // the first is being decided
  std::set<WorkerId> lost_;
};

}  // namespace troupe::internal
