// The stream that random numbers come from where no generator is given: the program's, or an actor's.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/base/generator.h"

namespace troupe {

/// Seeds for what draws random numbers: number i is that of Generator(seed). Unlike a Generator's, its
/// numbers may be drawn by several threads. So each use takes one number, and makes a Generator of its own
/// from it.
class SeedStream {
 public:
  constexpr explicit SeedStream(uint64_t seed) : seed_(splitmix64(seed)) {}
  SeedStream(const SeedStream&) = delete;

  /// The next number. While the thread's GeneratorWatch repeats a function, the one that it drew then.
  uint64_t next();
  /// The same, whoever watches.
  uint64_t take() { return Generator::number({seed_, counter_++}); }
  /// Where it is: a stream that is set there goes on with the same numbers. set_position() does nothing while
  /// the thread's GeneratorWatch repeats a function.
  Generator::Position position() const { return {seed_, counter_}; }
  void set_position(const Generator::Position& position);

 private:
  std::atomic<uint64_t> seed_, counter_{0};
};

/// Of the actor whose constructor, method or callback the thread runs; outside actors, of the program.
///
/// The program's starts from seed 0. An actor's starts from a number of the stream of whoever spawned it. So
/// the program's seed, and the order of what draws in the program and in each actor, decide about all
/// numbers, wherever the actors live.
SeedStream& current_stream();

/// Starts the current stream anew.
void manual_seed(uint64_t seed);

/// A generator from the next number of the current stream: what layers and operators use if they are given
/// none.
Generator next_generator();

}  // namespace troupe
