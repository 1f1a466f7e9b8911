// The steps of fn are recorded as ever, but a store stands in for what they save: it keeps a number for each
// tensor, and when the first is asked for it runs fn again, with a second store that collects the tensors in
// the same order.
#include "autograd/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/base/mutex.h"
#include "core/base/seed_stream.h"
#include "core/graph/autocast.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/saved_tensor.h"

namespace troupe::autograd {
namespace {

// The random numbers of fn.
struct Randomness {
  std::vector<Generator::Position> starts;  // where each generator was when fn first used it, in that order
  std::vector<uint64_t> drawn;              // from streams, which others may use meanwhile
};

class NoteGenerators final : public GeneratorWatch {
 public:
  Randomness noted;
  uint64_t draw(SeedStream& stream) override {
    noted.drawn.push_back(outer() ? outer()->draw(stream) : stream.take());
    return noted.drawn.back();
  }
  bool repeats() const override { return outer() && outer()->repeats(); }

 private:
  void used(Generator& g) override {
    if (std::find(seen_.begin(), seen_.end(), &g) != seen_.end()) return;
    seen_.push_back(&g);
    noted.starts.push_back(g.position());
  }
  void ended(Generator& g) override { std::erase(seen_, &g); }  // another one may come to its place
  std::vector<const Generator*> seen_;
};

// Puts each generator, when it is first used, where the one of that turn was; and back at the end. Streams
// stay where they are.
class ReplayGenerators final : public GeneratorWatch {
 public:
  explicit ReplayGenerators(const Randomness& noted) : noted_(noted) {}
  ~ReplayGenerators() override {
    for (const Seen& s : seen_) s.generator->set_position(s.before);
  }
  uint64_t draw(SeedStream&) override {
    if (drawn_ == noted_.drawn.size())
      throw_invalid(
          "[checkpoint] the function drew more random numbers the second time: it must compute the same");
    return noted_.drawn[drawn_++];
  }
  bool repeats() const override { return true; }

 private:
  struct Seen {
    Generator* generator;
    Generator::Position before;
  };
  void used(Generator& g) override {
    if (std::any_of(seen_.begin(), seen_.end(), [&](const Seen& s) { return s.generator == &g; })) return;
    if (turn_ == noted_.starts.size())
      throw_invalid(
          "[checkpoint] the function used more random generators the second time: it must compute the same");
    seen_.push_back({&g, g.position()});
    g.set_position(noted_.starts[turn_++]);
  }
  void ended(Generator& g) override {
    std::erase_if(seen_, [&](const Seen& s) { return s.generator == &g; });
  }
  const Randomness& noted_;
  std::vector<Seen> seen_;
  size_t turn_ = 0, drawn_ = 0;
};

// What made an input of the second run, so that it is recorded as the first: not a leaf. No pass gets here.
class Before final : public Node {
 public:
  Tensors apply(Tensors&&) override {
    throw_error(ErrorKind::failed, "[checkpoint] the second run has no backward");
  }
  std::string name() const override { return "Before"; }
};

class Recomputation;

// Collects what the steps of the second run save.
class Collector final : public TensorStore {
 public:
  explicit Collector(const Recomputation& first) : first_(first) {}
  uint32_t put(const Tensor& t) override;
  Tensor get(uint32_t number) override { return tensors[number]; }
  void drop(uint32_t) override {}
  void saw_leaf(const Tensor&) override {}
  Tensors tensors;
  std::vector<uint32_t> versions;  // when they were put

 private:
  const Recomputation& first_;
};

// What the steps of one checkpoint share.
class Recomputation final : public TensorStore {
 public:
  using Function = std::function<Tensors(const Tensors&)>;
  Recomputation(Function fn, const Tensors& inputs) : fn_(std::move(fn)) {
    for (const Tensor& t : inputs) {
      if (!t.defined()) throw_invalid("[checkpoint] an input is an undefined tensor");
      // Not its history, which steps hold. Inside another checkpoint the elements are that one's to make
      // again.
      inputs_.push_back(
          {keeps(t) ? SavedTensor(t) : SavedTensor(t.detach()), !t.is_leaf(), keeps(t) ? t : Tensor()});
    }
  }

  Tensors run(const Tensors& inputs) {
    NoteGenerators notes;
    StoreScope scope(this);
    Tensors out = fn_(inputs);
    random_ = std::move(notes.noted);
    return out;
  }

  // Leaves that need gradients are parameters: they live anyway, and their steps watch them.
  static bool keeps(const Tensor& t) { return t.is_leaf() && t.requires_grad(); }
  uint32_t put(const Tensor& t) override {
    if (keeps(t)) return kNot;
    kinds_.emplace_back(t.dtype(), t.shape());
    return static_cast<uint32_t>(kinds_.size() - 1);
  }

  Tensor get(uint32_t number) override {
    internal::Lock lock(mutex_);
    if (!made_) make();
    return tensors_[number];
  }

  void drop(uint32_t number) override {
    internal::Lock lock(mutex_);
    if (made_) tensors_[number] = {};
  }

  void saw_leaf(const Tensor& leaf) override {
    const bool known =
        std::any_of(leaves_.begin(), leaves_.end(), [&](const auto& l) { return l.first.is_same(leaf); });
    if (known) return;
    leaves_.emplace_back(leaf, SavedTensor(leaf));
    if (outer_) outer_->saw_leaf(leaf);
  }

  std::shared_ptr<void> run_again() override { return outer_ ? outer_->run_again() : nullptr; }

  void check_fits(size_t number, const Tensor& t) const {
    if (number >= kinds_.size())
      throw_invalid(
          fmt::format("[checkpoint] the function saved more than {} tensors the second time: it must compute "
                      "the same",
                      kinds_.size()));
    const auto& [dtype, shape] = kinds_[number];
    if (t.dtype() != dtype || t.shape() != shape)
      throw_invalid(
          fmt::format("[checkpoint] the function made {} where it had made {} {} before: it must compute the "
                      "same",
                      t.summary(), name(dtype), shape.str()));
  }

 private:
  void make() TROUPE_REQUIRES(mutex_) {
    Tensors inputs;
    for (const auto& [saved, has_history, leaf] : inputs_) {
      if (saved.changed())
        throw_invalid(fmt::format("[checkpoint] input {} ({}) {}", inputs.size(), saved.get().summary(),
                                  saved.complaint()));
      inputs.push_back(leaf.defined() ? leaf : has_history ? saved.get().detach() : saved.get());
      if (has_history) inputs.back().set_grad_fn({make_ref<Before>(), 0});
    }
    for (const auto& [leaf, saved] : leaves_)
      if (saved.changed())
        throw_invalid(fmt::format("[checkpoint] a parameter ({}) {}", leaf.summary(), saved.complaint()));
    std::vector<internal::ElementsOf> as_they_were;
    for (const auto& [leaf, saved] : leaves_)
      if (saved.get().storage().get() != leaf.storage().get()) as_they_were.emplace_back(leaf, saved.get());
    const auto collector = make_ref<Collector>(*this);
    {
      const ThreadModeScope as_then({true, autocast_});
      ReplayGenerators replay(random_);
      StoreScope scope(collector.get());
      const std::shared_ptr<void> as_before = run_again();
      fn_(inputs);
    }
    if (collector->tensors.size() != kinds_.size())
      throw_invalid(
          fmt::format("[checkpoint] the function saved {} tensors, and {} the second time: it must compute "
                      "the same",
                      kinds_.size(), collector->tensors.size()));
    for (size_t i = 0; i < kinds_.size(); ++i)
      if (const Tensor& t = collector->tensors[i]; t.version() != collector->versions[i])
        throw_invalid(
            fmt::format("[checkpoint] the tensor {} ({}) that the function saved for the backward pass "
                        "was changed in place by {} inside it",
                        i, t.summary(), t.storage()->last_writer()));
    tensors_ = std::move(collector->tensors);
    made_ = true;
  }

  Function fn_;
  const Autocast autocast_ = autocast_mode();
  Ref<TensorStore> outer_{TensorStore::current()};  // of the checkpoint around this one
  struct Input {
    SavedTensor tensor;
    bool has_history;
    Tensor leaf;  // if it is one that needs a gradient
  };
  std::vector<Input> inputs_;
  Randomness random_;
  std::vector<std::pair<DType, Shape>> kinds_;          // of the saved tensors, by number
  std::vector<std::pair<Tensor, SavedTensor>> leaves_;  // parameters that steps read

  internal::Mutex mutex_;                      // passes on several threads may share the graph
  Tensors tensors_ TROUPE_GUARDED_BY(mutex_);  // by number, while made_
  bool made_ TROUPE_GUARDED_BY(mutex_) = false;
};

uint32_t Collector::put(const Tensor& t) {
  if (Recomputation::keeps(t)) return kNot;
  first_.check_fits(tensors.size(), t);
  tensors.push_back(t.detach());
  versions.push_back(t.version());
  return static_cast<uint32_t>(tensors.size() - 1);
}

}  // namespace

Tensors checkpoint_all(std::function<Tensors(const Tensors&)> fn, const Tensors& inputs) {
  if (!fn) throw_invalid("[checkpoint] the function is empty");
  if (!grad_enabled()) return fn(inputs);
  return make_ref<Recomputation>(std::move(fn), inputs)->run(inputs);
}

}  // namespace troupe::autograd
