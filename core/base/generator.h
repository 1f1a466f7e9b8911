// Random numbers with explicit seeds: the same seed gives the same numbers everywhere.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace troupe {

/// The splitmix64 finalizer (Steele, Lea, Flood 2014): a good hash of 64 bits.
constexpr uint64_t splitmix64(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

class Generator;
class SeedStream;

/// Is told of every generator that is about to be used on its thread, and of every one that goes away; and
/// numbers of streams go through it. See autograd::checkpoint().
class GeneratorWatch {
 public:
  GeneratorWatch() : outer_(current_) { current_ = this; }
  virtual ~GeneratorWatch() { current_ = outer_; }
  GeneratorWatch(const GeneratorWatch&) = delete;
  GeneratorWatch& operator=(const GeneratorWatch&) = delete;
  static GeneratorWatch* current() { return current_; }

  /// Watches of outer scopes come first.
  void use(Generator& generator) {
    if (outer_) outer_->use(generator);
    used(generator);
  }
  void end(Generator& generator) {
    if (outer_) outer_->end(generator);
    ended(generator);
  }
  /// The number that the stream gives to this thread.
  virtual uint64_t draw(SeedStream& stream) = 0;
  /// Whether what runs has run before, and is to get the same numbers.
  virtual bool repeats() const { return false; }

 protected:
  GeneratorWatch* outer() const { return outer_; }
  virtual void used(Generator& generator) = 0;
  virtual void ended(Generator& generator) = 0;

 private:
  static inline constinit thread_local GeneratorWatch* current_ = nullptr;
  GeneratorWatch* outer_;
};

/// A stream of random numbers: number i is splitmix64 of (seed, i), so streams can be split and skipped.
/// A value; not synchronized.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(splitmix64(seed)) {}
  Generator(const Generator&) = default;
  Generator& operator=(const Generator&) = default;
  ~Generator() {
    if (GeneratorWatch* watch = GeneratorWatch::current()) [[unlikely]]
      watch->end(*this);
  }

  uint64_t next() {
    if (GeneratorWatch* watch = GeneratorWatch::current()) [[unlikely]]
      watch->use(*this);
    return number({seed_, counter_++});
  }
  /// In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Standard normal (Box-Muller; one of the pair).
  double normal() {
    const double r = std::sqrt(-2 * std::log(1 - uniform()));
    return r * std::cos(2 * std::numbers::pi * uniform());
  }
  /// In [0, n), n > 0; unbiased to 2^-64 (Lemire's multiplication).
  uint64_t below(uint64_t n) { return static_cast<uint64_t>((static_cast<__uint128_t>(next()) * n) >> 64); }
  /// Numbers 0 .. n-1 in random order (Fisher-Yates).
  std::vector<int64_t> permutation(int64_t n) {
    std::vector<int64_t> p(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) p[static_cast<size_t>(i)] = i;
    for (int64_t i = n - 1; i > 0; --i)
      std::swap(p[static_cast<size_t>(i)], p[below(static_cast<uint64_t>(i) + 1)]);
    return p;
  }
  /// Where the stream is: a generator that is set there goes on with the same numbers.
  struct Position {
    uint64_t seed = 0, counter = 0;
    bool operator==(const Position&) const = default;
  };
  Position position() const { return {seed_, counter_}; }
  /// What next() gives at a position.
  static constexpr uint64_t number(const Position& at) {
    return splitmix64(at.seed + 0x9e3779b97f4a7c15 * at.counter);
  }
  void set_position(const Position& p) { seed_ = p.seed, counter_ = p.counter; }

  /// An independent stream.
  Generator split(uint64_t stream) const { return Generator(seed_ ^ splitmix64(stream + 1)); }

 private:
  uint64_t seed_, counter_ = 0;
};

/// A parameter that takes any generator, a temporary one too: rand({3}, Generator(5)).
class AnyGenerator {
 public:
  AnyGenerator(Generator& generator) : generator_(generator) {}
  AnyGenerator(Generator&& generator) : generator_(generator) {}
  operator Generator&() const { return generator_; }
  uint64_t next() const { return generator_.next(); }
  double uniform() const { return generator_.uniform(); }
  double uniform(double low, double high) const { return generator_.uniform(low, high); }
  double normal() const { return generator_.normal(); }
  uint64_t below(uint64_t n) const { return generator_.below(n); }
  std::vector<int64_t> permutation(int64_t n) const { return generator_.permutation(n); }

 private:
  Generator& generator_;
};

}  // namespace troupe
