#include "optim/whole_parameters.h"

#include <fmt/format.h>

#include <atomic>

#include "core/base/error.h"

namespace troupe::optim {

bool needs_whole_parameters(std::string_view optimizer) {
  return optimizer == "lamb" || optimizer == "adafactor" || optimizer == "muon";
}

}  // namespace troupe::optim

namespace troupe::internal {
namespace {

std::atomic<PieceWord*> piece_word = nullptr;

}  // namespace

void set_piece_word(PieceWord* word) { piece_word = word; }

void require_whole(const char* optimizer, const Tensors& params) {
  PieceWord* const word = piece_word;
  for (size_t i = 0; word && i < params.size(); ++i)
    if (const char* how = params[i].defined() ? word(params[i]) : nullptr)
      throw_invalid(
          fmt::format("[{}] looks at whole parameters, and of parameter {} there is a piece here, {} ({}): "
                      "take adamw",
                      optimizer, i, params[i].summary(), how));
}

}  // namespace troupe::internal
