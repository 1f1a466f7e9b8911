#include "tests/oracle/programs/run.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "core/graph/node.h"
#include "ops/ops.h"
#include "tests/oracle/programs/calls.h"
#include "tests/oracle/programs/values.h"

namespace troupe::testing {
namespace {

bool refuses(const Error& e) {
  return e.kind() == ErrorKind::invalid || e.kind() == ErrorKind::unimplemented;
}

// Which names may share memory: a forest.
class Groups {
 public:
  const std::string& of(const std::string& name) {
    std::string& up = up_.emplace(name, name).first->second;
    if (up != name) up = of(up);
    return up;
  }
  void add(const Statement& s) {
    for (const std::string& n : s.out) {
      of(n);
      if (!s.writes() && shares(s)) up_[of(n)] = of(s.args[0].text);
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, up] : up_) all.push_back(name);
    return all;
  }

 private:
  std::map<std::string, std::string> up_;
};

// One program, while it runs.
class Run {
 public:
  Run(const Program& p, std::string label, const RunOptions& options, Tally& tally)
      : program_(p), label_(std::move(label)), options_(options), tally_(tally) {}

  void all() {
    for (const Leaf& leaf : program_.leaves) {
      groups_.of(leaf.name);
      if (leaf.value.requires_grad) depends_[leaf.name] = {leaf.name};
      wanted_[leaf.name] = leaf.value.data;
      if (Tensor t = make_tensor(leaf); t.defined()) live_[leaf.name] = std::move(t);
    }
    for (const Statement& s : program_.body) {
      at_ = &s;
      ++tally_.statements;
      const bool complete = std::ranges::all_of(s.inputs(), [&](const auto& n) { return live_.contains(n); });
      relate(s);
      if (!complete) {
        ++tally_.left_out;
        if (s.raises.empty()) lose(s);
      } else if (s.raises.empty()) {
        answered(s);
      } else {
        raising(s);
      }
    }
    at_ = nullptr;
    backward();
    ++tally_.programs;
  }

 private:
  using Snapshots = std::map<std::string, Snapshot>;

  void different(const std::string& text) {
    tally_.different.push_back(label_ + ": " + text + (at_ ? "\n    " + at_->source : ""));
  }

  Tensors run(const Statement& s) {
    return options_.run(s, [this](const std::string& name) { return live_.at(name); });
  }

  Snapshots snapshots() const {
    Snapshots all;
    for (const auto& [name, t] : live_) all.emplace(name, Snapshot(t));
    return all;
  }

  std::string changed(const Snapshots& before) const {
    for (const auto& [name, t] : live_)
      if (const auto it = before.find(name); it != before.end() && !(it->second == Snapshot(t))) return name;
    return "";
  }

  // What the results may share memory with, and which leaves they are computed from.
  void relate(const Statement& s) {
    std::set<std::string> from;
    for (const std::string& n : s.inputs()) from.insert(depends_[n].begin(), depends_[n].end());
    groups_.add(s);
    if (gradient_overflows(s)) unsure_.insert(from.begin(), from.end());
    if (!s.writes()) {
      for (const std::string& n : s.out) depends_[n] = from;
      return;
    }
    for (const std::string& n : groups_.names())
      if (groups_.of(n) == groups_.of(s.args[0].text)) depends_[n].insert(from.begin(), from.end());
  }

  // PyTorch squares the operands of atan2 in their own dtypes for the gradient: of uint8 modulo 256.
  bool gradient_overflows(const Statement& s) const {
    return s.op == "atan2" && std::ranges::any_of(s.inputs(), [this](const std::string& n) {
             const auto it = live_.find(n);
             return it == live_.end() || name(it->second.dtype()) == "uint8";
           });
  }

  // The results are not what PyTorch has, and whatever shares memory with what was written to.
  void lose(const Statement& s) {
    for (const std::string& n : s.out) live_.erase(n);
    for (const auto& [n, data] : s.changes) live_.erase(n);
    if (s.writes()) lose_group(s.args[0].text);
    lost_write_ |= s.writes();
  }

  void lose_group(const std::string& name) {
    std::vector<std::string> lost;
    for (const auto& [n, t] : live_)
      if (groups_.of(n) == groups_.of(name)) lost.push_back(n);
    for (const std::string& n : lost) live_.erase(n);
  }

  // A view whose history is not known refuses the question.
  static bool is_leaf(const Tensor& t) {
    try {
      return t.is_leaf();
    } catch (const Error&) {
      return true;
    }
  }

  void raising(const Statement& s) {
    const Snapshots before = snapshots();
    const bool was_leaf = s.writes() && is_leaf(live_.at(s.args[0].text));
    try {
      run(s);
    } catch (const NotHere&) {
      ++tally_.left_out;
      return;
    } catch (const Error& e) {
      if (!refuses(e)) return different(std::string("an error of another kind: ") + e.what());
      if (const std::string n = changed(before); !n.empty()) {
        different(n + " was changed by a refused statement: " + e.what());
        return lose_group(n);
      }
      ++tally_.agreed;
      return;
    } catch (const std::exception& e) {
      return different(std::string("not a typed error: ") + e.what());
    }
    // PyTorch takes a view for a leaf whose base has got its history by a write.
    const bool has_history_here = s.raises.starts_with("a leaf Variable") && !was_leaf;
    if (s.writes()) lose_group(s.args[0].text);
    if (!s.optional) {
      ++tally_.liberal[s.op][s.raises];
      if (!documented_as_liberal(s.op, s.raises) && !has_history_here)
        return different("answered where PyTorch refuses: " + s.raises);
    }
    ++tally_.agreed;
  }

  void answered(const Statement& s) {
    const Snapshots before = snapshots();
    double scale = 1;
    for (const std::string& n : s.inputs()) scale = std::max(scale, largest(live_.at(n)));
    Tensors results;
    try {
      results = run(s);
    } catch (const NotHere& e) {
      ++tally_.refused[s.op][e.what()];
      return lose(s);
    } catch (const Error& e) {
      if (!refuses(e)) different(std::string("an error of another kind: ") + e.what());
      if (const std::string n = changed(before); !n.empty()) {
        different(n + " was changed by a refused statement: " + e.what());
        lose_group(n);
      }
      ++tally_.refused[s.op][e.message()];
      return lose(s);
    } catch (const std::exception& e) {
      different(std::string("not a typed error: ") + e.what());
      return lose(s);
    }
    if (check(s, results, before, scale))
      ++tally_.agreed;
    else
      lose(s);
  }

  bool check(const Statement& s, const Tensors& results, const Snapshots& before, double scale) {
    if (results.size() != s.out.size()) {
      different(std::to_string(results.size()) + " results, expected " + std::to_string(s.out.size()));
      return false;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const Wanted& wanted = s.gives[i];
      const double allowed = s.close * std::max(scale, largest(wanted.data));
      std::string why = differs(results[i], wanted, allowed);
      if (!why.empty() && agrees_on_the_same_inputs(s)) return false;
      if (!why.empty() && wrong_in_pytorch(s, results[i], wanted, allowed)) {
        lose(s);
        return true;
      }
      if (why.empty() && !s.no_grad && wanted.requires_grad && !is_floating(results[i].dtype())) {
        lose(s);  // PyTorch marks integers that were filled with a 0-d tensor
        return true;
      }
      if (why.empty() && !s.no_grad && results[i].requires_grad() != wanted.requires_grad)
        why = std::string("requires_grad is ") +
              (wanted.requires_grad ? "false, expected true" : "true, expected false");
      if (!why.empty()) {
        different(why);
        return false;
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      note_copies(s, results[i]);
      live_[s.out[i]] = results[i];
      wanted_[s.out[i]] = s.gives[i].data;
    }
    for (const auto& [name, data] : s.changes) wanted_[name] = data;
    for (const auto& [name, t] : std::map(live_)) {
      if (std::ranges::count(s.out, name) || !live_.contains(name)) continue;
      std::string why;
      if (const auto it = s.changes.find(name); it != s.changes.end()) {
        why = differs(t, it->second, s.close * std::max(scale, largest(it->second)));
      } else if (const auto was = before.find(name); was != before.end()) {
        const Snapshot now(t);
        if (!was->second.same_numbers(t)) why = "it was not to change";
        if (!s.writes() && now.requires_grad != was->second.requires_grad) why = "its requires_grad changed";
      }
      if (why.empty()) continue;
      if (s.writes() && maybe_copies_.contains(name)) {
        lose_group(name);
        continue;
      }
      different(name + ": " + why);
      return false;
    }
    return true;
  }

  // Results are contiguous here, where PyTorch's keep the strides of an input: what is a view here may be a
  // copy there.
  void note_copies(const Statement& s, const Tensor& result) {
    static const std::set<std::string> kinds = {"flatten", "reshape", "contiguous"};
    if (!kinds.contains(s.op) || !live_.contains(s.args[0].text)) return;
    const bool leaf =
        std::ranges::any_of(program_.leaves, [&](const Leaf& leaf) { return leaf.name == s.args[0].text; });
    if (!leaf && result.storage() == live_.at(s.args[0].text).storage()) maybe_copies_.insert(s.out[0]);
  }

  // Where an answer jumps (floor, comparisons, the angle of a point near an axis), the rounding of what came
  // before decides: then the statement is asked again with the very numbers that PyTorch had.
  bool agrees_on_the_same_inputs(const Statement& s) {
    if (s.writes()) return false;
    Tensors results;
    try {
      results = options_.run(s, [this](const std::string& name) {
        const Tensor& here = live_.at(name);
        return wanted_.contains(name) ? make_tensor(wanted_.at(name), here) : here;
      });
    } catch (const std::exception&) {
      return false;
    }
    if (results.size() != s.gives.size()) return false;
    for (size_t i = 0; i < results.size(); ++i)
      if (!differs(results[i], s.gives[i], s.close * std::max(1.0, largest(s.gives[i].data))).empty())
        return false;
    return true;
  }

  // Whether the gradients are those of the program on copies, where no write can reach what was saved: Troupe
  // does not save all that PyTorch saves, so it may answer, but must be right.
  bool same_on_copies(const Tensors& grads) const {
    const std::set<std::string> written = not_copies(program_);
    Tensors others;
    RunOptions options = options_;
    options.refuses_backward = false;
    options.run = [&](const Statement& s, const auto& tensor_named) {
      if (s.writes() || (shares(s) && written.contains(s.args[0].text))) return options_.run(s, tensor_named);
      std::map<std::string, Tensor> copies;
      for (const std::string& n : s.inputs()) copies.try_emplace(n, tensor_named(n).clone());
      return options_.run(s, [&](const std::string& n) { return copies.at(n); });
    };
    options.differentiate = [&](const Tensors& roots, const Tensors& weights, const Tensors& leaves) {
      return others = options_.differentiate(roots, weights, leaves);
    };
    Tally aside;
    run_program(program_, label_, options, aside);
    if (!aside.different.empty() || others.size() != grads.size()) return false;
    for (size_t i = 0; i < grads.size(); ++i) {
      // No gradient and one of zeros say the same, and sums may be taken in another order.
      const Tensor& like = grads[i].defined() ? grads[i] : others[i];
      if (!like.defined()) continue;
      const auto numbers = [&](const Tensor& t) {
        return t.defined() ? t.to_vector<double>()
                           : std::vector<double>(static_cast<size_t>(like.numel()), 0.0);
      };
      const double allowed = program_.grads_close * std::max(1.0, largest(like));
      const std::vector<double> a = numbers(grads[i]), b = numbers(others[i]);
      for (size_t k = 0; k < a.size(); ++k)
        if (!(std::fabs(a[k] - b[k]) <= allowed) && !(a[k] == b[k]) &&
            !(std::isnan(a[k]) && std::isnan(b[k])))
          return false;
    }
    return true;
  }

  // The gradients of a variant of the program; empty if it does not run as this one did. With a seed every
  // result differs in its last digit.
  Tensors gradients_of(Program variant, uint64_t noise = 0) const {
    variant.grads = {{"", nullptr}};  // none that is compared
    Tensors grads;
    RunOptions options = options_;
    Generator random(noise);
    if (noise)
      options.run = [&](const Statement& s, const auto& tensor_named) {
        Tensors results = options_.run(s, tensor_named);
        for (Tensor& t : results)
          if (is_floating(t.dtype()) && !s.writes() && !s.no_grad && !shares(s)) {
            const double digit = t.dtype() == float32 ? 0x1p-23 : 0x1p-52;
            t = ops::mul(
                t, ops::to(ops::rand(t.shape(), random, float64) * (2 * digit) + (1 - digit), t.dtype()));
          }
        return results;
      };
    options.differentiate = [&](const Tensors& roots, const Tensors& weights, const Tensors& leaves) {
      return grads = options_.differentiate(roots, weights, leaves);
    };
    Tally aside;
    run_program(variant, label_, options, aside);
    return aside.different.empty() ? grads : Tensors();
  }

  // The largest difference; NaN of both is none.
  static double distance(const Tensor& a, const Tensor& b) {
    const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
    double all = x.size() == y.size() ? 0 : INFINITY;
    for (size_t k = 0; k < x.size() && k < y.size(); ++k)
      if (x[k] != y[k] && !(std::isnan(x[k]) && std::isnan(y[k])))
        all = std::max(all, std::isnan(x[k] - y[k]) ? INFINITY : std::fabs(x[k] - y[k]));
    return all;
  }

  // Where digits cancel, two right gradients differ. Whether this one is as near as PyTorch's to what float64
  // gives; or the two differ by no more than changes in the last digit of the leaves make.
  bool differs_by_rounding(const std::vector<std::string>& names, size_t i, const Tensor& grad) {
    const auto wanted = program_.grads.find(names[i]);
    if (!grad.defined() || wanted->second.is_null()) return false;
    Tensor theirs = make_tensor(wanted->second, grad);
    if (has_float32(program_)) {
      const Tensors exact = gradients_of(in_float64(program_));
      if (exact.size() == names.size() && exact[i].defined()) {
        if (!std::isfinite(distance(theirs, exact[i]))) theirs = exact[i];  // float32 overflowed on the way
        const double scale = std::max(1.0, largest(theirs));
        if (distance(grad, exact[i]) <= std::max(distance(theirs, exact[i]), 1e-4 * scale)) return true;
      }
    }
    double noise = 0;
    for (const uint64_t seed : {1, 2, 3}) {
      const Tensors moved = gradients_of(with_noise(program_, seed), seed);
      if (moved.size() != names.size() || !moved[i].defined()) continue;
      const double change = distance(grad, moved[i]);
      if (std::isfinite(change)) noise = std::max(noise, change);
    }
    return distance(grad, theirs) <= 8 * noise;
  }

  void backward() {
    if (program_.grads.empty() && program_.backward_raises.empty()) return;
    std::set<std::string> lost = unsure_;
    Tensors roots, weights, leaves;
    for (const Root& r : program_.roots) {
      const auto it = live_.find(r.name);
      if (it == live_.end()) {
        lost.insert(depends_[r.name].begin(), depends_[r.name].end());
      } else {
        roots.push_back(it->second);
        weights.push_back(make_tensor(r.weight, it->second));
        if (!it->second.requires_grad()) return different(r.name + " does not require a gradient");
      }
    }
    if (roots.empty() ||
        (!program_.backward_raises.empty() && (lost_write_ || roots.size() < program_.roots.size())))
      return;
    std::vector<std::string> names;
    double scale = 1;
    for (const Leaf& leaf : program_.leaves) {
      scale = std::max(scale, largest(leaf.value.data));
      if (!leaf.value.requires_grad || lost.contains(leaf.name) || !live_.contains(leaf.name)) continue;
      names.push_back(leaf.name);
      leaves.push_back(live_.at(leaf.name));
    }
    if (leaves.empty()) return;
    Tensors grads;
    try {
      grads = options_.differentiate(roots, weights, leaves);
    } catch (const Error& e) {
      if (!refuses(e)) return different(std::string("backward: an error of another kind: ") + e.what());
      if (program_.backward_raises.empty()) ++tally_.refused["backward"][e.message()];
      return;
    } catch (const std::exception& e) {
      return different(std::string("backward: not a typed error: ") + e.what());
    }
    if (!program_.backward_raises.empty()) {
      if (!options_.refuses_backward) return;
      if (program_.backward_raises.find("inplace") != std::string::npos && !same_on_copies(grads))
        return different("backward answers something else than on copies, and PyTorch refuses: " +
                         program_.backward_raises);
      ++tally_.liberal["backward"][program_.backward_raises];
      if (!documented_as_liberal("backward", program_.backward_raises))
        different("backward answers where PyTorch refuses: " + program_.backward_raises);
      return;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const auto wanted = program_.grads.find(names[i]);
      if (wanted == program_.grads.end()) continue;
      std::string why;
      if (grads[i].defined() == wanted->second.is_null())
        why = grads[i].defined() ? "there is one, expected none" : "there is none";
      else if (grads[i].defined())
        why = differs(grads[i], wanted->second,
                      program_.grads_close * std::max(scale, largest(wanted->second)));
      if (why.empty() || differs_by_rounding(names, i, grads[i]))
        ++tally_.gradients;
      else
        different("gradient of " + names[i] + ": " + why);
    }
  }

  const Program& program_;
  const std::string label_;
  const RunOptions& options_;
  Tally& tally_;
  const Statement* at_ = nullptr;
  std::map<std::string, Tensor> live_;            // what is here, and is what PyTorch has
  std::map<std::string, nlohmann::json> wanted_;  // their numbers in PyTorch
  Groups groups_;
  bool lost_write_ = false;  // a write did not happen, which may be what a backward pass has to refuse
  std::map<std::string, std::set<std::string>> depends_;  // leaves
  std::set<std::string> unsure_;                          // leaves whose gradients are wrong in PyTorch
  std::set<std::string> maybe_copies_;
};

}  // namespace

std::set<std::string> not_copies(const Program& p) {
  Groups groups;
  std::set<std::string> written, all;
  for (const Statement& s : p.body) groups.add(s);
  for (const Statement& s : p.body)
    if (s.writes() || (s.no_grad && shares(s))) written.insert(groups.of(s.args[0].text));
  for (const std::string& n : groups.names())
    if (written.contains(groups.of(n))) all.insert(n);
  return all;
}

RunOptions run_here() {
  return {call, [](const Tensors& roots, const Tensors& weights, const Tensors& leaves) {
            autograd::backward(roots, weights);
            Tensors grads;
            for (const Tensor& leaf : leaves) grads.push_back(leaf.grad());
            return grads;
          }};
}

void run_program(const Program& p, const std::string& label, const RunOptions& options, Tally& tally) {
  Run(p, label, options, tally).all();
}

}  // namespace troupe::testing
