#include "autograd/distributed/joint_results.h"

#include <fmt/format.h>

#include <set>
#include <unordered_set>
#include <utility>

#include "autograd/waiting_step.h"
#include "core/base/error.h"

namespace troupe::autograd {
namespace {

// Calls f(node) once for each node that these lead to on this worker.
template <class F>
void each_behind(std::vector<const Node*> open, F f) {
  std::unordered_set<const Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    f(*node);
    for (const Edge& edge : node->next())
      if (edge && seen.insert(edge.node.get()).second) open.push_back(edge.node.get());
  }
}

std::vector<const Node*> nodes_of(std::span<const Edge> edges) {
  std::vector<const Node*> all;
  for (const Edge& edge : edges)
    if (edge) all.push_back(edge.node.get());
  return all;
}

using Received = std::set<std::pair<WorkerId, uint64_t>>;  // from whom, by which pair

Received received_behind(std::vector<const Node*> nodes) {
  Received all;
  each_behind(std::move(nodes), [&](const Node& node) {
    if (node.end() == Node::End::exit)
      if (const auto* receive = dynamic_cast<const ReceiveNode*>(&node))
        all.emplace(receive->peer(), receive->pair());
  });
  return all;
}

}  // namespace

std::vector<uint64_t> waits_behind(std::span<const Edge> edges) {
  if (!internal::autograd::WaitingRule::any()) return {};
  std::set<uint64_t> among;
  each_behind(nodes_of(edges), [&](const Node& node) {
    if (node.end() == Node::End::later)
      among.insert(dynamic_cast<const internal::autograd::WaitingRule&>(node).among());
  });
  return {among.begin(), among.end()};
}

void JointResults::add(uint64_t number, const std::string& method, const std::vector<uint64_t>& among,
                       const ReceiveNode& node, const std::string& part) {
  const internal::Lock lock(mutex_);
  for (const uint64_t a : among) calls_[{number, method, a}].push_back({node.peer(), node.pair(), part});
}

void JointResults::check(const std::vector<Edge>& roots, const ContextState& state) const {
  const internal::Lock lock(mutex_);
  const Received reached = received_behind(nodes_of(roots));
  std::optional<Received> left;  // what a message may bring a pass to
  for (const auto& [key, parts] : calls_) {
    const Part *in = nullptr, *out = nullptr;
    for (const Part& part : parts) (reached.contains({part.peer, part.pair}) ? in : out) = &part;
    if (!in || !out) continue;
    if (!left) {
      std::vector<const Node*> sends;
      const auto kept = state.sends();
      for (const auto& send : kept) sends.push_back(send.get());
      left = received_behind(std::move(sends));
    }
    if (left->contains({out->peer, out->pair})) continue;
    throw_invalid(fmt::format(
        "[backward] the loss comes by what {} gave, and not by what {} gave, whose steps may wait "
        "for each other: expected the results of all parts of the call in it, by "
        "parallel::same_on_all(results) or parallel::weighted_mean(results, weights), in which a "
        "weight may be 0",
        in->name, out->name));
  }
}

}  // namespace troupe::autograd
