#include "parallel/tensor/check_ranks.h"

#include <fmt/format.h>

#include <bit>
#include <cstdlib>
#include <string_view>

#include "core/base/generator.h"
#include "core/tensor/creation.h"

namespace troupe::tp {

namespace {

int64_t hash_of(const Tensor& x) {
  if (!x.defined()) return 0;
  uint64_t hash = static_cast<uint64_t>(x.numel()) + 1;
  for (const double v : x.detach().to_vector<double>()) hash = splitmix64(hash ^ std::bit_cast<uint64_t>(v));
  return static_cast<int64_t>(hash);
}

}  // namespace

bool checks_ranks() {
  const char* const text = std::getenv("TROUPE_CHECK_RANKS");
  const std::string_view value = text ? text : "";
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  throw_invalid(fmt::format("TROUPE_CHECK_RANKS is \"{}\", expected 0 or 1", value));
}

Future<void> same_on_ranks(const Tensor& x, const Meeting& at, const char* direction) {
  const CollectiveOptions options{.tag = at.of("check").tag,
                                  .rows = std::vector<int64_t>(at.group.size(), 1)};
  const auto hashes = at.group.all_gather(full({1}, Scalar(hash_of(x)), int64), options);
  return hashes.then([at, direction, what = x.defined() ? x.summary() : "nothing"](const Tensor& all) {
    const auto of_ranks = all.to_vector<int64_t>();
    for (size_t r = 1; r < of_ranks.size(); ++r)
      if (of_ranks[r] != of_ranks[0])
        throw_invalid(fmt::format(
            "[{}] rank {} ({}) has other elements than rank 0 ({}) {}, where all are to have the same; "
            "here it is {}",
            at.tag, r, at.group.label(r), at.group.label(0), direction, what));
  });
}

}  // namespace troupe::tp
