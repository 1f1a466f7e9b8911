#include "autograd/distributed/shared_subgraphs.h"

#include <algorithm>

namespace troupe::autograd {
namespace {

bool counts(const Node& node) { return node.end() != Node::End::leaf || node.has_hooks(); }

void push(std::span<const Edge> edges, std::vector<const Node*>& out) {
  for (const Edge& edge : edges)
    if (edge && counts(*edge.node)) out.push_back(edge.node.get());
}

}  // namespace

size_t SharedSubgraphs::Seen::slot(const Node* node) const {  // where it is, or would be
  const size_t mask = slots_.size() - 1;
  size_t at = (reinterpret_cast<uintptr_t>(node) >> 4) * 0x9e3779b97f4a7c15 >> 20 & mask;
  while (slots_[at].node && slots_[at].node != node) at = (at + 1) & mask;
  return at;
}

uint32_t SharedSubgraphs::Seen::insert(const Node* node, uint32_t part) {
  if (2 * (used_ + 1) > slots_.size()) {
    std::vector<Slot> before(std::max<size_t>(16, 4 * slots_.size()));  // a power of two
    before.swap(slots_);
    for (const Slot& s : before)
      if (s.node) slots_[slot(s.node)] = s;
  }
  Slot& found = slots_[slot(node)];
  if (!found.node) {
    found = {node, part};
    ++used_;
  }
  return found.part;
}

void SharedSubgraphs::add(std::span<const Edge> edges) {
  if (found_) return;
  const uint32_t part = ++parts_;
  std::vector<const Node*> open;
  push(edges, open);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    const bool inside = seen_.contains(node);
    if (seen_.insert(node, part) != part) return note();
    if (!inside) push(node->next(), open);
  }
}

void SharedSubgraphs::note() {
  found_ = true;
  seen_.clear();  // of no more use
}

bool SharedSubgraphs::met_by(std::span<const Edge> edges) const {
  if (found_) return true;
  if (!parts_) return false;
  Seen own;
  std::vector<const Node*> open;
  push(edges, open);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (own.contains(node)) continue;
    if (seen_.contains(node)) return true;
    own.insert(node, 1);
    push(node->next(), open);
  }
  return false;
}

}  // namespace troupe::autograd
