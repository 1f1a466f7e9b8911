// The speeds of links within a host and between hosts.
#pragma once
#include <string>

namespace troupe::internal::collective {

/// What the slowest member of a group has measured, and all of them know. Zeros where there is no such link.
struct Links {
  double near_round = 0;  ///< seconds, in which the members of a host send each other next to nothing
  double near_rate = 0;   ///< bytes in a second, from a member to the others of its host
  double far_round = 0;   ///< likewise, one member of each host
  double far_rate = 0;    ///< bytes in a second, from a host to the others
  bool operator==(const Links&) const = default;
};
/// "between hosts 120 us and 0.12 GB/s, within a host 4 us and 5.1 GB/s"
std::string text_of(const Links& links);

}  // namespace troupe::internal::collective
