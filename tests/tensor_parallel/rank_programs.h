// Random programs of conversions, on ranks and in one process.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "parallel/tensor/convert.h"
#include "troupe/troupe.h"

namespace troupe::testing {

inline Tensor random(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return ops::randn(shape, generator).to(float64);
}

inline std::vector<int64_t> uneven(int64_t n, size_t ranks, uint64_t seed) {
  Generator generator(seed);
  std::vector<int64_t> sizes(ranks, 0);
  for (int64_t i = 0; i < n; ++i) ++sizes[generator.below(ranks)];
  return sizes;
}

inline Tensor piece(const Tensor& x, int64_t dim, const std::vector<int64_t>& sizes, size_t rank) {
  int64_t from = 0;
  for (size_t r = 0; r < rank; ++r) from += sizes[r];
  return ops::slice(x, dim, from, from + sizes[rank]);
}

// What a tensor is on the ranks; of own ones each rank has another, of the whole shape.
enum class Is { whole, repeated, cut0, cut1, own };

inline const Shape kShape{5, 7};

// One step of a random program: the same on all ranks.
struct Step {
  int what;
  size_t a, b;
  uint64_t seed;
};

// How values are computed with on a rank: n is the number of ranks, sizes those of the two dimensions.
struct Layout {
  size_t ranks;
  std::vector<int64_t> sizes[2];
};

inline Layout layout_of(size_t ranks, uint64_t seed) {
  return {ranks, {uneven(kShape[0], ranks, seed), uneven(kShape[1], ranks, seed + 1)}};
}

inline Tensor constant(uint64_t seed, size_t rank) { return random(kShape, seed * 16 + rank + 1); }

// That of what a cut tensor meets: the part of a whole one.
inline Tensor constant_like(Is is, uint64_t seed, size_t rank, const Layout& at) {
  switch (is) {
    case Is::whole:
      return constant(seed, 0);
    case Is::cut0:
      return piece(constant(seed, 0), 0, at.sizes[0], rank);
    case Is::cut1:
      return piece(constant(seed, 0), 1, at.sizes[1], rank);
    default:
      return constant(seed, rank + 1);
  }
}

// Of one process: whole tensors, or one for each rank.
using Global = std::pair<Is, Tensors>;

inline Tensor local(const Tensor& x, const Tensor& c, uint64_t seed) {
  return seed % 2 ? ops::sin(ops::mul(x, c)) : ops::tanh(ops::add(x, c));
}

// What a program makes of its values, one after the other; the last is a whole one of no dimensions.
class Program {
 public:
  Program(uint64_t seed, size_t ranks) : ranks_(ranks) {
    Generator generator(seed);
    for (int i = 0; i < 14; ++i)
      steps_.push_back({static_cast<int>(generator.below(4)), generator.next(), generator.next(),
                        generator.next() % 1000});
    layout_ = layout_of(ranks, seed + 100);
  }
  const Layout& layout() const { return layout_; }

  // On a rank, whose leaf is `x`, which is whole.
  Task<Tensor> run(Tensor x, Group group, size_t rank) const {
    std::vector<std::pair<Is, Tensor>> all{{Is::whole, x}};
    for (const Step& s : steps_) {
      const auto [is, a] = all[s.a % all.size()];
      if (s.what < 2) {  // something of its own kind; of a repeated one, what the rank makes of it
        const Is result = is == Is::repeated ? Is::own : is;
        all.emplace_back(result, local(a, constant_like(is, s.seed, rank, layout_), s.seed));
      } else if (const auto [other, b] = all[s.b % all.size()]; s.what == 2 && other == is) {
        all.emplace_back(is, ops::mul(a, b));
      } else {
        all.push_back(co_await convert(is, a, group, s.seed));
      }
    }
    Tensor sum;
    for (size_t i = 0; i < all.size(); ++i) {
      const Tensor one =
          co_await summed(all[i].first, ops::sum(ops::mul(all[i].second, 0.5 + double(i))), group);
      sum = sum.defined() ? ops::add(sum, one) : one;
    }
    co_return sum;
  }

  Tensor in_one_process(const Tensor& x) const {
    std::vector<Global> all{{Is::whole, {x}}};
    for (const Step& s : steps_) {
      const auto [is, a] = all[s.a % all.size()];
      if (s.what < 2) {
        Global made{is == Is::repeated ? Is::own : is, {}};
        if (made.first == Is::own)
          for (size_t r = 0; r < ranks_; ++r)
            made.second.push_back(local(a[is == Is::own ? r : 0], constant(s.seed, r + 1), s.seed));
        else
          made.second = {local(a[0], constant(s.seed, 0), s.seed)};
        all.push_back(made);
      } else if (const auto [other, b] = all[s.b % all.size()]; s.what == 2 && other == is) {
        Global made{is, {}};
        for (size_t i = 0; i < a.size(); ++i) made.second.push_back(ops::mul(a[i], b[i]));
        all.push_back(made);
      } else {
        Global made{target(is, s.seed), a};
        if (is == Is::own) made.second = {total(a)};
        all.push_back(made);
      }
    }
    Tensor sum;
    for (size_t i = 0; i < all.size(); ++i) {
      // What all ranks have each of them adds once.
      const double times = all[i].first == Is::repeated ? double(ranks_) : 1;
      const Tensor one = ops::sum(ops::mul(total(all[i].second), times * (0.5 + double(i))));
      sum = sum.defined() ? ops::add(sum, one) : one;
    }
    return sum;
  }

 private:
  static Tensor total(const Tensors& all) {
    Tensor sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum = ops::add(sum, all[i]);
    return sum;
  }
  // What a value of that kind can be made.
  static Is target(Is is, uint64_t seed) {
    switch (is) {
      case Is::whole:
        return std::array{Is::repeated, Is::cut0, Is::cut1}[seed % 3];
      case Is::cut0:
        return std::array{Is::repeated, Is::whole, Is::cut1}[seed % 3];
      case Is::cut1:
        return std::array{Is::repeated, Is::whole, Is::cut0}[seed % 3];
      case Is::own:
        return std::array{Is::whole, Is::cut0, Is::cut1}[seed % 3];
      case Is::repeated:
        return Is::repeated;
    }
    return is;
  }
  Task<std::pair<Is, Tensor>> convert(Is is, Tensor a, Group group, uint64_t seed) const {
    const Is to = target(is, seed);
    const int64_t from_dim = is == Is::cut1, to_dim = to == Is::cut1;
    const auto& from_sizes = layout_.sizes[from_dim];
    const auto& to_sizes = layout_.sizes[to_dim];
    const std::vector<int64_t> told = seed % 2 ? from_sizes : std::vector<int64_t>();  // or asked for
    Future<Tensor> y = Future<Tensor>::ready(a);
    if (is == Is::whole)
      y = Future<Tensor>::ready(to == Is::repeated ? tp::enter(a, group)
                                                   : tp::cut(a, group, to_dim, to_sizes));
    else if (is == Is::own)
      y = to == Is::whole ? tp::sum(a, group) : tp::sum_scatter(a, group, to_dim, to_sizes);
    else if (is != Is::repeated)
      y = to == Is::repeated ? tp::gather(a, group, from_dim, told)
          : to == Is::whole  ? tp::join(a, group, from_dim - 2, told)
                             : tp::exchange(a, group, from_dim, to_dim, told, to_sizes);
    Tensor made = co_await y;
    co_return std::pair(to, made);
  }
  static Future<Tensor> summed(Is is, Tensor x, Group group) {
    return is == Is::whole ? Future<Tensor>::ready(x) : tp::sum(x, group);
  }

  size_t ranks_;
  std::vector<Step> steps_;
  Layout layout_;
};

struct ProgramRank : Actor {
  explicit ProgramRank(Tensor start) : x(start.clone_data().requires_grad_()) {}
  Task<Tensor> run(Group group, int64_t seed) {
    const Program program(static_cast<uint64_t>(seed), group.size());
    co_return co_await program.run(x, group, group.rank());
  }
  // What a recorded pass has brought, as something to differentiate again.
  Tensor again() {
    const Tensor g = autograd::take_context_gradient(x);
    return ops::sum(ops::mul(g, ops::sin(g)));
  }
  Tensor gradient() { return autograd::context_gradient(x); }

  // For what fails, and for what no gradient comes to.
  Task<Tensor> fails_back(Group group, int64_t who) {
    const Tensor own = ops::mul(tp::enter(x, group), 2);
    const Tensor through = static_cast<int64_t>(group.rank()) == who ? Fails::apply(own) : own;
    co_return co_await tp::sum(ops::sum(through), group);
  }
  Task<Tensors> two(Group group) {
    Tensor used = ops::sum(ops::mul(x, 3));
    Tensor unused = co_await tp::sum(ops::sum(ops::sin(tp::enter(x, group))), group);
    co_return Tensors{used, unused};
  }
  // The gradient of one rank does not come to its conversion.
  Task<Tensor> some(Group group) {
    Tensor own = tp::enter(x, group);
    if (group.rank() == 0) own = Stops::apply(own);
    co_return co_await tp::sum(ops::sum(own), group);
  }
  struct Fails : autograd::Function<Fails> {
    static Tensor forward(Ctx&, Tensor t) { return t * 1; }
    static Tensors backward(Ctx&, Tensors) { throw_error(ErrorKind::failed, "[rank] out of luck"); }
  };
  struct Stops : autograd::Function<Stops> {
    static Tensor forward(Ctx&, Tensor t) { return t * 1; }
    static Tensors backward(Ctx&, Tensors) { return {Tensor()}; }
  };
  Task<Tensor> plain(Group group, Tensor y) { co_return co_await tp::sum(y, group); }
  Tensor x;
  static constexpr auto remote =
      methods<&ProgramRank::run, &ProgramRank::again, &ProgramRank::gradient, &ProgramRank::fails_back,
              &ProgramRank::two, &ProgramRank::some, &ProgramRank::plain>;
};

}  // namespace troupe::testing
