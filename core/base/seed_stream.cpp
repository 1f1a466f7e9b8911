#include "core/base/seed_stream.h"

#include "core/base/call_frame.h"

namespace troupe {

uint64_t SeedStream::next() {
  if (GeneratorWatch* watch = GeneratorWatch::current()) [[unlikely]]
    return watch->draw(*this);
  return take();
}

void SeedStream::set_position(const Generator::Position& position) {
  if (const GeneratorWatch* watch = GeneratorWatch::current(); watch && watch->repeats()) return;
  seed_ = position.seed, counter_ = position.counter;
}

SeedStream& current_stream() {
  static constinit SeedStream program(0);
  SeedStream* of_actor = frame().seed_stream;
  return of_actor ? *of_actor : program;
}

void manual_seed(uint64_t seed) { current_stream().set_position(Generator(seed).position()); }

Generator next_generator() { return Generator(current_stream().next()); }

}  // namespace troupe
