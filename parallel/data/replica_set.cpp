#include "parallel/data/replica_set.h"

#include "actors/worker/worker.h"
#include "parallel/data/replica_points.h"

namespace troupe::parallel {

bool lives(const AnyRef& actor) { return !actor.worker().members().absence(actor.owner()); }

std::vector<ReplicaSeat> ReplicaSet::seats() const {
  std::vector<ReplicaSeat> all;
  for (size_t r = 0; r < members().size(); ++r)
    all.push_back({.stays = r, .worker = {}, .path = {}, .own = {}});
  return all;
}

Future<std::vector<StateDict>> ReplicaSet::keep_points(int64_t number) const {
  return ready().then([replicas = members(), number] {
    std::vector<Future<StateDict>> asked;
    for (const AnyRef& r : replicas) asked.push_back(kKeepPoint.ask(r, number));
    return all(asked).then([replicas](std::vector<StateDict> own) {
      std::vector<Future<Value>> taking;
      const size_t n = replicas.size();
      for (size_t r = 0; r < n; ++r)
        if (own[r].erase(kStaleSpares))
          taking.push_back(kTakeSpares.send(replicas[r], replicas[(r + n - 1) % n]));
      return all(taking).then([own](const std::vector<Value>&) { return own; });
    });
  });
}

StateDict ReplicaSet::own_state(size_t member) const {
  const AnyRef& actor = members().at(member);
  return lives(actor) ? kOwnState.ask(actor).get() : StateDict();
}

Future<void> ReplicaSet::undo(int64_t number, const std::vector<size_t>& ranks) const {
  std::vector<Future<Value>> asked;
  for (const size_t r : ranks) asked.push_back(kUndo.send(members().at(r), number));
  return all(asked).then([](const std::vector<Value>&) {});
}

}  // namespace troupe::parallel
