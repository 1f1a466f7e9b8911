// What a peer is to the cluster: one of its members, or a guest, who may do only what is open to guests. Each
// has a secret of its own, which follows from the cluster's token, so that a guest is not given the token.
#pragma once
#include <string>

#include "core/value/owned_number.h"

namespace troupe::internal::net {

enum class Standing : uint32_t { member = 0, guest = 2 };  // as a hello has it

/// Numbers from here on are those of guests, of whom no list of members has any. Those that are given end
/// where the owners of contexts do (core/value/owned_number.h).
inline constexpr WorkerId kFirstGuest = 1 << 20, kEndOfGuests = kOwners;
constexpr Standing standing_of(WorkerId id) {
  return id >= kFirstGuest && id != kNoWorker ? Standing::guest : Standing::member;
}

/// What a guest of that job has in place of the token, which does not follow from it.
std::string guest_pass(const std::string& token, const std::string& job);
/// The number of the job (net/protocol/keys.h) in such a pass; `invalid` if it is none.
uint64_t job_of_pass(const std::string& pass);

/// What one end of a link can prove, and can have proved to it.
class Credentials {
 public:
  /// `token`: the cluster's, or a guest's pass.
  Credentials(std::string token, Standing own) : token_(std::move(token)), own_(own) {}
  Standing own() const { return own_; }
  /// By which a connector of that standing, of that job, is known. A guest knows its own alone.
  std::string secret(Standing of, uint64_t job) const;

 private:
  std::string token_;
  Standing own_;
};

}  // namespace troupe::internal::net
