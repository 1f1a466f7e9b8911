// Which elements of a bucket belong to which member of a group: a pure function of their counts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::parallel {

/// The parameters of a bucket lie one behind the other, and each member has a range of that, as long as those
/// of the others up to 64 bytes of float32. Ranges may be empty.
class BucketCuts {
 public:
  /// Of one parameter, in a member's range.
  struct Part {
    size_t parameter = 0;  ///< its place in the bucket
    int64_t from = 0;      ///< its first element there
    int64_t count = 0;
    bool operator==(const Part&) const = default;
  };
  /// `counts`: elements of the parameters.
  BucketCuts(const std::vector<int64_t>& counts, size_t ranks);
  const std::vector<Part>& parts(size_t rank) const& { return parts_.at(rank); }
  std::vector<Part> parts(size_t rank) && { return std::move(parts_.at(rank)); }
  /// Elements of each member.
  const std::vector<int64_t>& elements() const& { return elements_; }
  std::vector<int64_t> elements() && { return std::move(elements_); }

 private:
  std::vector<std::vector<Part>> parts_;
  std::vector<int64_t> elements_;
};

}  // namespace troupe::parallel
