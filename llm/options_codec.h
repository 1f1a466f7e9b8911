// A decoder's options travel in messages.
#pragma once
#include <string>

#include "core/codec/codec.h"
#include "llm/decoder_options.h"

namespace troupe {

template <>
struct Codec<llm::DecoderOptions> {
  static std::string name() { return "llm::DecoderOptions"; }
  static Value to(llm::DecoderOptions options);
  static llm::DecoderOptions from(Value v);
};

}  // namespace troupe
