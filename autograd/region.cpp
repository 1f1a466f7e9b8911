#include "autograd/region.h"

#include <map>

#include "autograd/pass.h"
#include "core/base/error.h"
#include "core/graph/grad_mode_note.h"
#include "core/tensor/creation.h"

namespace troupe::internal::autograd {
namespace {

void check_count(const std::vector<Edge>& roots, const Tensors& grads) {
  if (roots.size() != grads.size())
    throw_invalid("[backward] " + std::to_string(grads.size()) + " gradients for " +
                  std::to_string(roots.size()) + " roots");
}

}  // namespace

std::vector<Edge> root_edges(const char* part, const Tensors& roots) {
  if (roots.empty()) throw_invalid("[" + std::string(part) + "] the list of tensors is empty");
  std::vector<Edge> edges;
  edges.reserve(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].defined()) throw_invalid(subject_of(part, i, roots.size()) + " is undefined");
    Edge edge = roots[i].gradient_edge();
    if (!edge)
      throw_invalid(subject_of(part, i, roots.size()) + " (" + roots[i].summary() +
                    ") needs no gradient: " + why_no_history());
    edges.push_back(std::move(edge));
  }
  return edges;
}

std::vector<Edge> input_edges(const char* part, const Tensors& inputs) {
  std::vector<Edge> edges = root_edges(part, inputs);
  for (size_t i = 0; i < edges.size(); ++i)
    if (const char* why = edges[i].node->partial())
      throw_invalid(subject_of(part, i, inputs.size()) + " (" + inputs[i].summary() + ") " + why);
  return edges;
}

Tensors root_grads(const char* part, const Tensors& roots, Tensors grads, bool keep_history) {
  if (!grads.empty() && grads.size() != roots.size())
    throw_invalid("[" + std::string(part) + "] " + std::to_string(grads.size()) + " gradients for " +
                  std::to_string(roots.size()) + " tensors");
  Tensors out;
  out.reserve(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    if (grads.empty() || !grads[i].defined()) {
      if (root.numel() != 1)
        throw_invalid(subject_of(part, i, roots.size()) + " has shape " + root.shape().str() +
                      ": give its gradient, or reduce it to one element first");
      out.push_back(ones_like(root));
      continue;
    }
    Tensor grad = std::move(grads[i]);
    if (grad.shape() != root.shape() || grad.dtype() != root.dtype() || grad.device() != root.device())
      throw_invalid(subject_of(part, i, roots.size()) + " (" + root.summary() + " on " + root.device().str() +
                    ") cannot have the gradient " + grad.summary() + " on " + grad.device().str());
    out.push_back(!keep_history && grad.requires_grad() ? grad.detach() : std::move(grad));
  }
  return out;
}

void run(const std::vector<Edge>& roots, Tensors grads, Sink& sink, troupe::autograd::RunOptions options) {
  check_count(roots, grads);
  GradMode mode(options.create_graph);
  Pass pass(nullptr, nullptr, options);
  for (const Edge& root : roots) pass.expect(root);
  refuse_waiting("backward", pass);
  pass.check();
  pass.run(roots, std::move(grads), &sink);
}

struct Region::Impl {
  std::vector<Edge> roots;  // hold the graph
  std::vector<Node*> exits;
  std::vector<Capture> captures;
  const std::shared_ptr<std::vector<LeftOut>> left_out;
  const bool selects, records;
  Pass pass;
  size_t expected = 0;
  struct Supply {
    std::vector<Edge> roots;
    Tensors grads;
  };
  std::multimap<uint64_t, Edge, std::greater<>> turns;  // of what has not run; with a root of each
  std::multimap<uint64_t, Supply, std::greater<>> held;
  explicit Impl(troupe::autograd::RunOptions options)
      : selects(false), records(options.create_graph), pass(nullptr, &exits, options, nullptr, true) {}
  Impl(troupe::autograd::RunOptions options, std::vector<Capture> inputs,
       std::shared_ptr<std::vector<LeftOut>> left)
      : captures(std::move(inputs)),
        left_out(std::move(left)),
        selects(true),
        records(options.create_graph),
        pass(&captures, &exits, options, left_out.get(), true) {}

  /// Whether something that is wanted has a turn before this one.
  bool waits_for_others(uint64_t turn) {
    if (pass.has_waiting_steps()) return false;
    while (!turns.empty() && turns.begin()->first > turn) {
      if (!selects || pass.leads_on(turns.begin()->second)) return true;
      turns.erase(turns.begin());
    }
    return false;
  }
};

Region::Region(troupe::autograd::RunOptions options) : impl_(std::make_unique<Impl>(options)) {}
Region::Region(troupe::autograd::RunOptions options, const std::vector<Edge>& inputs,
               std::shared_ptr<std::vector<LeftOut>> left_out)
    : impl_(std::make_unique<Impl>(options, captures_of(inputs), std::move(left_out))) {}
Region::Region(Region&&) noexcept = default;
Region::~Region() = default;

std::vector<Node*> Region::expect(const std::vector<Edge>& roots, uint64_t turn) {
  for (const Edge& root : roots) impl_->pass.expect(root);
  if (turn != kFirst && !roots.empty()) impl_->turns.emplace(turn, roots[0]);
  if (!impl_->selects || impl_->pass.has_waiting_steps()) impl_->pass.check();
  impl_->roots.insert(impl_->roots.end(), roots.begin(), roots.end());
  impl_->expected += roots.size();
  return std::exchange(impl_->exits, {});
}

void Region::supply(const std::vector<Edge>& roots, Tensors grads, Sink& sink, uint64_t turn) {
  if (roots.size() > impl_->expected)
    throw_invalid("[backward] gradients came for a root that none were expected for");
  check_count(roots, grads);
  impl_->expected -= roots.size();
  GradMode mode(impl_->records);
  if (turn == kFirst) return impl_->pass.run(roots, std::move(grads), &sink);
  auto& held = impl_->held;
  held.emplace(turn, Impl::Supply{roots, std::move(grads)});
  while (!held.empty() && !impl_->waits_for_others(held.begin()->first)) {
    auto next = held.extract(held.begin());
    if (const auto at = impl_->turns.find(next.key()); at != impl_->turns.end()) impl_->turns.erase(at);
    impl_->pass.run(next.mapped().roots, std::move(next.mapped().grads), &sink);
  }
}

void Region::resume(uint32_t ticket, Tensors out, Sink& sink) {
  GradMode mode(impl_->records);
  impl_->pass.resume(ticket, std::move(out), &sink);
}

bool Region::done() const { return impl_->expected == 0 && !impl_->pass.waits(); }
bool Region::leads_on(const Edge& root) { return impl_->pass.leads_on(root); }
bool Region::has_waiting_steps() const { return impl_->pass.has_waiting_steps(); }
std::vector<const Node*> Region::waiting_steps() { return impl_->pass.waiting_steps(); }
void Region::check() { impl_->pass.check(); }
std::vector<Node*> Region::wanted() { return impl_->pass.wanted(); }
std::vector<Node*> Region::want(Node* exit) { return impl_->pass.want(exit); }

Tensors Region::captured() const {
  Tensors out;
  for (const Capture& c : impl_->captures) out.push_back(c.grad);
  return out;
}

std::vector<std::pair<size_t, Tensor>> Region::take_captured() {
  std::vector<std::pair<size_t, Tensor>> out;
  for (size_t i = 0; i < impl_->captures.size(); ++i)
    if (Tensor& grad = impl_->captures[i].grad; grad.defined()) out.emplace_back(i, std::exchange(grad, {}));
  return out;
}

}  // namespace troupe::internal::autograd
