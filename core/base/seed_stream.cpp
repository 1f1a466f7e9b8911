#include "core/base/seed_stream.h"

#include "core/base/call_frame.h"

namespace troupe {

uint64_t Stream::next() {
  if (GeneratorWatch* watch = GeneratorWatch::current()) [[unlikely]]
    return watch->draw(*this);
  return take();
}

void Stream::set_position(const Generator::Position& position) {
  if (const GeneratorWatch* watch = GeneratorWatch::current(); watch && watch->repeats()) return;
  seed_ = position.seed, counter_ = position.counter;
}

Stream& current_stream() {
  static constinit Stream program(0);
  Stream* of_actor = frame().stream;
  return of_actor ? *of_actor : program;
}

void manual_seed(uint64_t seed) { current_stream().set_position(Generator(seed).position()); }

Generator next_generator() { return Generator(current_stream().next()); }

}  // namespace troupe
